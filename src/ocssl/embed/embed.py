"""`ocssl embed`: the vectors of many images in one file, in chunks that survive a kill.

What is to be done is written down first, in a hidden folder beside the output, and so is each chunk of vectors. Called
again, the command continues from there with the same result. The output is replaced at the end, in one moment.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ocssl._core.torch_state import own_torch_state
from ocssl._files.atomic import remove_folder, replace_file
from ocssl._files.lock import locked
from ocssl._files.untrusted import read_json
from ocssl.data.decode.arrow_files import pyarrow
from ocssl.data.decode.decoder import Images
from ocssl.data.decode.files import Report
from ocssl.data.decode.workers import Fault, decoded, rows_at_once
from ocssl.embed import vectors as files
from ocssl.embed.ahead import ahead
from ocssl.embed.align import Alignment, fit_alignment
from ocssl.embed.image_files import Source
from ocssl.embed.ready_encoder import ImageEncoder
from ocssl.embed.vectors import Floats, Rows, Vectors, batches, open_vectors, read_vectors, schema, table, with_facts
from ocssl.errors import CheckpointError, DataError, RunFolderError, SettingError

Mode = Literal["new", "update", "refresh", "align"]
CHUNK = 2048  # images whose vectors are written at a time
BATCH = 256  # images that are encoded at a time
WAITING = 2**24  # bytes of decoded images that wait for the encoder
FEW = 500  # images that are decoded sooner than another process has started
PLAN, MOST_PLAN = "plan.json", 2**30  # bytes
OVERLAP = 2000  # images of both encoders that an alignment is fitted on, or five times the dimensions if that is more


@dataclass(frozen=True)
class Plan:
    """What a call of the command has to do; a later call with equal `facts` continues it."""

    facts: dict[str, Any]  # encoder, source, mode, dtype, the output as it was
    id: list[int]
    path: list[str]
    size: list[int]
    modified: list[int]
    chunk: int  # images of a chunk

    def __len__(self) -> int:
        return len(self.id)


@dataclass
class Result:
    """What was done."""

    output: Path
    encoder: str
    dimension: int
    vectors: int  # in the file
    embedded: int  # of them, in this file, by this command
    removed: int = 0  # rows whose image is gone
    skipped: list[Fault] = field(default_factory=list)  # images that cannot be used, and files that are none
    alignment: Alignment | None = None
    finished_before: bool = False  # nothing was to be done


def embed(
    encoder: ImageEncoder,
    source: Source,
    output: Path,
    *,
    mode: Mode = "new",
    dtype: str | None = None,
    workers: int = 1,
    report: Report,
) -> Result:
    """Write, extend or renew a file of vectors. `dtype`: float32 by default, or that of the file there is."""
    name = encoder.fingerprint
    work = output.with_name(f".{output.name}.embedding")
    old = read_vectors(output, vectors=False) if output.exists() else None
    kind = dtype or ("float32" if old is None else str(old.vector.dtype))
    if kind not in files.DTYPES:
        raise SettingError(f"dtype is {kind!r}: float16 or float32 is wanted.")
    if old is None and mode in ("refresh", "align"):
        raise DataError(f"there is no {output} to {mode}: make it first, without --{mode}.")
    if old is not None:
        _require_fit(old, name, source, output, mode)
    facts = {"encoder": name, "source": source.name, "mode": mode, "dtype": kind, "old": _stamp(output)}
    plan = _read_plan(work, facts) or _plan(facts, mode, old, source, name, encoder.dimension)
    if old is not None and _nothing_to_do(old, plan, source, name, mode, kind):
        if work.exists():
            with _alone(work, output):
                pass
            _clear(work)
        return Result(output, name, encoder.dimension, len(old), 0, finished_before=True)
    if old is None and not len(source):
        raise DataError(f"there are no images in {source.name}.")
    form = schema(encoder.dimension, kind, {})
    with _alone(work, output):
        _write_plan(work, plan)
        faults = _make_chunks(encoder, source, plan, work, form, name, workers, report)
        report("writing", 0, 1)
        result = _finish(encoder, source, output, plan, work, old, mode, kind, name)
        report("writing", 1, 1)
    result.skipped = [*faults, *source.left_out]
    _clear(work)
    return result


def _require_fit(old: Vectors, name: str, source: Source, output: Path, mode: Mode) -> None:
    """Refuse what would mix two encoders, or drop the images of another folder."""
    others = [encoder for encoder in old.encoders if encoder != name]
    if others and mode in ("new", "update"):
        ways = "re-embed it with --refresh, map it with --align, or name another file"
        raise SettingError(f"{output} holds vectors of encoder {others[0]}, and this is encoder {name}: {ways}.")
    if mode == "align":
        files.require_one_encoder(old.encoders, str(output))
    before = old.facts.get("source")
    if isinstance(before, str) and before != source.name and os.path.exists(before):
        raise SettingError(f"{output} holds vectors of {before}, not of {source.name}: name another file with -o.")


def _nothing_to_do(old: Vectors, plan: Plan, source: Source, name: str, mode: Mode, dtype: str) -> bool:
    if mode in ("new", "align"):
        return mode == "new" or old.encoders == [name]
    return not len(plan) and not _gone(old, source) and dtype == str(old.vector.dtype)


def _plan(facts: dict[str, Any], mode: Mode, old: Vectors | None, source: Source, name: str, dimension: int) -> Plan:
    """Which images are to be embedded, in which order, and their ids."""
    row_of = {path: row for row, path in enumerate(source.paths)}
    known = {} if old is None else {path: row for row, path in enumerate(_moved(old, source))}
    both = [(path, row) for path, row in known.items() if path in row_of]
    if mode == "align":
        assert old is not None
        same = [row_of[path] for path, row in both if _unchanged(old, row, source, row_of[path])]
        wanted = max(OVERLAP, 5 * max(dimension, 1))
        chosen = np.random.default_rng(0).permutation(len(same))[:wanted]
        rows = [same[place] for place in sorted(chosen.tolist())]
    else:
        rows = []
        for path, row in both:
            assert old is not None
            fresh = old.encoder[row] == name and old.aligned[row] is None
            if not (fresh and _unchanged(old, row, source, row_of[path])):
                rows.append(row_of[path])
        rows += [row for row, path in enumerate(source.paths) if path not in known]
    following = max((int(old.id[row]) for row in range(len(old))), default=-1) + 1 if old is not None else 0
    ids = []
    for row in rows:
        path = source.paths[row]
        if path in known and old is not None:
            ids.append(int(old.id[known[path]]))
        else:
            ids.append(following)
            following += 1
    sizes, times = source.sizes[rows].tolist(), source.modified[rows].tolist()
    return Plan(facts, ids, [source.paths[row] for row in rows], sizes, times, CHUNK)


def _unchanged(old: Vectors, row: int, source: Source, at: int) -> bool:
    known = int(source.sizes[at]) >= 0 or int(old.size[row]) < 0  # rows of a data set do not change
    return known and (old.size[row], old.modified[row]) == (source.sizes[at], source.modified[at])


def _moved(old: Vectors, source: Source) -> list[str]:
    """The paths of old rows, in the place where their folder is now."""
    before = old.facts.get("source")
    if not isinstance(before, str) or before == source.name:
        return list(old.path)
    start = before.rstrip("/") + "/"
    now = source.name.rstrip("/") + "/"
    return [now + path.removeprefix(start) if path.startswith(start) else path for path in old.path]


def _gone(old: Vectors, source: Source) -> int:
    return len(set(_moved(old, source)) - set(source.paths))


# ---- chunks on disk


def _stamp(output: Path) -> list[int]:
    if not output.exists():
        return []
    found = output.stat()
    return [found.st_size, found.st_mtime_ns]


def _read_plan(work: Path, facts: Mapping[str, Any]) -> Plan | None:
    """What an interrupted call wanted to do, if it is what this one wants."""
    try:
        said = read_json(work / PLAN, MOST_PLAN)
        plan = Plan(**said)
        columns = (plan.id, plan.path, plan.size, plan.modified)
        right = plan.facts == facts and len({len(column) for column in columns}) == 1
        right = right and all(isinstance(path, str) for path in plan.path) and type(plan.chunk) is int
        return plan if right and plan.chunk > 0 else None
    except (OSError, ValueError, TypeError):
        return None


def _write_plan(work: Path, plan: Plan) -> None:
    content = json.dumps(plan.__dict__).encode()
    try:
        if (work / PLAN).is_file() and (work / PLAN).read_bytes() == content:
            return
        for path in work.glob("chunk-*"):
            path.unlink()
        replace_file(work / PLAN, content)
    except OSError as error:
        raise RunFolderError(f"cannot write to {work}: {error.strerror or error}.") from None


@contextmanager
def _alone(work: Path, output: Path) -> Iterator[None]:
    """One process at a time works on an output."""
    try:
        work.mkdir(parents=True, exist_ok=True)
        with locked(work / "lock", "ab"):
            yield
    except BlockingIOError:
        raise RunFolderError(f"another process is embedding into {output}.") from None
    except (NotADirectoryError, FileExistsError, PermissionError) as error:
        raise RunFolderError(f"cannot write to {work}: {error.strerror or error}.") from None


def _clear(work: Path) -> None:
    if work.exists():
        remove_folder(work)


def _chunk_path(work: Path, number: int) -> Path:
    return work / f"chunk-{number:06d}.parquet"


def _make_chunks(
    encoder: ImageEncoder,
    source: Source,
    plan: Plan,
    work: Path,
    form: Any,
    name: str,
    workers: int,
    report: Report,
) -> list[Fault]:
    """Embed what is not yet on disk, chunk by chunk; the images that cannot be used."""
    starts = range(0, len(plan), plan.chunk)
    missing = [number for number in range(len(starts)) if not _is_whole(_chunk_path(work, number))]
    row_of = {path: row for row, path in enumerate(source.paths)}
    step = rows_at_once(encoder.image_size)
    pieces: dict[int, list[list[int]]] = {}  # of each chunk: places in the plan that are decoded at a time
    for number in missing:
        whole = range(starts[number], min(starts[number] + plan.chunk, len(plan)))
        here = [place for place in whole if plan.path[place] in row_of]
        pieces[number] = [here[at : at + step] for at in range(0, len(here), step)]
    done = len(plan) - sum(min(plan.chunk, len(plan) - starts[number]) for number in missing)
    report("embedding", done, len(plan))
    rows = (np.array([row_of[plan.path[place]] for place in p], np.int64) for some in pieces.values() for p in some)
    left = len(plan) - done
    workers = workers if left >= FEW else 0
    reading = decoded(source.files, rows, encoder.image_size, encoder.fit, workers, hashing=True)
    room = max(2, WAITING // (3 * encoder.image_size**2 * step))
    with ahead(reading, room) as read, own_torch_state(), torch.inference_mode():
        for number, some in pieces.items():
            gathered = _Gathered(encoder, plan)
            for places in some:
                gathered.add(places, *next(read))
                done += len(places)
                report("embedding", done, len(plan))
            kept = gathered.rows(name)
            facts = {"faults": gathered.faults}
            files.write(_chunk_path(work, number), with_facts(form, facts), [table(kept, form)] if len(kept) else [])
            pyarrow().default_memory_pool().release_unused()
    found = [fault for number in range(len(starts)) for fault in _faults_of(_chunk_path(work, number), plan)]
    return found + [Fault(path, "it is gone") for path in plan.path if path not in row_of]


class _Gathered:
    """The vectors of a chunk, gathered piece by piece and encoded in batches."""

    def __init__(self, encoder: ImageEncoder, plan: Plan) -> None:
        self.encoder, self.plan = encoder, plan
        self.faults: list[tuple[int, str]] = []  # places in the plan, and why
        self._places: list[int] = []
        self._digests: list[str] = []
        self._vectors: list[Floats] = []
        self._waiting: list[Images] = []

    def add(self, places: Sequence[int], images: Images, faults: list[tuple[int, str]], digests: list[str]) -> None:
        bad = dict(faults)
        good = [n for n in range(len(places)) if n not in bad]
        self.faults += [(places[n], why) for n, why in bad.items()]
        self._places += [places[n] for n in good]
        self._digests += [digests[n] for n in good]
        self._waiting.append(images[good] if bad else images)
        if sum(map(len, self._waiting)) >= BATCH:
            self._encode()

    def _encode(self) -> None:
        for images in torch.from_numpy(np.concatenate(self._waiting)).split(BATCH):
            self._vectors.append(self.encoder.encode(images.to(self.encoder.mean.device)).cpu().numpy())
        self._waiting = []

    def rows(self, name: str) -> Rows:
        """The rows of the chunk, once all its pieces are there."""
        if self._waiting:
            self._encode()
        plan, places = self.plan, self._places
        matrix = np.concatenate([np.empty((0, self.encoder.dimension), np.float32), *self._vectors])
        if not np.isfinite(matrix).all():
            raise CheckpointError(f"encoder {name} gives vectors that are not finite: its training has diverged.")
        ids, sizes, times = (
            np.array([column[place] for place in places], np.int64) for column in (plan.id, plan.size, plan.modified)
        )
        paths, none = [plan.path[place] for place in places], [None] * len(places)
        return Rows(ids, paths, self._digests, matrix, [name] * len(places), sizes, times, none)


def _is_whole(path: Path) -> bool:
    try:
        with open_vectors(path):
            return True
    except DataError:
        return False


def _faults_of(path: Path, plan: Plan) -> list[Fault]:
    with open_vectors(path) as (_, _, facts):
        return [Fault(plan.path[place], str(why)) for place, why in facts.get("faults", [])]


# ---- the output


def _finish(
    encoder: ImageEncoder,
    source: Source,
    output: Path,
    plan: Plan,
    work: Path,
    old: Vectors | None,
    mode: Mode,
    dtype: str,
    name: str,
) -> Result:
    """Old rows that stay, then the new chunks, as one file."""
    chunks = [_chunk_path(work, number) for number in range(-(-len(plan) // plan.chunk))]
    alignment = None
    if mode == "align":
        assert old is not None
        alignment = fit_alignment(*_pairs(output, chunks, plan))
    facts: dict[str, Any] = {"source": source.name, "run": encoder.about.get("folder", "")}
    if alignment is not None:
        facts["alignment"] = {"from": old.encoders[0] if old else "", **alignment.facts()}
    elif old is not None and mode == "update" and "alignment" in old.facts:
        facts["alignment"] = old.facts["alignment"]
    form = schema(encoder.dimension, dtype, facts)
    counts: Counter[str] = Counter()

    def pieces() -> Generator[Any]:
        renewed = set(plan.path) if alignment is None else _embedded(chunks)
        here = set(source.paths)
        if old is not None:
            with open_vectors(output) as (file, _, _):
                moved = _moved(old, source)
                at = 0
                for rows in batches(file, output):
                    paths = moved[at : at + len(rows)]
                    at += len(rows)
                    stays = [p not in renewed and (alignment is not None or p in here) for p in paths]
                    counts["removed"] += sum(p not in here for p in paths) if alignment is None else 0
                    kept = _select(replace(rows, path=paths), stays)
                    if alignment is not None:
                        aligned: list[str | None] = [*kept.encoder]
                        kept = replace(kept, vector=alignment(kept.vector), encoder=[name] * len(kept), aligned=aligned)
                    _require_range(kept.vector, dtype)
                    yield table(kept, form)
        for path in chunks:
            with open_vectors(path) as (file, _, _):
                for rows in batches(file, path):
                    counts["embedded"] += len(rows)
                    _require_range(rows.vector, dtype)
                    yield table(rows, form)

    with closing(pieces()) as made:
        count = files.write(output, form, made)
    return Result(output, name, encoder.dimension, count, counts["embedded"], counts["removed"], alignment=alignment)


def _embedded(chunks: Sequence[Path]) -> set[str]:
    found: set[str] = set()
    for path in chunks:
        found.update(read_vectors(path, vectors=False).path)
    return found


def _select(rows: Rows, wanted: Sequence[bool]) -> Rows:
    places = np.flatnonzero(wanted)
    chosen: dict[str, Any] = {}
    for name, column in rows.__dict__.items():
        chosen[name] = column[places] if isinstance(column, np.ndarray) else [column[n] for n in places]
    return Rows(**chosen)


def _require_range(matrix: Any, dtype: str) -> None:
    if dtype == "float16" and len(matrix) and np.abs(matrix).max() > np.finfo(np.float16).max:
        raise SettingError("a vector has numbers that float16 cannot hold: use --dtype float32.")


def _pairs(output: Path, chunks: Sequence[Path], plan: Plan) -> tuple[Any, Any]:
    """Old and new vectors of the images that have both, in the order of the plan."""
    new: dict[int, Any] = {}
    for path in chunks:
        with open_vectors(path) as (file, _, _):
            for rows in batches(file, path):
                new.update(zip(rows.id.tolist(), rows.vector, strict=True))
    before: dict[int, Any] = {}
    with open_vectors(output) as (file, _, _):
        for rows in batches(file, output):
            before.update((n, v) for n, v in zip(rows.id.tolist(), rows.vector, strict=True) if n in new)
    ids = [n for n in plan.id if n in new and n in before]
    if len(ids) < 20:
        raise DataError(
            f"only {len(ids)} images of {output} are still there unchanged, and an alignment takes at least 20: "
            "re-embed them with --refresh."
        )
    return np.stack([before[n] for n in ids]).astype(np.float64), np.stack([new[n] for n in ids]).astype(np.float64)
