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
from ocssl.data.decode.decode_processes import Fault, by_reason, decoded, rows_at_once
from ocssl.data.decode.decoder import Images
from ocssl.data.decode.files import Report
from ocssl.embed import vectors as files
from ocssl.embed.align import Alignment, fit_alignment
from ocssl.embed.image_encoder import ImageEncoder
from ocssl.embed.image_files import Source, moved_away
from ocssl.embed.prefetch import ahead
from ocssl.embed.vectors import Floats, Rows, Vectors, open_vectors, read_vectors, rows_of, schema, table, with_facts
from ocssl.errors import CheckpointError, DataError, RunFolderError, SettingError

Mode = Literal["new", "update", "refresh", "align"]
CHUNK = 2048  # images whose vectors are written at a time
BATCH = 256  # images that are encoded at a time
WAITING = 2**24  # bytes of decoded images that wait for the encoder
FEW = 500  # images that are decoded sooner than another process has started
PLAN, MOST_PLAN = "plan.json", 2**30  # bytes
MOST_SKIPPED = 2**19  # bytes of what a file of vectors says of images that could not be used
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
    if not len(source):
        kept = "" if old is None else f", so {output} stays as it is"
        raise DataError(f"there are no images in {source.name}{kept}.")
    plan = task.interrupted() or task.planned()
    if old is not None:
        changes = task.changes(plan)
        if not changes:
            if task.folder.exists():
                with task.alone():
                    pass
                task.clear()
            return Result(output, task.name, encoder.dimension, len(old), 0, finished_before=True)
        if mode == "new":
            ways = "bring it up to date with --update, or name another file with -o"
            raise SettingError(f"{output} is there, and {', '.join(changes)}: {ways}.")
    with task.alone():
        task.write(plan)
        faults = task.make_chunks(plan, workers, report)
        report("writing", 0, 1)
        try:
            result = task.finish(plan, faults)
        except _NoImages:
            task.clear()
            why = by_reason([*faults, *task.known_faults(plan), *source.left_out])
            raise DataError(f"no image in {source.name} can be used ({why}): nothing was written.") from None
        report("writing", 1, 1)
    result.skipped = [*faults, *task.known_faults(plan), *source.left_out]
    task.clear()
    return result


class _NoImages(Exception):
    """The file would have no rows."""


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
        return self._moved(self.old.path)

    def _moved(self, paths: Sequence[str]) -> list[str]:
        before = self.old.facts.get("source")
        if not isinstance(before, str) or before == self.source.name:
            return list(paths)
        start = before.rstrip("/") + "/"
        now = self.source.name.rstrip("/") + "/"
        return [now + path.removeprefix(start) if path.startswith(start) else path for path in paths]

    @cached_property
    def skipped(self) -> dict[str, str]:
        """Images that this encoder could not use when the file was made and that have not changed, and why."""
        said = self.old.facts.get("skipped")
        if not isinstance(said, list) or self.old.encoders != [self.name]:
            return {}
        found = {}
        for entry in said:
            if isinstance(entry, list) and [type(value) for value in entry] == [str, int, int, str]:
                (path,), stat, why = self._moved(entry[:1]), entry[1:3], entry[3]
                row = self.row_of.get(path)
                if row is not None and stat == self._stat(row):
                    found[path] = why
        return found

    def _stat(self, row: int) -> list[int]:
        return [int(self.source.sizes[row]), int(self.source.modified[row])]

    def known_faults(self, plan: Plan) -> list[Fault]:
        """Those of them that are not tried again."""
        tried = {*plan.path}
        return [Fault(path, why) for path, why in self.skipped.items() if path not in tried]

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
        if self.name in old.encoders:
            files.require_dimension(old.vector.shape[1], self.encoder.dimension, str(output))
        before, now = old.facts.get("source"), self.source.name
        if isinstance(before, str) and before != now and not (_kind(before) == _kind(now) and moved_away(before)):
            raise SettingError(f"{output} holds vectors of {before}, not of {now}: name another file with -o.")

    def changes(self, plan: Plan) -> list[str]:
        """How the file that there is differs from what is wanted; nothing where it is up to date."""
        old = self.old
        if self.mode == "align":
            return [] if old.encoders == [self.name] else ["its vectors are to be mapped"]
        found = []
        if len(plan):
            found.append(f"{_images(len(plan))} new or changed")
        if gone := sum(path not in self.row_of for path in self.moved):
            found.append(f"{_images(gone)} gone")
        elif self.moved != list(old.path):
            found.append(f"its images were moved here from {old.facts['source']}")
        if self.dtype != str(old.vector.dtype):
            found.append(f"it holds {old.vector.dtype}, not {self.dtype}")
        return found

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
            mapped = self.mode != "refresh"  # mapped vectors stay
            made = {path: (old.encoder[known[path]], old.aligned[known[path]]) for path in same}
            fresh = {path for path, (name, was) in made.items() if name == self.name and (mapped or was is None)}
            # what could not be read, as for want of permission, may be readable now though it has not changed
            fresh |= {path for path, why in self.skipped.items() if self.mode == "new" or not _unreadable(why)}
            paths = [path for path in known if path in self.row_of and path not in fresh]
            paths += [path for path in source.paths if path not in known and path not in fresh]
        following = itertools.count(max(old.id.tolist(), default=-1) + 1)
        ids = [int(old.id[known[path]]) if path in known else next(following) for path in paths]
        rows = [self.row_of[path] for path in paths]
        return Plan(self._facts, ids, paths, source.sizes[rows].tolist(), source.modified[rows].tolist(), CHUNK)

    def _unchanged(self, row: int, at: int) -> bool:
        old, source = self.old, self.source
        known = int(source.sizes[at]) >= 0 or int(old.size[row]) < 0  # of some data sets nothing is known
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

    def finish(self, plan: Plan, faults: list[Fault]) -> Result:
        """Old rows that stay, then the new chunks, as one file; _NoImages where it would have no rows."""
        alignment = fit_alignment(*self._pairs(plan)) if self.mode == "align" else None
        run = self.encoder.about.get("folder")
        facts: dict[str, Any] = {"source": self.source.name, "run": os.path.abspath(run) if run else ""}
        if alignment is None and (skipped := self._skipped(plan, faults)):
            facts["skipped"] = skipped
        if alignment is not None:
            facts["alignment"] = {"from": self.old.encoders[0], **alignment.facts()}
        elif self.mode == "update" and "alignment" in self.old.facts:
            facts["alignment"] = self.old.facts["alignment"]
        form = schema(self.encoder.dimension, self.dtype, facts)
        result = Result(self.output, self.name, self.encoder.dimension, 0, 0, alignment=alignment)
        with closing(self._rows(plan, result)) as made:
            result.vectors = files.write(self.output, form, (table(rows, form) for rows in made))
        return result

    def _skipped(self, plan: Plan, faults: list[Fault]) -> list[list[Any]]:
        """What the file says of the images that could not be used: path, size, time and why; as many as have room."""
        place_of = {path: place for place, path in enumerate(plan.path)}
        found = [[f.name, *self._stat(self.row_of[f.name]), f.reason] for f in self.known_faults(plan)]
        for fault in faults:
            place = place_of[fault.name]
            if fault.name in self.row_of:
                found.append([fault.name, plan.size[place], plan.modified[place], fault.reason])
        found.sort()
        sizes = np.cumsum([len(json.dumps(entry)) + 2 for entry in found])
        return found[: int(np.searchsorted(sizes, MOST_SKIPPED))]

    def _rows(self, plan: Plan, result: Result) -> Generator[Rows]:
        """All rows of the new file; counts in the result what was removed and embedded."""
        alignment, chunks = result.alignment, self.chunks(plan)
        renewed = {*plan.path} if alignment is None else {p for path in chunks for p in read_vectors(path, False).path}
        moved, count = iter(self.moved), 0
        for rows in rows_of(self.output) if self.output.exists() else ():
            paths = list(itertools.islice(moved, len(rows)))
            here = [alignment is not None or path in self.row_of for path in paths]
            result.removed += here.count(False)
            stays = [there and path not in renewed for there, path in zip(here, paths, strict=True)]
            kept = _select(replace(rows, path=paths), stays)
            if alignment is not None:
                aligned: list[str | None] = [*kept.encoder]
                kept = replace(kept, vector=alignment(kept.vector), encoder=[self.name] * len(kept), aligned=aligned)
            count += len(kept)
            yield kept
        for rows in itertools.chain.from_iterable(map(rows_of, chunks)):
            result.embedded += len(rows)
            yield rows
        if not count + result.embedded:
            raise _NoImages

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


def _kind(source: str) -> str:
    """Which kind of source it is; a folder has none in its name."""
    return "" if os.path.isabs(source) else source.partition(":")[0]


def _images(count: int) -> str:
    return "1 image is" if count == 1 else f"{count:,} images are"


def _unreadable(why: str) -> bool:
    return Fault("", why).kind == "unreadable"


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
