"""A stand-in for torchvision, with which timm can be imported where torchvision cannot: names only, nothing works."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _Names(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Names(name, (), {})
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        made = _Module(spec.name)
        made.__dict__["__version__"] = "0.0.0"
        return made

    def exec_module(self, module: ModuleType) -> None:
        pass


def require_timm() -> Any:
    """timm, or the reason why a test is skipped."""
    import pytest

    if find_spec("timm") is None:
        pytest.skip("timm is not installed: pip install --no-deps timm")
    return import_timm()


def import_timm() -> Any:
    """timm, by the stand-in where torchvision is missing; the stand-in is gone afterwards."""
    if "timm" in sys.modules:
        return sys.modules["timm"]
    try:
        import timm
    except (ImportError, RuntimeError, OSError, AttributeError):
        for name in [n for n in sys.modules if n.partition(".")[0] in ("timm", "torchvision")]:
            del sys.modules[name]
        finder = _Finder()
        sys.meta_path.insert(0, finder)
        try:
            import timm
        finally:
            sys.meta_path.remove(finder)
            for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
                del sys.modules[name]
    return timm
