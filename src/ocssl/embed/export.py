"""`ocssl export`: the encoder for other programs, with a model card."""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from ocssl._core.exclusive_call import own_torch_state
from ocssl._files.atomic import remove_folder, remove_parts, write_out
from ocssl.embed.image_encoder import ENCODER, WEIGHTS, ImageEncoder, weights_of
from ocssl.embed.model_card import model_card
from ocssl.embed.timm_transformers import to_timm, to_transformers
from ocssl.encoders.encoder import first_line
from ocssl.encoders.weights import packed
from ocssl.errors import CheckpointError, OcsslError, RunFolderError, SettingError, install

Format = Literal["safetensors", "onnx", "timm", "hf"]
_writing = threading.Lock()  # an export removes what killed ones have left, and would take a thread's for such
CLOSE = 1e-5  # of the largest feature: how far ONNX Runtime may be from PyTorch on random images


@own_torch_state()
def export(encoder: ImageEncoder, kind: Format, output: Path, licence: str = "") -> list[Path]:
    """Write the encoder and its card, all or nothing; the files. A folder, or for ONNX a file that ends in .onnx."""
    encoder = encoder.cpu()
    if kind == "onnx":
        content = {"model.onnx": onnx_bytes(encoder)}
    else:
        content = {
            "safetensors": lambda: {WEIGHTS: packed(weights_of(encoder.network)), **_architecture(encoder)},
            "timm": lambda: to_timm(encoder),
            "hf": lambda: to_transformers(encoder),
        }[kind]()
    single = kind == "onnx" and output.suffix == ".onnx"
    card = model_card(encoder, kind, licence, output.name if single else "model.onnx").encode("utf-8", "replace")
    if single:
        if output.is_dir():
            raise RunFolderError(f"cannot write {output}: it is a folder.")
        write_out(output, content["model.onnx"])
        write_out(output.with_suffix(".md"), card)
        return [output, output.with_suffix(".md")]
    facts = {**encoder.facts(), "export": kind}
    content = {**content, ENCODER: json.dumps(facts, indent=1, default=str).encode(), "README.md": card}
    with _writing:
        _write_folder(output, content)
    return [output / name for name in content]


def _architecture(encoder: ImageEncoder) -> dict[str, bytes]:
    """What else is needed to build the network again: the config of a model of transformers."""
    config = getattr(getattr(encoder.network, "model", None), "config", None)
    if not str(encoder.architecture.get("name")).startswith("hf") or config is None:
        return {}
    return {"config.json": json.dumps(config.to_dict(), indent=1, default=str).encode()}


def _write_folder(output: Path, content: Mapping[str, bytes]) -> None:
    """A folder with these files; an earlier export is replaced, anything else is left alone."""
    ours = (output / ENCODER).is_file()
    if output.exists() and not ours and (not output.is_dir() or any(output.iterdir())):
        raise RunFolderError(f"{output} is there already and is no export: name another folder with -o.")
    part = output.with_name(f".{output.name}.{os.getpid()}.export")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        for left in output.parent.glob(f".{output.name}.*.export"):
            shutil.rmtree(left, ignore_errors=True)
        part.mkdir()
        for name, data in content.items():
            write_out(part / name, data)
        if output.exists():
            remove_folder(output)
        os.replace(part, output)
    except OSError as error:
        raise RunFolderError(f"cannot write {output}: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if output.parent.is_dir():
            remove_parts(output.parent, output.name)


# ---- ONNX


class _Exported(nn.Module):
    """What an ONNX file computes: uint8 images to features, normalisation inside."""

    def __init__(self, encoder: ImageEncoder) -> None:
        super().__init__()
        self.network = encoder.network
        scale = 1 / (255 * encoder.std)
        self.register_buffer("scale", scale.clone())
        self.register_buffer("shift", (encoder.mean / encoder.std).clone())

    def forward(self, images: Tensor) -> Tensor:
        scale, shift = self.get_buffer("scale"), self.get_buffer("shift")
        features: Tensor = self.network(images.to(torch.float32) * scale - shift)
        return features.float()


def onnx_bytes(encoder: ImageEncoder) -> bytes:
    """The encoder as ONNX: `images` uint8 [batch, 3, height, width] to `features`; checked against PyTorch.

    Height and width are free where the network takes other sizes than its own, and `size` otherwise.
    """
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401 - torch.onnx needs it
    except ImportError as error:
        raise OcsslError(f"ONNX needs {error.name}: {install('export')}") from None
    size = encoder.image_size
    other = (size + 32, size + 64)
    if _takes(encoder, other):
        with suppress(SettingError, CheckpointError):  # torch.export may still fix the size
            return _onnx_bytes(encoder, [(size, size), other])
    return _onnx_bytes(encoder, [(size, size)])


def _takes(encoder: ImageEncoder, size: tuple[int, int]) -> bool:
    try:
        with torch.no_grad():
            return encoder.encode(torch.zeros(1, 3, *size, dtype=torch.uint8)).shape[1:] == (encoder.dimension,)
    except Exception:  # whatever a network of others says of a size that it was not made for
        return False


def _onnx_bytes(encoder: ImageEncoder, sizes: list[tuple[int, int]]) -> bytes:
    """ONNX for images of these sizes, and of all others if these are several."""
    import onnx
    import onnxruntime

    names = ("batch", None, "height", "width") if len(sizes) > 1 else ("batch",)
    module = _Exported(encoder).eval()
    with own_torch_state(), torch.no_grad(), _quiet():
        module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        try:
            program = torch.onnx.export(
                module,
                (torch.zeros(2, 3, *sizes[0], dtype=torch.uint8),),
                input_names=["images"],
                output_names=["features"],
                dynamic_shapes=({at: torch.export.Dim(name, min=1) for at, name in enumerate(names) if name},),
                dynamo=True,
                verbose=False,
            )
        except Exception as error:  # whatever torch.export meets in a module of others
            raise SettingError(
                f"this encoder cannot be exported to ONNX ({first_line(error)}): use --format safetensors."
            ) from None
        finally:
            encoder.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert program is not None
    model = program.model_proto
    for key, value in {"fingerprint": encoder.fingerprint, **encoder.preprocessing}.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = f"ocssl.{key}", json.dumps(value)
    data: bytes = model.SerializeToString()
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for count, size in itertools.product((1, 3), sizes):
        images = np.random.default_rng(count).integers(0, 256, (count, 3, *size), dtype=np.uint8)
        try:
            (found,) = session.run(["features"], {"images": images})
        except Exception as error:  # the errors of ONNX Runtime have no common base
            raise SettingError(
                f"ONNX Runtime cannot run this encoder on {count} images ({first_line(error)})."
            ) from None
        with torch.no_grad():
            wanted = encoder.encode(torch.from_numpy(images)).numpy()
        if found.shape != wanted.shape or not np.abs(found - wanted).max() <= CLOSE * max(np.abs(wanted).max(), 1e-3):
            raise CheckpointError("ONNX Runtime and PyTorch give different features of this encoder: not exported.")
    return data


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the log lines of torch's exporter."""
    levels = {log: log.level for log in map(logging.getLogger, ("torch.onnx", "onnxscript", "onnx_ir"))}
    try:
        for log in levels:
            log.setLevel(logging.ERROR)
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        for log, level in levels.items():
            log.setLevel(level)
