"""The numbers of docs/threat-model.md are those of the code and of `make torture`."""

from __future__ import annotations

import importlib
import re
import sys

import pytest

from conftest import ROOT

PAGE = (ROOT / "docs" / "threat-model.md").read_text()
LIMITS = re.findall(r"^\| [^|]+ \| ([\d,]+) \| `(ocssl\.[\w.]+)` \|$", PAGE, flags=re.MULTILINE)


def value(name: str) -> int:
    parts = name.split(".")
    owner = next(k for k, part in enumerate(parts) if part[0].isupper())  # a constant, or a class that has it
    found = importlib.import_module(".".join(parts[:owner]))
    for part in parts[owner:]:
        found = getattr(found, part)
    assert isinstance(found, int)
    return found


def test_there_are_limits_on_the_page() -> None:
    assert len(LIMITS) > 20


@pytest.mark.parametrize(("said", "name"), LIMITS, ids=[name for _, name in LIMITS])
def test_a_limit_on_the_page_is_that_of_the_code(said: str, name: str) -> None:
    assert int(said.replace(",", "")) == value(name)


def test_the_mutants_on_the_page_are_those_of_torture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "tests" / "faults"), *sys.path])
    from readers import READERS

    told = [int(n.replace(",", "")) for n in re.findall(r"^\| damaged [^|]+ \| ([\d,]+) \|", PAGE, flags=re.MULTILINE)]
    kinds = [
        ("image",),
        ("manifest", "facts", "header", "tensors"),
        ("parquet",),
        ("vectors",),
        ("weights",),
        ("recipe", "settings", "sweep"),
    ]
    kinds += [("events", "metrics"), ("archive", "pickle"), ("shard",)]
    assert told == [sum(READERS[name].many for name in kind) for kind in kinds]
    assert READERS.keys() == {name for kind in kinds for name in kind}
