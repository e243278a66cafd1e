"""Commands with little address space: what was wanted, what is free, what to lower; the last checkpoint stays good."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_odd_places import RUN, one_sentence, shell

from ocssl._core import checkpoint

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs limits of address space and /proc"),
]
SCRIPT = """
import resource, sys, torch
from pathlib import Path
from ocssl import Learner
from ocssl.cli import main

fit = Learner.partial_fit
def greedy(self, images, ids=None):
    if self.seen >= 40:
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + 2**26, resource.RLIM_INFINITY))
        torch.ones(2**30, dtype=torch.uint8)
    return fit(self, images, ids)
Learner.partial_fit = greedy
main(sys.argv[1:])
"""


def words(out: Path) -> list[str]:
    settings = [*RUN.split(), "--set", "stream.train=30", "--set", "checkpoint.every=2"]
    return ["run", "solar", "synthetic", "--quiet", "--out", str(out), *settings]


def last_state(folder: Path) -> str:
    """The name of the last tensor file, which is its checksum."""
    return next(checkpoint.newest(folder).glob("state-*")).name


def test_a_run_out_of_memory_says_what_to_lower_and_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    here = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words(tmp_path / "r")], env=here, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1, done.stderr
    assert one_sentence(done.stderr)
    assert "1,073,741,824 bytes were wanted" in done.stderr
    assert "that ulimit -v allows" in done.stderr
    assert "lower " in done.stderr
    assert f"The last good checkpoint is {tmp_path / 'r' / 'checkpoints' / '00000004'}." in done.stderr
    assert shell(f"{sys.executable} -m ocssl resume r --quiet", tmp_path) == (0, "")
    line = " ".join(words(Path("whole")))
    assert shell(f"{sys.executable} -m ocssl {line}", tmp_path) == (0, "")
    assert last_state(tmp_path / "r") == last_state(tmp_path / "whole")


def test_without_room_for_torch_a_command_says_so_and_makes_nothing(tmp_path: Path) -> None:
    line = " ".join(words(Path("r")))
    code, said = shell(f"ulimit -v 500000; {sys.executable} -m ocssl {line}", tmp_path)
    assert code == 1
    assert one_sentence(said)
    assert "PyTorch alone takes about" in said
    assert not (tmp_path / "r").exists()
    assert shell(f"ulimit -v 500000; {sys.executable} -m ocssl --help", tmp_path) == (0, "")
