"""What the metrics hold beside their input does not grow with the samples: peaks of processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

pytest.importorskip("resource", reason="needs the peak memory of a process, which this system does not tell")

SMALL, LARGE = 1, 3  # times the samples
GROWTH = 7.0  # MB allowed: numbers per sample, and noise
BLOCKS = 64.0  # MB: the blocks that docstrings speak of, at the sizes used here


@pytest.fixture(scope="module")
def peaks():
    command = [sys.executable, Path(__file__).with_name("peak_memory.py"), str(SMALL), str(LARGE)]
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**18)}  # glibc gives freed blocks back at once
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


METRICS = ["overlap_count_from", "deviation", "deviation near 0", "sample_angles", "alignment", "alignment 3"]


@pytest.mark.parametrize("metric", [*METRICS, "uniformity", "uniformity of all", "spectrum"])
def test_memory_does_not_grow_with_the_samples(peaks, metric):
    small, large = peaks[f"{metric} x{SMALL}"], peaks[f"{metric} x{LARGE}"]
    assert large["input"] - small["input"] > 1.3 * GROWTH  # a copy of the input would be seen
    assert large["extra"] - small["extra"] < GROWTH
    assert large["extra"] < BLOCKS


def test_a_metric_that_copies_its_input_would_be_seen(peaks):
    small, large = peaks[f"a copy x{SMALL}"], peaks[f"a copy x{LARGE}"]
    assert large["extra"] - small["extra"] > GROWTH
