"""The long stream of benchmarks/: an image is a function of its position, and a kill changes nothing."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from conftest import ROOT
from ocssl._core import checkpoint
from ocssl.learner import Learner

SCRIPT = ROOT / "benchmarks" / "long_stream.py"
SMALL = ["--images", "2000", "--memory", "60", "--save-every", "250"]
KILLER = """
import os, runpy, signal, sys
from ocssl.learner import Learner
save, calls = Learner.save, []
def die(self, folder, extra=None):
    calls.append(self.seen)
    if len(calls) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    save(self, folder, extra)
Learner.save = die
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("long_stream", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def whole(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What a run without a kill finds, read back from its file."""
    output = tmp_path_factory.mktemp("whole") / "found.json"
    found = script.main([*SMALL, "-o", str(output)])
    assert json.loads(output.read_text()) == found
    return found


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_end(script: ModuleType, whole: dict, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLER, str(SCRIPT), *SMALL, "--folder", str(tmp_path)]
    killed = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    _, facts = checkpoint.read(tmp_path)
    assert facts["seen"] == 750  # of 1000, whose save was cut off
    found = script.main([*SMALL, "--folder", str(tmp_path)])
    assert found["began_at"] == [0, 750]
    assert found["state"] == whole["state"]
    assert [tenth["images"] for tenth in found["tenths"]] == [tenth["images"] for tenth in whole["tenths"]]
    again = script.main([*SMALL, "--folder", str(tmp_path)])  # nothing is left to do
    assert again["state"] == whole["state"]
    assert again["tenths"] == found["tenths"]


def test_every_tenth_is_told(whole: dict) -> None:
    assert [(t["images"], t["steps"]) for t in whole["tenths"]] == [(200 * n, 4) for n in range(1, 11)]
    for tenth in whole["tenths"]:
        figures = [*tenth["ms"], *tenth["processor_ms"], tenth["resident_mb"]]
        assert all(math.isfinite(figure) and figure > 0 for figure in figures)
        assert tenth["ms"] == sorted(tenth["ms"])
    first, last = whole["tenths"][0], whole["tenths"][-1]
    assert whole["last_to_first"]["ms"] == last["ms"][1] / first["ms"][1]
    assert whole["last_to_first"]["resident_mb"] == last["resident_mb"] / first["resident_mb"]


def test_the_state_is_another_after_one_more_minibatch(script: ModuleType) -> None:
    learner, _ = script.started(None, 100, seed=0, capacity=20)
    stream, states = script.Endless(0), []
    for number in range(3):
        learner.partial_fit(stream[number])
        states.append(script.state(learner))
    assert len(set(states)) == 3
    assert script.state(learner) == states[-1]


def test_the_memory_holds_all_statistics(script: ModuleType) -> None:
    learner, _ = script.started(None, 100, seed=0, capacity=20)
    assert {"loss", "feature", "angle"} <= set(learner.memory.store)
    learner.partial_fit(script.Endless(0)[0])
    store = learner.memory.store
    assert all(bool((store[name] != 0).any()) for name in ("loss", "feature", "angle"))


def test_a_minibatch_depends_on_its_number_alone(script: ModuleType) -> None:
    stream = script.Endless(0)
    forwards = [stream[number] for number in range(5)]
    torch.rand(3)  # nobody else's random numbers matter
    backwards = [script.Endless(0)[number] for number in reversed(range(5))][::-1]
    assert all(torch.equal(a, b) for a, b in zip(forwards, backwards, strict=True))
    assert len({images.numpy().tobytes() for images in forwards}) == 5
    assert not torch.equal(script.Endless(1)[0], forwards[0])
    assert forwards[0].shape == (50, 3, 8, 8)
    assert forwards[0].dtype == torch.uint8


def test_the_stream_changes(script: ModuleType) -> None:
    stream = script.Endless(0)
    later = script.CHANGE // script.BATCH
    near, far = stream.pool[0].float().mean(0), stream.pool[1].float().mean(0)
    for number, (own, other) in {0: (near, far), later - 1: (near, far), later: (far, near)}.items():
        images = torch.cat([stream[number + later * script.CLASSES * k] for k in range(20)]).float().mean(0)
        assert (images - own).norm() < (images - other).norm()


def test_a_folder_of_another_stream_is_refused(script: ModuleType, tmp_path: Path) -> None:
    learner, found = script.started(None, 100, seed=0, capacity=20)
    learner.save(tmp_path, found)
    with pytest.raises(SystemExit, match="another stream"):
        script.started(tmp_path, 200, seed=0, capacity=20)


@pytest.mark.parametrize("words", [["--images", "150"], ["--images", "0"], ["--save-every", "5"]])
def test_sizes_that_do_not_divide_are_refused(script: ModuleType, words: list[str]) -> None:
    with pytest.raises(SystemExit):
        script.main(words)


def test_loading_gives_a_learner(script: ModuleType, tmp_path: Path) -> None:
    script.main(["--images", "500", "--memory", "20", "--folder", str(tmp_path)])
    assert Learner.load(tmp_path).seen == 500
