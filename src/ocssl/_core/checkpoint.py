"""Folders that hold tensors and facts: written all or nothing, checked when read, never executed.

A folder has one `checkpoint.json` and the tensor file that it names. The tensors are written first, under a name of
their own; replacing the JSON file is the one moment at which the new state counts. Killed before it, the old state
stands; killed after it, the new one does.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as pack_tensors
from torch import Tensor

from ocssl._files.untrusted import read_regular
from ocssl.errors import CheckpointError

MANIFEST = "checkpoint.json"
FORMAT = "ocssl-checkpoint"
VERSION = 1
LARGEST_MANIFEST = 16 * 2**20  # bytes; a real one has a few thousand


def write(folder: str | Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Put a state into a folder, over an older one if there is one, atomically."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"cannot save to {folder}: it is a file, not a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    packed = pack_tensors({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    digest = hashlib.sha256(packed).hexdigest()
    name = f"state-{digest[:16]}.safetensors"
    body = {"format": FORMAT, "version": VERSION, "tensors": name, "sha256": digest, "facts": dict(facts)}
    manifest = json.dumps({**body, "checksum": _checksum(body)}, indent=1).encode()
    replace_file(folder / name, packed)
    replace_file(folder / MANIFEST, manifest)
    for stale in folder.glob("state-*.safetensors"):
        if stale.name != name:
            stale.unlink(missing_ok=True)


def read(folder: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a folder; anything missing, changed or strange is a CheckpointError."""
    manifest = Path(folder) / MANIFEST
    body = _read_manifest(manifest)
    name = body["tensors"]
    path = manifest.with_name(name)
    try:
        packed = read_regular(path, links=True)
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder} is damaged: cannot read {name} ({error.strerror}).") from None
    if hashlib.sha256(packed).hexdigest() != body.get("sha256"):
        raise CheckpointError(f"checkpoint {folder} is damaged: {name} does not have the checksum that was saved.")
    try:
        return load_tensors(packed), body["facts"]
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"checkpoint {folder} is damaged: {name} is no tensor file ({error}).") from None


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(read_regular(path, LARGEST_MANIFEST, links=True))
    except FileNotFoundError:
        raise CheckpointError(f"no checkpoint in {path.parent}: {path.name} is missing.") from None
    except OSError as error:
        raise CheckpointError(f"cannot read checkpoint {path.parent}: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise CheckpointError(f"checkpoint {path.parent} is damaged: {path.name} is not JSON.") from None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise CheckpointError(f"checkpoint {path.parent} is damaged: {path.name} is not a checkpoint of ocssl.")
    if body.get("version") != VERSION:
        raise CheckpointError(
            f"checkpoint {path.parent} has format version {body.get('version')!r}; this ocssl reads version {VERSION}."
        )
    if body.pop("checksum", None) != _checksum(body):
        raise CheckpointError(f"checkpoint {path.parent} is damaged: {path.name} does not have its checksum.")
    if not re.fullmatch(r"state-[0-9a-f]{16}\.safetensors", str(body.get("tensors"))):
        raise CheckpointError(f"checkpoint {path.parent} is damaged: it names no tensor file of this folder.")
    if not isinstance(body.get("facts"), dict):
        raise CheckpointError(f"checkpoint {path.parent} is damaged: it holds no facts.")
    return body


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def is_half(path: Path, of: Path) -> bool:
    """Whether a process has written this beside a file's place, to move it there; it stays if it is killed before."""
    return path.name.startswith(f".{of.name}.") and path.name.endswith(".part")


def replace_file(path: Path, content: bytes) -> None:
    """Write a file all or nothing: beside its place, flushed to disk, then moved there."""
    with _beside(path, content) as half:
        os.replace(half, path)


def new_file(path: Path, content: bytes) -> bool:
    """Write a file all or nothing; False if one is there already, which stays as it is."""
    with _beside(path, content) as half:
        try:
            os.link(half, path)
        except OSError:
            if path.exists():
                return False
            os.replace(half, path)  # a file system without links
    return True


@contextmanager
def _beside(path: Path, content: bytes) -> Iterator[Path]:
    """A file with this content beside a place, to be put there in the block; then that is flushed to disk as well."""
    half = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(half, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield half
    finally:
        half.unlink(missing_ok=True)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
