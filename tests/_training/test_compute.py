"""How passes are computed: the fused update, lower precision and compilation."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor

import ocssl
from ocssl.errors import SettingError

SMALL = {"encoder.name": "resnet10", "encoder.width": 4, "objective.projection": 16, "schedule.passes": 2}


def images(n: int, seed: int = 0, size: int = 8) -> Tensor:
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def learner(method: str = "solar", **settings: object) -> ocssl.Learner:
    return ocssl.Learner(method, image_size=8, settings={**SMALL, **settings})


@pytest.mark.parametrize(("method", "width", "exactly"), [("solar", 8, True), ("cla-e", 8, True), ("solar", 5, False)])
def test_the_fused_update_is_that_of_plain_sgd(method: str, width: int, exactly: bool) -> None:
    """To the bit where a parameter's size is a multiple of 8; else its last few numbers are rounded otherwise.

    cla-e has a head whose first gradient comes later than the others'.
    """
    size = {"encoder.width": width, "objective.projection": 32}
    fused, plain = learner(method, **size), learner(method, **size)
    options, parameters = plain.settings.optimizer, plain._optimizer.parameters
    plain._optimizer = torch.optim.SGD(  # type: ignore[assignment]
        parameters.values(), options.lr, options.momentum, weight_decay=options.weight_decay, fused=False
    )
    plain._optimizer.parameters, plain._optimizer.lr = parameters, options.lr
    for seed in range(4):
        for one in (fused, plain):
            one.partial_fit(images(10, seed))
    for name, tensor in fused.network.state_dict().items():
        other = plain.network.state_dict()[name]
        assert torch.equal(tensor, other) if exactly else torch.allclose(tensor, other, atol=1e-4), name


def test_lower_precision_is_close_and_features_stay_in_float32() -> None:
    exact, low = learner(), learner(**{"compute.precision": "bfloat16"})
    (views,) = exact._see(images(12))
    out, rough = exact.objective(views), low.objective(views)
    assert rough.features.dtype == rough.projected.dtype == rough.loss.dtype == torch.float32
    assert not torch.equal(out.features, rough.features)
    torch.testing.assert_close(out.features, rough.features, atol=0.1, rtol=0.05)


@pytest.mark.parametrize("objective", ["simsiam", "simclr", "byol", "barlow-twins", "moco", "vicreg"])
def test_every_objective_encodes_in_the_chosen_precision(objective: str) -> None:
    one = learner(**{"compute.precision": "bfloat16", "objective.name": objective})
    seen: list[torch.dtype] = []
    one.objective.encoder.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    one.partial_fit(images(10))
    assert torch.bfloat16 in seen


def test_evaluation_does_not_depend_on_the_precision_of_training() -> None:
    one, other = learner(), learner(**{"compute.precision": "bfloat16"})
    assert (one.transform(images(5)) == other.transform(images(5))).all()


def test_in_lower_precision_a_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    one = learner(**{"compute.precision": "bfloat16"})
    one.partial_fit(images(10))
    one.save(tmp_path)
    other = ocssl.Learner.load(tmp_path)
    for which in (one, other):
        which.partial_fit(images(10, seed=1))
    for name, tensor in one.tensors().items():
        assert torch.equal(tensor, other.tensors()[name]), name


def test_compilation_without_a_compiler_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ocssl._training.assembly.shutil.which", lambda name: None)
    with pytest.raises(SettingError, match="needs a C\\+\\+ compiler"):
        learner(**{"compute.compile": True})


def test_only_the_trained_encoder_is_compiled_and_copies_of_it_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(torch, "compile", lambda call, *a, **k: made.append(call) or call)
    one = learner(**{"compute.compile": True})
    assert len(made) == 1
    assert made[0].__self__ is one.objective.encoder  # type: ignore[attr-defined]
    assert copy.deepcopy(one.objective.encoder)._compiled_call_impl is None
