"""`ocssl embed`: the vectors of many images in one file, in chunks that survive a kill.

What is to be done is written down first, in a hidden folder beside the output, and so is each chunk of vectors. Called
again, the command continues from there with the same result. The output is replaced at the end, in one moment.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ocssl._core.exclusive_call import own_torch_state
from ocssl._files.atomic import remove_folder, replace_file
from ocssl._files.lock import locked
from ocssl._files.untrusted import read_json
from ocssl.data.decode.arrow_files import pyarrow
from ocssl.data.decode.decode_processes import Fault, decoded, rows_at_once
from ocssl.data.decode.decoder import Images
from ocssl.data.decode.files import Report
from ocssl.embed import vectors as files
from ocssl.embed.align import Alignment, fit_alignment
from ocssl.embed.image_encoder import ImageEncoder
from ocssl.embed.image_files import Source
from ocssl.embed.prefetch import ahead
from ocssl.embed.vectors import Floats, Rows, Vectors, open_vectors, read_vectors, rows_of, schema, table, with_facts
from ocssl.errors import CheckpointError, DataError, RunFolderError, SettingError

Mode = Literal["new", "update", "refresh", "align"]
CHUNK = 2048  # images whose vectors are written at a time
BATCH = 256  # images that are encoded at a time
WAITING = 2**24  # bytes of decoded images that wait for the encoder
FEW = 500  # images that are decoded sooner than another process has started
PLAN, MOST_PLAN = "plan.json", 2**30  # bytes
NONE = np.empty(0, np.int64)
NOTHING = Vectors(NONE, [], [], NONE, [], NONE, NONE, [])  # where there is no file yet
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
    old = read_vectors(output, vectors=False) if output.exists() else None
    kind = dtype or ("float32" if old is None else str(old.vector.dtype))
    if kind not in files.DTYPES:
        raise SettingError(f"dtype is {kind!r}: float16 or float32 is wanted.")
    if old is None and mode in ("refresh", "align"):
        raise DataError(f"there is no {output} to {mode}: make it first, without --{mode}.")
    task = _Task(encoder, encoder.fingerprint, source, output, mode, kind, NOTHING if old is None else old)
    if old is not None:
        task.require_fit()
    plan = task.interrupted() or task.planned()
    if old is not None and task.is_done(plan):
        if task.folder.exists():
            with task.alone():
                pass
            task.clear()
        return Result(output, task.name, encoder.dimension, len(old), 0, finished_before=True)
    if old is None and not len(source):
        raise DataError(f"there are no images in {source.name}.")
    with task.alone():
        task.write(plan)
        faults = task.make_chunks(plan, workers, report)
        report("writing", 0, 1)
        result = task.finish(plan)
        report("writing", 1, 1)
    result.skipped = [*faults, *source.left_out]
    task.clear()
    return result


@dataclass(frozen=True)
class _Task:
    """What a call of the command is given, and its steps."""

    encoder: ImageEncoder
    name: str  # the encoder's fingerprint
    source: Source
    output: Path
    mode: Mode
    dtype: str
    old: Vectors  # the file as it is, without vectors; no rows where there is none

    # ---- what is to be done

    @cached_property
    def row_of(self) -> dict[str, int]:
        """The place of each path in the source."""
        return {path: row for row, path in enumerate(self.source.paths)}

    @cached_property
    def moved(self) -> list[str]:
        """The paths of old rows, in the place where their folder is now."""
        before = self.old.facts.get("source")
        if not isinstance(before, str) or before == self.source.name:
            return list(self.old.path)
        start = before.rstrip("/") + "/"
        now = self.source.name.rstrip("/") + "/"
        return [now + path.removeprefix(start) if path.startswith(start) else path for path in self.old.path]

    def require_fit(self) -> None:
        """Refuse what would mix two encoders, or drop the images of another folder."""
        old, output = self.old, self.output
        others = [encoder for encoder in old.encoders if encoder != self.name]
        if others and self.mode in ("new", "update"):
            ways = "re-embed it with --refresh, map it with --align, or name another file"
            raise SettingError(
                f"{output} holds vectors of encoder {others[0]}, and this is encoder {self.name}: {ways}."
            )
        if self.mode == "align":
            files.require_one_encoder(old.encoders, str(output))
        before, now = old.facts.get("source"), self.source.name
        if isinstance(before, str) and before != now and os.path.exists(before):
            raise SettingError(f"{output} holds vectors of {before}, not of {now}: name another file with -o.")

    def is_done(self, plan: Plan) -> bool:
        """Whether the file is already as it is wanted."""
        if self.mode in ("new", "align"):
            return self.mode == "new" or self.old.encoders == [self.name]
        return not len(plan) and self.row_of.keys() >= set(self.moved) and self.dtype == str(self.old.vector.dtype)

    def planned(self) -> Plan:
        """Which images are to be embedded, in which order, and their ids."""
        source, old = self.source, self.old
        known = {path: row for row, path in enumerate(self.moved)}
        same = [path for path, row in known.items() if path in self.row_of and self._unchanged(row, self.row_of[path])]
        if self.mode == "align":
            wanted = max(OVERLAP, 5 * self.encoder.dimension)
            chosen = np.random.default_rng(0).permutation(len(same))[:wanted]
            paths = [same[place] for place in sorted(chosen.tolist())]
        else:
            made = {path: (old.encoder[known[path]], old.aligned[known[path]]) for path in same}
            fresh = {path for path in same if made[path] == (self.name, None)}
            paths = [path for path in known if path in self.row_of and path not in fresh]
            paths += [path for path in source.paths if path not in known]
        following = itertools.count(max(old.id.tolist(), default=-1) + 1)
        ids = [int(old.id[known[path]]) if path in known else next(following) for path in paths]
        rows = [self.row_of[path] for path in paths]
        return Plan(self._facts, ids, paths, source.sizes[rows].tolist(), source.modified[rows].tolist(), CHUNK)

    def _unchanged(self, row: int, at: int) -> bool:
        old, source = self.old, self.source
        known = int(source.sizes[at]) >= 0 or int(old.size[row]) < 0  # rows of a data set do not change
        return known and (old.size[row], old.modified[row]) == (source.sizes[at], source.modified[at])

    # ---- on disk

    @property
    def folder(self) -> Path:
        """Where the plan and the chunks lie."""
        return self.output.with_name(f".{self.output.name}.embedding")

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """What makes two calls of the command the same."""
        found = self.output.stat() if self.output.exists() else None
        stamp = [] if found is None else [found.st_size, found.st_mtime_ns]
        said = {"encoder": self.name, "source": self.source.name, "mode": self.mode}
        return {**said, "dtype": self.dtype, "old": stamp}

    def interrupted(self) -> Plan | None:
        """What an interrupted call wanted to do, if it is what this one wants."""
        try:
            plan = Plan(**read_json(self.folder / PLAN, MOST_PLAN))
            columns = (plan.id, plan.path, plan.size, plan.modified)
            right = plan.facts == self._facts and len({len(column) for column in columns}) == 1
            right = right and all(isinstance(path, str) for path in plan.path) and type(plan.chunk) is int
            return plan if right and plan.chunk > 0 else None
        except (OSError, ValueError, TypeError):
            return None

    def write(self, plan: Plan) -> None:
        """Write the plan, and remove the chunks of another one."""
        path, content = self.folder / PLAN, json.dumps(plan.__dict__).encode()
        try:
            if path.is_file() and path.read_bytes() == content:
                return
            for chunk in self.folder.glob("chunk-*"):
                chunk.unlink()
            replace_file(path, content)
        except OSError as error:
            raise RunFolderError(f"cannot write to {self.folder}: {error.strerror or error}.") from None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One process at a time works on an output."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder / "lock", "ab"):
                yield
        except BlockingIOError:
            raise RunFolderError(f"another process is embedding into {self.output}.") from None
        except (NotADirectoryError, FileExistsError, PermissionError) as error:
            raise RunFolderError(f"cannot write to {self.folder}: {error.strerror or error}.") from None

    def clear(self) -> None:
        if self.folder.exists():
            remove_folder(self.folder)

    def chunks(self, plan: Plan) -> dict[Path, range]:
        """The files of chunks, and which places of the plan each has."""
        every = range(len(plan))
        parts = [every[start : start + plan.chunk] for start in every[:: plan.chunk]]
        return {self.folder / f"chunk-{number:06d}.parquet": part for number, part in enumerate(parts)}

    # ---- vectors

    def make_chunks(self, plan: Plan, workers: int, report: Report) -> list[Fault]:
        """Embed what is not yet on disk, chunk by chunk; the images that cannot be used."""
        encoder, row_of, chunks = self.encoder, self.row_of, self.chunks(plan)
        missing = {path: places for path, places in chunks.items() if not _is_whole(path)}
        step = rows_at_once(encoder.image_size)
        pieces: dict[Path, list[list[int]]] = {}  # of each chunk: places in the plan that are decoded at a time
        for path, places in missing.items():
            here = [place for place in places if plan.path[place] in row_of]
            pieces[path] = [here[at : at + step] for at in range(0, len(here), step)]
        left = sum(map(len, missing.values()))
        done = len(plan) - left
        report("embedding", done, len(plan))
        rows = (np.array([row_of[plan.path[place]] for place in p], np.int64) for some in pieces.values() for p in some)
        workers = workers if left >= FEW else 0
        reading = decoded(self.source.files, rows, encoder.image_size, encoder.fit, workers, hashing=True)
        room = max(2, WAITING // (3 * encoder.image_size**2 * step))
        form = schema(encoder.dimension, self.dtype, {})
        with ahead(reading, room) as read, own_torch_state(), torch.inference_mode():
            for path, some in pieces.items():
                gathered = _Gathered(encoder, plan)
                for piece in some:
                    gathered.add(piece, *next(read))
                    done += len(piece)
                    report("embedding", done, len(plan))
                made = table(gathered.rows(self.name), form)
                files.write(path, with_facts(form, {"faults": gathered.faults}), [made])
                pyarrow().default_memory_pool().release_unused()
        found = [fault for path in chunks for fault in _faults_of(path, plan)]
        return found + [Fault(path, "it is gone") for path in plan.path if path not in row_of]

    def finish(self, plan: Plan) -> Result:
        """Old rows that stay, then the new chunks, as one file."""
        alignment = fit_alignment(*self._pairs(plan)) if self.mode == "align" else None
        facts: dict[str, Any] = {"source": self.source.name, "run": self.encoder.about.get("folder", "")}
        if alignment is not None:
            facts["alignment"] = {"from": self.old.encoders[0], **alignment.facts()}
        elif self.mode == "update" and "alignment" in self.old.facts:
            facts["alignment"] = self.old.facts["alignment"]
        form = schema(self.encoder.dimension, self.dtype, facts)
        result = Result(self.output, self.name, self.encoder.dimension, 0, 0, alignment=alignment)
        with closing(self._rows(plan, result)) as made:
            result.vectors = files.write(self.output, form, (table(rows, form) for rows in made))
        return result

    def _rows(self, plan: Plan, result: Result) -> Generator[Rows]:
        """All rows of the new file; counts in the result what was removed and embedded."""
        alignment, chunks = result.alignment, self.chunks(plan)
        renewed = {*plan.path} if alignment is None else {p for path in chunks for p in read_vectors(path, False).path}
        moved = iter(self.moved)
        for rows in rows_of(self.output) if self.output.exists() else ():
            paths = list(itertools.islice(moved, len(rows)))
            here = [alignment is not None or path in self.row_of for path in paths]
            result.removed += here.count(False)
            stays = [there and path not in renewed for there, path in zip(here, paths, strict=True)]
            kept = _select(replace(rows, path=paths), stays)
            if alignment is not None:
                aligned: list[str | None] = [*kept.encoder]
                kept = replace(kept, vector=alignment(kept.vector), encoder=[self.name] * len(kept), aligned=aligned)
            yield kept
        for rows in itertools.chain.from_iterable(map(rows_of, chunks)):
            result.embedded += len(rows)
            yield rows

    def _pairs(self, plan: Plan) -> tuple[Any, Any]:
        """Old and new vectors of the images that have both, in the order of the plan; of copies only one."""
        new: dict[int, Any] = {}
        before: dict[int, Any] = {}
        seen: set[str] = set()  # checksums: of copies one is used, or the held-out images would not be new to the map
        for rows in itertools.chain.from_iterable(map(rows_of, self.chunks(plan))):
            for number, digest, vector in zip(rows.id.tolist(), rows.sha256, rows.vector, strict=True):
                if digest not in seen:
                    seen.add(digest)
                    new[number] = vector
        for rows in rows_of(self.output):
            before.update((n, v) for n, v in zip(rows.id.tolist(), rows.vector, strict=True) if n in new)
        ids = [n for n in plan.id if n in new and n in before]
        if len(ids) < 20:
            raise DataError(
                f"only {len(ids)} different images of {self.output} are still there unchanged, and an alignment takes "
                "at least 20: re-embed them with --refresh."
            )
        return np.stack([before[n] for n in ids]).astype(np.float64), np.stack([new[n] for n in ids]).astype(np.float64)


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


def _select(rows: Rows, wanted: Sequence[bool]) -> Rows:
    places = np.flatnonzero(wanted)
    chosen: dict[str, Any] = {}
    for name, column in rows.__dict__.items():
        chosen[name] = column[places] if isinstance(column, np.ndarray) else [column[n] for n in places]
    return Rows(**chosen)
