"""RankMe, LiDAR, centred Overlap and instance@1 against literal float64 formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_latent import cosine, literal_count

from conftest import small_learner
from ocssl._core.measures import MEASURES
from ocssl._core.random import generator_for
from ocssl.data import load_benchmark
from ocssl.errors import DataError
from ocssl.evaluate import centred_overlap, instance_at_1, label_free, lidar, rankme
from ocssl.evaluate.evaluation import evaluate, measure_views
from ocssl.evaluate.label_free import measures
from ocssl.settings import EvaluateSettings, StreamSettings

Array = Any


def made(seed: int, n: int = 12, v: int = 4, d: int = 5, spread: float = 0.5) -> Array:
    data = np.random.default_rng(seed)
    return data.normal(size=(n, 1, d)) + spread * data.normal(size=(n, v, d)) + data.normal(size=d)


# ---- literal formulas


def entropy_rank(values: list[float], epsilon: float = 1e-7) -> float:
    total = math.fsum(values)
    shares = [value / total + epsilon for value in values]
    return math.exp(-math.fsum(share * math.log(share) for share in shares))


def literal_rankme(features: Array, broken: str = "") -> float:
    x = features - features.mean(0) if broken == "centred" else features
    values = [math.sqrt(max(0.0, value)) for value in np.linalg.eigvalsh(x.T @ x)]
    return entropy_rank([value**2 for value in values] if broken == "squared" else values)


def literal_lidar(views: Array, broken: str = "") -> float:
    n, v, d = views.shape
    means = [views[i].mean(0) for i in range(n)]
    centre = sum(means) / n
    between, within = np.zeros((d, d)), np.zeros((d, d))
    for i in range(n):
        apart = means[i] if broken == "not centred" else means[i] - centre
        between += np.outer(apart, apart) / n
        for j in range(v):
            within += np.outer(views[i, j] - means[i], views[i, j] - means[i]) / (n * v)
    within = np.eye(d) if broken == "not whitened" else within + 1e-4 * np.eye(d)
    values = np.linalg.eigvals(np.linalg.inv(within) @ between).real
    return entropy_rank([max(0.0, value) for value in values])


def literal_centred(views: Array, broken: str = "") -> float:
    return literal_count(views if broken == "not centred" else views - views.mean((0, 1)))


def literal_instance(views: Array, broken: str = "") -> float:
    n, hits = len(views), 0
    for i in range(n):
        near = [cosine(views[i, 0], views[j, 0 if broken == "itself" else 1]) for j in range(n)]
        hits += max(range(n), key=lambda j: near[j]) == i
    return hits / n


MEASURED: dict[str, tuple[Callable[[Array], float], Callable[..., float]]] = {
    "rankme": (lambda views: rankme(views.mean(1)), lambda views, broken="": literal_rankme(views.mean(1), broken)),
    "lidar": (lidar, literal_lidar),
    "centred overlap": (centred_overlap, literal_centred),
    "instance@1": (instance_at_1, literal_instance),
}


@pytest.mark.parametrize("name", list(MEASURED))
def test_measures_are_their_literal_formulas(name: str) -> None:
    ours, literal = MEASURED[name]
    for seed in range(6):
        views = made(seed, spread=0.2 + 0.3 * seed)
        assert ours(views) == pytest.approx(literal(views), rel=1e-6)
        assert ours(torch.from_numpy(views)) == ours(views)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("rankme", "centred"),
        ("rankme", "squared"),
        ("lidar", "not centred"),
        ("lidar", "not whitened"),
        ("centred overlap", "not centred"),
        ("instance@1", "itself"),
    ],
)
def test_a_wrong_formula_is_found_out(name: str, broken: str) -> None:
    ours, literal = MEASURED[name]
    gaps = [abs(ours(views) - literal(views, broken)) for views in (made(seed, spread=0.8) for seed in range(6))]
    assert max(gaps) > 0.02


# ---- properties


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 9), st.integers(2, 4), st.integers(1, 7))
def test_ranges_and_what_leaves_measures_alone(seed: int, n: int, v: int, d: int) -> None:
    views = made(seed, n, v, d)
    turn, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))
    assert 1 - 1e-3 <= rankme(views[:, 0]) <= min(n, d) + 1e-3
    assert 1 - 1e-3 <= lidar(views) <= min(n - 1, d) + 1e-3
    assert 0 <= instance_at_1(views) <= 1
    assert rankme(3 * views[:, 0] @ turn) == pytest.approx(rankme(views[:, 0]), rel=1e-6)
    assert lidar(views @ turn) == pytest.approx(lidar(views), rel=1e-5)
    assert lidar(views + 5) == pytest.approx(lidar(views), rel=1e-5)
    assert instance_at_1(7 * views) == pytest.approx(instance_at_1(views))
    assert centred_overlap(views + 5) == pytest.approx(centred_overlap(views), abs=0.05)


def test_known_features() -> None:
    assert rankme(np.eye(6)) == pytest.approx(6, rel=1e-4)
    assert rankme(np.ones((6, 3))) == pytest.approx(1, rel=1e-4)
    distinct = np.repeat(np.eye(5)[:, None], 3, axis=1)
    assert instance_at_1(distinct) == 1
    assert lidar(distinct) == pytest.approx(4, rel=1e-4)
    same = np.ones((5, 3, 4))
    assert instance_at_1(same) == pytest.approx(1 / 5)  # chance
    assert lidar(same) == rankme(np.zeros((3, 2))) == 0


def test_bad_input_is_named() -> None:
    with pytest.raises(DataError, match="1 view of each image"):
        instance_at_1(np.ones((3, 1, 2)))
    with pytest.raises(DataError, match="1 images and 3 views"):
        lidar(np.ones((1, 3, 2)))
    with pytest.raises(DataError, match="NaN"):
        rankme(np.full((3, 2), np.nan))


def test_one_usable_image_leaves_all_unknown() -> None:
    assert set(measures(torch.ones(1, 3, 2)).values()) == {None}
    assert None not in measures(torch.from_numpy(made(0))).values()


# ---- in a run


@pytest.fixture(scope="module")
def seen() -> tuple[Any, Any]:
    options = {"image_size": 8, "classes": 4, "train": 12, "experiences": 2, "test": 5}
    return small_learner("er-fifo"), load_benchmark("synthetic", StreamSettings.model_validate(options))


def test_an_evaluation_holds_them_and_leaves_the_learner_alone(seen: tuple[Any, Any]) -> None:
    learner, benchmark = seen
    before = {name: tensor.clone() for name, tensor in learner.tensors().items()}
    options = EvaluateSettings(probe="ridge", latent_samples=20, latent_views=3)
    facts = evaluate(learner, benchmark, options, seed=0).facts()
    generator = generator_for(0, "latent")
    chosen = torch.randperm(len(benchmark.train), generator=generator)[:20]
    views = measure_views(learner, benchmark.train.subset(chosen), 3, generator).views
    assert views.shape[:2] == (20, 3)
    assert {key: facts[key] for key in measures(views)} == measures(views)
    assert measures(views).keys() <= MEASURES.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.tensors().items())
    without = evaluate(learner, benchmark, EvaluateSettings(probe="ridge", latent_samples=0), seed=0).facts()
    assert "lidar" not in without


@pytest.mark.parametrize("images", [0, 1, 7, 32, 40])
def test_no_more_views_are_kept_than_there_is_room_for(
    images: int, seen: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, benchmark = seen
    dimension = learner.objective.dimension
    monkeypatch.setattr(label_free, "MOST_VALUES", images * 2 * dimension + dimension)
    found = measure_views(learner, benchmark.train.subset(torch.arange(40)), 2, torch.Generator().manual_seed(0))
    assert found.views.shape == (images, 2, dimension)
    assert len(found.means) == 40
