"""Runs side by side in processes of their own: the same bits as alone, stopped and continued together."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from conftest import SMALL_STREAM, small_settings, wait_for
from ocssl.errors import OcsslError, RunFolderError
from ocssl.launch import process_pool
from ocssl.launch.process_pool import RunQueue, _in_use, deal, run_all
from ocssl.launch.run_process import EventReader, Worker
from ocssl.runs.config import read_settings, resolve_run
from ocssl.runs.folder import (
    EVENTS,
    METRICS,
    SETTINGS,
    complete_checkpoints,
    create,
    create_or_check,
    finished,
    run_lock,
)
from ocssl.runs.progress import Bars, Progress
from ocssl.runs.run import execute
from ocssl.runs.stop import Stop

pytestmark = pytest.mark.process


def make(folder: Path, method: str, **more: Any) -> Path:
    create(folder, resolve_run(method, "synthetic", 0, {**small_settings(method), **SMALL_STREAM, **more}))
    return folder


@pytest.mark.usefixtures("one_thread")
def test_stopped_and_continued_together_runs_give_the_same_numbers_as_alone_whatever_else_fails(tmp_path: Path) -> None:
    more = {"stream.train": 60, "checkpoint.every": 1000}
    folders = {method: make(tmp_path / method, method, **more) for method in ("solar", "er-fifo")}
    stop = Stop()

    class StopAtFirstStep(Bars):
        def step(self, *args: Any, **kwargs: Any) -> None:
            stop.signal = signal.SIGINT

    assert run_all(folders, StopAtFirstStep(Console(), quiet=True), stop, workers=2, shared=True) == {}
    assert not all(finished(folder) for folder in folders.values())

    text = io.StringIO()
    folders["missing"] = tmp_path / "missing"
    failures = run_all(folders, Bars(Console(file=text, width=200)), Stop(), workers=2, shared=True)
    assert failures.keys() == {"missing"}
    assert "is not a run folder" in failures["missing"]
    together = finished(folders["solar"])
    assert finished(folders["er-fifo"])
    for said in ("solar          after experience 2", "missing failed: ", "of 3)"):
        assert said in text.getvalue()

    alone = execute(make(tmp_path / "alone", "solar", **more), Progress(Bars(Console(), quiet=True)), Stop())
    assert together is not None
    assert alone is not None
    assert {**together, "seconds": 0} == {**alone, "seconds": 0}


def test_finished_runs_are_passed_over_and_a_damaged_record_is_a_failure(tmp_path: Path) -> None:
    done = {"method": "solar", "benchmark": "synthetic", "seed": 0, "final_accuracy": 1.0}
    done |= {"average_accuracy": 1.0, "steps": 1, "seconds": 1.0, "positions": [1]}
    done |= {"accuracies": [1.0], "deviations": [None], "overlaps": [None]}
    folders = {name: make(tmp_path / name, "solar") for name in ("done", "damaged")}
    (folders["done"] / METRICS).write_text(json.dumps(done))
    (folders["damaged"] / METRICS).write_text("{")
    failures = run_all(folders, Bars(Console(), quiet=True), Stop())
    assert failures.keys() == {"damaged"}
    assert "not JSON" in failures["damaged"]
    assert not (folders["done"] / EVENTS).exists()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not tell cores")
def test_a_worker_keeps_to_its_cores(tmp_path: Path) -> None:
    mine = sorted(os.sched_getaffinity(0))
    worker = Worker(make(tmp_path / "run", "solar"), 1, mine[-1:])
    try:
        assert os.sched_getaffinity(worker.process.pid) == {mine[-1]}
    finally:
        worker.end()


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel does not group by session")
def test_a_worker_of_a_niced_command_is_niced_among_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.nice", lambda _: 7)
    worker = Worker(make(tmp_path / "run", "solar"), 1)
    try:
        assert Path(f"/proc/{worker.process.pid}/autogroup").read_text().split()[-1] == "7"
    finally:
        worker.end()


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 5))
def test_cores_are_dealt_out_whole_and_none_twice(cores: int, workers: int, threads: int) -> None:
    shares = deal(list(range(cores)), workers, threads)
    assert len(shares) == workers
    if workers * threads > cores:
        assert not any(shares)
    else:
        assert sorted(core for share in shares for core in share) == list(range(cores))
        assert min(map(len, shares)) >= threads


def test_too_many_workers_are_one_warning(tmp_path: Path) -> None:
    text = io.StringIO()
    many = 2 * (os.cpu_count() or 1)
    folders = {str(n): tmp_path / str(n) for n in range(many)}  # no run folders: each fails at once
    stop = Stop(signal.SIGINT)
    assert run_all(folders, Bars(Console(file=text), quiet=True), stop, workers=many, threads=2) == {}
    assert text.getvalue().count("wait for one another") == 1


def test_a_worker_ends_when_its_parent_is_killed_and_saves_before(tmp_path: Path) -> None:
    folder = make(tmp_path / "run", "solar", **{"stream.train": 3000, "checkpoint.every": 10**6})
    code = (
        "import sys; from pathlib import Path; from rich.console import Console; "
        "from ocssl.launch.process_pool import run_all; "
        "from ocssl.runs.progress import Bars; from ocssl.runs.stop import Stop; "
        "run_all({'run': Path(sys.argv[1])}, Bars(Console(), quiet=True), Stop())"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(folder)])
    reader = EventReader(folder / EVENTS)
    wait_for(lambda: any(event["event"] == "step" for event in reader.new()))
    parent.kill()
    parent.wait()
    queue = RunQueue({"run": folder}, Bars(Console(), quiet=True))
    wait_for(lambda: queue.take() == "run")  # as soon as the orphan has left, which may take a moment
    assert not _in_use(folder)
    assert len(complete_checkpoints(folder)) == 1  # it has saved, though no checkpoint was due


def test_a_folder_in_use_is_put_off_while_others_are_taken_and_that_is_said_once(tmp_path: Path) -> None:
    folders = {name: make(tmp_path / name, "solar") for name in ("used", "free")}
    text = io.StringIO()
    queue = RunQueue(folders, Bars(Console(file=text, width=200)))
    with run_lock(folders["used"]):
        assert queue.take() == "free"
        assert queue.take() is None
        assert queue.take() is None
    assert text.getvalue().count("used waits: another process is running in its folder") == 1
    assert queue.take() == "used"


def test_a_folder_that_another_process_takes_after_we_looked_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, text, other = make(tmp_path / "run", "solar"), io.StringIO(), ExitStack()

    class Bars_(Bars):
        def say(self, said: str) -> None:
            super().say(said)
            if "waits: another process" in said:
                other.close()  # the other process has gone

    class Late(Worker):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if not text.getvalue():
                other.enter_context(run_lock(folder))
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(process_pool, "Worker", Late)
    assert run_all({"run": folder}, Bars_(Console(file=text, width=200)), Stop()) == {}
    assert finished(folder)
    assert "run waits: another process is running in its folder" in text.getvalue()
    assert "failed" not in text.getvalue()


def _place_all(out: Path, start: Any, told: Any) -> None:
    settings = resolve_run("solar", "synthetic", 0, {})
    start.wait()
    try:
        for number in range(40):
            create_or_check(out / str(number), settings)
    except OcsslError as error:
        told.put(str(error))
    told.put("done")


def test_two_processes_that_make_the_same_folders_at_once_do_not_hinder_one_another(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    start, told = context.Barrier(2), context.Queue()
    processes = [context.Process(target=_place_all, args=(tmp_path, start, told)) for _ in range(2)]
    for process in processes:
        process.start()
    assert [told.get(timeout=120) for _ in processes] == ["done", "done"]
    for process in processes:
        process.join()
    assert len([*tmp_path.glob("*/run.toml")]) == 40


def test_a_folder_is_taken_for_a_run_if_it_differs_only_in_where_images_lie_and_how_it_is_saved(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    create_or_check(folder, resolve_run("solar", "synthetic", 0, {"data.path": "/old", "checkpoint.every": 3}))
    moved = resolve_run("solar", "synthetic", 0, {"data.path": "/new"})
    with run_lock(folder):  # by a process that keeps its settings
        create_or_check(folder, moved)
        assert read_settings(folder / SETTINGS).data.path == "/old"
    create_or_check(folder, moved)
    assert read_settings(folder / SETTINGS) == moved
    with pytest.raises(RunFolderError, match=r"its optimizer.lr is 0.3, and 0.2 is asked for"):
        create_or_check(folder, resolve_run("solar", "synthetic", 0, {"optimizer.lr": 0.2}))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(RunFolderError, match="not empty and not a run"):
        create_or_check(tmp_path / "other", moved)


def test_gpus_are_dealt_out_in_turn_one_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str | None, tuple[str, ...]]] = []

    class Noted:
        """A worker that fails at once."""

        running = False

        def __init__(self, folder: Path, threads: int, cores: Any, options: Any, gpu: str | None) -> None:
            given.append((gpu, tuple(options)))
            self.events, self.cores, self.gpu = EventReader(folder / EVENTS), cores, gpu

        def failure(self, asked: bool) -> str:
            return "it is none"

        def warnings(self) -> list[str]:
            return []

        def end(self) -> None: ...

    monkeypatch.setattr(process_pool, "Worker", Noted)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 7")
    folders, bars = {str(n): tmp_path / str(n) for n in range(3)}, Bars(Console(), quiet=True)
    assert len(run_all(folders, bars, Stop(), device="cuda", options=["--quiet"], shared=True)) == 3
    assert given == [(gpu, ("--device", "cuda", "--quiet")) for gpu in ("4", "7", "4")]  # two at a time
    given.clear()
    run_all({"0": tmp_path / "0"}, bars, Stop())
    assert given == [(None, ("--device", "cpu"))]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system does not tell environments")
def test_a_worker_sees_the_gpu_that_it_was_given(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "none", 1, gpu="7")
    told = Path(f"/proc/{worker.process.pid}/environ")
    try:  # it is empty until the child has become another program
        wait_for(lambda: b"CUDA_VISIBLE_DEVICES=7" in told.read_bytes().split(b"\0"))
    finally:
        worker.end()


def test_what_a_worker_says_last_itself_is_why_it_failed(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "none", 1)
    worker.process.wait()
    worker._stderr.seek(0, os.SEEK_END)
    worker._stderr.write(b"Exception ignored in: somebody else\n")
    assert "none is not a run folder" in str(worker.failure(asked=False))
    worker.end()


def test_what_a_worker_warns_of_is_passed_on_once(tmp_path: Path) -> None:
    folder = make(tmp_path / "run", "solar", **{"checkpoint.every": 2})
    stop = Stop()

    class StopAtThirdMinibatch(Progress):
        def step(self, done: int, info: Any) -> None:
            if done == 3:
                stop.signal = signal.SIGINT

    assert execute(folder, StopAtThirdMinibatch(Bars(Console(), quiet=True)), stop) is None
    newest = max(complete_checkpoints(folder))
    (newest / "checkpoint.json").write_text("{")
    text = io.StringIO()
    failures = run_all({"run": folder}, Bars(Console(file=text, width=400), quiet=True), Stop())
    said = text.getvalue()
    assert said.count(f"warning: run: {newest} is skipped") == 1
    assert failures == {}  # an earlier checkpoint was there
    queue = RunQueue({"run": folder}, Bars(Console(file=text, width=400), quiet=True))
    for _ in range(2):
        queue.show("run", [{"event": "collapse", "message": "it collapses"}])
        queue.warn("run", ["it collapses"])
    assert text.getvalue().count("warning: run: it collapses") == 1


def test_a_file_system_without_locks_is_not_taken_for_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "run", "solar")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(RunFolderError, match=r"cannot lock .*run.toml: No locks available"), run_lock(folder):
        pass
    assert RunQueue({"run": folder}, Bars(Console(), quiet=True)).take() == "run"  # its worker will say so


def test_a_lock_holds_on_to_the_file_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, flock, rounds = make(tmp_path / "run", "solar"), fcntl.flock, list[int]()

    def replaced_meanwhile(file: Any, how: int) -> None:
        rounds.append(how)
        if len(rounds) == 1:
            shutil.copy(folder / SETTINGS, tmp_path / "other")
            os.replace(tmp_path / "other", folder / SETTINGS)
        flock(file, how)

    monkeypatch.setattr("fcntl.flock", replaced_meanwhile)
    with run_lock(folder):
        monkeypatch.undo()
        assert _in_use(folder)
    assert len(rounds) == 2


def _create_all(out: Path, start: Any, told: Any) -> None:
    said, settings = [], resolve_run("solar", "synthetic", 0, {})
    for number in range(20):
        start.wait()
        try:
            create(out / str(number), settings)
            said.append("made")
        except OcsslError as error:
            said.append(str(error))
    told.put(said)


def test_of_two_processes_that_make_one_folder_one_does_and_the_other_is_told(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    start, told = context.Barrier(2), context.Queue()
    processes = [context.Process(target=_create_all, args=(tmp_path, start, told)) for _ in range(2)]
    for process in processes:
        process.start()
    for one, other in zip(*(told.get(timeout=120) for _ in processes), strict=True):
        assert (one == "made") != (other == "made")
        assert "already holds a run" in one + other
    for process in processes:
        process.join()


def test_lines_that_are_no_events_are_skipped(tmp_path: Path) -> None:
    (tmp_path / EVENTS).write_text('5\n{"a": 1}\n[]\n{"event": "end"}\n')
    assert [event["event"] for event in EventReader(tmp_path / EVENTS).new()] == ["end"]


@pytest.mark.parametrize(
    "broken",
    [
        {"accuracies": None},
        {"positions": []},
        {"positions": [0, 2]},
        {"positions": [1, None]},
        {"deviations": [0.5]},
        {"final_accuracy": "x"},
        {"accuracies": [1.0, "2"]},
        {"seconds": None},
        {"steps": "x"},
    ],
)
def test_metrics_from_which_nothing_can_be_drawn_are_damaged(broken: dict[str, Any], tmp_path: Path) -> None:
    good = {"method": "solar", "benchmark": "synthetic", "seed": 0, "steps": 2, "seconds": 1.0}
    good |= {"start_accuracy": None, "final_accuracy": 2.0, "average_accuracy": 1.5, "accuracies": [1, 2.0]}
    good |= {"positions": [1, 2], "deviations": [None, 0.5], "overlaps": [None, None]}
    (tmp_path / METRICS).write_text(json.dumps(good))
    assert finished(tmp_path) == good
    (tmp_path / METRICS).write_text(json.dumps(good | broken))
    with pytest.raises(RunFolderError, match="damaged"):
        finished(tmp_path)
    for name in ("final_accuracy", "average_accuracy"):
        (tmp_path / METRICS).write_text(json.dumps({key: value for key, value in good.items() if key != name}))
        with pytest.raises(RunFolderError, match="damaged"):
            finished(tmp_path)


def test_events_that_are_cut_and_written_again_are_read_once(tmp_path: Path) -> None:
    def line(position: int, filler: str) -> str:
        return json.dumps({"event": "step", "position": position, "filler": filler}) + "\n"

    path = tmp_path / "events.jsonl"
    reader = EventReader(path)
    assert list(reader.new()) == []
    path.write_text("".join(line(i, "x" * i) for i in range(5)) + '{"event": "st')
    assert [e["position"] for e in reader.new()] == [0, 1, 2, 3, 4]
    path.write_text("".join(line(i, "longer" * 9) for i in range(8)))  # our place is in the middle of a line now
    told = [e["position"] for _ in range(2) for e in reader.new()]
    assert told == [5, 6, 7]
    path.write_text(line(0, ""))  # shorter than our place
    assert list(reader.new()) == []
