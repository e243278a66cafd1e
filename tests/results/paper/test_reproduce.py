"""Plans really run: shared, started again, killed, failing, and from the command line."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from tiny import SCALE, tiny

from conftest import ROOT, SMALL, SMALL_STREAM
from ocssl._core import checkpoint
from ocssl.cli import app
from ocssl.cost import estimate, gpu
from ocssl.errors import RunFolderError, SettingError
from ocssl.results.evaluate_runs import Inspection
from ocssl.results.paper import Plan, Scale, paper_tables, plan_names, read_plan, read_scale, runs_of
from ocssl.results.paper.plan import Row
from ocssl.results.paper.reproduce import Diagnoses, reproduce
from ocssl.results.paper.run_store import Result, RunStore
from ocssl.runs.config import resolve_run
from ocssl.runs.folder import EVENTS, METRICS, SETTINGS, finished, run_lock
from ocssl.runs.initial_weights import read_weights
from ocssl.runs.snapshots import saved_states
from ocssl.runs.stop import Stop
from ocssl.settings import DataSettings

pytestmark = pytest.mark.process


def make(plans: list[Plan], out: Path, scale: Scale = SCALE) -> tuple[dict[str, str], str]:
    text = io.StringIO()
    store = RunStore(out, {"synthetic": DataSettings()})
    return reproduce(plans, scale, store, Console(file=text, width=200), Stop(), 2), text.getvalue()


def numbers(out: Path) -> dict[str, dict[str, Any]]:
    return {p.parent.name: {**json.loads(p.read_text()), "seconds": 0} for p in sorted(out.glob(f"runs/*/{METRICS}"))}


def first_result(out: Path) -> Result:
    (result,) = RunStore(out, {}).gather(runs_of(tiny(), SCALE))[0].results
    return result


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    failures, text = make([tiny()], out)
    assert not failures
    assert "FIFO + Overlap" in text
    assert "46.9" in text  # the paper's
    return out


def test_the_table_says_what_the_runs_found(whole: Path) -> None:
    runs = runs_of(tiny(), SCALE)
    cells = [line.split(",") for line in (whole / "table2.csv").read_text().splitlines()[1:]]
    for run, row in zip(runs, cells, strict=True):
        metrics = numbers(whole)[run.folder]
        assert row[:3] == [run.row, f"{metrics['final_accuracy']:.1f}", f"{metrics['average_accuracy']:.1f}"]
        assert "overlap" in run.settings.terms


def test_a_second_call_runs_nothing_and_says_the_same(whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.glob("runs/*/*") if path.is_file()}
    table = (whole / "table2.md").read_bytes()
    failures, _ = make([tiny()], whole)
    assert not failures
    assert {path: path.stat().st_mtime_ns for path in whole.glob("runs/*/*") if path.is_file()} == before
    assert (whole / "table2.md").read_bytes() == table


def test_a_plan_uses_the_runs_of_another(whole: Path) -> None:
    shared = tiny("table4", slice(3, 4))  # SOLAR as it is
    count = len(numbers(whole))
    failures, text = make([shared], whole)
    assert not failures
    assert len(numbers(whole)) == count
    assert "SOLAR (count extraction, EMA)" in text


def test_killed_at_any_moment_and_started_again_it_gives_the_same_numbers(whole: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("tiny.py")), str(tmp_path / "out")]
    path = os.pathsep.join(map(str, (Path(__file__).parent, ROOT / "tests", ROOT / "src")))
    told: dict[str, Any] = {
        "env": {**os.environ, "PYTHONPATH": path},
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
    }
    for moment in (f"runs/*/{SETTINGS}", "runs/*/checkpoints/*"):  # when folders are there, and when runs are under way
        process = subprocess.Popen(command, **told)
        patience = time.monotonic() + 120
        while not list((tmp_path / "out").glob(moment)) and time.monotonic() < patience:
            assert process.poll() is None, process.communicate()[1].decode()
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    done = subprocess.run(command, timeout=300, check=False, **told)
    assert done.returncode == 0, done.stderr.decode()
    assert numbers(tmp_path / "out") == numbers(whole)
    assert (tmp_path / "out" / "table2.csv").read_bytes() == (whole / "table2.csv").read_bytes()


def test_diagnoses_are_at_the_evaluations_whatever_else_was_saved(whole: Path) -> None:
    result = first_result(whole)
    diagnoses = Diagnoses(RunStore(whole, {}), SCALE, Console(quiet=True), 1, Stop())
    assert [row["position"] for row in diagnoses(result)] == [0, *result.metrics["positions"]]
    assert {*saved_states(result.folder)} > {0, *result.metrics["positions"]}  # else there was nothing to leave out


def test_a_table_without_runs_is_written_to_a_folder_that_was_not_there(tmp_path: Path) -> None:
    failures, _ = make([read_plan("table5")], tmp_path / "new" / "folder")
    assert not failures
    assert "Deviation-Aware" in (tmp_path / "new" / "folder" / "table5.md").read_text()


def test_a_place_that_cannot_be_written_to_is_an_error_before_any_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match="Not a directory"):
        make([tiny()], tmp_path / "file" / "out")


def test_what_cannot_be_written_or_read_is_named_and_the_rest_is_shown(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    (out / "table5.md").mkdir()
    curves = replace(tiny(), name="figure10", show=[{"kind": "curves", "measures": ["loss"]}])
    (RunStore(out, {}).folder(runs_of(tiny(), SCALE)[0]) / EVENTS).unlink()
    (out / "table2.csv").unlink()
    failures, _ = make([read_plan("table5"), curves, tiny()], out)
    assert "table5.md" in failures["table5"]
    assert EVENTS in failures["figure10"]
    assert failures.keys() == {"table5", "figure10"}
    assert (out / "table2.csv").read_bytes() == (whole / "table2.csv").read_bytes()


def test_what_starts_from_pre_training_waits_for_it(tmp_path: Path) -> None:
    plan = replace(read_plan("table3"), rows=[read_plan("table3").rows[i] for i in (0, 3)])
    small = {**SMALL, **SMALL_STREAM, "evaluate.per_task": True}
    del small["memory.capacity"]
    own = {"stream.epochs": 2, "schedule.batch": 16, "schedule.stream_batch": 16, "stream.order": "iid"}
    scale = replace(SCALE, special=small, pretrain={"benchmark": "synthetic", "set": {**own, "stream.experiences": 1}})
    failures, text = make([plan], tmp_path, scale)
    assert not failures
    first, second = runs_of(plan, scale)
    settings = (tmp_path / "runs" / second.folder / SETTINGS).read_text()
    assert str(tmp_path / "runs" / first.folder) in settings
    pretrained, streamed = finished(tmp_path / "runs" / first.folder), finished(tmp_path / "runs" / second.folder)
    assert pretrained is not None
    assert streamed is not None
    assert f"{streamed['start_accuracy']:.1f}" in text
    begun, _ = checkpoint.read(saved_states(tmp_path / "runs" / second.folder)[0])
    for name, tensor in read_weights(tmp_path / "runs" / first.folder).items():
        assert torch.equal(begun[f"network.objective.{name}"], tensor)


def test_a_run_that_fails_leaves_the_others_and_is_named(tmp_path: Path) -> None:
    good, bad = Row("good", "er-fifo"), Row("bad", "er-fifo", {"optimizer.lr": 1e30})
    plan = Plan("table2", "one fails", ["cifar100"], [bad, good], [{"kind": "table"}], seeds=[0])
    failures, text = make([plan], tmp_path)
    (name,) = failures
    assert "not finite" in failures[name]
    assert name == runs_of(plan, SCALE)[0].folder
    assert "good" in text


def test_a_folder_that_holds_something_else_is_refused(whole: Path, tmp_path: Path) -> None:
    run = runs_of(tiny(), SCALE)[0]
    folder = tmp_path / "runs" / run.folder
    folder.mkdir(parents=True)
    other = next(p for p in (whole / "runs").iterdir() if p.name != run.folder)
    (folder / SETTINGS).write_bytes((other / SETTINGS).read_bytes())
    failures, _ = make([tiny(rows=slice(3, 4))], tmp_path)
    assert "another run" in failures[run.folder]
    assert not (folder / EVENTS).exists()


def test_images_that_were_moved_are_read_where_they_are_now_unless_the_run_is_under_way(tmp_path: Path) -> None:
    run = runs_of(tiny(), SCALE)[0]
    before, after = (RunStore(tmp_path, {"synthetic": DataSettings(path=place)}) for place in ("/old", "/new"))
    folder = before.prepare(run)
    with run_lock(folder):
        assert after.prepare(run) == folder
    assert "/old" in (folder / SETTINGS).read_text()
    assert after.prepare(run) == folder
    assert "/new" in (folder / SETTINGS).read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("table22", "table2"),
        ("table2 --scale mini --benchmark imagenet", "benchmark"),
        ("table2 --machine a100-40gb", "--dry-run"),
        ("table1 --scale paper --data here", "NAME=PATH"),
        ("table1 --scale paper --data cifar10=here", "cifar100"),
        ("table2 --workers -1", "--workers"),
        ("table1 --scale mini --data /no/such/place", "there is no /no/such/place"),
        pytest.param(
            "table2 --scale mini --benchmark synthetic --device cuda",
            "cuda is not available",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU"),
        ),
    ],
)
def test_wrong_words_are_one_sentence(words: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        app(["reproduce", *words.split()], exit_on_error=False, print_error=False, result_action="return_value")


def test_a_dry_run_lists_the_runs_and_makes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # as in a pipe
    words = ["reproduce", "figure15", "--scale", "paper", "--dry-run", "--machine", "a100-40gb"]
    words += ["--out", str(tmp_path / "out")]
    assert app(words, exit_on_error=False, print_error=False, result_action="return_value") == 0
    text = capsys.readouterr().out
    for expected in ("SOLAR", "imagenet100", "70,200", "0.02", "2,000", "0.3", "3 runs in all", "assumed utilisation"):
        assert expected in text
    assert "…" not in text
    assert not (tmp_path / "out").exists()


def test_a_dry_run_of_all_has_every_run_of_the_paper(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = estimate(resolve_run("solar", "synthetic", 0, {}), gpu("a100-40gb"))
    monkeypatch.setattr(paper_tables, "estimate", lambda *_: cost)  # counting the work of all takes most of a minute
    monkeypatch.delenv("COLUMNS", raising=False)
    words = ["reproduce", "all", "--scale", "paper", "--dry-run", "--machine", "a100-40gb"]
    assert app(words, exit_on_error=False, print_error=False, result_action="return_value") == 0
    text = capsys.readouterr().out
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    listed = Counter((line[0], line[1], line[2], line[5], line[6], line[7], line[8]) for line in lines)
    wanted: Counter[tuple[str, ...]] = Counter()
    for name in plan_names():
        runs = {(r.row, repr(r.point), r.benchmark): r.settings for r in runs_of(read_plan(name), read_scale("paper"))}
        for (row, _, benchmark), s in runs.items():
            omega = s.terms.get("overlap", {}).get("weight", 0)
            told = (
                f"{s.optimizer.lr:g}",
                f"{s.schedule.passes}",
                f"{s.memory.capacity:,}",
                f"{omega:g}" if omega else "-",
            )
            wanted[name, row, benchmark, *told] += 1
    assert listed == wanted
    assert "306 runs in all" in " ".join(text.split())


def test_only_some_rows_are_run_and_all_that_are_there_are_shown(whole: Path, tmp_path: Path) -> None:
    out, plan = tmp_path / "out", tiny()
    shutil.copytree(whole, out)
    last = runs_of(plan, SCALE)[-1]
    for run in runs_of(plan, SCALE):
        shutil.rmtree(RunStore(out, {}).folder(run))
    store = RunStore(out, {"synthetic": DataSettings()})
    assert not reproduce([plan], SCALE, store, Console(quiet=True), Stop(), 1, [last.row])
    assert [path.name for path in (out / "runs").iterdir() if (path / METRICS).exists()] == [last.folder]
    rows = [line.split(",") for line in (out / "table2.csv").read_text().splitlines()[1:]]
    before = [line.split(",") for line in (whole / "table2.csv").read_text().splitlines()[1:]]
    assert [row[0] for row in rows] == [row[0] for row in before]
    assert rows[-1] == before[-1]
    assert all(row[1:3] == ["-", "-"] for row in rows[:-1])


def test_damaged_diagnoses_are_named(whole: Path, tmp_path: Path) -> None:
    result = first_result(whole)
    diagnoses = Diagnoses(RunStore(tmp_path, {}), SCALE, Console(quiet=True), 1, Stop())
    path = tmp_path / "diagnoses" / f"{result.planned.address[:32]}-{SCALE.diagnosed}.json"
    path.parent.mkdir()
    for content in ("[]", "{}", "[5]", '[{"position": 1}]', "{"):
        path.write_text(content)
        with pytest.raises(RunFolderError, match="is damaged; remove it"):
            diagnoses(result)


def test_diagnoses_read_images_where_they_are_now(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path | None] = []

    def diagnose_run(wanted: Inspection, *_: Any, **__: Any) -> dict[str, Any]:
        asked.append(wanted.data)
        return {"checkpoints": []}

    monkeypatch.setattr("ocssl.results.paper.reproduce.diagnose_run", diagnose_run)
    for number, reading in enumerate(({"synthetic": DataSettings(path="/new/place")}, {})):
        diagnoses = Diagnoses(RunStore(tmp_path / str(number), reading), SCALE, Console(quiet=True), 1, Stop())
        with pytest.raises(RunFolderError):
            diagnoses(first_result(whole))
    assert asked == [Path("/new/place"), None]
