"""A sweep on a real Ray cluster of two nodes, one of which is killed: the same numbers, from the last checkpoint."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from conftest import SMALL_STREAM, small_settings
from ocssl import __version__
from ocssl.errors import SettingError, install
from ocssl.launch import ray_worker
from ocssl.launch.process_pool import RunQueue
from ocssl.launch.ray_worker import Update, pack, run_here
from ocssl.launch.run_process import EventReader
from ocssl.runs.config import resolve_run
from ocssl.runs.events import read_events
from ocssl.runs.folder import CHECKPOINTS, EVENTS, complete_checkpoints, create, finished
from ocssl.runs.progress import Bars, Progress
from ocssl.runs.run import execute
from ocssl.runs.stop import Stop

pytestmark = pytest.mark.process

LONG = {"stream.train": 60, "checkpoint.every": 2}
SLOWLY = """
import time
from ocssl.learner import Learner

fit = Learner.partial_fit

def partial_fit(self, *args, **kwargs):
    time.sleep(0.2)  # so that a node is killed in the middle of a run, however fast the machine is
    return fit(self, *args, **kwargs)

Learner.partial_fit = partial_fit
"""


def make(folder: Path, method: str, **more: Any) -> Path:
    create(folder, resolve_run(method, "synthetic", 0, {**small_settings(method), **SMALL_STREAM, **more}))
    return folder


def quiet() -> Bars:
    return Bars(Console(file=io.StringIO()), quiet=True)


@pytest.fixture
def two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"):
        monkeypatch.setenv(name, "0")
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("OCSSL_SCRATCH", str(tmp_path / "scratch"))
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    seen = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
    nodes = Cluster(initialize_head=True, head_node_args={**small, "_system_config": seen})
    try:
        yield nodes, nodes.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    finally:
        nodes.shutdown()


@pytest.mark.usefixtures("one_thread")
def test_a_killed_node_loses_nothing_but_time(two_nodes: Any, tmp_path: Path) -> None:
    from ocssl.launch.ray_cluster import cluster, run_on_cluster

    nodes, second = two_nodes
    folders = {method: make(tmp_path / "out" / method, method, **LONG) for method in ("solar", "er-fifo")}
    parts = tmp_path / "slowly.py"
    parts.write_text(SLOWLY)
    killed: list[tuple[str, int]] = []
    text = io.StringIO()

    def kill_after_a_checkpoint(name: str, node: str, update: Update) -> None:
        if node == second.node_id and update.position and not killed:
            killed.append((name, update.position))
            nodes.remove_node(second, allow_graceful=False)

    with cluster(nodes.address):
        slowly = ["--parts", str(parts)]
        bars = Bars(Console(file=text, width=300))
        failures = run_on_cluster(folders, bars, Stop(), options=slowly, received=kill_after_a_checkpoint)
    assert failures == {}
    [(lost, position)] = killed
    assert f"{lost} was lost and resumes elsewhere" in text.getvalue()
    resumed = [event["position"] for event in read_events(folders[lost] / EVENTS) if event["event"] == "resume"]
    assert resumed == [position] or (len(resumed) == 1 and resumed[0] > position)
    for method, folder in folders.items():
        alone = execute(make(tmp_path / "alone" / method, method, **LONG), Progress(quiet()), Stop())
        here = finished(folder)
        assert alone is not None
        assert here is not None
        assert {**here, "seconds": 0} == {**alone, "seconds": 0}
        assert len(complete_checkpoints(folder)) == 2
        assert len(complete_checkpoints(folder, "snapshots")) == 3


def test_a_node_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCSSL_SCRATCH", str(tmp_path))
    folder = make(tmp_path / "run", "solar", **{"data.path": "/no/such/place"})
    for version, complaint in ((__version__, "there is no /no/such/place on"), ("0.0", "install the same")):
        [update] = run_here("run", pack(folder), 1, [], version, lambda: False)
        assert update.ended
        assert complaint in str(update.failure)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_run_that_is_lost_again_and_again_is_given_up_and_one_that_comes_further_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ocssl.launch import ray_cluster

    monkeypatch.setattr(ray_cluster._Driver, "_make_stop_flag", lambda self: None)
    folders = {name: make(tmp_path / name, "solar") for name in ("run", "other")}
    driver = ray_cluster._Driver(RunQueue(folders, quiet()), 1, "cpu", (), None)
    assert driver.queue.take() == "run"
    task = ray_cluster._Task("run", 2, ExitStack(), EventReader(folders["run"] / EVENTS))
    further = Update(files={f"{CHECKPOINTS}/00000002/checkpoint.json": b"{}"})
    for _ in range(3 * ray_cluster.RETRIES):
        driver._lose("run", RuntimeError("gone"))
        assert driver.queue.take() == "run"
        assert not driver._handle(task, "", further)
    for _ in range(ray_cluster.RETRIES):
        driver._lose("run", RuntimeError("gone"))
        assert driver.queue.take() == "run"
    driver._lose("run", RuntimeError("gone"))
    assert driver.queue.failures.keys() == {"run"}
    assert driver.queue.take() == "other"


def test_what_killed_tasks_left_on_a_node_is_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCSSL_SCRATCH", str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    others = ["ocssl-elsewhere-1-x", f"{ray_worker._scratch_prefix()}{os.getpid()}-x", "mine"]
    for name in (f"{ray_worker._scratch_prefix()}{gone.pid}-x", *others):
        (tmp_path / name / "run").mkdir(parents=True)
    folder = make(tmp_path / "run", "solar", **{"data.path": "/no/such/place"})
    assert list(run_here("run", pack(folder), 1, [], __version__, lambda: False))
    assert {path.name for path in tmp_path.iterdir()} == {*others, "run"}


def test_rays_client_is_refused_in_a_sentence() -> None:
    from ocssl.launch.ray_cluster import cluster

    with pytest.raises(SettingError, match="--ray auto"), cluster("ray://head:10001"):
        pass


def test_ray_is_asked_for_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from ocssl.launch.ray_cluster import cluster

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingError, match=re.escape(install("ray"))), cluster("auto"):
        pass
