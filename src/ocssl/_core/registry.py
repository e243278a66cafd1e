"""Registries: the names that settings may use, and the parts that they stand for."""

import importlib.util
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from ocssl.errors import SettingError, unknown

T = TypeVar("T")
P = TypeVar("P", bound=type[Any])


class Registry(Generic[T]):
    """Names to classes. A class's keyword-only arguments are its options, checked when it is built.

    >>> from dataclasses import dataclass
    >>> rules = Registry("keep rule")
    >>> @rules.add("newest")
    ... @dataclass(kw_only=True)
    ... class Newest:
    ...     patience: int = 3
    >>> rules.build("newest", {"patience": "5"}).patience
    5
    """

    def __init__(self, kind: str, names: set[str] | None = None) -> None:
        self.kind = kind
        self._names = set() if names is None else names  # taken; another registry's too if it is handed in
        self._parts: dict[str, type[T]] = {}

    def add(self, name: str) -> Callable[[P], P]:
        """Class decorator: register a part under a name."""

        def register(part: P) -> P:
            if name in self._names:
                raise ValueError(f"{self.kind} {name!r} is registered twice, or a rule of another kind has its name")
            if not re.fullmatch(r"[\w-]+", name, re.ASCII):
                raise ValueError(f"{self.kind} {name!r}: a name has letters, digits, - and _ only")
            self._parts[name] = part
            for key, option in self.options(name).items():
                if option.default is inspect.Parameter.empty:
                    del self._parts[name]
                    raise ValueError(f"{self.kind} {name!r}: its option {key} has no default")
            self._names.add(name)
            return part

        return register

    def __getitem__(self, name: str) -> type[T]:
        if name not in self._parts:
            raise unknown(self.kind, name, self._parts)
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._parts))

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def summary(self, name: str) -> str:
        """The first line of the part's docstring."""
        return (self[name].__doc__ or "").strip().partition("\n")[0]

    def options(self, name: str) -> dict[str, inspect.Parameter]:
        """The keyword-only arguments of the part, by name."""
        parameters = inspect.signature(self[name]).parameters
        return {k: p for k, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}

    def complete(self, name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The options with the defaults of those that are not given; an option that defaults to None is left out."""
        defaults = {key: parameter.default for key, parameter in self.options(name).items()}
        return {key: value for key, value in {**defaults, **(options or {})}.items() if value is not None}

    def build(self, name: str, options: Mapping[str, Any] | None = None, *wiring: Any) -> T:
        """Make the part from its wiring (other parts) and its options; a wrong option is a SettingError."""
        return self[name](*wiring, **self.check(name, options))

    def check(self, name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The options in their types; a wrong one is a SettingError."""
        part = self[name]
        known = self.options(name)
        hints = get_type_hints(part.__init__, include_extras=True)
        checked = {}
        for key, value in (options or {}).items():
            if key not in known:
                raise unknown(f"option of {self.kind} {name!r}:", key, known)
            try:
                checked[key] = TypeAdapter(hints.get(key, Any)).validate_python(value)
                if isinstance(value, bool) and not isinstance(checked[key], bool):
                    raise SettingError(f"{self.kind} {name!r}: option {key} is {value!r}: it is not a switch.")
                if isinstance(checked[key], float) and not math.isfinite(checked[key]):
                    raise SettingError(f"{self.kind} {name!r}: option {key} is {value!r}: a finite number is wanted.")
            except ValidationError as error:
                reason = error.errors()[0]["msg"]
                raise SettingError(f"{self.kind} {name!r}: option {key} is {value!r}: {reason}.") from None
        return checked


def load_parts(file: Path | None) -> None:
    """Run a Python file of the user, which registers parts: the one place where a user's code is executed."""
    if file is None:
        return
    if not file.exists():
        raise SettingError(f"there is no file {file}; --parts takes a Python file that registers your parts.")
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
