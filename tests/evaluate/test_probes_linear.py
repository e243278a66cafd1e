"""The linear probe against literal loops with torch's own Adam, against scikit-learn, and its two protocols."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from ocssl.errors import DataError, SettingError
from ocssl.evaluate import linear_classifiers
from ocssl.evaluate.linear_classifiers import Adam, cross_entropy_gradient, linear_probe
from ocssl.evaluate.probes import Data, Task

RATES = [0.05 / 3**i for i in range(6)]  # .05 .0167 .0056 .0019 .0006 .0002


def mixture(n, classes=5, d=12, noise=1.0, seed=0):
    """Gaussian classes of equal size around fixed centres."""
    centres = np.random.default_rng(99).normal(size=(classes, d))
    y = np.arange(n) % classes
    return centres[y] + noise * np.random.default_rng(seed).normal(size=(n, d)), y


def noise_task(seed=0):
    """Labels that the features know nothing about: training, validation and test set."""
    rng = np.random.default_rng(seed)
    return [part for n in (300, 200, 100) for part in (rng.normal(size=(n, 4)), rng.integers(0, 2, n))]


def watch_batches(monkeypatch):
    """The list that every training batch is written to, as its first feature."""
    batches = []

    def watched(weight, x, y):
        batches.append(x[:, 0].tolist())
        assert (x[:, -1] == 1).all()  # the bias
        return cross_entropy_gradient(weight, x, y)

    monkeypatch.setattr(linear_classifiers, "cross_entropy_gradient", watched)
    return batches


def by_the_book(train, val, test, batches, scored, seed=0):
    """The protocol word for word, with torch's layer, loss, autograd and Adam -> rates, accuracies, predictions.

    ``batches`` gives the row numbers of each batch of an epoch; ``scored`` the rows of a set that count.
    """
    x, val_x, test_x = (torch.from_numpy(normalize(part[0])).float() for part in (train, val, test))
    y, val_y, test_y = (torch.from_numpy(part[1]) for part in (train, val, test))
    layer = torch.nn.Linear(x.shape[1], int(y.max()) + 1)
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    shuffles = batches(len(x), torch.Generator().manual_seed(seed))
    rates, best, best_accuracy, patience, rate = [], None, -1.0, 5, 0.05

    def accuracy(x, y):
        rows = scored(len(x))
        return 100 * (layer(x[rows]).argmax(1) == y[rows]).double().mean().item()

    for _ in range(100):
        rates.append(rate)
        for rows in next(shuffles):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(layer(x[rows]), y[rows]).backward()
            optimizer.step()
        now = accuracy(val_x, val_y)
        if now > best_accuracy:
            best_accuracy, patience = now, 5
            best = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
        else:
            patience -= 1
            if patience == 0:
                rate, patience = rate / 3, 5
                if rate < 1e-4:
                    break
                optimizer.param_groups[0]["lr"] = rate
                layer.load_state_dict(best)
    layer.load_state_dict(best)
    return rates, best_accuracy, accuracy(test_x, test_y), layer(test_x[scored(len(test_x))]).argmax(1).numpy()


def every_sample(n, generator):
    while True:
        yield torch.randperm(n, generator=generator).split(256)


def authors_batches(n, generator):
    """Shuffled once; a batch is trained on while a whole one is left."""
    order, rows, index = torch.randperm(n, generator=generator), [], 0
    while index + 256 <= n:
        rows.append(order[index : index + 256])
        index += 256
    while True:
        yield rows


def authors_scored(n):
    """The rows that the authors' loop scores: one batch in any case, then while index + 256 < n."""
    rows, index, single = [], 0, n <= 256
    while index + 256 < n or single:
        rows.extend(range(index, min(index + 256, n)))
        index += 256
        single = False
    return rows


@pytest.mark.parametrize(
    ("compat", "batches", "scored"), [("none", every_sample, range), ("authors", authors_batches, authors_scored)]
)
@pytest.mark.parametrize("sizes", [(300, 100, 100), (1000, 600, 700), (512, 512, 512)])
def test_the_probe_is_the_protocol_with_torchs_own_parts(compat, batches, scored, sizes):
    train, val, test = (mixture(n, noise=2, seed=seed) for seed, n in enumerate(sizes))
    rates, val_accuracy, accuracy, predictions = by_the_book(train, val, test, batches, lambda n: list(scored(n)))
    result = linear_probe(*train, *test, val_x=val[0], val_y=val[1], compat=compat)
    assert result.scored == len(result.predictions) == len(predictions)
    assert result.val_accuracy == pytest.approx(val_accuracy, abs=0.6)  # a tie that rounding decides may go either way
    assert result.accuracy == pytest.approx(accuracy, abs=0.6)
    assert (result.predictions == predictions).mean() > 0.99
    assert result.learning_rates == pytest.approx(rates)


def test_the_two_protocols_answer_differently():
    train, val, test = (mixture(n, noise=2, seed=seed) for seed, n in enumerate((1000, 600, 700)))
    one, other = (
        linear_probe(*train, *test, val_x=val[0], val_y=val[1], compat=compat) for compat in ("none", "authors")
    )
    assert (one.predictions[:512] != other.predictions).any()


def test_every_training_sample_is_used_in_every_epoch_in_a_new_order(monkeypatch):
    batches = watch_batches(monkeypatch)
    x, y = mixture(257)
    linear_probe(x, y, x, y, val_x=x, val_y=y, epochs=2)
    assert [len(rows) for rows in batches] == [256, 1, 256, 1]
    first, second = batches[0] + batches[1], batches[2] + batches[3]
    assert first != second
    assert sorted(first) == sorted(second)
    np.testing.assert_allclose(sorted(first), sorted(normalize(x)[:, 0]), atol=1e-6)


def test_as_the_authors_one_shuffle_serves_all_epochs_and_the_rest_of_a_batch_is_never_trained_on(monkeypatch):
    batches = watch_batches(monkeypatch)
    x, y = mixture(600)
    linear_probe(x, y, x, y, val_x=x, val_y=y, epochs=3, compat="authors")
    assert [len(rows) for rows in batches] == [256] * 6
    assert batches[:2] == batches[2:4] == batches[4:]
    assert batches[0] != normalize(x)[:256, 0].astype(np.float32).tolist()
    assert len(set(batches[0] + batches[1])) == 512


@pytest.mark.parametrize(
    ("n", "scored"), [(1, 1), (250, 250), (256, 256), (257, 256), (500, 256), (512, 256), (513, 512)]
)
def test_as_the_authors_the_last_batch_of_a_test_set_of_more_than_one_is_not_scored(n, scored):
    train, test = mixture(300, noise=0.1), mixture(n, noise=0.1, seed=1)
    result = linear_probe(*train, *test, val_x=train[0], val_y=train[1], compat="authors")
    assert result.scored == scored == len(authors_scored(n))
    np.testing.assert_array_equal(result.predictions, test[1][:scored])


def test_as_the_authors_9984_of_10000_test_samples_are_scored_and_the_others_change_nothing():
    train, test = mixture(300, noise=0.1), mixture(10_000, noise=0.1, seed=1)
    wrong = np.where(np.arange(10_000) < 9984, test[1], -1)
    result = linear_probe(*train, test[0], wrong, val_x=test[0], val_y=wrong, compat="authors", epochs=5)
    assert result.scored == 9984
    assert result.accuracy == result.val_accuracy == 100.0
    assert linear_probe(*train, test[0], wrong, val_x=test[0], val_y=wrong, epochs=5).accuracy == 99.84


def test_as_the_authors_held_out_samples_are_cut_by_chance_and_not_by_class():
    y = np.repeat(np.arange(10), 300)
    x = np.arange(1.0, 3001)[:, None]
    data, _ = linear_classifiers._Probe(0, 1, 0.05, 256, "authors").prepare(Task(x, y, x, y))
    assert data.val is not None
    assert len(data.val[1]) == 256  # of 300
    assert torch.bincount(data.val[1], minlength=10).min() > 15
    np.testing.assert_array_equal(data.val[1], y[data.val[0].flatten().long() - 1])


@pytest.mark.parametrize("held", [{}, {"val_x": np.ones((9, 2)), "val_y": np.zeros(9, int)}])
def test_as_the_authors_needs_one_whole_batch_to_train_on(held):
    x, y = np.ones((255, 2)), np.arange(255) % 2
    with pytest.raises(
        DataError, match='samples to train on: compat="authors" trains on whole batches only and needs at'
    ):
        linear_probe(x, y, x, y, compat="authors", **held)
    assert linear_probe(x, y, x, y, compat="authors", batch=200, **held).scored == 200


def test_an_unknown_protocol_is_an_error():
    with pytest.raises(SettingError, match='compat is \'paper\': wanted "none" or "authors"'):
        linear_probe(np.ones((3, 2)), [0, 1, 0], np.ones((3, 2)), [0, 1, 0], compat="paper")


def test_the_thread_count_changes_no_bit_of_the_linear_probe_and_is_given_back(monkeypatch):
    train, test = mixture(600, d=200, noise=3), mixture(200, d=200, noise=3, seed=1)
    given, answers = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            answers.append(linear_probe(*train, *test, epochs=5).predictions)
            assert torch.get_num_threads() == threads
        monkeypatch.setattr(linear_classifiers, "cross_entropy_gradient", None)
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
    data = Data(Task(x, y, x, y))
    held_x, held_y = data.hold_out(torch.Generator().manual_seed(0))
    assert np.bincount(held_y, minlength=4).tolist() == [3, 10, 0, 0]  # classes in the order -3, 7, 8, 50
    assert sorted(torch.cat([held_x, data.train_x]).flatten().tolist()) == x.flatten().tolist()
    np.testing.assert_array_equal(data.classes[held_y], y[held_x.flatten().long() - 1])


@settings(deadline=None, max_examples=30)
@given(classes=st.integers(1, 9), extra=st.integers(0, 60), seed=st.integers(0, 2**32 - 1))
@pytest.mark.slow
def test_separable_features_are_told_apart_without_a_mistake(classes, extra, seed):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, extra)])
    x = np.eye(classes)[y] * rng.uniform(0.1, 100, (len(y), 1))
    result = linear_probe(x, y, x, y, val_x=x, val_y=y, seed=seed)
    assert result.accuracy == 100.0
    assert result.scored == len(y)


def test_the_gradient_by_hand_is_autograd():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(5, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    x = torch.randn(11, 7, generator=generator, dtype=torch.float64)
    y = torch.randint(5, (11,), generator=generator)
    torch.nn.functional.cross_entropy(x @ weight.T, y).backward()
    torch.testing.assert_close(cross_entropy_gradient(weight.detach(), x, y), weight.grad, rtol=0, atol=1e-14)


def test_adam_by_hand_is_torch_adam():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    ours, theirs = start.clone(), torch.nn.Parameter(start.clone())
    mine, reference = Adam(ours), torch.optim.Adam([theirs], lr=0.05)
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
    step = Adam.step

    def watched(self, gradient, rate):
        if not seen or seen[-1] != rate:
            starts.append(self.weight.clone())
            seen.append(rate)
        step(self, gradient, rate)
        final["weight"] = self.weight.clone()

    final = {}
    monkeypatch.setattr(Adam, "step", watched)
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


def tuned(train, val, test):
    """Test accuracy of scikit-learn's logistic regression with the penalty that validates best."""
    best = (-1.0, -1.0)
    for strength in (0.1, 1.0, 10.0, 100.0):
        model = LogisticRegression(C=strength, max_iter=300).fit(normalize(train[0]), train[1])
        best = max(best, (model.score(normalize(val[0]), val[1]), 100 * model.score(normalize(test[0]), test[1])))
    return best[1]


@pytest.mark.slow
def test_linear_probe_agrees_with_tuned_logistic_regression_on_overlapping_classes():
    train, val, test = (mixture(n, 20, 64, noise=2.0, seed=s) for s, n in enumerate((5000, 1000, 4000)))
    want = tuned(train, val, test)
    assert 60 < want < 98
    assert linear_probe(*train, *test, val_x=val[0], val_y=val[1]).accuracy == pytest.approx(want, abs=1)
