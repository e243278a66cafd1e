"""Parts of your own from a Python file: the one place where a user's code is run, and only when the user asks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from ocssl.errors import SettingError


def load_parts(file: Path | None) -> None:
    """Run a Python file, so that the rules, objectives and terms that it registers have names."""
    if file is None:
        return
    if file.suffix != ".py" or not file.is_file():
        raise SettingError(f"cannot read parts from {file}: it is not a Python file.")
    name = f"ocssl_parts_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise SettingError(f"cannot read parts from {file}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # classes look their module up by name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise SettingError(f"{file} fails: {type(error).__name__}: {' '.join(str(error).split())}.") from error
