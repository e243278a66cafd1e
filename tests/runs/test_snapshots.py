"""What a run notes about its memory, its time and its pictures, against literal counts."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from conftest import SMALL_STREAM, random_images, small_learner, small_settings
from ocssl._core import checkpoint
from ocssl.data import load_benchmark
from ocssl.runs.config import resolve_run
from ocssl.runs.events import read_events
from ocssl.runs.folder import EVENTS, create
from ocssl.runs.profiler import AROUND, PHASES, TIMING, read_timing, write_timing
from ocssl.runs.progress import Bars, Progress
from ocssl.runs.run import execute
from ocssl.runs.snapshots import BINS, MOST_TILES, TILE_SIDE, memory_summary, tiles
from ocssl.runs.stop import Stop
from ocssl.settings import StreamSettings

BENCHMARK = load_benchmark("synthetic", StreamSettings(image_size=8, experiences=2, classes=4, train=20, test=5))


def filled(n: int) -> Any:
    learner = small_learner("er-fifo")
    rows = torch.arange(n)
    learner.partial_fit(BENCHMARK.train.subset(rows).all(), ids=BENCHMARK.train.ids[rows])
    return learner


def test_the_memory_summary_holds_literal_counts() -> None:
    learner = filled(16)
    told = memory_summary(learner.memory, BENCHMARK, 64)
    table = learner.memory.table()
    assert told["stored"] == 16
    assert told["age"] == pytest.approx(np.quantile(16 - table["born"], (0, 0.25, 0.5, 0.75, 1)))
    assert told["born"] == [sum(int(born / 64 * BINS) == part for born in table["born"]) for part in range(BINS)]
    assert sum(told["losses"]["counts"]) == 16
    assert told["losses"]["low"] == pytest.approx(table["loss"].min())
    assert told["loss"][2] == pytest.approx(np.median(table["loss"]), abs=1e-6)
    label = dict(zip(BENCHMARK.train.ids.tolist(), BENCHMARK.train.labels.tolist(), strict=True))
    counts = Counter(label[int(i)] for i in table["id"])
    assert told["classes"] == [counts[c] for c in range(4)]
    assert len(set(told["classes"])) > 1, "classes that all have the same count would prove nothing"


def test_ages_of_a_short_stream_span_the_images_that_there_are() -> None:
    """14 images in minibatches of 10 are no 20, parts hold three at least, and damaged images leave no empty part."""
    memory = filled(12).memory
    assert memory_summary(memory, BENCHMARK, 14)["born"] == [4, 3, 4, 1]
    assert memory_summary(memory, BENCHMARK, 14, unusable=2)["born"] == [3, 3, 3, 3]
    assert len(memory_summary(memory, BENCHMARK, 64)["born"]) == BINS


def test_an_empty_memory_and_equal_losses_are_no_trouble() -> None:
    learner = small_learner("er-fifo")
    assert memory_summary(learner.memory, BENCHMARK, 64) == {"stored": 0}
    ids = torch.cat([BENCHMARK.train.ids[:2], torch.tensor([10**12])])
    learner.memory.insert(random_images(3), ids, {"loss": torch.full((3,), -0.5)})
    told = memory_summary(learner.memory, BENCHMARK, 64)
    assert sum(told["losses"]["counts"]) == 3
    assert sum(told["classes"]) == 2  # nobody knows the label of an id that is not of the stream


def test_a_loss_that_is_not_finite_is_left_out() -> None:
    learner = small_learner("er-fifo")
    learner.memory.insert(random_images(3), torch.arange(3), {"loss": torch.tensor([-0.5, float("nan"), -0.1])})
    told = memory_summary(learner.memory, BENCHMARK, 64)
    assert sum(told["losses"]["counts"]) == 2
    json.dumps(told, allow_nan=False)


def test_tiles_are_the_stored_images_of_the_same_slots() -> None:
    memory = filled(16).memory
    shown = tiles(memory)
    assert shown["slot"].tolist() == list(range(16))
    assert torch.equal(shown["image"], memory.store["image"])
    assert torch.equal(shown["id"], memory.store["id"])
    assert len(tiles(small_learner("er-fifo").memory)["id"]) == 0


def test_tiles_of_many_and_large_images_are_few_and_small() -> None:
    import ocssl

    learner = ocssl.Learner("er-fifo", image_size=48, settings=small_settings("er-fifo", memory__capacity=300))
    images = random_images(250, 48)
    learner.memory.insert(images, torch.arange(250), {})
    shown = tiles(learner.memory)
    assert len(shown["slot"]) <= MOST_TILES
    assert shown["image"].shape[2:] == (TILE_SIDE, TILE_SIDE)
    wanted = images[shown["slot"][0]].float()  # 48 -> 32: every 3 pixels become 2
    first = (wanted[:, 0, 0] + wanted[:, 0, 1] + wanted[:, 1, 0] + wanted[:, 1, 1]) / 4
    assert torch.equal(shown["image"][0, :, 0, 0], first.round().byte())


@pytest.mark.slow
def test_a_run_notes_memory_spectrum_time_and_tiles(tmp_path: Path) -> None:
    create(tmp_path, resolve_run("solar", "synthetic", 0, {**small_settings("solar"), **SMALL_STREAM}))
    assert execute(tmp_path, Progress(Bars(Console(file=io.StringIO()))), Stop()) is not None
    events = list(read_events(tmp_path / EVENTS))
    at = {kind: [e["position"] for e in events if e["event"] == kind] for kind in ("evaluation", "memory", "spectrum")}
    assert at["memory"] == at["spectrum"] == at["evaluation"]
    assert next(e["stored"] for e in events if e["event"] == "memory") == 0
    values = next(e["values"] for e in events if e["event"] == "spectrum")
    assert values[0] == 1
    assert values == sorted(values, reverse=True)
    seconds = read_timing(tmp_path)
    assert set(seconds) == {*PHASES, *AROUND}
    assert all(seconds[phase] > 0 for phase in ("forward", "backward", "data", "probe"))
    last = max((tmp_path / "snapshots").iterdir())
    tensors, _ = checkpoint.read(last)
    assert set(tensors["tile.id"].tolist()) <= set(tensors["memory.column.id"].tolist())


@pytest.mark.parametrize("text", ["", "[]", "{", '{"forward": -1}', '{"forward": "x"}', '{"forward": NaN}'])
def test_a_damaged_timing_file_is_no_time(tmp_path: Path, text: str) -> None:
    (tmp_path / TIMING).write_text(text)
    assert read_timing(tmp_path) == {}


def test_timing_goes_on_where_it_was(tmp_path: Path) -> None:
    write_timing(tmp_path, {"forward": 1.5, "data": 0.25})
    assert read_timing(tmp_path) == {"forward": 1.5, "data": 0.25}
    assert read_timing(tmp_path / "nowhere") == {}
