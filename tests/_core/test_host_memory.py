"""A lack of memory is called that, and no image, encoder, setting or checkpoint is blamed for it."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor, nn

import ocssl
from conftest import SMALL_STREAM, random_images, small_learner, small_settings
from ocssl._core import checkpoint, host_memory
from ocssl._core.host_memory import free_bytes, out_of_memory, require_room_for_torch, wanted_bytes
from ocssl._training import checkpoint_checks
from ocssl._training.batch import as_ids
from ocssl.data.decode import decoder
from ocssl.encoders.encoder import feature_dimension
from ocssl.encoders.weights import convert_weights
from ocssl.errors import OutOfMemory
from ocssl.runs import run, snapshots
from ocssl.runs.config import resolve_run
from ocssl.runs.folder import create
from ocssl.runs.progress import Bars, Progress
from ocssl.runs.stop import Stop

TOO_MUCH = 2**62  # bytes that no machine has


def full(*args: Any, **options: Any) -> Tensor:
    return torch.empty(TOO_MUCH, dtype=torch.uint8)


def refused(*args: Any, **options: Any) -> Any:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


def too_long(*args: Any) -> Any:
    return bytearray(TOO_MUCH)


def raised_by(make: Any) -> BaseException:
    with pytest.raises(Exception) as caught:
        make()
    return caught.value


@pytest.mark.parametrize("make", [full, lambda: np.empty(TOO_MUCH, np.uint8), lambda: bytearray(TOO_MUCH)])
def test_errors_of_real_allocators_are_recognised(make: Any) -> None:
    lack = out_of_memory(raised_by(make))
    assert lack is not None
    assert str(lack).startswith("out of memory: ")
    if make is full:
        assert f"{TOO_MUCH:,} bytes were wanted" in str(lack)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("could not create a primitive"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("can't start new thread"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
)
def test_other_errors_that_mean_it_are_recognised(error: Exception) -> None:
    assert out_of_memory(error) is not None


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB."),  # the device's, not the host's
        ValueError("bad allocation of marks"),
        OSError(errno.ENOSPC, "No space left on device"),
        ImportError("No module named 'x'"),
    ],
)
def test_errors_that_mean_something_else_are_not(error: Exception) -> None:
    assert out_of_memory(error) is None


def test_sizes_are_read_from_the_errors() -> None:
    assert wanted_bytes("Unable to allocate 4.00 EiB for an array") is None
    assert wanted_bytes("Unable to allocate 2.5 GiB for an array with shape (1,)") == 2.5 * 2**30
    assert wanted_bytes("") is None


def test_what_is_free_is_the_smallest_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "_limits", lambda: iter([("a", 7), ("b", 5), ("c", 9)]))
    assert free_bytes() == (5, "b")
    monkeypatch.setattr(host_memory, "_limits", lambda: iter(()))
    assert free_bytes() is None


def test_torch_is_not_loaded_where_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "address_space", lambda: 10**9)
    monkeypatch.setattr(host_memory, "_limits", lambda: iter([("of 1 that ulimit -v allows", 10**8)]))
    require_room_for_torch()  # it is here already
    monkeypatch.delitem(host_memory.sys.modules, "torch")
    with pytest.raises(OutOfMemory, match="PyTorch cannot be loaded, 100,000,000 bytes are free"):
        require_room_for_torch()


def test_a_good_image_is_not_bad_for_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    Image.new("RGB", (9, 9)).save(file, "png")
    monkeypatch.setattr(decoder, "_decode", lambda *given: bytearray(TOO_MUCH))
    monkeypatch.setattr(decoder, "free_bytes", lambda: (10, "here"))
    with pytest.raises(OutOfMemory):
        decoder.decode(file.getvalue(), 8, "crop")
    monkeypatch.setattr(decoder, "free_bytes", lambda: (2**40, "here"))
    with pytest.raises(decoder.BadImage):  # there is enough for any image: it asks for what none needs
        decoder.decode(file.getvalue(), 8, "crop")


class Greedy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return full()


def test_the_encoder_is_not_blamed() -> None:
    with pytest.raises(OutOfMemory, match="bytes were wanted"):
        feature_dimension(Greedy(), 8)


def test_a_checkpoint_is_not_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_learner("solar").save(tmp_path / "saved")
    monkeypatch.setattr(ocssl.Learner, "_load_tensors", full)
    with pytest.raises(OutOfMemory):
        ocssl.Learner.load(tmp_path / "saved")


BLAMELESS: dict[str, tuple[Any, str, Any, Any]] = {  # what lacks memory, how, and a call that would blame another
    "a checkpoint that is checked": (checkpoint_checks, "_expected", full, ocssl.Learner.load),
    "a checkpoint that is read": (checkpoint, "read_layouts", too_long, checkpoint.read),
    "the place of a checkpoint": (checkpoint, "replace_file", refused, lambda place: small_learner().save(place)),
    "a snapshot": (snapshots, "Learner", full, snapshots.load_network),
    "ids": (torch, "as_tensor", full, lambda place: as_ids([1, 2], 2, 0)),
    "a file of weights": (torch, "load", full, lambda place: convert_weights(place / "checkpoint.json", place / "x")),
}


@pytest.mark.parametrize("what", BLAMELESS)
def test_nothing_else_is_blamed(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_learner("solar").save(tmp_path / "saved")
    place, name, lacking, call = BLAMELESS[what]
    monkeypatch.setattr(place, name, lacking)
    with pytest.raises(OutOfMemory):
        call(tmp_path / "saved")


def test_a_run_folder_is_not_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path / "r", resolve_run("er-fifo", "synthetic", 0, {**small_settings("er-fifo"), **SMALL_STREAM}))
    monkeypatch.setattr(run, "load_benchmark", refused)
    with pytest.raises(OutOfMemory):
        run.execute(tmp_path / "r", Progress(Bars(Console(file=io.StringIO()))), Stop())


def test_calls_of_a_learner_say_it_and_other_errors_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small_learner("solar")
    monkeypatch.setattr(learner, "_see", full)
    with pytest.raises(OutOfMemory):
        learner.partial_fit(random_images(4))
    monkeypatch.setattr(learner, "_see", lambda images: images @ torch.zeros(1, 1))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        learner.partial_fit(random_images(4))
