"""Runs: the folder, the same bits whatever happens on the way, and resuming from anywhere."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from killer import killed
from PIL import Image
from rich.console import Console

from conftest import SMALL_STREAM, random_images, small_settings
from ocssl._core import checkpoint
from ocssl._files.atomic import is_part
from ocssl._training.optimizer import SGD
from ocssl.cli import main
from ocssl.data import load_benchmark
from ocssl.errors import CheckpointError, NonFiniteLoss, OutOfMemory, RunFolderError, SettingError
from ocssl.learner import Learner
from ocssl.objectives.sample_statistics import Info
from ocssl.runs.config import read_settings, resolve_run, to_toml
from ocssl.runs.events import Events, read_events
from ocssl.runs.folder import create, finished, run_lock
from ocssl.runs.progress import Bars, Progress
from ocssl.runs.run import Position, _Session, execute, read_position
from ocssl.runs.stop import Stop

STREAM = {**SMALL_STREAM, "schedule.stream_batch": 5, "checkpoint.every": 3, "optimizer.lr": 0.05}
MINIBATCHES = 14  # 2 experiences of 36 images, 7 minibatches of 5 each
FULL = 5  # minibatches after which the 24 slots are full


class StopAfter(Progress):
    """Asks for a stop once so many minibatches are done."""

    def __init__(self, stop: Stop, minibatches: int) -> None:
        super().__init__(Bars(Console(), quiet=True))
        self.stop_, self.minibatches = stop, minibatches

    def step(self, done: int, info: Info) -> None:
        if done == self.minibatches:
            self.stop_.signal = signal.SIGTERM


def make(folder: Path, method: str, **more: Any) -> Path:
    overrides = {**small_settings(method), **STREAM, **{k.replace("__", "."): v for k, v in more.items()}}
    create(folder, resolve_run(method, "synthetic", 3, overrides))
    return folder


def go(folder: Path, until: int | None = None) -> dict[str, Any] | None:
    stop = Stop()
    return execute(folder, StopAfter(stop, until) if until else Progress(Bars(Console(), quiet=True)), stop)


def record(folder: Path) -> list[dict[str, Any]]:
    """The diary without what may differ: time, and that a resume took place."""
    events = [e for e in read_events(folder / "events.jsonl") if e["event"] != "resume"]
    return [{k: v for k, v in e.items() if k != "seconds"} for e in events]


def last_state(folder: Path) -> dict[str, torch.Tensor]:
    newest = max(path.parent for path in folder.glob(f"checkpoints/*/{checkpoint.MANIFEST}"))
    return checkpoint.read(newest)[0]


def same_run(a: Path, b: Path) -> bool:
    x, y = last_state(a), last_state(b)
    return record(a) == record(b) and x.keys() == y.keys() and all(torch.equal(x[n], y[n]) for n in x)


class Whole(dict[str, Path]):
    """Run folders by method, each run without a break when it is first asked for."""

    def __init__(self, parent: Path) -> None:
        super().__init__()
        self.parent = parent

    def __missing__(self, method: str) -> Path:
        self[method] = make(self.parent / method, method)
        assert go(self[method]) is not None
        return self[method]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return Whole(tmp_path_factory.mktemp("whole"))


# ---- the folder


@pytest.mark.slow
def test_metrics_have_what_the_contract_names(whole: dict[str, Path], method: str) -> None:
    metrics = json.loads((whole[method] / "metrics.json").read_text())
    assert (metrics["method"], metrics["benchmark"], metrics["seed"]) == (method, "synthetic", 3)
    assert len(metrics["accuracies"]) == 2
    assert metrics["final_accuracy"] == metrics["accuracies"][-1]
    assert metrics["average_accuracy"] == pytest.approx(sum(metrics["accuracies"]) / 2)
    assert metrics["steps"] == 2 * MINIBATCHES
    assert metrics["seen"] == 5 * MINIBATCHES
    assert metrics["seconds"] > 0
    assert 0 <= metrics["start_accuracy"] <= 100


def test_run_toml_gives_the_settings_back_exactly(tmp_path: Path) -> None:
    settings = resolve_run("solar", "synthetic", 3, {**small_settings("solar"), **STREAM})
    create(tmp_path / "r", settings)
    assert read_settings(tmp_path / "r" / "run.toml") == settings
    assert to_toml(settings).count("\n\n\n") == 0


def test_events_tell_the_run_in_order(whole: dict[str, Path], method: str) -> None:
    events = list(read_events(whole[method] / "events.jsonl"))
    assert events[0]["event"] == "start"
    settings = read_settings(whole[method] / "run.toml")
    assert events[0]["images"] == load_benchmark("synthetic", settings.stream, settings.data).fingerprint
    assert events[-1]["event"] == "end"
    steps = [e for e in events if e["event"] == "step"]
    assert [e["position"] for e in steps] == list(range(1, MINIBATCHES + 1))
    assert all({"loss", "ssl", "spread", "participation_ratio", "stored_loss"} <= e.keys() for e in steps)
    assert [e["experience"] for e in events if e["event"] == "evaluation"] == [0, 1, 2]


def test_only_the_last_checkpoints_stay(whole: dict[str, Path]) -> None:
    assert sorted(p.name for p in (whole["solar"] / "checkpoints").iterdir()) == ["00000012", "00000014"]


def test_a_folder_in_use_is_not_overwritten(whole: dict[str, Path], tmp_path: Path) -> None:
    settings = read_settings(whole["solar"] / "run.toml")
    with pytest.raises(RunFolderError, match="already holds a run"):
        create(whole["solar"], settings)
    (tmp_path / "mine").write_text("keep me")
    with pytest.raises(RunFolderError, match="not empty"):
        create(tmp_path, settings)
    assert (tmp_path / "mine").read_text() == "keep me"


def test_a_folder_whose_making_was_killed_is_made_again(whole: dict[str, Path], tmp_path: Path) -> None:
    settings = read_settings(whole["solar"] / "run.toml")
    (tmp_path / ".run.toml.123.part").write_text("method = ")
    assert is_part(tmp_path / ".run.toml.123.part", of=tmp_path / "run.toml")
    assert not is_part(tmp_path / "notes.part", of=tmp_path / "run.toml")
    create(tmp_path, settings)
    assert read_settings(tmp_path / "run.toml") == settings
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]


def test_a_finished_run_is_not_run_again(whole: dict[str, Path]) -> None:
    before = (whole["solar"] / "events.jsonl").read_bytes()
    assert go(whole["solar"]) == finished(whole["solar"])
    assert (whole["solar"] / "events.jsonl").read_bytes() == before


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    folder = make(tmp_path / "r", "er-fifo")
    with run_lock(folder), pytest.raises(RunFolderError, match="another process"):
        go(folder)


# ---- the same bits


@pytest.mark.slow
def test_the_same_settings_and_seed_give_the_same_bits(whole: dict[str, Path], method: str, tmp_path: Path) -> None:
    torch.manual_seed(99)
    again = make(tmp_path / "r", method)
    go(again)
    assert same_run(again, whole[method])


@pytest.mark.slow
def test_evaluating_and_saving_more_or_less_often_changes_nothing(whole: dict[str, Path], tmp_path: Path) -> None:
    busy = make(tmp_path / "r", "solar", checkpoint__every=1, evaluate__latent_views=3, evaluate__probe="knn")
    quiet = make(tmp_path / "q", "solar", checkpoint__every=99, evaluate__latent_samples=0, evaluate__start=False)
    go(busy)
    go(quiet)
    for folder in (busy, quiet):
        a, b = last_state(folder), last_state(whole["solar"])
        assert all(torch.equal(a[name], b[name]) for name in b)


@pytest.mark.parametrize("until", [1, 3, FULL, 7, MINIBATCHES - 1])
@pytest.mark.slow
def test_a_stopped_run_resumes_to_the_same_bits(whole: dict[str, Path], until: int, tmp_path: Path) -> None:
    folder = make(tmp_path / "r", "solar")
    assert go(folder, until) is None
    assert not (folder / "metrics.json").exists()
    assert go(folder) is not None
    assert same_run(folder, whole["solar"])


@pytest.mark.slow
def test_a_run_resumes_twice_to_the_same_bits(whole: dict[str, Path], method: str, tmp_path: Path) -> None:
    folder = make(tmp_path / "r", method)
    assert go(folder, 4) is None  # memory not full
    assert go(folder, 7) is None  # full, between two experiences
    assert go(folder) is not None
    assert same_run(folder, whole[method])


def test_a_stop_at_the_very_end_still_finishes(whole: dict[str, Path], tmp_path: Path) -> None:
    folder = make(tmp_path / "r", "solar")
    assert go(folder, MINIBATCHES) is not None
    assert same_run(folder, whole["solar"])


@pytest.mark.parametrize(
    ("moment", "numbers"),
    [
        ("step", [1, 9]),  # before anything was saved; in the middle of a minibatch, memory not full
        ("insert", [8, 3]),
        ("save", [1, 2]),  # the first checkpoint; a later one
        ("manifest", [2, 1]),
    ],
)
@pytest.mark.slow
def test_killed_with_9_it_resumes_to_the_same_bits_twice(
    whole: dict[str, Path], moment: str, numbers: list[int], tmp_path: Path
) -> None:
    folder = make(tmp_path / "r", "solar")
    for number in numbers:
        killed(folder, moment, number)
    assert go(folder) is not None
    assert same_run(folder, whole["solar"])


@pytest.mark.slow
def test_every_method_survives_kill_9(whole: dict[str, Path], method: str, tmp_path: Path) -> None:
    folder = make(tmp_path / "r", method)
    killed(folder, "step", 19)
    assert go(folder) is not None
    assert same_run(folder, whole[method])


def test_the_comparison_catches_a_resume_that_forgets_the_momentum(
    whole: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "r", "solar")
    go(folder, 7)
    restore = Learner.restore

    def forgetful(tensors: Any, facts: Any, **more: Any) -> Learner:
        forgotten = {n: torch.zeros_like(t) if n.startswith("momentum.") else t for n, t in tensors.items()}
        return restore(forgotten, facts, **more)

    monkeypatch.setattr(Learner, "restore", forgetful)
    go(folder)
    assert not same_run(folder, whole["solar"])


# ---- damage


@pytest.mark.slow
def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(
    whole: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make(tmp_path / "r", "solar")
    go(folder, 7)
    newest = max((folder / "checkpoints").iterdir())
    state = next(newest.glob("*.safetensors"))
    state.write_bytes(state.read_bytes()[:-9])
    assert go(folder) is not None
    assert "damaged" in capsys.readouterr().out
    assert same_run(folder, whole["solar"])


def test_time_is_counted_once_after_a_damaged_checkpoint(tmp_path: Path) -> None:
    folder = make(tmp_path / "r", "solar")
    go(folder, 4)
    before = Position(**checkpoint.read(max((folder / "checkpoints").iterdir()))[1]["extra"]["position"]).phases
    go(folder, 7)
    (max((folder / "checkpoints").iterdir()) / "checkpoint.json").write_text("{")
    older = max(path.parent for path in folder.glob("checkpoints/*/checkpoint.json") if path.read_text() != "{")
    kept = Position(**checkpoint.read(older)[1]["extra"]["position"]).phases
    assert kept["forward"] >= before["forward"] > 0
    session = _Session(
        folder,
        read_settings(folder / "run.toml"),
        load_benchmark("synthetic", read_settings(folder / "run.toml").stream),
        Events(folder / "events.jsonl"),
        Progress(Bars(Console(), quiet=True)),
        Stop(),
        "cpu",
    )
    assert session.clock.seconds["forward"] == kept["forward"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_not_the_checkpoints_fault(tmp_path: Path) -> None:
    folder = make(tmp_path / "r", "solar")
    go(folder, 7)
    found = sorted((folder / "checkpoints").iterdir())
    with pytest.raises(SettingError, match="cuda is not available"):
        execute(folder, Progress(Bars(Console(), quiet=True)), Stop(), "cuda")
    assert sorted((folder / "checkpoints").iterdir()) == found


@pytest.mark.parametrize(
    ("lack", "kind", "code"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB."), torch.OutOfMemoryError, 2),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes."), OutOfMemory, 1),
        (MemoryError(), OutOfMemory, 1),
    ],
)
def test_nor_is_a_lack_of_memory(
    lack: Exception, kind: type[Exception], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "r", "solar")
    go(folder, 7)
    found = sorted((folder / "checkpoints").iterdir())

    def full(*_: object) -> None:
        raise lack

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "_load_tensors", full)
        with pytest.raises(kind):
            go(folder)
        with pytest.raises(SystemExit) as ended:
            main(["resume", str(folder)])
    assert ended.value.code == code
    assert sorted((folder / "checkpoints").iterdir()) == found


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full disk to offer")
def test_a_full_disk_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    monkeypatch.setattr("ocssl.runs.events.regular", os.open)  # a device is refused
    closed = []
    events = Events(tmp_path / "events.jsonl", [SimpleNamespace(write=closed.append, close=lambda: closed.append("x"))])
    with pytest.raises(OSError, match="No space left"):
        events.write("start")
    events.close()
    assert closed == ["x"]


def test_without_a_readable_checkpoint_a_run_is_not_begun_again_in_secret(tmp_path: Path) -> None:
    folder = make(tmp_path / "r", "solar")
    go(folder, 7)
    for manifest in folder.glob("checkpoints/*/checkpoint.json"):
        manifest.write_text("{")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        go(folder)


def test_a_non_finite_loss_keeps_the_last_good_checkpoint_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "r", "solar")
    take_step, steps = SGD.step, []

    def diverging(self: SGD, *args: Any) -> Any:
        steps.append(take_step(self, *args))
        if len(steps) == 9:  # in the fifth minibatch; the last checkpoint is after the third
            with torch.no_grad():
                list(self.parameters.values())[-1].fill_(float("nan"))

    monkeypatch.setattr(SGD, "step", diverging)
    with pytest.raises(NonFiniteLoss, match="checkpoints/00000003"):
        go(folder)
    assert [e["event"] for e in read_events(folder / "events.jsonl")][-1] == "non-finite-loss"
    assert not (folder / "metrics.json").exists()
    tensors, _ = checkpoint.read(folder / "checkpoints" / "00000003")
    assert all(bool(torch.isfinite(t).all()) for n, t in tensors.items() if n.startswith("network."))
    assert [p.name for p in (folder / "checkpoints").iterdir()] == ["00000003"]


def test_weights_that_diverge_in_the_last_step_are_not_evaluated(tmp_path: Path) -> None:
    folder = make(tmp_path / "r", "finetune", optimizer__lr=1e30, schedule__passes=1, schedule__stream_batch=36)
    with pytest.raises(NonFiniteLoss, match="not finite"):
        go(folder)
    assert [e["event"] for e in read_events(folder / "events.jsonl")][-1] == "non-finite-loss"


@pytest.mark.slow
def test_damaged_checkpoints_never_crowd_out_good_ones(whole: dict[str, Path], tmp_path: Path) -> None:
    folder = make(tmp_path / "r", "solar", checkpoint__every=1)
    go(folder, 5)
    (newest,) = [p for p in (folder / "checkpoints").iterdir() if p.name == "00000005"]
    next(newest.glob("*.safetensors")).write_bytes(b"junk")
    go(folder, 5)  # from the fourth on, one minibatch
    for path in (folder / "checkpoints").iterdir():
        checkpoint.read(path)
    assert go(folder) is not None
    assert record(folder) == record(whole["solar"])


def test_an_edited_run_toml_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "r", "solar")
    go(folder, 4)
    text = (folder / "run.toml").read_text()
    for before, after in (("seed = 3", "seed = 7"), ("capacity = 24", "capacity = 5")):
        (folder / "run.toml").write_text(text.replace(before, after))
        with pytest.raises(RunFolderError, match="not what this run was started with"):
            go(folder)


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"{\n", b"[" * 100_000 + b"\n", None])
def test_a_diary_that_cannot_be_read_is_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "events.jsonl").write_bytes(content)
    with pytest.raises(RunFolderError, match=r"events\.jsonl"):
        list(read_events(tmp_path / "events.jsonl"))


def test_a_lost_diary_is_said_and_not_filled_with_zeros(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make(tmp_path / "r", "solar")
    go(folder, 4)
    (folder / "events.jsonl").unlink()
    assert go(folder) is not None
    assert "shorter than it was" in " ".join(capsys.readouterr().out.split())
    assert b"\0" not in (folder / "events.jsonl").read_bytes()


@pytest.mark.slow
def test_what_is_left_of_a_torn_diary_is_whole_lines(tmp_path: Path) -> None:
    folder = make(tmp_path / "r", "solar")
    go(folder, 4)
    diary = folder / "events.jsonl"
    lines = diary.read_bytes().splitlines(keepends=True)
    diary.write_bytes(b"".join(lines[:3]) + lines[3][:5])
    go(folder, 6)
    assert go(folder) is not None  # it would read what was glued to the torn line
    assert diary.read_bytes().splitlines(keepends=True)[:3] == lines[:3]
    assert [e["event"] for e in read_events(diary)].count("resume") == 2


@pytest.mark.parametrize("content", ["{}", "[]", "{", "[" * 100_000])
def test_damaged_metrics_are_one_sentence(tmp_path: Path, content: str) -> None:
    folder = make(tmp_path / "r", "solar")
    (folder / "metrics.json").write_text(content)
    with pytest.raises(RunFolderError, match="damaged"):
        go(folder)


@pytest.mark.parametrize("name", ["checkpoints", "events.jsonl"])
def test_a_file_where_a_folder_belongs_and_the_reverse_are_one_sentence(tmp_path: Path, name: str) -> None:
    folder = make(tmp_path / "r", "solar")
    if name == "checkpoints":
        (folder / name).write_text("")
    else:
        (folder / name).mkdir()
    with pytest.raises(RunFolderError, match=name):
        go(folder)


STRONG = {
    "encoder__width": 4,
    "memory__capacity": 80,
    "schedule__passes": 4,
    "schedule__batch": 40,
    "schedule__stream_batch": 10,
    "optimizer__lr": 0.3,
    "stream__classes": 8,
    "stream__train": 20,
}


@pytest.mark.slow
def test_a_real_collapse_is_warned_of_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole angle in a strong Overlap loss collapses the encoder within some dozen steps."""
    folder = make(tmp_path / "r", "solar", **STRONG, memory__angle="distinct", terms__overlap__weight=5.0)
    metrics = go(folder)
    assert metrics is not None
    assert metrics["collapsed"]
    assert " ".join(capsys.readouterr().out.split()).count("the encoder is collapsing") == 1
    assert [e["event"] for e in read_events(folder / "events.jsonl")].count("collapse") == 1


@pytest.mark.slow
def test_no_collapse_is_cried_with_the_half_angle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = go(make(tmp_path / "r", "solar", **STRONG))
    assert metrics is not None
    assert not metrics["collapsed"]
    assert "collapsing" not in capsys.readouterr().out


@pytest.mark.parametrize(("start", "said"), [(2 * MINIBATCHES, 1), (2 * MINIBATCHES - 1, 0)])
def test_a_run_too_short_for_the_encoder_to_learn_says_so(
    start: int, said: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go(make(tmp_path / "run", "er-fifo", schedule__passes=2, optimizer__encoder_start=start))
    assert " ".join(capsys.readouterr().out.split()).count("the encoder stays as it is") == said


@pytest.mark.slow
def test_a_stream_without_labels_is_evaluated_after_equal_shares_and_trains_the_same(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for i, pixels in enumerate(random_images(42, 8)):
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(photos / f"{i:02}.png")
    found = {}
    for every in (0, 9):  # equal shares, or the end alone
        folder = tmp_path / str(every)
        overrides = {**small_settings("solar"), "stream.image_size": 8, "schedule.stream_batch": 5}
        overrides |= {"evaluate.latent_samples": 10, "evaluate.every": every, "data.cache": str(tmp_path / "cache")}
        create(folder, resolve_run("solar", f"folder:{photos}", 3, overrides))
        assert go(folder) is not None
        found[every] = record(folder)
    positions = [[e["position"] for e in found[every] if e["event"] == "evaluation"] for every in (0, 9)]
    assert positions == [[0, 2, 3, 4, 5, 6, 7, 8, 9], [0, 9]]
    steps = [[e for e in found[every] if e["event"] == "step"] for every in (0, 9)]
    assert steps[0] == steps[1]
    a, b = (last_state(tmp_path / str(every)) for every in (0, 9))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    last = [e for e in found[0] if e["event"] == "memory"][-1]
    assert len(last["born"]) == 14  # 42 images, three each; not 45, which nine minibatches could hold
    assert sum(last["born"]) == last["stored"]


WRONG_POSITIONS: dict[str, list[Any]] = {
    "minibatches": ["x", -5, 10**30, 1.5, True, None, MINIBATCHES + 1],
    "seconds": ["x", None, -1, float("nan"), float("inf"), True, 10**400],
    "events": [-1, 2**70, "x", 1.5],
    "warned": ["x", 0],
    "evaluations": ["x", [1], [{"experience": "x"}], [{"experience": 1, "position": 1, "accuracy": "x"}], {}],
    "data": [3, None],
    "phases": [[], {"data": "x"}, {"data": float("nan")}],
    "unknown": [1],
}


@pytest.mark.parametrize("name", WRONG_POSITIONS)
def test_a_position_that_cannot_be_is_refused(name: str) -> None:
    good = {"minibatches": 3, "seconds": 1.5, "events": 100, "warned": False, "data": "x", "phases": {"data": 1}}
    assert read_position({"extra": {"position": good}}, MINIBATCHES).minibatches == 3
    for value in WRONG_POSITIONS[name]:
        with pytest.raises(CheckpointError, match=f"its {name} is "):
            read_position({"extra": {"position": {**good, name: value}}}, MINIBATCHES)


@pytest.mark.parametrize("facts", [{}, {"extra": None}, {"extra": []}, {"extra": {"position": "x"}}])
def test_a_checkpoint_that_no_run_has_saved_has_no_position(facts: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="not saved by a run"):
        read_position(facts, MINIBATCHES)


@pytest.mark.slow
def test_a_checkpoint_beyond_the_end_is_passed_over(
    whole: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the run would count as finished, with the weights of its middle."""
    folder = make(tmp_path / "r", "solar")
    go(folder, 7)
    newest = max((folder / "checkpoints").iterdir())
    tensors, facts = checkpoint.read(newest)
    facts["extra"]["position"]["minibatches"] = 999_999
    checkpoint.write(newest, tensors, facts)
    assert go(folder) is not None
    assert "its minibatches is 999999" in capsys.readouterr().out
    assert same_run(folder, whole["solar"])
