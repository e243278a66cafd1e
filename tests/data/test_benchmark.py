"""Benchmarks: every image once, validation never in the stream, experiences of their own classes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ocssl.data import Benchmark, load_benchmark
from ocssl.errors import SettingError
from ocssl.settings import StreamSettings


def synthetic(**more: Any) -> Benchmark:
    options = {"image_size": 8, "experiences": 5, "classes": 20, "train": 20, "test": 3, **more}
    return load_benchmark("synthetic", StreamSettings.model_validate(options))


def test_each_training_image_comes_once_and_no_validation_image_ever() -> None:
    benchmark = synthetic()
    stream = benchmark.stream(batch=6, seed=0)
    ids = torch.cat([batch.ids for batch in stream.batches()])
    assert len(ids) == len(ids.unique()) == 20 * 18
    assert not torch.isin(benchmark.val.ids, ids).any()
    assert not torch.isin(benchmark.test.ids, torch.cat([benchmark.train.ids, benchmark.val.ids])).any()


def test_validation_is_a_tenth_of_every_class_and_the_same_for_every_seed() -> None:
    benchmark = synthetic()
    assert torch.bincount(benchmark.val.labels).tolist() == [2] * 20
    assert torch.bincount(benchmark.train.labels).tolist() == [18] * 20
    assert torch.equal(benchmark.val.ids, synthetic().val.ids)
    assert not torch.equal(benchmark.val.ids, synthetic(data_seed=1).val.ids)


def test_experiences_are_groups_of_classes_in_order() -> None:
    stream = synthetic().stream(batch=6, seed=0)
    classes: dict[int, set[int]] = {}
    for batch in stream.batches():
        classes.setdefault(batch.task, set()).update(batch.labels.tolist())
    assert classes == {task: set(range(4 * task, 4 * task + 4)) for task in range(5)}
    assert stream.ends() == [12, 24, 36, 48, 60]


def test_the_seed_shuffles_inside_experiences_only() -> None:
    benchmark = synthetic()
    a, b = (list(benchmark.stream(batch=6, seed=s).batches()) for s in (0, 1))
    assert [x.task for x in a] == [x.task for x in b]
    assert not all(torch.equal(x.ids, y.ids) for x, y in zip(a, b, strict=True))


def test_the_incomplete_last_minibatch_is_dropped_or_kept() -> None:
    benchmark = synthetic()  # 72 images an experience
    assert {len(b.ids) for b in benchmark.stream(batch=10, seed=0).batches()} == {10}
    kept = list(benchmark.stream(batch=10, seed=0, drop_last=False).batches())
    assert sum(len(b.ids) for b in kept) == 360


def test_iid_mixes_the_classes() -> None:
    stream = synthetic(order="iid").stream(batch=72, seed=0)
    assert all(len(batch.labels.unique()) > 10 for batch in stream.batches())


def test_the_fraction_takes_part_of_every_class() -> None:
    assert torch.bincount(synthetic(fraction=0.5).train.labels).tolist() == [9] * 20


def test_images_belong_to_their_labels_whatever_the_number() -> None:
    few, many = synthetic(train=2, validation=0.0), synthetic(train=2, validation=0.0, test=7)
    images = few.train.all()
    assert torch.equal(images, many.train.all())
    assert images.dtype == torch.uint8
    assert images.shape == (40, 3, 8, 8)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"experiences": 21}, "only 20 classes"),
        ({"classes": 1}, "classes"),
        ({"fraction": 0.01}, "leaves none"),
        ({"clases": 4}, "did you mean 'stream.classes'"),
        ({"imagesize": 4}, "did you mean 'stream.image_size'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        synthetic(**options)
