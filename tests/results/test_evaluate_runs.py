"""Looking back at a run: the same numbers as on the way, from any checkpoint, and nothing in its folder changes."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from conftest import SMALL_STREAM, small_settings, wait_for
from ocssl._core.random import generator_for
from ocssl.cli import main
from ocssl.data import load_benchmark
from ocssl.errors import RunFolderError, SettingError
from ocssl.evaluate.evaluation import evaluate, measure_views
from ocssl.evaluate.overlap_metric import overlap_count_from
from ocssl.learner import Learner
from ocssl.results.evaluate_runs import Inspection, _places, diagnose_run, evaluate_run
from ocssl.runs.config import read_settings, resolve_run
from ocssl.runs.folder import create
from ocssl.runs.progress import Bars, Progress
from ocssl.runs.run import execute
from ocssl.runs.snapshots import load_snapshot, saved_states, select_states
from ocssl.runs.stop import Stop, Stopped

pytestmark = pytest.mark.process

MORE = {"schedule.stream_batch": 5, "checkpoint.every": 4, "evaluate.per_task": True, "stream.test": 20}


def quiet() -> Bars:
    return Bars(Console(), quiet=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("looking") / "run"
    create(folder, resolve_run("solar", "synthetic", 3, {**small_settings("solar"), **SMALL_STREAM, **MORE}))
    assert execute(folder, Progress(quiet()), Stop()) is not None
    return folder


def evaluated(
    folder: Path, which: str = "all", probes: Any = None, workers: int = 1, per_task: bool = False
) -> dict[str, Any]:
    return evaluate_run(Inspection(folder, quiet(), which, workers=workers), probes, per_task, "none")


def diagnosed(folder: Path, which: str, workers: int = 1) -> dict[str, Any]:
    parts = ["stream", "memory", "test"]
    return diagnose_run(Inspection(folder, quiet(), which, workers=workers), parts, 0, 3, True)


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module")
def found(run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What two processes find at all checkpoints; the run folder is not touched by it."""
    before = contents(run)
    pair = evaluated(run, probes=["ridge", "linear", "knn"], per_task=True, workers=2), diagnosed(run, "all", workers=2)
    assert contents(run) == before
    return pair


Pair = tuple[dict[str, Any], dict[str, Any]]


def test_a_look_back_finds_what_was_found_on_the_way(run: Path, found: Pair) -> None:
    metrics = json.loads((run / "metrics.json").read_text())
    probes, latent = found
    ends = [row for row in probes["checkpoints"] if row["at_end"]]
    assert [row["ridge"]["accuracy"] for row in ends] == metrics["accuracies"]
    assert probes["summary"]["ridge"]["final"] == metrics["final_accuracy"]
    assert probes["summary"]["ridge"]["average"] == pytest.approx(metrics["average_accuracy"])
    assert probes["summary"]["ridge"]["start"] == metrics["start_accuracy"]
    assert probes["summary"]["ridge"]["tasks"]["matrix"] == metrics["tasks"]["matrix"]
    assert np.array(metrics["tasks"]["matrix"]).shape == (2, 2)
    assert len(latent["checkpoints"]) == len(probes["checkpoints"]) == len(saved_states(run))


def test_the_number_of_processes_changes_no_number(run: Path, found: Pair) -> None:
    alone = evaluated(run, "7,14", ["ridge", "linear", "knn"], per_task=True), diagnosed(run, "7,14")
    for one, two in zip(alone, found, strict=True):
        assert one["checkpoints"] == [row for row in two["checkpoints"] if row["position"] in (7, 14)]


def test_a_stop_leaves_the_look_at_once(run: Path) -> None:
    stop = Stop(signal.SIGTERM)
    with pytest.raises(Stopped):
        diagnose_run(Inspection(run, quiet(), workers=1, stop=stop), ["stream"], 0, 200, False)
    assert not multiprocessing.active_children()


def test_a_process_that_is_killed_is_one_sentence(run: Path) -> None:
    watch = threading.Thread(target=kill_children)
    watch.start()
    with pytest.raises(RunFolderError, match="--workers"):
        diagnose_run(Inspection(run, quiet(), workers=1), ["stream"], 0, 20000, False)
    watch.join()


def kill_children() -> None:
    wait_for(lambda: bool(multiprocessing.active_children()))
    for child in multiprocessing.active_children():
        child.kill()


def test_processes_that_look_end_with_their_parent_however_it_ends(run: Path) -> None:
    words = ["diagnose", str(run), "--workers", "2", "--views", "20000", "--samples", "0"]  # minutes of work
    parent = subprocess.Popen([sys.executable, "-m", "ocssl", *words], stdout=subprocess.DEVNULL)

    def children() -> list[int]:
        found = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        return [int(word) for word in found.read_text().split()] if found.exists() else []

    wait_for(lambda: len(children()) >= 3)  # two, and the tracker of multiprocessing
    born = children()
    parent.kill()
    parent.wait()
    wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in born))


def test_one_checkpoint_alone_knows_what_is_past(run: Path, found: Pair) -> None:
    whole = found[0]["summary"]["ridge"]["tasks"]
    alone = evaluated(run, "14", per_task=True)["summary"]["ridge"]["tasks"]
    for time in ("past", "current", "future"):
        assert alone[time] == (None, whole[time][1])
    assert alone["final"] == whole["final"]
    assert alone["forward_transfer"] is None


def test_a_snapshot_holds_the_network_and_the_memory_of_its_moment(run: Path) -> None:
    last = max(saved_states(run))
    seen, whole = load_snapshot(saved_states(run)[last]), Learner.load(run / "checkpoints" / f"{last:08d}")
    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert np.array_equal(seen.learner.transform(images), whole.transform(images))
    table = whole.memory.table()
    assert all(np.array_equal(seen.memory[name].numpy(), table[name]) for name in table)
    assert "image" not in seen.memory
    assert (run / "snapshots" / f"{last:08d}").is_dir()


def test_latent_metrics_are_those_of_the_parts_they_name(run: Path, found: Pair) -> None:
    settings = read_settings(run / "run.toml")
    benchmark = load_benchmark(settings.benchmark, settings.stream)
    row = found[1]["checkpoints"][-1]
    seen = load_snapshot(saved_states(run)[row["position"]])
    in_memory = torch.isin(benchmark.train.ids, seen.memory["id"]).nonzero()[:, 0]
    assert len(in_memory) == len(seen.memory["id"]) == row["memory"]["shape"]["samples"]
    parts = {"stream": benchmark.train, "memory": benchmark.train.subset(in_memory), "test": benchmark.test}
    for name, part in parts.items():
        own = measure_views(seen.learner, part, 3, generator_for(3, "diagnose views"))
        assert row[name]["deviation"] == pytest.approx(own.deviation, abs=1e-6)
        assert row[name]["overlap"] == pytest.approx(own.overlap, abs=1e-9)
        assert row[name]["alignment"] == pytest.approx(own.alignment, abs=1e-6)
        assert row[name]["shape"]["samples"] == len(part)
    stored = overlap_count_from(seen.memory["feature"], seen.memory["angle"])
    assert row["online"]["overlap"] == stored
    assert json.loads((run / "metrics.json").read_text())["online_overlaps"][-1] == stored


def test_past_current_and_future_are_parts_of_the_test_set(found: Pair) -> None:
    rows = found[1]["checkpoints"]
    sizes = {
        (row["position"], name): None if row["times"][name] is None else row["times"][name]["samples"]
        for row in rows
        for name in ("past", "current", "future")
    }
    assert [sizes[0, name] for name in ("past", "current", "future")] == [None, None, 80]
    assert [sizes[7, name] for name in ("past", "current", "future")] == [None, 40, 40]
    assert [sizes[14, name] for name in ("past", "current", "future")] == [40, 40, None]


def test_evaluation_on_the_way_leaves_the_learner_as_it_is(run: Path) -> None:
    settings = read_settings(run / "run.toml")
    benchmark = load_benchmark(settings.benchmark, settings.stream)
    learner = Learner.load(run / "checkpoints" / "00000012")
    before = {name: tensor.clone() for name, tensor in learner.tensors().items()}
    evaluate(learner, benchmark, settings.evaluate, 0)
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.tensors().items())


def test_gpus_are_dealt_out_to_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ocssl.results.evaluate_runs.torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("ocssl.results.evaluate_runs.usable_cores", lambda: [0, 3, 5])
    assert _places("cuda", 0, 20) == ["cuda:0", "cuda:1"]
    assert _places("cuda", 3, 20) == ["cuda:0", "cuda:1", "cuda:0"]
    assert _places("cpu", 0, 20) == ["cpu"] * 3
    assert _places("cpu", 0, 2) == ["cpu"] * 2


def test_a_run_with_parts_of_ones_own_is_looked_at_with_them(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from ocssl.memory import KEEPS\n\n@KEEPS.add('looked-at')\nclass Mine(KEEPS['fifo']):\n    pass\n"
    )
    (tmp_path / "mine.toml").write_text('[memory]\nkeep = "looked-at"\n')
    sets = {**small_settings("er-fifo"), **SMALL_STREAM, "stream.stop": 1}
    words = [word for key, value in sets.items() if key != "memory.keep" for word in ("--set", f"{key}={value}")]
    made = tmp_path / "run"

    def ocssl(*arguments: str) -> subprocess.CompletedProcess[str]:  # a part that was loaded once stays known
        command = [sys.executable, "-m", "ocssl", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    assert ocssl("run", "mine.toml", "synthetic", "--parts", "mine.py", "--out", "run", *words).returncode == 0
    without = ocssl("evaluate", str(made), "--checkpoint", "last")
    assert (without.returncode, without.stderr.count("\n")) == (2, 1)
    assert "unknown keep rule 'looked-at'" in without.stderr
    assert "--parts" in without.stderr
    found = ocssl("evaluate", str(made), "--checkpoint", "last", "--parts", "mine.py", "--workers", "1")
    assert found.returncode == 0, found.stderr


def test_checkpoints_are_chosen_by_number(run: Path) -> None:
    assert list(select_states(run, "7")) == [7]
    assert list(select_states(run, "14,7")) == [14, 7]
    assert list(select_states(run, "last")) == [14]
    for wrong in ("8", "first", "7,", ""):
        with pytest.raises(RunFolderError, match="it has all, last, 0, 7"):
            select_states(run, wrong)


def test_what_cannot_be_measured_is_one_sentence(run: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="--views 1"):
        diagnose_run(Inspection(run, quiet(), workers=1), ["stream"], 0, 1, False)
    overrides = {**small_settings("solar"), **SMALL_STREAM, "stream.order": "iid", "schedule.stream_batch": 20}
    create(tmp_path / "iid", resolve_run("solar", "synthetic", 3, overrides))
    execute(tmp_path / "iid", Progress(quiet()), Stop())
    with pytest.raises(SettingError, match="no tasks to probe"):
        evaluated(tmp_path / "iid", per_task=True)


def test_the_commands_print_a_table_and_write_json(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for words, column in (
        (["evaluate", "--probe", "ridge", "--probe", "knn", "--per-task"], "ridge: past"),
        (["diagnose", "--on", "test", "--samples", "30", "--views", "2"], "Deviation"),
    ):
        out = tmp_path / f"{words[0]}.json"
        with pytest.raises(SystemExit) as end:
            main([words[0], str(run), *words[1:], "--checkpoint", "last", "--workers", "1", "-o", str(out), "--quiet"])
        assert end.value.code == 0
        assert column in capsys.readouterr().out
        assert json.loads(out.read_text())["checkpoints"][0]["position"] == 14


def test_evaluations_at_a_spacing_and_without_snapshots(tmp_path: Path) -> None:
    more = {"schedule.stream_batch": 5, "evaluate.every": 4, "checkpoint.snapshots": False, "evaluate.per_task": True}
    create(tmp_path / "r", resolve_run("solar", "synthetic", 3, {**small_settings("solar"), **SMALL_STREAM, **more}))
    metrics = execute(tmp_path / "r", Progress(quiet()), Stop())
    assert metrics is not None
    assert metrics["positions"] == [4, 8, 12, 14]
    assert len(metrics["accuracies"]) == len(metrics["tasks"]["matrix"]) == 4
    assert "past" not in metrics["tasks"]  # rows are no ends of experiences
    assert not (tmp_path / "r" / "snapshots").exists()
