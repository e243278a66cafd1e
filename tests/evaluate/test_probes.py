"""Probes against scikit-learn and torch, and the promise that every sample is scored exactly once."""

import random

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler, normalize

from ocssl.evaluate import knn_probe, linear_probe, probes, ridge_probe

ALL = pytest.mark.parametrize("probe", [linear_probe, ridge_probe, knn_probe])
RATES = [0.05 / 3**i for i in range(6)]  # .05 .0167 .0056 .0019 .0006 .0002


def mixture(n, classes=5, d=12, noise=1.0, seed=0):
    """Gaussian classes of equal size around fixed centres."""
    centres = np.random.default_rng(99).normal(size=(classes, d))
    y = np.arange(n) % classes
    return centres[y] + noise * np.random.default_rng(seed).normal(size=(n, d)), y


def noise_task(seed=0):
    """Labels that the features know nothing about."""
    rng = np.random.default_rng(seed)
    return [part for n in (300, 200, 100) for part in (rng.normal(size=(n, 4)), rng.integers(0, 2, n))]


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
    np.testing.assert_array_equal(probe(*train, *test).predictions, whole)
    np.testing.assert_array_equal(probe(*train, test[0][::-1], test[1]).predictions[::-1], whole)


def test_every_training_sample_is_used_in_every_epoch_in_a_new_order(monkeypatch):
    batches = []
    gradient = probes.cross_entropy_gradient

    def watched(weight, x, y):
        batches.append(x[:, 0].tolist())
        assert (x[:, -1] == 1).all()  # the bias
        return gradient(weight, x, y)

    monkeypatch.setattr(probes, "cross_entropy_gradient", watched)
    x, y = mixture(257)
    linear_probe(x, y, x, y, val_x=x, val_y=y, epochs=2)
    assert [len(rows) for rows in batches] == [256, 1, 256, 1]
    first, second = batches[0] + batches[1], batches[2] + batches[3]
    assert first != second
    assert sorted(first) == sorted(second)
    np.testing.assert_allclose(sorted(first), sorted(normalize(x)[:, 0]), atol=1e-6)


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


def test_the_thread_count_changes_no_bit_of_the_linear_probe_and_is_given_back(monkeypatch):
    train, test = mixture(600, d=200, noise=3), mixture(200, d=200, noise=3, seed=1)
    given, answers = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            answers.append(linear_probe(*train, *test, epochs=5).predictions)
            assert torch.get_num_threads() == threads
        monkeypatch.setattr(probes, "cross_entropy_gradient", None)
        with pytest.raises(TypeError):
            linear_probe(*train, *test)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(given)
    np.testing.assert_array_equal(*answers)


def test_the_seed_decides_the_held_out_samples_and_the_order():
    train, test = mixture(120, noise=3), mixture(400, noise=3, seed=1)
    answers = [linear_probe(*train, *test, seed=seed, epochs=3).predictions for seed in (0, 1)]
    assert (answers[0] != answers[1]).any()


def test_a_tenth_of_each_class_is_held_out():
    y = np.repeat([7, -3, 50, 8], [100, 25, 4, 1])
    x = np.arange(130.0)[:, None] + 1
    data = probes._Data((x, y), (x, y), (None, None))
    held_x, held_y = data.hold_out(torch.Generator().manual_seed(0))
    assert np.bincount(held_y, minlength=4).tolist() == [3, 10, 0, 0]  # classes in the order -3, 7, 8, 50
    assert sorted(torch.cat([held_x, data.train_x]).flatten().tolist()) == x.flatten().tolist()
    np.testing.assert_array_equal(data.classes[held_y], y[held_x.flatten().long() - 1])


@ALL
def test_tiny_training_sets_work(probe):
    x = np.eye(3)
    assert probe(x, [4, 5, 6], x, [4, 5, 6], **({"k": 1} if probe is knn_probe else {})).accuracy == 100.0
    assert probe(x[:1], [9], x, [9, 9, 1]).accuracy == pytest.approx(200 / 3)


def test_linear_probe_agrees_with_logistic_regression():
    train, val, test = (mixture(n, noise=1.5, seed=s) for n, s in ((3000, 0), (800, 1), (4000, 2)))
    result = linear_probe(*train, *test, val_x=val[0], val_y=val[1])
    reference = LogisticRegression(C=1e4, max_iter=2000).fit(normalize(train[0]), train[1])
    want = 100 * reference.score(normalize(test[0]), test[1])
    assert 50 < want < 90
    assert result.accuracy == pytest.approx(want, abs=1.5)
    assert result.val_accuracy == pytest.approx(100 * reference.score(normalize(val[0]), val[1]), abs=2)


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


def test_the_gradient_by_hand_is_autograd():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(5, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    x = torch.randn(11, 7, generator=generator, dtype=torch.float64)
    y = torch.randint(5, (11,), generator=generator)
    torch.nn.functional.cross_entropy(x @ weight.T, y).backward()
    torch.testing.assert_close(probes.cross_entropy_gradient(weight.detach(), x, y), weight.grad, rtol=0, atol=1e-14)


def test_adam_by_hand_is_torch_adam():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    ours, theirs = start.clone(), torch.nn.Parameter(start.clone())
    mine, reference = probes.Adam(ours), torch.optim.Adam([theirs], lr=0.05)
    for step in range(30):
        rate = 0.05 if step < 15 else 0.01
        reference.param_groups[0]["lr"] = rate
        theirs.grad = torch.randn(4, 6, generator=generator, dtype=torch.float64)
        reference.step()
        mine.step(theirs.grad, rate)
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-10, atol=1e-12)


def test_the_rate_falls_to_a_third_after_five_stale_epochs_and_then_it_stops():
    train_x, train_y, val_x, val_y, test_x, test_y = noise_task()
    result = linear_probe(train_x, train_y, test_x, test_y, val_x=val_x, val_y=val_y)
    rates = list(dict.fromkeys(result.learning_rates))
    assert rates == pytest.approx(RATES)
    assert all(result.learning_rates.count(rate) >= 5 for rate in rates)
    assert len(result.learning_rates) < 100
    constant = linear_probe(train_x, train_y, test_x, test_y, val_x=val_x, val_y=np.full(200, 99))
    assert constant.learning_rates == pytest.approx([0.05] + [r for r in RATES for _ in range(5)])  # first is the best
    assert len(linear_probe(train_x, train_y, test_x, test_y, epochs=3).learning_rates) == 3


def test_the_best_weights_are_kept_reloaded_and_reported(monkeypatch):
    starts, seen = [], []
    step = probes.Adam.step

    def watched(self, gradient, rate):
        if not seen or seen[-1] != rate:
            starts.append(self.weight.clone())
            seen.append(rate)
        step(self, gradient, rate)
        final["weight"] = self.weight.clone()

    final = {}
    monkeypatch.setattr(probes.Adam, "step", watched)
    train_x, train_y, val_x, _, test_x, test_y = noise_task()
    # no validation label is known, so that the first epoch stays the best: each new rate must start from it
    result = linear_probe(train_x, train_y, test_x, test_y, val_x=val_x, val_y=np.full(200, 99))
    assert len(starts) == 6
    assert all(torch.equal(start, starts[1]) for start in starts[2:])
    x = torch.from_numpy(np.hstack([normalize(test_x), np.ones((100, 1))])).float()
    np.testing.assert_array_equal(result.predictions, (x @ starts[1].T).argmax(1))
    assert (result.predictions != (x @ final["weight"].T).argmax(1).numpy()).any()  # the last weights answer otherwise


def test_the_validation_accuracy_is_that_of_the_reported_weights():
    train_x, train_y, val_x, val_y, _, _ = noise_task()
    result = linear_probe(train_x, train_y, val_x, val_y, val_x=val_x, val_y=val_y)
    assert result.accuracy == result.val_accuracy > 50


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
