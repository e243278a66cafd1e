"""The learner: its contract, determinism, exact state, Algorithm 1 against a slow literal loop, and refusals."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ocssl
from conftest import random_images, small_learner, small_settings
from ocssl import recipes
from ocssl.errors import CheckpointError, NonFiniteLoss, SettingError


def equal_state(a: ocssl.Learner, b: ocssl.Learner) -> bool:
    x, y = a.tensors(), b.tensors()
    return x.keys() == y.keys() and all(torch.equal(x[n], y[n]) for n in x) and a.facts() == b.facts()


def fit(learner: ocssl.Learner, start: int, stop: int, batch: int = 5) -> list[Any]:
    images = random_images(400)
    return [learner.partial_fit(images[i * batch : (i + 1) * batch]) for i in range(start, stop)]


# ---- contract


def test_every_method_of_the_contract_is_there() -> None:
    named = "solar er-reservoir er-fifo minred lars per scale cla-e cla-r finetune lump cmp mir gss cassle pfr sycon"
    assert set(recipes.methods()) >= {*named.split(), "osiris-r", "osiris-d", "pocon", "climb", "storyboard"}


def test_info_counts_steps_and_images(method: str) -> None:
    learner = small_learner(method)
    info = fit(learner, 0, 3)[-1]
    assert (info.seen, info.steps) == (15, 6)
    assert np.isfinite(info.loss)
    few = learner.settings.memory.capacity == 0 or learner.settings.schedule.mix > 0
    assert np.isfinite([info.spread, info.participation_ratio]).all() == (not few)  # five samples say too little


def test_channels_last_and_numpy_are_the_same_images(method: str) -> None:
    first, second, images = small_learner(method), small_learner(method), random_images(6)
    a = first.partial_fit(images)
    b = second.partial_fit(images.permute(0, 2, 3, 1).numpy())
    assert a == b
    assert np.array_equal(first.transform(images), second.transform(images.numpy()))


def test_features_are_float32_and_transform_changes_nothing(method: str) -> None:
    learner = small_learner(method)
    fit(learner, 0, 2)
    before = {name: tensor.clone() for name, tensor in learner.tensors().items()}
    features = learner.transform(random_images(300))
    assert features.dtype == np.float32
    assert features.shape == (300, 16)
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.tensors().items())
    assert learner.objective.training
    assert np.allclose(learner.transform(random_images(300)[7:8]), features[7:8], atol=1e-5)


def test_a_batch_above_the_total_is_cut_into_several() -> None:
    whole, parts, images = small_learner(), small_learner(), random_images(40)
    whole.partial_fit(images)
    for part in images.split(16):
        parts.partial_fit(part)
    assert equal_state(whole, parts)


def test_info_is_the_mean_over_all_cuts_of_a_large_batch() -> None:
    whole, parts, images = small_learner(), small_learner(), random_images(32)
    info = whole.partial_fit(images)
    losses = [parts.partial_fit(part).loss for part in images.split(16)]
    assert info.loss == pytest.approx(sum(losses) / 2)


def test_one_image_at_a_time_works_from_the_first(method: str) -> None:
    learner = small_learner(method)
    for image in random_images(4):
        info = learner.partial_fit(image[None])
        assert np.isfinite(info.loss)
    assert info.seen == 4


@pytest.mark.parametrize("value", [0, 255])
def test_constant_images_leave_finite_weights(method: str, value: int) -> None:
    learner = small_learner(method)
    for _ in range(4):
        learner.partial_fit(torch.full((5, 3, 8, 8), value, dtype=torch.uint8))
    assert all(bool(torch.isfinite(p).all()) for p in learner.objective.parameters())


def test_ids_count_arrivals_unless_given() -> None:
    learner = small_learner()
    learner.partial_fit(random_images(3))
    learner.partial_fit(random_images(2), ids=[70, 80])
    learner.partial_fit(random_images(1))
    table = learner.memory.table()
    assert sorted(table["id"].tolist()) == [0, 1, 2, 5, 70, 80]
    assert sorted(table["born"].tolist()) == [0, 1, 2, 3, 4, 5]


def test_the_memory_never_exceeds_its_capacity(method: str) -> None:
    learner = small_learner(method)
    for i in range(20):
        fit(learner, i, i + 1)
        assert len(learner.memory) == min(5 * (i + 1), learner.settings.memory.capacity)


@pytest.mark.slow
def test_any_keep_rule_pairs_with_any_draw_rule_and_term() -> None:
    from ocssl.memory import DRAWS, KEEPS

    for keep in KEEPS:
        for draw in DRAWS:
            learner = small_learner("er-fifo", memory__keep=keep, memory__draw=draw, terms__overlap__weight=1.0)
            assert np.isfinite(fit(learner, 0, 8)[-1].terms["overlap"])


@pytest.mark.parametrize(
    "more",
    [
        {"memory.space": "projector"},
        {"memory.center": "running"},
        {"memory.mean": "unit"},
        {"memory.angle": "distinct"},
        {"memory.ema": 0.0},
        {"terms.overlap.detach_angle": True},
        {"terms.overlap.short": "skip"},
        {"terms.overlap.weight": 0.0},
        {"memory.rules.least-drawn.probability": "one-minus-softmax"},
        {"schedule.short": "wait"},
        {"schedule.admit": "last"},
        {"schedule.stream_in": "all"},
    ],
)
@pytest.mark.slow
def test_every_switch_changes_what_is_learned(more: dict[str, Any]) -> None:
    settings = small_settings("solar", schedule__batch=12) | more
    learner = ocssl.Learner("solar", image_size=8, settings=settings)
    usual = ocssl.Learner("solar", image_size=8, settings=small_settings("solar", schedule__batch=12))
    assert [i.loss for i in fit(learner, 0, 12)] != [i.loss for i in fit(usual, 0, 12)]


def test_the_learner_can_never_see_labels_or_tasks() -> None:
    import inspect

    assert list(inspect.signature(ocssl.Learner.partial_fit).parameters) == ["self", "images", "ids"]


# ---- Algorithm 1


def literal_solar(images: Tensor, batch: int) -> tuple[list[float], dict[int, list[float]], Tensor]:
    """The paper's loop with plain lists over a learner's own network, views and draws: losses, entries, weights."""
    learner = small_learner("solar")
    network, optimizer, views = learner.objective, learner._optimizer, learner.views
    drawing = learner.memory.generator
    entries: list[dict[str, Any]] = []  # in the order of the slots
    losses = []
    for number in range(len(images) // batch):
        stream = [images[number * batch + i] for i in range(batch)]
        for p in range(2):
            wanted = min(16 - batch if p == 0 else 16, len(entries))
            chosen: list[int] = []
            if wanted:
                counts = torch.tensor([e["count"] for e in entries]).double()
                span = float(counts.max() - counts.min())
                normal = (counts - counts.min()) / span if span else torch.zeros_like(counts)
                race = torch.empty(len(entries), dtype=torch.float64).exponential_(generator=drawing) / (-normal).exp()
                chosen = race.argsort()[:wanted].tolist()
            for j in chosen:
                entries[j]["count"] += 1
            fresh = stream if p == 0 else []
            x = torch.stack([*fresh, *(entries[j]["x"] for j in chosen)])
            out = network(views(x, learner._view_generator))
            e1, e2 = out.features
            zbar = (e1 + e2) / 2
            cosine = nn.functional.cosine_similarity(e1, e2).clamp(-1 + 1e-7, 1 - 1e-7)
            theta = torch.arccos(cosine) / 2
            targets = sorted((j for j in range(len(entries)) if j not in chosen), key=lambda j: -entries[j]["loss"])[:6]
            loss = out.loss.mean()
            if targets:
                total = 0.0
                for i in range(len(x)):
                    for j in targets:
                        c = nn.functional.cosine_similarity(zbar[i], entries[j]["zbar"], dim=0).clamp(
                            -1 + 1e-6, 1 - 1e-6
                        )
                        total = total + (theta[i] + entries[j]["theta"] - torch.arccos(c)).clamp_min(0)
                loss = loss + total / (len(x) * len(targets))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
            new = {"loss": out.loss.detach(), "zbar": zbar.detach(), "theta": theta.detach()}
            for row, j in enumerate(chosen, start=len(fresh)):
                for key in new:
                    entries[j][key] = 0.5 * entries[j][key] + 0.5 * new[key][row]
            if p == 0:
                number_seen = number * batch
                arrivals = [
                    {"x": stream[i], "id": number_seen + i, "count": 0, **{k: v[i] for k, v in new.items()}}
                    for i in range(batch)
                ]
                entries = literal_update(entries, arrivals, 24)
    table = {e["id"]: [float(e["loss"]), float(e["theta"]), e["count"]] for e in entries}
    return losses, table, torch.cat([p.detach().flatten() for p in network.parameters()])


def literal_update(
    entries: list[dict[str, Any]], arrivals: list[dict[str, Any]], capacity: int
) -> list[dict[str, Any]]:
    """Append, then remove the lowest losses; survivors among the newcomers take the places that became free."""
    free = max(0, capacity - len(entries))
    entries = entries + arrivals[:free]
    late = arrivals[free:]
    pool = sorted([*entries, *late], key=lambda e: (float(e["loss"]), e["id"]))
    losers = {e["id"] for e in pool[: len(late)]}
    order = [e["id"] for e in pool[: len(late)] if e["id"] in {x["id"] for x in entries}]
    newcomers = iter([e for e in late if e["id"] not in losers])
    places = {i: next(newcomers) for i in order}
    return [places.get(e["id"], e) for e in entries]


def test_the_loop_is_algorithm_1() -> None:
    images = random_images(50)
    losses, table, weights = literal_solar(images, 5)
    learner = small_learner("solar")
    means = [learner.partial_fit(images[i : i + 5]).loss for i in range(0, 50, 5)]
    assert means == pytest.approx([(a + b) / 2 for a, b in zip(losses[::2], losses[1::2], strict=True)], abs=2e-4)
    found = learner.memory.table()
    rows = zip(found["id"], found["loss"], found["angle"], found["draws"], strict=True)
    got = {int(i): [float(loss), float(angle), int(draws)] for i, loss, angle, draws in rows}
    assert got.keys() == table.keys()
    assert all(got[i] == pytest.approx(table[i], abs=2e-3) for i in table)
    ours = torch.cat([p.detach().flatten() for p in learner.objective.parameters()])
    torch.testing.assert_close(ours, weights, atol=2e-4, rtol=1e-3)


def test_the_literal_loop_catches_a_wrong_switch() -> None:
    images = random_images(50)
    losses, _, _ = literal_solar(images, 5)
    wrong = small_learner("solar", memory__angle="distinct")
    means = [wrong.partial_fit(images[i : i + 5]).loss for i in range(0, 50, 5)]
    assert means != pytest.approx([(a + b) / 2 for a, b in zip(losses[::2], losses[1::2], strict=True)], abs=2e-3)


@pytest.mark.parametrize(
    ("name", "rows"),
    [("solar", [5, 5, 10, 10, 15, 15, 16, 16]), ("er-fifo", [5, 5, 10, 10, 15, 15, 16, 16])],
)
def test_batches_grow_with_the_memory_up_to_the_total(
    name: str, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = small_learner(name)
    seen: list[int] = []
    forward = learner.objective.forward

    def spy(views: Tensor) -> Any:
        seen.append(views.shape[1])
        return forward(views)

    monkeypatch.setattr(learner.objective, "forward", spy)
    fit(learner, 0, 4)
    assert seen == rows


@pytest.mark.parametrize(("name", "fresh"), [("solar", [5, 0, 5, 0]), ("er-fifo", [5, 5, 5, 5])])
def test_stream_samples_are_in_the_passes_that_the_schedule_says(
    name: str, fresh: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = small_learner(name)
    fit(learner, 0, 6)
    asked: list[int] = []
    draw = learner.memory.draw

    def spy(n: int, context: Any) -> Any:
        asked.append(16 - n)
        return draw(n, context)

    monkeypatch.setattr(learner.memory, "draw", spy)
    fit(learner, 6, 8)
    assert asked == fresh


def test_odd_but_right_arrays_are_accepted() -> None:
    images = random_images(4).numpy()
    images.setflags(write=False)
    learner, other = small_learner(), small_learner()
    assert learner.partial_fit(images[::-1]) == other.partial_fit(images[::-1].copy())
    assert ocssl.Learner("solar", image_size=np.int64(8), seed=np.int64(3)).seed == 3


@pytest.mark.parametrize(
    "encoder", ["resnet18", nn.Linear(5, 5), nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).double()]
)
def test_a_module_that_cannot_be_an_encoder_is_refused(encoder: Any) -> None:
    with pytest.raises(SettingError, match="encoder"):
        ocssl.Learner("solar", image_size=8, encoder=encoder)


def test_an_encoder_in_eval_mode_is_trained_all_the_same() -> None:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.BatchNorm1d(6)).eval()
    learner = ocssl.Learner("solar", image_size=8, encoder=encoder, settings=small_settings("solar"))
    assert learner.objective.encoder.training


# ---- determinism and state


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits_whatever_the_global_state(method: str) -> None:
    torch.manual_seed(1)
    first = small_learner(method)
    one = fit(first, 0, 12)
    torch.manual_seed(2)
    np.random.seed(5)  # noqa: NPY002
    second = small_learner(method)
    assert fit(second, 0, 12) == one
    assert equal_state(first, second)


def test_another_seed_gives_other_numbers(method: str) -> None:
    assert fit(small_learner(method, seed=0), 0, 3) != fit(small_learner(method, seed=1), 0, 3)


def test_global_random_state_is_left_alone(method: str) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    learner = small_learner(method)
    fit(learner, 0, 3)
    learner.transform(random_images(3))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.slow
def test_transforming_and_saving_in_between_changes_nothing(method: str, tmp_path: Path) -> None:
    quiet, busy = small_learner(method), small_learner(method)
    one = fit(quiet, 0, 8)
    two = []
    for i in range(8):
        busy.transform(random_images(5))
        two += fit(busy, i, i + 1)
        busy.save(tmp_path)
        busy.memory.table()
    assert one == two
    assert equal_state(quiet, busy)


@functools.cache
def uninterrupted(method: str) -> tuple[ocssl.Learner, list[Any]]:
    learner = small_learner(method)
    return learner, fit(learner, 0, 12)


@pytest.mark.parametrize("stop", [0, 3, 9])  # nothing seen; not full; full
@pytest.mark.slow
def test_a_loaded_learner_continues_bit_for_bit(method: str, stop: int, tmp_path: Path) -> None:
    whole, expected = uninterrupted(method)
    first = small_learner(method)
    done = fit(first, 0, stop)
    first.save(tmp_path / "a")
    second = ocssl.Learner.load(tmp_path / "a")
    assert equal_state(first, second)
    middle = stop + (12 - stop) // 2
    done += fit(second, stop, middle)
    second.save(tmp_path / "b")  # twice in a row
    third = ocssl.Learner.load(tmp_path / "b")
    done += fit(third, middle, 12)
    assert done == expected
    assert equal_state(whole, third)


def test_a_save_holds_no_pickle_and_replaces_an_older_one(tmp_path: Path) -> None:
    learner = small_learner()
    for i in range(3):
        fit(learner, i, i + 1)
        learner.save(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 2
    assert names[0] == "checkpoint.json"
    assert names[1].endswith(".safetensors")


def test_an_own_encoder_is_needed_again_for_loading(tmp_path: Path) -> None:
    def encoder() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 6))

    learner = ocssl.Learner("solar", image_size=8, encoder=encoder(), settings=small_settings("solar"))
    fit(learner, 0, 2)
    learner.save(tmp_path)
    with pytest.raises(CheckpointError, match="encoder="):
        ocssl.Learner.load(tmp_path)
    loaded = ocssl.Learner.load(tmp_path, encoder=encoder())
    assert fit(loaded, 2, 4) == fit(learner, 2, 4)
    with pytest.raises(CheckpointError, match="does not fit"):
        ocssl.Learner.load(tmp_path, encoder=nn.Sequential(nn.Flatten(), nn.Linear(192, 7)))


# ---- refusals


GOOD = random_images(2)
WRONG_IMAGES = {
    "floats": (GOOD.float() / 255, "float32"),
    "doubles of numpy": (GOOD.numpy() / 255.0, "float64"),
    "nan": (torch.full((2, 3, 8, 8), float("nan")), "NaN"),
    "integers": (GOOD.long(), "int64"),
    "one channel": (GOOD[:, :1], "3 colour channels"),
    "four channels": (torch.cat([GOOD, GOOD[:, :1]], 1), "3 colour channels"),
    "wrong size": (random_images(2, size=9), "8 x 8"),
    "not square": (GOOD[:, :, :, :6], "8 x 8"),
    "empty": (GOOD[:0], "empty"),
    "one image": (GOOD[0], r"images\[None\]"),
    "five axes": (GOOD[None], "shape"),
    "a list": (GOOD.tolist(), "list"),
    "nothing": (None, "NoneType"),
    "meta": (GOOD.to("meta"), "meta"),
    "sparse": (GOOD.to_sparse(), "sparse"),
    "long doubles": (GOOD.numpy().astype(np.longdouble), "longdouble|float128"),
    "reversed floats": (GOOD.numpy()[::-1].astype(np.float32)[:, :, ::-1], "float32"),
}


@pytest.mark.parametrize("case", list(WRONG_IMAGES))
def test_wrong_images_are_refused_and_the_learner_stays_as_it_was(case: str) -> None:
    images, said = WRONG_IMAGES[case]
    learner, other = small_learner(), small_learner()
    fit(learner, 0, 2)
    fit(other, 0, 2)
    with pytest.raises(ValueError, match=said) as caught:
        learner.partial_fit(images)
    assert "wanted uint8 images [b, 3, 8, 8]" in str(caught.value)
    if case == "empty":  # there is nothing to encode
        assert learner.transform(images).shape == (0, learner.objective.dimension)
    else:
        with pytest.raises(ValueError, match="wanted"):
            learner.transform(images)
    assert equal_state(learner, other)


@pytest.mark.parametrize("ids", [[1], [1.5, 2.5], [[1, 2]], "ab", [None, None], ["a", "b"], [True, False], [2**70, 1]])
def test_wrong_ids_are_refused(ids: Any) -> None:
    with pytest.raises(ValueError, match="2 integer ids"):
        small_learner().partial_fit(GOOD, ids=ids)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"memory.capcity": 5}, "did you mean 'memory.capacity'"),
        ({"memory.keep": "reservior"}, "did you mean 'reservoir'"),
        ({"memory.draw": "unifrom"}, "did you mean 'uniform'"),
        ({"objective.name": "simsiamm"}, "did you mean 'simsiam'"),
        ({"objective.projecton": 5}, "did you mean 'objective.projection'"),
        ({"terms.overlp.weight": 1.0}, "did you mean 'overlap'"),
        ({"terms.overlap.wieght": 1.0}, "did you mean 'weight'"),
        ({"encoder.name": "resnet81"}, "did you mean 'resnet18'"),
        ({"memory.rules.least-drwn.temperature": 1}, "did you mean 'least-drawn'"),
        ({"memory.rules.least-drawn.temperature": -1}, "greater than 0"),
        ({"memory.capacity": -1}, "memory.capacity is -1"),
        ({"memory.capacity": "many"}, "memory.capacity is 'many'"),
        ({"optimizer.lr": float("inf")}, "optimizer.lr"),
        ({"schedule.stream_in": "some"}, "schedule.stream_in is 'some'"),
        ({"views.crop_scale": [0.9, 0.1]}, "crop_scale"),
        ({"stream.image_size": 8}, "stream"),
        ({"encoder.width": True}, "option width is True"),
        ({"encoder.width": 0}, "option width is 0: .*greater than or equal to 1"),
        ({"encoder.width": 4097}, "option width is 4097: .*less than or equal to 4096"),
        ({"encoder.stem": "tiny"}, "option stem is 'tiny'"),
        ({"encoder.widht": 8}, "did you mean 'encoder.width'"),
        ({"optimizer.name": "sdg"}, "did you mean 'sgd'"),
        ({"optimizer.momentun": 0.5}, "did you mean 'optimizer.momentum'"),
        ({"optimizer.beta1": 0.5}, "unknown setting 'optimizer.beta1'"),
        ({"optimizer.name": "adamw", "optimizer.beta1": 1.0}, "option beta1 is 1.0"),
        ({"memory.capacity": 10**14}, "cannot hold"),
        ({"terms.overlap.weight": float("inf")}, "finite"),
        ({"memory.rules.least-drawn.temperature": float("inf")}, "finite"),
        ([1], "table"),
        ({5: 1}, "table"),
    ],
)
def test_wrong_settings_are_named_with_the_nearest_right_one(settings: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said) as caught:
        ocssl.Learner("solar", image_size=8, settings=settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [0, -3, 2, 8.5, None, "8", True, 10**6])
def test_a_wrong_image_size_is_refused(size: Any) -> None:
    with pytest.raises(SettingError, match="image_size is"):
        ocssl.Learner("solar", image_size=size)


@pytest.mark.parametrize("seed", [-1, 1.5, None, 2**63])
def test_a_wrong_seed_is_refused(seed: Any) -> None:
    with pytest.raises(SettingError, match="seed is"):
        ocssl.Learner("solar", image_size=8, seed=seed)


def test_a_misspelled_method_is_named_with_the_nearest() -> None:
    with pytest.raises(SettingError, match="unknown method 'sollar': did you mean 'solar'"):
        ocssl.Learner("sollar", image_size=8)


def test_a_non_finite_loss_stops_before_any_weight_changes() -> None:
    learner = small_learner()
    fit(learner, 0, 3)
    with torch.no_grad():
        learner.objective.get_submodule("predictor")[0].weight.fill_(float("nan"))  # type: ignore[index]
    before = {name: p.detach().clone() for name, p in learner.objective.named_parameters()}
    momentum = {n: t.clone() for n, t in learner.tensors().items() if n.startswith("momentum.")}
    with pytest.raises(NonFiniteLoss, match="every sample") as caught:
        learner.partial_fit(GOOD, ids=[500, 501])
    assert {500, 501} <= set(caught.value.ids)
    assert learner.steps == 6
    for name, p in learner.objective.named_parameters():
        torch.testing.assert_close(p.detach(), before[name], equal_nan=True, atol=0, rtol=0)
    assert all(torch.equal(learner.tensors()[name], tensor) for name, tensor in momentum.items())


def test_a_non_finite_loss_names_the_samples_that_did_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from ocssl.objectives import Output

    learner = small_learner()
    forward = learner.objective.forward

    def poisoned(views: Tensor) -> Output:
        out = forward(views)
        return Output(torch.where(torch.arange(len(out.loss)) == 1, torch.inf, out.loss), out.features, out.projected)

    monkeypatch.setattr(learner.objective, "forward", poisoned)
    with pytest.raises(NonFiniteLoss, match=r"1 of 3 samples \(ids 71\)") as caught:
        learner.partial_fit(random_images(3), ids=[70, 71, 72])
    assert caught.value.ids == [71]


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    learner = small_learner()
    learner.save(tmp_path)
    good = json.loads((tmp_path / "checkpoint.json").read_text())
    with torch.no_grad():
        next(learner.objective.parameters()).fill_(float("inf"))
    with pytest.raises(NonFiniteLoss, match="not saved"):
        learner.save(tmp_path)
    assert json.loads((tmp_path / "checkpoint.json").read_text()) == good
