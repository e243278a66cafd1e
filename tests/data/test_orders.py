"""Orders: every image once, whatever the order, and each order is what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ocssl.data import Benchmark
from ocssl.data.benchmark import assemble
from ocssl.data.decode.files import silent
from ocssl.data.orders import (
    Experience,
    blurred,
    class_tasks,
    drifted,
    equal_sizes,
    imbalanced,
    irregular_sizes,
    repeated,
)
from ocssl.data.sources.source import Collection, SourceImages
from ocssl.errors import SettingError
from ocssl.settings import DataSettings, StreamSettings

DOMAINS = ("photo", "sketch", "cartoon")


def collection(per_class: int = 20, classes: int = 6, labelled: bool = True) -> Collection:
    """Images whose first pixel is the row number, classes and domains interleaved."""
    count = per_class * classes
    images = torch.zeros(count, 3, 8, 8, dtype=torch.uint8)
    images[:, 0, 0, 0] = torch.arange(count) % 256
    rows = np.arange(count)
    groups = {"domain": rows // classes % 3, "taxonomy": rows % classes % 2} if labelled else {}
    return Collection(images, rows % classes if labelled else None, groups)


def made(labelled: bool = True, test: bool = True, **options: Any) -> Benchmark:
    names = {"domain": DOMAINS, "taxonomy": ("animal", "thing")} if labelled else {}
    classes = [f"class{i}" for i in range(6)] if labelled else []
    found = SourceImages(collection(labelled=labelled), collection(5) if test else None, classes, names)
    stream = StreamSettings.model_validate({"image_size": 8, "experiences": 3, **options})
    return assemble("made", found, stream, DataSettings(), silent)


def ids(benchmark: Benchmark, seed: int = 0, batch: int = 1) -> Tensor:
    return torch.cat([b.ids for b in benchmark.stream(batch, seed, drop_last=False).batches()])


ORDERS: list[dict[str, Any]] = [
    {"order": "class"},
    {"order": "irregular"},
    {"order": "domain"},
    {"order": "taxonomy"},
    {"order": "iid"},
    {"order": "given"},
    {"order": "class", "blurry": 0.3},
    {"order": "class", "drift": 0.5},
    {"order": "domain", "repeats": 3},
    {"order": "class", "imbalance": 10.0},
    {"order": "class", "shuffle": True},
    {"order": "taxonomy", "blurry": 0.2, "repeats": 2, "drift": 1.0, "imbalance": 3.0},
]


@pytest.mark.parametrize("options", ORDERS, ids=lambda options: "-".join(map(str, options.values())))
@pytest.mark.parametrize("test", [True, False])
def test_each_image_comes_once_and_no_held_out_image_ever(options: dict[str, Any], test: bool) -> None:
    benchmark = made(test=test, **options)
    seen = ids(benchmark)
    assert len(seen) == len(seen.unique()) == len(benchmark.train)
    held = torch.cat([benchmark.val.ids, benchmark.test.ids])
    assert len(held) > 0
    assert not torch.isin(held, seen).any()
    assert not torch.isin(benchmark.val.ids, benchmark.test.ids).any()
    if "imbalance" not in options:
        assert len(seen) + len(benchmark.val) == (120 if test else 96)
    assert torch.equal(ids(benchmark), seen)
    assert torch.equal(ids(made(test=test, **options)), seen)
    other = ids(benchmark, seed=1)
    assert torch.equal(other, seen) == (options["order"] == "given")


@pytest.mark.parametrize("options", ORDERS, ids=lambda options: "-".join(map(str, options.values())))
def test_images_labels_and_ids_belong_together(options: dict[str, Any]) -> None:
    for batch in made(**options).stream(7, 0, drop_last=False).batches():
        assert torch.equal(batch.images[:, 0, 0, 0].long(), batch.ids)
        assert torch.equal(batch.labels, batch.ids % 6)


@pytest.mark.parametrize(
    ("order", "task"),
    [("class", lambda i: i % 6 // 2), ("domain", lambda i: i // 6 % 3), ("taxonomy", lambda i: i % 2)],
)
def test_a_plain_stream_goes_from_task_to_task(order: str, task: Any) -> None:
    benchmark = made(order=order)
    for batch in benchmark.stream(1, 0).batches():
        assert batch.task == task(int(batch.ids))
    stream = benchmark.stream(1, 0)
    assert stream.tasks() == sorted(stream.tasks()) == list(range(len(benchmark.tasks)))
    assert torch.equal(benchmark.test.tasks, torch.tensor([task(int(i)) for i in benchmark.test.ids % 2**40]))


def test_names_of_tasks_and_the_users_own_sequence() -> None:
    assert list(made(order="domain").tasks) == list(DOMAINS)
    turned = made(order="domain", sequence=["cartoon", "photo", "sketch"])
    assert list(turned.tasks) == ["cartoon", "photo", "sketch"]
    assert set((ids(turned)[:30] // 6 % 3).tolist()) == {2}
    assert list(made().tasks) == ["class0, class1", "class2, class3", "class4, class5"]
    assert set(made(order="domain", shuffle=True, data_seed=3).tasks) == set(DOMAINS)
    assert made(order="iid").tasks == []


def test_images_without_labels_come_as_given_and_all_of_them() -> None:
    benchmark = made(labelled=False, test=False)
    assert not benchmark.labelled
    assert ids(benchmark).tolist() == list(range(120))
    assert len(benchmark.stream(4, 0).ends()) == 3
    assert ids(made(labelled=False, test=False, order="iid")).tolist() != list(range(120))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"order": "class", "labelled": False}, "no labels"),
        ({"order": "domain", "labelled": False}, "no domain"),
        ({"imbalance": 2.0, "labelled": False}, "imbalance needs labels"),
        ({"order": "given", "drift": 1.0}, "keeps their order"),
        ({"order": "given", "blurry": 0.5}, "keeps their order"),
        ({"order": "domain", "sequence": ["foto", "sketch", "cartoon"]}, "did you mean 'photo'"),
        ({"order": "domain", "sequence": ["photo", "sketch"]}, "'cartoon' is missing"),
        ({"order": "domain", "sequence": ["photo", "sketch", "cartoon", "photo"]}, "occurs twice"),
        ({"order": "domain", "sequence": [*DOMAINS], "shuffle": True}, "set one of them"),
        ({"experiences": 7}, "only 6 classes"),
        ({"order": "iid", "experiences": 1000}, "only 108 images"),
        ({"fraction": 0.01}, "leaves none"),
    ],
)
def test_what_cannot_be_ordered_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        made(**options)


def test_the_fraction_is_the_first_of_every_class_and_validation_a_share_of_each() -> None:
    benchmark = made(fraction=0.5, validation=0.2)
    both = torch.cat([benchmark.train.ids, benchmark.val.ids])
    assert sorted(both.tolist()) == list(range(60))
    assert torch.bincount(benchmark.val.labels).tolist() == [2] * 6


def test_the_stream_may_stop_early_while_all_is_tested() -> None:
    benchmark = made(stop=2)
    assert set((ids(benchmark) % 6).tolist()) == {0, 1, 2, 3}
    assert set(benchmark.test.labels.tolist()) == set(range(6))
    assert set(benchmark.train.labels.tolist()) == set(range(6))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.integers(1, 12), st.randoms(use_true_random=False))
def test_classes_are_parted_as_equally_as_they_can_be(classes: int, tasks: int, random: Any) -> None:
    if tasks > classes:
        return
    order = random.sample(range(classes), classes)
    found = class_tasks(torch.arange(classes), order, equal_sizes(classes, tasks))
    assert [int(found[c]) for c in order] == sorted(found.tolist())
    sizes = torch.bincount(found, minlength=tasks)
    assert sizes.max() - sizes.min() <= 1


def dealt_out(classes: int, shares: list[float]) -> list[int]:
    """One class each; the rest in proportion, what is left over to the largest remainders one by one."""
    rest = classes - len(shares)
    exact = [share / sum(shares) * rest for share in shares]
    sizes = [int(part) for part in exact]
    for number in sorted(range(len(shares)), key=lambda i: sizes[i] - exact[i])[: rest - sum(sizes)]:
        sizes[number] += 1
    return [1 + size for size in sizes]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 120), st.integers(1, 30), st.integers(0, 1000))
def test_irregular_experiences_have_all_classes_and_at_least_one_each(classes: int, tasks: int, seed: int) -> None:
    if tasks > classes:
        return
    sizes = irregular_sizes(classes, tasks, torch.Generator().manual_seed(seed))
    shares = torch.rand(tasks, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).tolist()
    assert sizes == dealt_out(classes, shares)
    assert len(sizes) == tasks
    assert sum(sizes) == classes
    assert min(sizes) >= 1
    assert len(class_tasks(torch.arange(classes), range(classes), sizes).unique()) == tasks


def test_irregular_experiences_differ_in_classes_and_length_by_the_seed_of_the_data() -> None:
    benchmark = made(order="irregular", data_seed=2)
    lengths = [len(experience.rows) for experience in benchmark.experiences]
    assert lengths == [18 * len(task.split(", ")) for task in benchmark.tasks]
    assert len(set(lengths)) > 1
    assert ", ".join(benchmark.tasks) == ", ".join(f"class{i}" for i in range(6))  # their order is the same
    found = {tuple(len(e.rows) for e in made(order="irregular", data_seed=seed).experiences) for seed in range(8)}
    assert len(found) > 2
    with pytest.raises(SettingError, match="only 6 classes"):
        made(order="irregular", experiences=7)
    with pytest.raises(SettingError, match=r"irregular, but these images have no labels"):
        made(labelled=False, order="irregular")


def stretches(count: int = 4, length: int = 500) -> list[Experience]:
    return [Experience(torch.arange(i * length, (i + 1) * length), i) for i in range(count)]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_blurred_experiences_hold_the_share_of_others() -> None:
    found = blurred(stretches(), 0.4, seeded())
    for experience in found:
        assert len(experience.rows) == 500
        strangers = float((experience.rows // 500 != experience.task).float().mean())
        assert abs(strangers - 0.4 * 3 / 4) < 0.06
    assert torch.equal(torch.cat([e.rows for e in found]).sort().values, torch.arange(2000))


def test_repeated_experiences_come_back_with_other_images() -> None:
    found = repeated(stretches(), 3, seeded())
    assert [e.task for e in found] == [0, 1, 2, 3] * 3
    assert torch.equal(torch.cat([e.rows for e in found]).sort().values, torch.arange(2000))
    assert all(bool((e.rows // 500 == e.task).all()) for e in found)


def test_drift_mixes_neighbours_near_the_boundary_and_nobody_else() -> None:
    parts = [e.rows for e in stretches(4, 5000)]
    found = drifted(parts, 0.25, seeded())
    assert [len(part) for part in found] == [5000] * 4
    moved = torch.cat(found)
    assert int((moved - torch.arange(20000)).abs().max()) <= 2500  # twice the reach of 1250
    middle, edge = found[1][2400:2600], torch.cat([found[1][-400:], found[2][:400]])
    assert set((middle // 5000).tolist()) == {1}
    assert 0.45 < float((edge // 5000 == 1).float().mean()) < 0.55
    shares = [float((moved[at - 200 : at + 200] >= 10000).float().mean()) for at in range(8900, 11101, 550)]
    assert shares == sorted(shares)
    assert shares[0] < 0.1 < 0.9 < shares[-1]
    assert torch.equal(torch.cat(drifted(parts, 0.0, seeded())), torch.arange(20000))


def test_imbalanced_classes_fall_geometrically() -> None:
    labels = torch.arange(5).repeat(1000)
    kept = imbalanced(labels, 16.0, seeded())
    sizes = torch.bincount(labels[kept]).sort(descending=True).values.tolist()
    assert sizes == [1000, 500, 250, 125, 62]
    assert len(kept) == len(kept.unique())
    assert torch.bincount(labels[imbalanced(labels[:20], 1e9, seeded())]).min() == 1
