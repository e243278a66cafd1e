"""The benchmark of start-up: fresh processes, and what they import."""

from __future__ import annotations

import math

import pytest

from ocssl.bench import start
from ocssl.errors import OcsslError

pytestmark = pytest.mark.process


def test_both_waits_are_told_with_their_sum_and_a_bar() -> None:
    rows = {row.name: row for row in start.waits(1)}
    assert list(rows) == ["import ocssl and ocssl --help", "python alone", "import ocssl", "ocssl --help"]
    middle = {name: row.value.middle for name, row in rows.items()}
    assert all(math.isfinite(value) and value > 0 for value in middle.values())
    assert middle["import ocssl and ocssl --help"] == middle["import ocssl"] + middle["ocssl --help"]
    assert [name for name, row in rows.items() if row.bar] == ["import ocssl and ocssl --help"]


def test_neither_imports_torch_and_the_help_is_really_made() -> None:
    assert start.imported(start.IMPORT, "torch") == 0
    assert start.imported(start.HELP, "torch") == 0
    assert start.imported(start.HELP, "cyclopts") > 0
    assert start.imported(start.HELP, "rich") > 0


@pytest.mark.parametrize(("name", "count"), [("torch", 1), ("torch.nn", 1), ("torchvision", 1), ("mytorch", 0)])
def test_a_module_of_torch_would_be_counted(name: str, count: int) -> None:
    code = f"{start.IMPORT}\nimport sys, types; sys.modules[{name!r}] = types.ModuleType('fake')"
    assert start.imported(code, "torch") == count


def test_a_process_that_fails_is_not_timed() -> None:
    with pytest.raises(OcsslError, match=r"ended with 1: ValueError: no such thing\.$"):
        start.python("-c", "raise ValueError('no such thing')")
