"""Folders that hold tensors and facts: written all or nothing, checked when read, never executed.

A folder has one `checkpoint.json` and the tensor file that it names. The tensors are written first, under a name of
their own; replacing the JSON file is the one moment at which the new state counts. Killed before it, the old state
stands; killed after it, the new one does.

The JSON file has a format number, `version`. A change that an older reader would misread raises VERSION by one and adds
a migration, which turns the state of the version before into that of the next. `read` applies all that a checkpoint
needs, one after another.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as pack_tensors
from torch import Tensor

from ocssl._core.host_memory import check_memory, out_of_memory
from ocssl._files.atomic import replace_file
from ocssl._files.untrusted import open_file, read_json, reason
from ocssl.errors import CheckpointError, OutOfMemory

MANIFEST = "checkpoint.json"
FORMAT = "ocssl-checkpoint"
VERSION = 1
LARGEST_MANIFEST = 16 * 2**20  # bytes; a real one has a few thousand
State = tuple[dict[str, Tensor], dict[str, Any]]  # tensors and facts
DTYPES = {  # of the tensors that are read, by their names in safetensors
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class Layout(NamedTuple):
    """What a file says of a tensor before it is read."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}"


Layouts = Mapping[str, Layout]
Check = Callable[[Layouts, Mapping[str, Any]], None]  # of layouts and facts
MIGRATIONS: dict[int, Callable[[dict[str, Tensor], dict[str, Any]], State]] = {}  # version n -> from n to n + 1


def write(folder: str | Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Put a state into a folder, over an older one if there is one, atomically."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"cannot save to {folder}: it is a file, not a folder.")
    packed = pack_tensors({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    digest = hashlib.sha256(packed).hexdigest()
    name = f"state-{digest[:16]}.safetensors"
    body = {"format": FORMAT, "version": VERSION, "tensors": name, "sha256": digest, "facts": dict(facts)}
    try:
        manifest = json.dumps({**body, "checksum": _checksum(body)}, indent=1).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot save to {folder}: extra must be JSON ({error}).") from None
    if len(manifest) > LARGEST_MANIFEST:
        raise CheckpointError(
            f"cannot save to {folder}: its manifest would have {len(manifest)} bytes, and at most {LARGEST_MANIFEST} "
            "can be loaded; keep less in extra."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / name, packed)
        replace_file(folder / MANIFEST, manifest)
        for stale in folder.glob("state-*.safetensors"):
            if stale.name != name:
                stale.unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # a ValueError: a NUL in the name
        check_memory(error)
        raise CheckpointError(f"cannot save to {folder}: {reason(error)}.") from None


def read(folder: str | Path, check: Check | None = None) -> State:
    """Tensors and facts of a folder, in today's format; anything missing, changed or strange is a CheckpointError.

    `check` is called with layouts and facts, before any tensor is read, and may raise one.
    """
    manifest = Path(folder) / MANIFEST
    body = _read_manifest(manifest)
    name = body["tensors"]
    path = manifest.with_name(name)
    try:
        with open_file(path) as file:
            layouts = read_layouts(file)
            if check and body["version"] == VERSION:
                check(layouts, body["facts"])
            file.seek(0)
            packed = file.read()
    except CheckpointError as error:
        raise CheckpointError(f"checkpoint {folder} does not fit this version or encoder: {error}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"checkpoint {folder} is damaged: {name} is no tensor file ({error}).") from None
    except MemoryError as error:
        raise OutOfMemory(f"cannot read checkpoint {folder}: {out_of_memory(error)}") from None
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder} is damaged: cannot read {name} ({reason(error)}).") from None
    if hashlib.sha256(packed).hexdigest() != body.get("sha256"):
        raise CheckpointError(f"checkpoint {folder} is damaged: {name} does not have the checksum that was saved.")
    try:
        state: State = load_tensors(packed), body["facts"]
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"checkpoint {folder} is damaged: {name} is no tensor file ({error}).") from None
    for version in range(body["version"], VERSION):
        state = MIGRATIONS[version](*state)
    return state


def newest(folder: str | Path) -> Path:
    """The folder itself, or the last complete checkpoint below it if it is a run folder."""
    folder = Path(folder)
    if (folder / MANIFEST).exists():
        return folder
    below = [path.parent for path in folder.glob(f"checkpoints/*/{MANIFEST}") if path.parent.name.isdecimal()]
    return max(below, key=lambda path: int(path.name), default=folder)


def read_shapes(file: IO[bytes]) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors in a file, as `read_layouts`."""
    return {name: layout.shape for name, layout in read_layouts(file).items()}


def read_layouts(file: IO[bytes]) -> dict[str, Layout]:
    """Types and shapes of the tensors in a file, from its first bytes.

    A ValueError if they do not fill the file exactly, one after another: so whoever bounds them bounds what is read.
    """
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if not 0 < length <= min(size - 8, LARGEST_MANIFEST):
        raise ValueError("its header has an impossible length")
    header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is no table")
    header.pop("__metadata__", None)
    layouts, places = {}, []
    for name, entry in header.items():
        shape, (start, end), dtype = entry["shape"], entry["data_offsets"], DTYPES.get(entry["dtype"])
        if not all(type(number) is int and 0 <= number < 2**63 for number in (*shape, start, end)):
            raise ValueError(f"{name} has an impossible shape")
        if dtype is None:
            raise ValueError(f"{name} has a type that is not read")
        if end - start != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{name} does not have the bytes of its shape")
        layouts[name] = Layout(dtype, tuple(shape))
        places.append((start, end))
    places.sort()
    bounds = [0, *(end for _, end in places), size - 8 - length]
    if bounds[:-2] != [start for start, _ in places]:
        raise ValueError("its tensors do not follow one another")
    if bounds[-1] != bounds[-2]:
        raise ValueError(f"it has {size} bytes, but its header describes {bounds[-2] + 8 + length}")
    return layouts


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        body = read_json(path, LARGEST_MANIFEST)
    except FileNotFoundError:
        raise CheckpointError(f"no checkpoint in {path.parent}: {path.name} is missing.") from None
    except OSError as error:
        raise CheckpointError(f"cannot read checkpoint {path.parent}: {reason(error)}.") from None
    except ValueError:
        raise CheckpointError(f"checkpoint {path.parent} is damaged: {path.name} is not JSON.") from None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise CheckpointError(f"checkpoint {path.parent} is damaged: {path.name} is not a checkpoint of ocssl.")
    version = body.get("version")
    if not isinstance(version, int) or (version != VERSION and version not in MIGRATIONS):
        newer = isinstance(version, int) and version > VERSION
        advice = "update ocssl" if newer else "load and save it with an older ocssl"
        known = f"this ocssl reads versions {min([*MIGRATIONS, VERSION])} to {VERSION}"
        raise CheckpointError(f"checkpoint {path.parent} has format version {version!r}, and {known}: {advice}.")
    if body.pop("checksum", None) != _checksum(body):
        raise CheckpointError(f"checkpoint {path.parent} is damaged: {path.name} does not have its checksum.")
    if not re.fullmatch(r"state-[0-9a-f]{16}\.safetensors", str(body.get("tensors"))):
        raise CheckpointError(f"checkpoint {path.parent} is damaged: it names no tensor file of this folder.")
    if not isinstance(body.get("facts"), dict):
        raise CheckpointError(f"checkpoint {path.parent} is damaged: it holds no facts.")
    return body


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
