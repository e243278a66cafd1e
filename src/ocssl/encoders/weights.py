"""Weights of encoders from safetensors files: bounded, matched by name and shape, never executed."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as unpack
from safetensors.torch import save as pack
from torch import Tensor, nn

from ocssl._core.checkpoint import LARGEST_MANIFEST, MANIFEST, read_shapes
from ocssl._core.host_memory import check_memory
from ocssl._files.atomic import replace_file
from ocssl._files.untrusted import open_file, read_json, reading
from ocssl.encoders.encoder import Preprocessing
from ocssl.errors import SettingError

SPARE = 2**28  # bytes that a file may have beyond eight times the encoder's: classifiers, optimizers
SHOWN = 3  # names in an error
OWN = "network.objective.encoder."  # in a checkpoint of ocssl
EXPORT = "encoder.json"  # beside the weights of an export
Shapes = Mapping[str, tuple[int, ...]]


def digest(path: str | Path) -> str:
    """The checksum of a file of weights."""
    with reading(path, SettingError), open_file(Path(path).expanduser()) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def preprocessing_of(path: str | Path) -> Preprocessing | None:
    """The images that weights were trained on, where ocssl wrote the file: an export, or a checkpoint; else None."""
    folder = Path(path).expanduser().parent
    try:
        if (folder / EXPORT).is_file():
            table = read_json(folder / EXPORT, LARGEST_MANIFEST)["preprocessing"]
            size = table["image_size"]
        else:
            content = read_json(folder / MANIFEST, LARGEST_MANIFEST)
            table, size = content["facts"]["settings"]["views"], content["facts"]["image_size"]
        mean, std = ((_short(red), _short(green), _short(blue)) for red, green, blue in (table["mean"], table["std"]))
        return Preprocessing(mean, std, int(size))
    except (OSError, ValueError, TypeError, LookupError, OverflowError):
        return None


def _short(number: float) -> float:
    """A float32 as the number that it was made from, such as 0.1."""
    return float(f"{float(number):.7g}")


def load_weights(encoder: nn.Module, path: str | Path, sha256: str | None = None) -> None:
    """Give an encoder the weights of a safetensors file; what does not fit is a SettingError that names the keys.

    All names in the file may share a prefix, such as `backbone.`; parts that the encoder lacks, such as a classifier,
    are left out.
    """
    tensors = read_tensors(path, encoder, sha256)
    if hasattr(encoder, "load_tensors"):  # its library has several names for one tensor, or can resample some
        encoder.load_tensors(tensors, path)  # type: ignore[operator]
    else:
        load_tensors(encoder, tensors, path)


def load_tensors(target: nn.Module, tensors: Mapping[str, Tensor], path: str | Path) -> None:
    """Give a network those of the tensors of a file that are its own."""
    own = {name: tuple(t.shape) for name, t in target.state_dict().items() if isinstance(t, Tensor)}
    prefix = match_names({name: tuple(tensor.shape) for name, tensor in tensors.items()}, own, path)
    wanted = {name: tensors[prefix + name] for name in own if prefix + name in tensors}
    target.load_state_dict({**target.state_dict(), **wanted})


def read_tensors(path: str | Path, encoder: nn.Module, sha256: str | None = None) -> dict[str, Tensor]:
    """The tensors of a file that is not much larger than an encoder, all of them finite."""
    file_path = Path(path).expanduser()
    most = SPARE + 8 * sum(parameter.numel() * parameter.element_size() for parameter in encoder.parameters())
    with reading(file_path, SettingError):
        try:
            with open_file(file_path, most) as file:
                read_shapes(file)
                file.seek(0)
                content = file.read()
                tensors = unpack(content)
        except MemoryError:
            raise
        except (SafetensorError, KeyError, TypeError, RecursionError, ValueError) as error:
            raise ValueError(f"it is no safetensors file ({str(error) or type(error).__name__})") from None
    if sha256 not in (None, hashlib.sha256(content).hexdigest()):
        raise SettingError(f"encoder.weights {path} is not the file that this run was to start from.")
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise SettingError(f"encoder.weights {path}: {name} is not finite.")
    return tensors


def match_names(shapes: Shapes, own: Shapes, path: str | Path) -> str:
    """The prefix that the file's names have before the encoder's; a SettingError where names or shapes differ."""
    needed = [name for name in own if not name.endswith("num_batches_tracked") and not name.endswith("_extra_state")]
    found = Counter({"": 0})
    for name in needed:
        found.update(key.removesuffix(name) for key in shapes if key == name or key.endswith(f".{name}"))
    prefix = min(found, key=lambda p: (-found[p], p != OWN, len(p), p))
    missing = [name for name in needed if prefix + name not in shapes]
    tops = {name.partition(".")[0] for name in own}
    inside = [name.removeprefix(prefix) for name in shapes if name.startswith(prefix)]
    unexpected = [name for name in inside if name not in own and name.partition(".")[0] in tops]
    if missing or unexpected:
        faults = {"missing": missing, "unexpected": unexpected}
        said = [f"{len(names)} are {what} ({_few(names)})" for what, names in faults.items() if names]
        after = f" after the prefix {prefix!r}" if prefix else ""
        raise SettingError(
            f"encoder.weights {path} does not fit the encoder: of its {len(shapes)} names{after}, {' and '.join(said)}"
            f"; the encoder has names such as {_few(needed)}."
        )
    for name in own:
        if prefix + name in shapes and shapes[prefix + name] != own[name]:
            have, want = list(shapes[prefix + name]), list(own[name])
            raise SettingError(f"encoder.weights {path}: {prefix + name} is {have}, and the encoder has {want}.")
    return prefix


def _few(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def convert_weights(source: str | Path, target: str | Path) -> int:
    """Write the tensors of a PyTorch file (.pth, .pt, .bin) as safetensors; how many there are.

    The file is read by `torch.load(weights_only=True)`, which runs no code of it. A table of tensors under
    `state_dict`, `model`, `teacher` or `student` is found.
    """
    with reading(source, SettingError):
        try:
            content = torch.load(Path(source), map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises a dozen kinds for damaged and for unsafe files
            if isinstance(error, OSError):
                raise
            check_memory(error)
            raise ValueError(f"it is no file of weights alone ({str(error).partition(chr(10))[0][:200]})") from None
    for key in ("state_dict", "model", "teacher", "student"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    tensors = {str(k): v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, Mapping) else {}
    if not tensors:
        raise SettingError(f"{source} holds no table of tensors.")
    replace_file(Path(target), packed(tensors))
    return len(tensors)


def packed(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """Tensors as the bytes of a safetensors file."""
    return pack({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}, metadata)
