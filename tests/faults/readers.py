"""Every reader of files from outside: sound files, how they are damaged, and how one is read.

A reader takes the bytes of a file and an empty folder; what it returns does not matter. It may raise an OcsslError, and
nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import sys
import tarfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from mutants import as_json, as_toml, changed_bytes, changed_values
from PIL import Image
from safetensors.torch import load as unpack
from safetensors.torch import save as pack

import ocssl
from conftest import ROOT, small_learner
from ocssl._core import checkpoint
from ocssl.data.decode.arrow_files import ParquetFiles, pyarrow, read_column, read_paths
from ocssl.data.decode.decoder import BadImage, decode
from ocssl.data.decode.shard_files import ShardFiles
from ocssl.data.sources.archives import read_members
from ocssl.data.sources.cifar import find_release
from ocssl.data.sources.parquet_hub import Parquet
from ocssl.data.sources.safe_pickle import read_pickled
from ocssl.data.sources.webdataset import WebDataset
from ocssl.embed import vectors
from ocssl.encoders.weights import read_tensors
from ocssl.errors import DataError, OcsslError
from ocssl.launch.sweep import plan, read_spec
from ocssl.results.compare import compare
from ocssl.results.figures import all_charts
from ocssl.results.page import make_page
from ocssl.results.run_groups import find_runs
from ocssl.runs.config import complete_run, read_settings, resolve_run, to_toml
from ocssl.runs.events import read_events
from ocssl.runs.folder import EVENTS, METRICS, SETTINGS, finished
from ocssl.runs.initial_weights import read_weights
from ocssl.runs.snapshots import load_snapshot
from ocssl.settings import StreamSettings

sys.path.append(str(ROOT / "tests" / "data" / "sources"))
from cifar_files import META, Small, python2, tar, zipped

METHODS = ("solar", "minred", "cla-e")
Mutants = st.SearchStrategy[bytes]


@dataclass(frozen=True)
class Reader:
    """What is read, its damaged files, and how many of them `make torture` reads."""

    title: str
    mutants: Callable[[], Mutants]
    read: Callable[[bytes, Path], object]
    many: int


# ---- images


@cache
def sound_images() -> tuple[bytes, ...]:
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8)).resize((24, 20))
    exif = Image.Exif()
    exif[0x0112] = 6
    more = {"save_all": True, "append_images": [image.rotate(90)], "duration": 10}
    forms: list[tuple[Image.Image, str, dict[str, Any]]] = [
        (image, "JPEG", {"exif": exif}),
        (image, "JPEG", {"progressive": True}),
        (image.convert("CMYK"), "JPEG", {}),
        (image, "PNG", {"exif": exif}),
        (image.quantize(16), "PNG", {"transparency": 3}),
        (image, "PNG", more),
        (image.convert("I;16"), "PNG", {}),
        (image, "WEBP", {}),
        (image, "WEBP", {"lossless": True}),
        (image, "WEBP", more),
        (image, "BMP", {}),
        (image, "GIF", more),
        (image, "TIFF", {}),
        (image, "TIFF", {"compression": "tiff_lzw"}),
        (image.convert("LAB"), "TIFF", {}),
        (image, "PPM", {}),
        (image.convert("L"), "PPM", {}),
        (image, "JPEG2000", {}),
        (image, "AVIF", {}),
    ]
    found = []
    for picture, kind, options in forms:
        file = io.BytesIO()
        picture.save(file, kind, **options)
        found.append(file.getvalue())
    if find_spec("pillow_heif"):
        import pillow_heif

        file = io.BytesIO()
        pillow_heif.from_pillow(image).save(file, quality=50)
        found.append(file.getvalue())
    return tuple(found)


def read_image(data: bytes, folder: Path) -> None:
    for fit in ("crop", "squash"):
        try:
            assert decode(data, 16, fit).shape == (3, 16, 16)
        except BadImage as error:
            raise DataError(str(error)) from None  # as a run that stops at bad images does


# ---- checkpoints


@cache
def sound_checkpoint() -> tuple[dict[str, Any], bytes, bytes]:
    """The manifest of a small learner, and the header and the data of its tensors."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        learner = small_learner("solar", encoder__width=1, memory__capacity=4, objective__projection=4)
        learner.partial_fit(np.zeros((3, 3, 8, 8), np.uint8))
        learner.save(folder, extra={"position": {"minibatches": 1}})
        manifest = json.loads((Path(folder) / checkpoint.MANIFEST).read_bytes())
        packed = (Path(folder) / manifest["tensors"]).read_bytes()
        ocssl.Learner.load(folder)  # the first one imports more of torch, which takes seconds on a busy machine
    length = int.from_bytes(packed[:8], "little")
    return manifest, packed[8 : 8 + length], packed[8 + length :]


def load_everywhere(folder: Path) -> None:
    loads: tuple[Callable[[Path], object], ...] = (load_snapshot, read_weights)
    for load in loads:
        with contextlib.suppress(OcsslError):
            load(folder)
    ocssl.Learner.load(folder)


def read_manifest(data: bytes, folder: Path) -> None:
    manifest, header, tensors = sound_checkpoint()
    place = folder / "00000001"
    place.mkdir()
    (place / checkpoint.MANIFEST).write_bytes(data)
    (place / manifest["tensors"]).write_bytes(len(header).to_bytes(8, "little") + header + tensors)
    load_everywhere(place)


def read_facts(data: bytes, folder: Path) -> None:
    """Facts under a right checksum: what somebody would write who wants them to be read."""
    manifest = {key: value for key, value in sound_checkpoint()[0].items() if key != "checksum"}
    manifest["facts"] = json.loads(data)
    read_manifest(as_json({**manifest, "checksum": checkpoint._checksum(manifest)}), folder)


def read_header(data: bytes, folder: Path) -> None:
    """The header of a tensor file whose checksum is right."""
    manifest, _, tensors = sound_checkpoint()
    packed = len(data).to_bytes(8, "little") + data + tensors
    digest = hashlib.sha256(packed).hexdigest()
    body = {**manifest, "tensors": f"state-{digest[:16]}.safetensors", "sha256": digest}
    body.pop("checksum")
    place = folder / "00000001"
    place.mkdir()
    (place / body["tensors"]).write_bytes(packed)
    (place / checkpoint.MANIFEST).write_bytes(as_json({**body, "checksum": checkpoint._checksum(body)}))
    load_everywhere(place)


DTYPES = [*checkpoint.DTYPES.values(), torch.float8_e4m3fn]
VALUES = (float("nan"), float("inf"), -1.0, 1e38, 2**62, -(2**63), 255)


@cache
def sound_tensors() -> dict[str, torch.Tensor]:
    _, header, tensors = sound_checkpoint()
    return unpack(len(header).to_bytes(8, "little") + header + tensors)


@st.composite
def changed_tensors(draw: st.DrawFn) -> bytes:
    """A tensor of the sound checkpoint with another type, shape or value, as a safetensors file."""
    name = draw(st.sampled_from(sorted(sound_tensors())))
    tensor = sound_tensors()[name]
    match draw(st.integers(0, 3)):
        case 0:
            tensor = tensor.to(draw(st.sampled_from(DTYPES)))
        case 1:
            shapes = [tensor.reshape(-1)[:0], tensor[None], torch.zeros((), dtype=tensor.dtype), tensor.reshape(-1)]
            tensor = draw(st.sampled_from(shapes))
        case 2 if not tensor.is_floating_point():
            value = draw(st.sampled_from([value for value in VALUES if isinstance(value, int)]))
            tensor = torch.full_like(tensor, value % 256 if tensor.dtype == torch.uint8 else value)
        case _:
            dtype = tensor.dtype if tensor.is_floating_point() else torch.float64
            tensor = torch.full_like(tensor, float(draw(st.sampled_from(VALUES))), dtype=dtype)
    return pack({name: tensor.clone().contiguous()})


def read_changed_tensors(data: bytes, folder: Path) -> None:
    """The sound checkpoint with some tensors replaced, under a right checksum; what loads can be trained."""
    place = folder / "00000001"
    checkpoint.write(place, {**sound_tensors(), **unpack(data)}, sound_checkpoint()[0]["facts"])
    load_everywhere(place)
    learner = ocssl.Learner.load(place)
    learner.transform(np.zeros((2, 3, 8, 8), np.uint8))
    learner.partial_fit(np.zeros((3, 3, 8, 8), np.uint8))


# ---- tables


@cache
def sound_parquet() -> tuple[bytes, ...]:
    arrow = pyarrow()
    images = [{"bytes": sound_images()[10][:200], "path": f"{row}.png"} for row in range(4)]
    columns = {"image": images, "label": [0, 1, 0, 1], "name": ["a", "b", "a", "b"]}
    found = []
    for options in ({"compression": "none"}, {"compression": "snappy", "row_group_size": 2}, {"use_dictionary": False}):
        file = io.BytesIO()
        arrow.parquet.write_table(arrow.table(columns), file, **options)
        found.append(file.getvalue())
    return tuple(found)


def read_parquet(data: bytes, folder: Path) -> None:
    path = folder / "train.parquet"
    path.write_bytes(data)
    for read in (lambda: read_column([path], "label"), lambda: read_column([path], "name"), lambda: read_paths([path])):
        try:
            read()
        except DataError:
            continue
    found = ParquetFiles([path], "image")
    for row in range(min(len(found), 8)):
        try:
            found.name(row)
            found.read(row)
        except OSError:  # a bad image
            continue
    Parquet().find(path, StreamSettings(), lambda what, done, total: None)


@cache
def sound_vectors() -> tuple[bytes, ...]:
    """Files of vectors, as `ocssl embed` writes them."""
    import tempfile

    found = []
    for kind in ("float32", "float16"):
        form = vectors.schema(4, kind, {"run": "runs/r", "source": "photos", "dtype": kind})
        numbers = np.random.default_rng(0).normal(size=(5, 4)).astype(vectors.DTYPES[kind])
        paths, ids, same = [f"{n}.png" for n in range(5)], np.arange(5), ["0" * 32] * 5
        rows = vectors.Rows(ids, paths, ["a" * 64] * 5, numbers, same, ids, ids, [None] * 5)
        with tempfile.TemporaryDirectory() as folder:
            vectors.write(Path(folder) / "v.parquet", form, [vectors.table(rows, form)])
            found.append((Path(folder) / "v.parquet").read_bytes())
    return tuple(found)


def read_vector_file(data: bytes, folder: Path) -> None:
    path = folder / "vectors.parquet"
    path.write_bytes(data)
    index = ocssl.Index.load(path)
    index.search(np.ones((1, index.unit.shape[1]), np.float32), top=2)


# ---- weights


@cache
def sound_weights() -> tuple[bytes, ...]:
    encoder = small_learner("solar", encoder__width=1).encoder
    return (pack({name: tensor.contiguous() for name, tensor in encoder.state_dict().items()}),)


def read_encoder_weights(data: bytes, folder: Path) -> None:
    path = folder / "weights.safetensors"
    path.write_bytes(data)
    read_tensors(path, small_learner("solar", encoder__width=1).encoder)


# ---- TOML


def recipe_trees() -> list[dict[str, Any]]:
    folder = ROOT / "src" / "ocssl" / "recipes" / "methods"
    return [tomllib.loads((folder / f"{name}.toml").read_text()) for name in (*METHODS, "lump", "mir", "osiris-r")]


def read_recipe(data: bytes, folder: Path) -> None:
    path = folder / "mine.toml"
    path.write_bytes(data)
    resolve_run(str(path), "synthetic", 0, {})


@cache
def run_tables() -> tuple[dict[str, Any], ...]:
    return tuple(tomllib.loads(to_toml(resolve_run(name, "synthetic", 0, {}))) for name in METHODS)


def read_run_settings(data: bytes, folder: Path) -> None:
    (folder / SETTINGS).write_bytes(data)
    show_run(folder)
    complete_run(read_settings(folder / SETTINGS))


SWEEP = {
    "methods": ["solar", "er-fifo"],
    "benchmarks": ["synthetic"],
    "seeds": [0, 1],
    "out": "runs",
    "set": {"encoder": {"width": 2}, "stream.train": 20},
    "grid": {"optimizer.lr": [0.1, 0.2], "terms.overlap.k": [4, 8]},
    "only": {"er-fifo": {"memory.capacity": 20}},
}


def read_sweep(data: bytes, folder: Path) -> None:
    path = folder / "sweep.toml"
    path.write_bytes(data)
    plan(read_spec(path))


# ---- what a run leaves


@cache
def stored_run() -> tuple[bytes, bytes, dict[str, Any]]:
    """Settings and events of a run, and metrics as one has them."""
    folder = ROOT / "tests" / "runs" / "stored" / "solar-0.1.0.dev0"
    metrics = {
        "method": "solar", "benchmark": "synthetic", "seed": 0, "steps": 8, "seconds": 1.5, "start_accuracy": 20.0,
        "final_accuracy": 30.0, "average_accuracy": 25.0, "accuracies": [20.0, 30.0], "positions": [2, 4],
        "deviations": [0.1, 0.2], "overlaps": [0.5, None], "tasks": None, "collapsed": False,
    }  # fmt: skip
    return (folder / SETTINGS).read_bytes(), (folder / EVENTS).read_bytes(), metrics


def show_run(folder: Path) -> None:
    runs = find_runs([folder])
    comparisons = compare(runs)
    make_page(runs, comparisons, all_charts(runs, comparisons)).encode("utf-8", "replace")


def read_event_lines(data: bytes, folder: Path) -> None:
    settings = stored_run()[0]
    (folder / SETTINGS).write_bytes(settings)
    (folder / EVENTS).write_bytes(data)
    show_run(folder)
    list(read_events(folder / EVENTS))


def read_metrics(data: bytes, folder: Path) -> None:
    settings, events, _ = stored_run()
    (folder / SETTINGS).write_bytes(settings)
    (folder / EVENTS).write_bytes(events)
    (folder / METRICS).write_bytes(data)
    show_run(folder)
    finished(folder)


def event_mutants() -> Mutants:
    lines = stored_run()[1].splitlines()
    trees = [json.loads(line) for line in lines]
    whole = changed_bytes([stored_run()[1]])
    return whole | changed_values([trees], lambda events: b"".join(as_json(event) + b"\n" for event in events))


# ---- archives


@cache
def sound_archives() -> tuple[bytes, ...]:
    members = {"train": b"a" * 700, "test": b"b" * 30, "meta": b"c"}
    return tar(members), tar(members, packed=False), zipped(members), zipped(members, how=0)


def read_archive(data: bytes, folder: Path) -> None:
    path = folder / "cifar-100-python.tar.gz"
    path.write_bytes(data)
    read_members(path, ("train", "test", "meta"))


@cache
def sound_shards() -> tuple[bytes, ...]:
    """Tar shards with images and labels, in the three formats of tar; long names have headers of their own."""
    members = {"a.png": sound_images()[3], "a.cls": b"1", "x" * 60 + "/" + "y" * 60 + ".png": b"?"}
    found = []
    for how in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=how) as archive:
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        found.append(file.getvalue().rstrip(b"\0") + bytes(1024))
    return tuple(found)


def read_shard(data: bytes, folder: Path) -> None:
    path = folder / "train-0.tar"
    path.write_bytes(data)
    found = WebDataset().find(path, StreamSettings(), lambda what, done, total: None)
    files = found.train.images
    assert isinstance(files, ShardFiles)
    for row in range(min(len(files), 8)):
        files.name(row)
        with contextlib.suppress(OSError, BadImage):  # a bad image
            decode(files.read(row), 8, "crop")


@cache
def sound_pickles() -> tuple[bytes, ...]:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 12)
    return META, python2({b"data": pixels, b"fine_labels": [1, 2], b"coarse_labels": [0, 1], b"name": b"x" * 300})


def read_pickle(data: bytes, folder: Path) -> None:
    small, names = Small(), ("train", "test", "meta")
    for name, content in small.python().items():
        (folder / name).write_bytes(content)
    for name in names[1:]:
        (folder / name).write_bytes(data)
        with contextlib.suppress(DataError):
            find_release(folder, lambda what, done, total: None, small.release())
        (folder / name).write_bytes(small.python()[name])
    read_pickled(data, "meta")


READERS: dict[str, Reader] = {
    "image": Reader("images of ten formats", lambda: changed_bytes(sound_images()), read_image, 1000),
    "manifest": Reader(
        "checkpoints: the manifest", lambda: changed_bytes([as_json(sound_checkpoint()[0])]), read_manifest, 100
    ),
    "facts": Reader(
        "checkpoints: facts under a right checksum",
        lambda: changed_values([sound_checkpoint()[0]["facts"]], as_json),
        read_facts,
        200,
    ),
    "header": Reader(
        "checkpoints: safetensors under a right checksum",
        lambda: changed_values([json.loads(sound_checkpoint()[1])], as_json) | changed_bytes([sound_checkpoint()[1]]),
        read_header,
        200,
    ),
    "tensors": Reader("checkpoints: tensors under a right checksum", changed_tensors, read_changed_tensors, 100),
    "parquet": Reader("parquet files", lambda: changed_bytes(sound_parquet()), read_parquet, 200),
    "vectors": Reader("files of vectors", lambda: changed_bytes(sound_vectors()), read_vector_file, 200),
    "weights": Reader("weights of encoders", lambda: changed_bytes(sound_weights()), read_encoder_weights, 100),
    "recipe": Reader(
        "TOML: recipes",
        lambda: changed_values(recipe_trees(), as_toml) | changed_bytes([as_toml(t) for t in recipe_trees()]),
        read_recipe,
        100,
    ),
    "settings": Reader(
        "TOML: run.toml",
        lambda: changed_values(run_tables(), as_toml) | changed_bytes([as_toml(t) for t in run_tables()]),
        read_run_settings,
        100,
    ),
    "sweep": Reader(
        "TOML: sweeps", lambda: changed_values([SWEEP], as_toml) | changed_bytes([as_toml(SWEEP)]), read_sweep, 100
    ),
    "events": Reader("events.jsonl", event_mutants, read_event_lines, 200),
    "metrics": Reader(
        "metrics.json",
        lambda: changed_values([stored_run()[2]], as_json) | changed_bytes([as_json(stored_run()[2])]),
        read_metrics,
        200,
    ),
    "archive": Reader("tar, tar.gz and zip archives", lambda: changed_bytes(sound_archives()), read_archive, 300),
    "shard": Reader("tar shards", lambda: changed_bytes(sound_shards()), read_shard, 300),
    "pickle": Reader("pickles of CIFAR", lambda: changed_bytes(sound_pickles()), read_pickle, 200),
}


def emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder
