"""Probes against scikit-learn and torch, and the promise that every sample is scored exactly once."""

import random

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler, normalize

from ocssl.evaluate import knn_probe, linear_probe, probes, ridge_probe

ALL = pytest.mark.parametrize("probe", [linear_probe, ridge_probe, knn_probe])


def mixture(n, classes=5, d=12, noise=1.0, seed=0):
    """Gaussian classes of equal size around fixed centres."""
    centres = np.random.default_rng(99).normal(size=(classes, d))
    y = np.arange(n) % classes
    return centres[y] + noise * np.random.default_rng(seed).normal(size=(n, d)), y


@ALL
@pytest.mark.parametrize("n", [1, 2, 256, 257, 300])
def test_every_test_sample_is_scored_exactly_once(probe, n):
    train_x, train_y = mixture(263, noise=0.1)
    test_x, test_y = mixture(n, noise=0.1, seed=1)
    result = probe(train_x, train_y, test_x, test_y)
    assert result.scored == len(result.predictions) == n
    assert result.accuracy == 100.0
    np.testing.assert_array_equal(result.predictions, test_y)


@ALL
def test_predictions_do_not_depend_on_their_neighbours_or_on_blocks(probe, monkeypatch):
    train, test = mixture(300), mixture(101, seed=1)
    whole = probe(*train, *test).predictions
    monkeypatch.setattr(probes, "_SCORES", 1)
    monkeypatch.setattr(probes, "_DISTANCES", 1)
    np.testing.assert_array_equal(probe(*train, *test).predictions, whole)
    np.testing.assert_array_equal(probe(*train, test[0][::-1], test[1]).predictions[::-1], whole)


@ALL
def test_the_same_seed_gives_the_same_bits_and_the_global_generators_are_left_alone(probe):
    train, test = mixture(120, noise=3), mixture(80, noise=3, seed=1)
    results = []
    for state in (1, 2):
        torch.manual_seed(state)
        np.random.seed(state)  # noqa: NPY002
        random.seed(state)
        before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
        results.append(probe(*train, *test, seed=7))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002
        assert random.getstate() == before[2]
    np.testing.assert_array_equal(results[0].predictions, results[1].predictions)
    assert results[0].learning_rates == results[1].learning_rates


@ALL
def test_tiny_training_sets_work(probe):
    x = np.eye(3)
    assert probe(x, [4, 5, 6], x, [4, 5, 6], **({"k": 1} if probe is knn_probe else {})).accuracy == 100.0
    assert probe(x[:1], [9], x, [9, 9, 1]).accuracy == pytest.approx(200 / 3)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("penalty", [0.01, 1.0])
def test_ridge_probe_is_the_ridge_classifier(classes, penalty):
    train, test = mixture(301, classes, noise=1.5), mixture(500, classes, noise=1.5, seed=1)
    train[0][:, 3] = test[0][:, 3] = 0  # a dead feature
    scaler = StandardScaler().fit(normalize(train[0]))
    reference = RidgeClassifier(alpha=penalty * 301).fit(scaler.transform(normalize(train[0])), train[1])
    result = ridge_probe(*train, *test, penalty=penalty)
    np.testing.assert_array_equal(result.predictions, reference.predict(scaler.transform(normalize(test[0]))))


@pytest.mark.parametrize("k", [1, 7, 50, 151])
def test_knn_probe_is_the_neighbours_classifier(k):
    train, test = mixture(151, noise=1.5), mixture(300, noise=1.5, seed=1)
    scaler = StandardScaler().fit(train[0])
    reference = KNeighborsClassifier(k, algorithm="brute").fit(scaler.transform(train[0]), train[1])
    result = knn_probe(*train, *test, k=k)
    np.testing.assert_array_equal(result.predictions, reference.predict(scaler.transform(test[0])))


def test_knn_takes_all_samples_when_k_is_larger_and_gives_ties_to_the_smallest_label():
    x = np.array([[0.0], [1.0], [2.0]])
    assert knn_probe(x, [5, 5, 2], x, [5, 5, 5], k=50).accuracy == 100.0
    assert knn_probe(x, [9, 7, 8], x, [7, 7, 7], k=3).predictions.tolist() == [7, 7, 7]


@ALL
def test_labels_may_be_any_integers_and_their_names_do_not_matter(probe):
    train, test = mixture(200, noise=1.5), mixture(300, noise=1.5, seed=1)
    want = probe(*train, *test)
    for names in ([10, 20, 30, 40, 50], [-5, 0, 7, 2**40, 2**62]):
        named = np.array(names)
        result = probe(train[0], named[train[1]], test[0], named[test[1]])
        np.testing.assert_array_equal(result.predictions, named[want.predictions])
        assert result.accuracy == want.accuracy
    for kind in (torch.from_numpy, lambda y: y.astype(np.uint8), list):
        assert probe(train[0], kind(train[1]), test[0], kind(test[1])).accuracy == want.accuracy


@pytest.mark.parametrize("probe", [linear_probe, ridge_probe])
def test_permuted_labels_give_the_same_accuracy(probe):
    train, test = mixture(500, noise=1.5), mixture(1000, noise=1.5, seed=1)
    names = np.array([3, 1, 4, 0, 2])
    val = {"val_x": test[0], "val_y": test[1]}
    other = {"val_x": test[0], "val_y": names[test[1]]}
    want = probe(*train, *test, **val).accuracy
    assert probe(train[0], names[train[1]], test[0], names[test[1]], **other).accuracy == pytest.approx(want, abs=0.5)


@ALL
def test_a_label_that_was_never_trained_counts_as_wrong(probe):
    train, test = mixture(200, noise=0.1), mixture(50, noise=0.1, seed=1)
    for unknown in (-1, 3000):
        y = np.where(test[1] == 2, unknown, test[1])
        result = probe(*train, test[0], y, val_x=test[0], val_y=y)
        assert result.accuracy == result.val_accuracy == 80.0


@ALL
def test_torch_and_numpy_of_any_precision_agree_and_dead_features_do_not_crash(probe):
    train, test = mixture(200, noise=0.1), mixture(50, noise=0.1, seed=1)
    for convert in (np.float32, np.float16, lambda x: torch.from_numpy(x).requires_grad_()):
        assert probe(convert(train[0]), train[1], convert(test[0]), test[1]).accuracy == 100.0
    dead = probe(np.zeros((20, 3)), np.arange(20) % 4, np.zeros((8, 3)), np.arange(8) % 4)
    assert dead.accuracy == 25.0


X, Y = np.ones((6, 2)), np.array([0, 1] * 3)


@ALL
@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((X, Y[:4], X, Y), {}, r"train_y has type int64 and shape \(4,\): wanted 6 integers"),
        ((X, Y, X, Y[:, None]), {}, r"test_y has type int64 and shape \(6, 1\)"),
        ((X, Y * 1.0, X, Y), {}, "train_y has type float64"),
        ((X, Y, X[:0], Y[:0]), {}, r"test_x has shape \(0, 2\)"),
        ((X[:, 0], Y, X, Y), {}, r"train_x has shape \(6,\): wanted \[n, d\]"),
        ((X, Y, X[:, :1], Y), {}, "test_x has 1 features, train_x 2"),
        ((X * np.nan, Y, X, Y), {}, "train_x holds NaN"),
        ((X, Y, X * np.inf, Y), {}, "test_x holds NaN or infinite"),
        ((X, Y, X, Y), {"val_x": X}, "only one of val_x and val_y is given"),
        ((X, Y, X, Y), {"val_y": Y}, "only one of val_x and val_y is given"),
    ],
)
def test_wrong_input_is_a_value_error_that_says_what_was_given(probe, arguments, options, said):
    with pytest.raises(ValueError, match=said):
        probe(*arguments, **options)


@pytest.mark.parametrize(
    ("probe", "options", "said"),
    [
        (linear_probe, {"epochs": 0}, "epochs is 0"),
        (linear_probe, {"batch": 0}, "batch 0"),
        (linear_probe, {"lr": -1.0}, "lr -1.0"),
        (linear_probe, {"lr": float("nan")}, "lr nan"),
        (ridge_probe, {"penalty": 0.0}, "penalty is 0.0"),
        (knn_probe, {"k": 0}, "k is 0"),
    ],
)
def test_a_wrong_option_is_a_value_error(probe, options, said):
    with pytest.raises(ValueError, match=said):
        probe(X, Y, X, Y, **options)
