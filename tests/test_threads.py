"""A learner in a program with threads and modes of its own: the same bits, or one sentence."""

from __future__ import annotations

import copy
import pickle
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import ocssl
from ocssl._core import checkpoint
from ocssl._core.exclusive_call import own_torch_state
from ocssl._training.checkpoint_checks import check_state
from ocssl.embed.export import export
from ocssl.embed.image_encoder import ImageEncoder
from ocssl.embed.vectors import Vectors
from ocssl.errors import DataError, NonFiniteLoss, SettingError
from ocssl.sklearn import Encoder

SMALL = {
    "encoder.width": 4,
    "objective.projection": 16,
    "schedule.batch": 16,
    "schedule.passes": 2,
    "memory.capacity": 32,
}


def images(count: int = 8, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)


def make(method: str = "solar") -> ocssl.Learner:
    return ocssl.Learner(method, image_size=16, settings=SMALL)


def state(learner: ocssl.Learner) -> dict[str, Any]:
    return {name: tensor.clone() for name, tensor in learner.tensors().items()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@contextmanager
def default_dtype() -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "float64": default_dtype,
    "meta device": lambda: torch.device("meta"),
}


def life() -> tuple[ocssl.Learner, np.ndarray[Any, Any]]:
    learner = make()
    for seed in range(3):
        learner.partial_fit(images(seed=seed))
    return learner, learner.transform(images(seed=9))


@pytest.mark.parametrize("mode", MODES)
def test_modes_of_the_caller_change_no_bit(mode: str) -> None:
    wanted, features = life()
    with MODES[mode]():
        before = (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_default_dtype())
        found, found_features = life()
        after = (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_default_dtype())
    assert before == after
    assert same(state(wanted), state(found))
    assert np.array_equal(features, found_features)
    assert found_features.dtype == np.float32


@pytest.mark.parametrize("mode", MODES)
def test_a_learner_of_one_mode_goes_on_in_another(mode: str, tmp_path: Any) -> None:
    wanted = make()
    with MODES[mode]():
        found = make()
        found.save(tmp_path / "saved")
        found = ocssl.Learner.load(tmp_path / "saved")
    wanted.partial_fit(images())
    found.partial_fit(images())
    assert same(state(wanted), state(found))


def test_images_made_in_inference_mode_are_learned_from() -> None:
    wanted, found = make(), make()
    wanted.partial_fit(torch.from_numpy(images()))
    with torch.inference_mode():
        given = torch.from_numpy(images()).clone()
    found.partial_fit(given)
    assert same(state(wanted), state(found))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved learner, its export, and a folder of images."""
    folder = tmp_path_factory.mktemp("place")
    make().save(folder / "saved")
    export(ocssl.load_encoder(folder / "saved"), "safetensors", folder / "export")
    (folder / "photos").mkdir()
    for number in range(6):
        Image.fromarray(images(1, number)[0]).save(folder / "photos" / f"{number}.png")
    return folder


def index_of(encoder: ImageEncoder) -> ocssl.Index:
    numbers = np.random.default_rng(0).normal(size=(50, encoder.dimension)).astype(np.float32)
    rows, names = np.arange(50), [f"{n}" for n in range(50)]
    found = Vectors(rows, names, ["a" * 64] * 50, numbers, [encoder.fingerprint] * 50, rows, rows, [None] * 50)
    return ocssl.Index(found, encoder)


def searched(place: Path) -> Any:
    index = index_of(ocssl.load_encoder(place / "saved"))
    return index.search(images(2)), index.search(index.unit[:3]), index.duplicates(0.3), index.outliers(5)


def exported(place: Path) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        export(ocssl.load_encoder(place / "saved"), "safetensors", Path(folder) / "made")
        return (Path(folder) / "made" / "model.safetensors").read_bytes()


ENTRIES: dict[str, Callable[[Path], Any]] = {
    "load_encoder": lambda place: ocssl.load_encoder(place / "saved")(images()),
    "load an export": lambda place: ocssl.load_encoder(place / "export")(images()),
    "encode": lambda place: ocssl.load_encoder(place / "saved").encode(torch.from_numpy(images()).permute(0, 3, 1, 2)),
    "fingerprint": lambda place: ocssl.load_encoder(place / "saved").facts(),
    "index": searched,
    "images": lambda place: [(b.images, b.ids, b.labels) for b in ocssl.images(place / "photos", size=16, batch=4)],
    "export": exported,
    "tensors": lambda place: list(ocssl.Learner.load(place / "saved").tensors().values()),
    "facts": lambda place: ocssl.Learner.load(place / "saved").facts(),
    "resume": lambda place: checkpoint.read(place / "saved", check_state)[1],
    "scikit-learn": lambda place: Encoder(place / "saved").fit().transform(images()),
}


def plain(found: Any) -> Any:
    """Tensors as bytes, so that results can be compared; what is on another device or a tensor of inference fails."""
    if isinstance(found, torch.Tensor):
        assert found.device.type == "cpu"
        assert not found.is_inference()
        return str(found.dtype), found.detach().numpy().tobytes()
    if isinstance(found, np.ndarray):
        return str(found.dtype), found.tobytes()
    return list(map(plain, found)) if isinstance(found, list | tuple) else found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("entry", ENTRIES)
def test_modes_of_the_caller_change_nothing_anywhere(mode: str, entry: str, place: Path) -> None:
    wanted = ENTRIES[entry](place)
    with MODES[mode]():
        found = ENTRIES[entry](place)
        made = torch.zeros(()).dtype if mode == "float64" else None
    assert plain(found) == plain(wanted)
    assert made in (None, torch.float64)


def test_between_batches_of_images_the_callers_modes_hold(place: Path) -> None:
    with torch.inference_mode():
        for _ in ocssl.images(place / "photos", size=16, batch=4):
            assert torch.is_inference_mode_enabled()


def run_threads(*works: Callable[[], object]) -> list[BaseException]:
    errors: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_encoding_in_other_threads_does_not_touch_training() -> None:
    wanted, found = make(), make()
    for seed in range(6):
        wanted.partial_fit(images(seed=seed))
    done = threading.Event()

    def train() -> None:
        for seed in range(6):
            found.partial_fit(images(seed=seed))
        done.set()

    def encode() -> None:
        while not done.is_set():
            assert np.isfinite(found.transform(images(3))).all()

    assert run_threads(train, encode, encode) == []
    assert same(state(wanted), state(found))
    assert all(layer.training for layer in found.network.modules())


def test_two_threads_that_train_take_turns() -> None:
    learner = make()
    works = [lambda seed=seed: learner.partial_fit(images(seed=seed)) for seed in range(4)]
    assert run_threads(*works) == []
    assert (learner.seen, learner.steps) == (32, 8)
    assert len(learner.memory) == 32


def test_a_thread_waits_until_the_minibatch_of_another_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, inside, most = make(), [], []
    see = learner._see

    def slow(batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inside.append(batch)
        time.sleep(0.05)  # long enough for the others to come
        most.append(len(inside))
        inside.pop()
        return see(batch)

    monkeypatch.setattr(learner, "_see", slow)
    works = [lambda seed=seed: learner.partial_fit(images(seed=seed)) for seed in range(4)]
    assert run_threads(*works) == []
    assert most == [1] * 8


def test_what_is_saved_while_another_thread_trains_is_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make()
    learner.partial_fit(images())
    wanted, write = state(learner), checkpoint.write
    thread = threading.Thread(target=lambda: learner.partial_fit(images(seed=1)))

    def slow(*given: Any) -> None:
        thread.start()
        thread.join(1)  # it has to wait for this save
        write(*given)

    monkeypatch.setattr(checkpoint, "write", slow)
    learner.save(tmp_path / "saved")
    thread.join()
    assert same(state(ocssl.Learner.load(tmp_path / "saved")), wanted)
    assert learner.steps == 4


def test_a_thread_that_trains_waits_for_a_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, steps = make("cassle"), []
    learner.partial_fit(images())
    (term,) = learner.terms.values()
    boundary = term.boundary
    thread = threading.Thread(target=lambda: learner.partial_fit(images(seed=1)))

    def slow(objective: Any) -> None:
        thread.start()
        thread.join(1)  # it has to wait for this boundary
        steps.append(learner.steps)
        boundary(objective)

    monkeypatch.setattr(term, "boundary", slow)
    learner.boundary()
    thread.join()
    assert [*steps, learner.steps] == [2, 4]


def test_learners_in_threads_do_not_disturb_each_other_under_another_default_dtype() -> None:
    """The default dtype is one for all threads: who puts it back must not do so while others compute."""
    wanted = []
    for number in range(2):
        learner = make()
        for seed in range(4):
            learner.partial_fit(images(seed=10 * number + seed))
        wanted.append(state(learner))
    found = [make(), make()]

    def train(number: int) -> None:
        for seed in range(4):
            found[number].partial_fit(images(seed=10 * number + seed))

    with default_dtype():
        assert run_threads(lambda: train(0), lambda: train(1)) == []
        assert torch.get_default_dtype() == torch.float64
    assert all(same(one, state(other)) for one, other in zip(wanted, found, strict=True))


def test_the_last_thread_out_puts_the_default_dtype_back() -> None:
    with default_dtype():
        first, second = own_torch_state(), own_torch_state()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_default_dtype() == torch.float32
        second.__exit__(None, None, None)
        assert torch.get_default_dtype() == torch.float64


def test_without_the_lock_training_is_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above can fail: eval mode in the middle of a step changes what batch norm learns."""
    wanted, found = make(), make()
    wanted.partial_fit(images())
    see = found._see

    def disturbed(batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found.network.eval()
        return see(batch)

    monkeypatch.setattr(found, "_see", disturbed)
    found.partial_fit(images())
    assert not same(state(wanted), state(found))


def test_a_copy_has_a_lock_of_its_own() -> None:
    learner = make()
    for other in (copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))):
        assert other.lock is not learner.lock
        other.partial_fit(images())


def test_own_state_is_left_as_it_was_after_an_error() -> None:
    @own_torch_state()
    def fail() -> None:
        assert torch.is_grad_enabled()
        raise RuntimeError

    with torch.no_grad():
        with pytest.raises(RuntimeError):
            fail()
        assert not torch.is_grad_enabled()


def test_a_step_whose_gradient_overflows_names_its_samples_and_changes_no_weight() -> None:
    learner = make("er-fifo")
    learner.partial_fit(images())
    before = {name: tensor.clone() for name, tensor in learner.network.named_parameters()}
    weight = next(learner.objective.parameters())
    weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(NonFiniteLoss, match="the gradient of step 3 is not finite, though its loss is") as caught:
        learner.partial_fit(images(), ids=np.arange(100, 108))
    assert set(range(100, 108)) <= set(caught.value.ids)
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.network.named_parameters())


def test_a_step_that_makes_weights_infinite_names_its_samples() -> None:
    learner = make("er-fifo")
    learner.lr = 3e38
    with pytest.raises(NonFiniteLoss, match="the result of step 1 is not finite, though its loss is") as caught:
        learner.partial_fit(images(), ids=np.arange(100, 108))
    assert caught.value.ids == list(range(100, 108))


@pytest.mark.parametrize("rate", [-1, float("nan"), float("inf"), "0.1", None, True])
def test_a_learning_rate_that_is_none_is_refused(rate: Any) -> None:
    learner = make()
    with pytest.raises(SettingError, match=r"lr is .*: wanted a finite number from 0 up"):
        learner.lr = rate
    assert learner.lr == learner.settings.optimizer.lr


def test_ids_that_do_not_fit_and_masked_arrays_are_refused() -> None:
    learner = make()
    with pytest.raises(DataError, match="larger than 9223372036854775807"):
        learner.partial_fit(images(2), ids=np.array([1, 2**63], np.uint64))
    learner.partial_fit(images(2), ids=np.array([1, 2**63 - 1], np.uint64))
    with pytest.raises(DataError, match="masked array"):
        learner.partial_fit(np.ma.masked_greater(images(2), 200))
    with pytest.raises(DataError, match="masked array"):
        learner.partial_fit(images(2), ids=np.ma.array([1, 2], mask=[0, 1]))
    assert learner.seen == 2


@pytest.mark.parametrize(
    "extra", [{"a": object()}, {"a": b"x"}, {"a": {1, 2}}, {"a": float("nan")}, [1], "x", 3, {1: 2, "b": 1}]
)
def test_an_extra_that_is_not_json_is_refused_and_nothing_is_written(extra: Any, tmp_path: Any) -> None:
    with pytest.raises(ocssl.errors.CheckpointError, match="extra must be JSON"):
        make().save(tmp_path / "saved", extra)
    assert not (tmp_path / "saved").exists()


def test_a_manifest_that_could_not_be_loaded_is_not_written(tmp_path: Any) -> None:
    learner = make()
    learner.save(tmp_path / "saved", {"good": 1})
    with pytest.raises(ocssl.errors.CheckpointError, match="keep less in extra"):
        learner.save(tmp_path / "saved", {"long": "x" * 2**24})
    ocssl.Learner.load(tmp_path / "saved")


@pytest.mark.parametrize("folder", ["/proc/x/y", "/dev/null/x", "a\0b"])
def test_a_place_that_cannot_be_written_is_refused_in_one_sentence(folder: str) -> None:
    with pytest.raises(ocssl.errors.CheckpointError, match=r"cannot save to .*\.$") as caught:
        make().save(folder)
    assert "\n" not in str(caught.value)


def test_a_copy_made_while_another_thread_trains_is_of_one_moment() -> None:
    learner, found, done = make(), [], threading.Event()

    def train() -> None:
        for seed in range(6):
            learner.partial_fit(images(seed=seed))
        done.set()

    def copies() -> None:
        while not done.is_set():
            made = copy.deepcopy(learner)
            found.append((made.steps, made.seen))

    assert run_threads(train, copies) == []
    assert all(steps * 4 == seen for steps, seen in found)


def test_threads_that_export_to_one_place_take_turns(place: Path, tmp_path: Path) -> None:
    def work() -> None:
        export(ocssl.load_encoder(place / "saved"), "safetensors", tmp_path / "same")

    assert run_threads(work, work, work) == []
    assert [path.name for path in tmp_path.iterdir()] == ["same"]
    ocssl.load_encoder(tmp_path / "same")
