"""Rows through layers: counted on trials, against what Algorithm 1 says by hand and what PyTorch counts in all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ocssl import Learner
from ocssl.cost import layers as module
from ocssl.cost.layers import REST, Passes, fill, noise, passes_of, shape_of
from ocssl.runs.config import resolve_run
from ocssl.settings import LearnerSettings

pytestmark = pytest.mark.slow

TINY: dict[str, Any] = {
    "encoder.width": 2,
    "objective.projection": 16,
    "memory.capacity": 40,
    "schedule.batch": 12,
    "schedule.stream_batch": 4,
    "schedule.passes": 3,
}


def settings(method: str, **changes: Any) -> LearnerSettings:
    own = {key.replace("__", "."): value for key, value in changes.items()}
    return resolve_run(method, "synthetic", 0, TINY | own).learner()


def in_encoder(counter: Counter[str], name: str = "objective.encoder.") -> set[int]:
    return {rows for layer, rows in counter.items() if layer.startswith(name)}


def test_replay_by_hand() -> None:
    """Two views of 12 rows in each of 3 passes, forwards once and backwards for weights and inputs."""
    passes = passes_of(settings("er-fifo"))
    assert passes.steps == 3
    assert passes.views == 2 * 12 * 3
    assert set(passes.forward.values()) == {72}
    backward = dict(passes.backward)
    assert backward.pop("objective.encoder.stem.0") == 72  # images want no gradient
    assert set(backward.values()) == {144}
    layers = sum(not name.endswith(REST) for name in passes.forward)
    assert passes.calls == 3 * 2 * (3 * layers - 1)


def test_teachers_go_forwards_only() -> None:
    passes = passes_of(settings("er-fifo", objective__name="byol"))
    assert in_encoder(passes.forward, "objective.target.encoder.") == {72}
    assert in_encoder(passes.backward, "objective.target.") == set()
    assert in_encoder(passes.kept, "objective.target.") == set()


def test_glance_of_minred_is_counted() -> None:
    assert in_encoder(passes_of(settings("minred")).forward) == {72 + 2 * 4}


def test_mixed_rows_count_once() -> None:
    assert in_encoder(passes_of(settings("lump")).forward) == {2 * 4 * 3}


def test_gradients_of_gss_stop_at_the_last_block() -> None:
    passes = passes_of(settings("gss", schedule__passes=1))
    assert passes.backward["objective.encoder.stem.0"] == 24
    asked = passes.forward["objective.projector.0"] - 24
    assert asked > 0
    assert passes.backward["objective.projector.0"] == 2 * (24 + asked)


@pytest.mark.parametrize("method", ["solar", "mir", "scale"])
def test_passes_beyond_two_are_alike(method: str) -> None:
    """Two short trials tell of four passes what a trial of four does."""
    wanted = settings(method, schedule__passes=4)
    told, seen = passes_of(wanted), module._trial(module._small(wanted, 4))
    assert (told.forward, told.backward, told.kept) == (seen.forward, seen.backward, seen.kept)
    assert (told.steps, told.calls, told.views) == (seen.steps, seen.calls, seen.views)
    assert told.other == pytest.approx(seen.other)


def counted(passes: Passes, learner: Learner) -> tuple[float, float]:
    """What passes say that one minibatch works in layers, and what PyTorch counts in all."""
    with passes.counting(learner.network), FlopCounterMode(display=False) as counter:
        learner.partial_fit(noise(4, 16))
    layers = shape_of(learner.settings, 16).layers
    work = sum(layers[name].flops * rows for name, rows in (passes.forward + passes.backward).items())
    assert work == passes.inside
    return work, float(counter.get_total_flops())


def learner(method: str) -> Learner:
    made = Learner(method, image_size=16, settings=settings(method))
    fill(made)
    return made


def test_layers_and_the_rest_are_all_there_is() -> None:
    """At another image size than the trial's; what is outside layers is small and known."""
    made = learner("er-fifo")
    layers, everything = counted(Passes(), made)
    colours = 24 * 3 * (2 * 3 * 3 * 16 * 16)  # of views: a 3 x 3 matrix a pixel
    assert layers < everything < layers + 4 * colours


def test_a_count_that_forgets_inputs_is_caught() -> None:
    class Forgetful(Passes):
        def _count(self, name: str, layer: nn.Module, inputs: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
            super()._count(name, layer, tuple(x.detach() for x in inputs), out)

    layers, everything = counted(Forgetful(), learner("er-fifo"))
    assert layers < 0.75 * everything


def test_hooks_are_gone_afterwards() -> None:
    made, passes = learner("er-fifo"), Passes()
    counted(passes, made)
    before = Counter(passes.forward)
    made.partial_fit(noise(4, 16))
    assert passes.forward == before


def test_nothing_global_changes() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    module._trial.cache_clear()
    passes_of(settings("solar"))
    assert torch.equal(torch.get_rng_state(), before)
