"""Run folders on the way between machines that share no disk: files by name, checked before any is written."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ocssl._core import checkpoint
from ocssl.errors import RunFolderError
from ocssl.runs.folder import CHECKPOINTS, EVENTS, METRICS, SETTINGS, SNAPSHOTS, whole_checkpoints
from ocssl.runs.timing import TIMING
from ocssl.runs.tracking import TENSORBOARD, WANDB_ID

Files = Mapping[str, bytes]  # contents by relative path, with slashes

SINGLE = (SETTINGS, EVENTS, METRICS, TIMING, WANDB_ID)
FOLDERS = (CHECKPOINTS, SNAPSHOTS, TENSORBOARD, "wandb")
MOST_FILES, DEEPEST = 10_000, 8
LARGEST = 16 * 2**30  # bytes of all files of a parcel
WORD = re.compile(r"[A-Za-z0-9_@+=-][A-Za-z0-9._@+=-]{0,199}")  # no leading dot: nothing hidden, and no way up


def unpack(files: Files, folder: Path) -> None:
    """Write the files of a parcel into a run folder, each all or nothing; what counts comes last."""
    _require_safe(files)

    def moment(path: str) -> tuple[bool, bool, str]:
        return path == METRICS, path.endswith(checkpoint.MANIFEST), path

    for path in sorted(files, key=moment):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.replace_file(place, files[path])


def _require_safe(files: Files) -> None:
    if len(files) > MOST_FILES or sum(map(len, files.values())) > LARGEST:
        raise RunFolderError("a parcel with files of a run is too large; it is refused.")
    for path in files:
        words = path.split("/")
        known = path in SINGLE if len(words) == 1 else words[0] in FOLDERS
        if not known or len(words) > DEEPEST or not all(WORD.fullmatch(word) for word in words):
            raise RunFolderError(f"a parcel names the file {path!r}, which is none of a run folder; it is refused.")


def pack(folder: Path) -> dict[str, bytes]:
    """What another machine needs to go on with a run: settings, diary and checkpoints."""
    files = {name: (folder / name).read_bytes() for name in (*SINGLE,) if (folder / name).is_file()}
    for state in whole_checkpoints(folder):
        files |= _state(folder, state)
    _require_safe(files)
    return files


def _state(folder: Path, state: Path) -> dict[str, bytes]:
    """The files of a checkpoint or snapshot, by their paths in the run folder."""
    return {str(PurePosixPath(p.relative_to(folder))): p.read_bytes() for p in sorted(state.iterdir()) if _plain(p)}


def _plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and WORD.fullmatch(path.name) is not None


@dataclass
class News:
    """What has changed in a run folder: an end of the diary from some byte on, and files."""

    offset: int = 0
    diary: bytes = b""
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def position(self) -> int | None:
        """The minibatches that had passed at the checkpoint in it, if there is one."""
        found = [path.split("/")[1] for path in self.files if path.startswith(f"{CHECKPOINTS}/")]
        return max((int(name) for name in found if name.isdecimal()), default=None)


class Reporter:
    """Looks at a run folder in which a process works, and tells what is new since the last look."""

    def __init__(self, folder: Path, known: Files) -> None:
        self.folder = folder
        self._diary = known.get(EVENTS, b"")
        self._sent = {path: _digest(content) for path, content in known.items()}

    def news(self, ended: bool = False) -> News | None:
        """What is new; when the process has ended everything that is left, and of a finished run what sinks wrote."""
        files = self._checkpoint()
        if files or ended:
            files |= self._new(self._small())
        if ended and (self.folder / METRICS).is_file():  # else sinks are told all again when the run goes on
            files |= self._new(self._tracked())
            files |= self._new(iter([(METRICS, (self.folder / METRICS).read_bytes())]))
        news = News(*self._new_diary(), files)  # read after the checkpoint: it holds all that the checkpoint counts
        return news if news.files or news.diary else None

    def _new_diary(self) -> tuple[int, bytes]:
        path = self.folder / EVENTS
        now = path.read_bytes() if path.exists() else b""
        now = now[: now.rfind(b"\n") + 1]
        same = len(self._diary) if now.startswith(self._diary) else _common(self._diary, now)
        if same == len(now):  # nothing new, or cut back and not grown yet
            return same, b""
        self._diary = now
        return same, now[same:]

    def _checkpoint(self) -> dict[str, bytes]:
        try:
            newest = max(whole_checkpoints(self.folder), default=None)
            if newest is None or self._known(newest / checkpoint.MANIFEST):
                return {}
            return self._new(iter(_state(self.folder, newest).items()), whole=True)
        except FileNotFoundError:  # taken away while we looked: there is a newer one
            return {}

    def _known(self, path: Path) -> bool:
        """Whether a file was sent as it is now; a checkpoint's manifest speaks for its tensors, which are large."""
        name = str(PurePosixPath(path.relative_to(self.folder)))
        return name in self._sent and self._sent[name] == _digest(path.read_bytes())

    def _small(self) -> Iterator[tuple[str, bytes]]:
        for state in whole_checkpoints(self.folder, SNAPSHOTS):
            yield from _state(self.folder, state).items()
        for name in (TIMING, WANDB_ID):
            if (self.folder / name).is_file():
                yield name, (self.folder / name).read_bytes()

    def _tracked(self) -> Iterator[tuple[str, bytes]]:
        for name in (TENSORBOARD, "wandb"):
            for path in sorted((self.folder / name).rglob("*")):
                words = path.relative_to(self.folder).parts
                if _plain(path) and len(words) <= DEEPEST and all(WORD.fullmatch(word) for word in words):
                    yield "/".join(words), path.read_bytes()

    def _new(self, files: Iterator[tuple[str, bytes]], whole: bool = False) -> dict[str, bytes]:
        """Those that were not sent before; `whole`: all, if one of them was not."""
        found = dict(files)
        digests = {path: _digest(content) for path, content in found.items()}
        new = {path for path in found if self._sent.get(path) != digests[path]}
        self._sent |= digests
        return {path: content for path, content in found.items() if path in new or (whole and new)}


def receive(news: News, folder: Path, keep: int) -> None:
    """Bring a run folder up to date; killed in between, it is one that can be gone on with."""
    _require_safe(news.files | {EVENTS: news.diary})
    if news.diary:
        path = folder / EVENTS
        with open(path, "r+b" if path.exists() else "w+b") as file:
            size = file.seek(0, 2)
            if size < news.offset:
                raise RunFolderError(f"{path} is shorter than what was received for it; somebody else has changed it.")
            file.truncate(news.offset)
            file.seek(news.offset)
            file.write(news.diary)
    unpack(news.files, folder)
    if news.position is not None:
        for old in sorted(whole_checkpoints(folder), reverse=True)[keep:]:
            shutil.rmtree(old)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _common(one: bytes, other: bytes) -> int:
    """How many bytes, in whole lines, two texts have in common at their beginnings."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return one.rfind(b"\n", 0, low) + 1
