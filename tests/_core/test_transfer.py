"""Memory that tensors give back stays with the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ocssl._core import transfer

pytestmark = pytest.mark.process

FAULTS = """
import resource, sys, torch
from ocssl._core.transfer import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for number in range(20):
    if number == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(40_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux with glibc")
def test_a_large_tensor_made_again_takes_no_new_pages() -> None:
    """A busy system may take pages from any process, so the best of three counts."""
    assert min(faults("keep") for _ in range(3)) < faults("plain") / 2


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer.sys, "platform", "darwin")
    assert not transfer.keep_freed_memory()


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer.ctypes, "CDLL", lambda name: object())
    assert not transfer.keep_freed_memory()
