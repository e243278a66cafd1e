"""A run on another machine without a shared disk: the files that are sent, and what the other machine does with them.

Files are named by their path in the run folder and checked before any is written.
"""

import hashlib
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

from ocssl import __version__
from ocssl._core import checkpoint
from ocssl._files.atomic import remove_folder, replace_file
from ocssl._files.untrusted import regular
from ocssl.errors import RunFolderError
from ocssl.launch.run_process import Worker
from ocssl.runs.config import read_settings
from ocssl.runs.events import read_events
from ocssl.runs.folder import CHECKPOINTS, EVENTS, METRICS, SETTINGS, SNAPSHOTS, complete_checkpoints
from ocssl.runs.profiler import TIMING
from ocssl.runs.snapshots import thin_out
from ocssl.runs.tracking import TENSORBOARD, WANDB_ID

Files = Mapping[str, bytes]  # contents by relative path, with slashes

SINGLE = (SETTINGS, EVENTS, METRICS, TIMING, WANDB_ID)
TRACKED = (TENSORBOARD, "wandb")
FOLDERS = (CHECKPOINTS, SNAPSHOTS, *TRACKED)
MOST_FILES, DEEPEST = 10_000, 8
LARGEST = 16 * 2**30  # bytes of all files that are sent at once
SAFE_NAME = re.compile(r"[A-Za-z0-9_@+=-][A-Za-z0-9._@+=-]{0,199}")  # no leading dot: nothing hidden, and no way up
PERIOD = 0.5  # seconds between two looks at the run
SCRATCH = "OCSSL_SCRATCH"  # in a node's environment: where its runs work; by default the folder for temporary files


# ---- files ----------------------------------------------------------------------------------------------------------


def unpack(files: Files, folder: Path) -> None:
    """Write files into a run folder, each all or nothing; manifests and metrics, which make the others count, last."""
    _require_safe(files)

    def order(path: str) -> tuple[bool, bool, str]:
        return path == METRICS, path.endswith(checkpoint.MANIFEST), path

    for path in sorted(files, key=order):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_file(place, files[path])


def _require_safe(files: Files) -> None:
    if len(files) > MOST_FILES or sum(map(len, files.values())) > LARGEST:
        raise RunFolderError("the files of a run that were received are too large; they are refused.")
    for path in files:
        below = "/" in path and path.split("/")[0] in FOLDERS and _is_safe(path)
        if path not in SINGLE and not below:
            raise RunFolderError(f"received the file {path!r}, which does not belong in a run folder; it is refused.")


def _is_safe(path: str) -> bool:
    names = path.split("/")
    return len(names) <= DEEPEST and all(map(SAFE_NAME.fullmatch, names))


def pack(folder: Path) -> dict[str, bytes]:
    """What another machine needs to resume a run: settings, events and checkpoints."""
    files = _single_files(folder, SINGLE)
    for state in complete_checkpoints(folder):
        files |= _folder_files(folder, state.iterdir())
    _require_safe(files)
    return files


def _single_files(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


def _folder_files(folder: Path, paths: Iterable[Path]) -> dict[str, bytes]:
    """Files below a run folder by their paths in it; links and unsafe names are left out."""
    regular = (path for path in sorted(paths) if path.is_file() and not path.is_symlink())
    named = ((path.relative_to(folder).as_posix(), path) for path in regular)
    return {name: path.read_bytes() for name, path in named if _is_safe(name)}


@dataclass(frozen=True)
class Update:
    """What has changed in a run folder, and in the last one how the run ended."""

    offset: int = 0
    events: bytes = b""  # the end of the file from `offset` on
    files: dict[str, bytes] = field(default_factory=dict)
    ended: bool = False
    failure: str | None = None
    warnings: Sequence[str] = ()

    @property
    def position(self) -> int | None:
        """The minibatches that had passed at the checkpoint in it, if there is one."""
        found = [path.split("/")[1] for path in self.files if path.startswith(f"{CHECKPOINTS}/")]
        return max((int(name) for name in found if name.isdecimal()), default=None)


class FolderWatcher:
    """Finds what is new in a run folder in which a process works."""

    def __init__(self, folder: Path, known: Files) -> None:
        self.folder = folder
        self._events = known.get(EVENTS, b"")
        self._sent = {path: _digest(content) for path, content in known.items()}

    def update(self, ended: bool = False) -> Update:
        """What is new; all that is left if the process has ended, and what trackers wrote if the run is finished."""
        files = self._new_checkpoint()
        if files or ended:
            for state in complete_checkpoints(self.folder, SNAPSHOTS):
                files |= self._unsent(_folder_files(self.folder, state.iterdir()))
            files |= self._unsent(_single_files(self.folder, (TIMING, WANDB_ID)))
        if ended and (self.folder / METRICS).is_file():  # else trackers read all events again when the run resumes
            for name in TRACKED:
                files |= self._unsent(_folder_files(self.folder, (self.folder / name).rglob("*")))
            files |= self._unsent(_single_files(self.folder, (METRICS,)))
        self._sent |= {path: _digest(content) for path, content in files.items()}
        return Update(*self._new_events(), files, ended)  # events after the checkpoint: they include all that it counts

    def _new_events(self) -> tuple[int, bytes]:
        path = self.folder / EVENTS
        now = path.read_bytes() if path.exists() else b""
        now = now[: now.rfind(b"\n") + 1]
        if now.startswith(self._events):
            same = len(self._events)
        else:  # a resumed run has cut its events back
            pairs = zip(self._events.splitlines(True), now.splitlines(True), strict=False)
            same = sum(len(old) for old, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if same == len(now):  # nothing new, or not grown yet
            return same, b""
        self._events = now
        return same, now[same:]

    def _new_checkpoint(self) -> dict[str, bytes]:
        """The newest checkpoint, if it was not sent; its manifest stands for its tensors, which are large."""
        with suppress(FileNotFoundError):  # removed in the meantime: there is a newer one
            newest = max(complete_checkpoints(self.folder), default=None)
            if newest and self._unsent(_folder_files(self.folder, [newest / checkpoint.MANIFEST])):
                return _folder_files(self.folder, newest.iterdir())
        return {}

    def _unsent(self, files: Files) -> dict[str, bytes]:
        return {path: content for path, content in files.items() if self._sent.get(path) != _digest(content)}


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def apply_update(update: Update, folder: Path, keep: int) -> None:
    """Bring a run folder up to date; killed in between, it can be resumed."""
    _require_safe(update.files | {EVENTS: update.events})
    if update.events:
        path = folder / EVENTS
        with open(path, "r+b" if path.exists() else "w+b", opener=regular) as file:
            size = file.seek(0, 2)
            if size < update.offset:
                raise RunFolderError(f"{path} is shorter than what was received for it; another program changed it.")
            file.truncate(update.offset)
            file.seek(update.offset)
            file.write(update.events)
    unpack(update.files, folder)
    if update.files and (folder / SETTINGS).is_file() and (folder / EVENTS).is_file():
        positions = [event["position"] for event in read_events(folder / EVENTS) if event["event"] == "evaluation"]
        thin_out(folder, positions, read_settings(folder / SETTINGS).checkpoint.most_snapshots)
    if update.position is not None:
        for old in sorted(complete_checkpoints(folder), reverse=True)[keep:]:
            remove_folder(old)


# ---- on the other machine -------------------------------------------------------------------------------------------


def run_here(
    name: str, files: Files, threads: int, options: Sequence[str], version: str, stopping: Callable[[], bool]
) -> Iterator[Update]:
    """Resume a run in a temporary folder of this machine, and report what is new."""
    host = socket.gethostname()
    if version != __version__:
        yield Update(ended=True, failure=f"{host} has ocssl {__version__}, and this is {version}; install the same.")
        return
    place = Path(os.environ.get(SCRATCH) or tempfile.gettempdir())
    _remove_leftovers(place)
    own = f"{_scratch_prefix()}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=own, dir=place, ignore_cleanup_errors=True) as scratch, ExitStack() as end:
        folder = Path(scratch) / name
        folder.mkdir()
        unpack(files, folder)
        if missing := _missing(folder):
            failure = f"there is no {missing} on {host}; put it at the same place on every node."
            yield Update(ended=True, failure=failure)
            return
        worker, asked = Worker(folder, threads, options=options), False
        end.callback(worker.end)
        watcher = FolderWatcher(folder, files)
        while worker.running:
            time.sleep(PERIOD)
            if not asked and stopping():
                worker.ask_to_stop()
                asked = True
            if worker.running:
                update = watcher.update()
                if update.files or update.events:
                    yield update
        yield replace(watcher.update(ended=True), failure=worker.failure(asked), warnings=worker.warnings())


def _scratch_prefix() -> str:
    """How the folders of this machine's runs begin; a process number follows."""
    return f"ocssl-{re.sub(r'[^A-Za-z0-9]+', '', socket.gethostname())}-"


def _remove_leftovers(place: Path) -> None:
    """Remove the folders of killed processes of this machine."""
    for folder in place.glob(f"{_scratch_prefix()}*-*"):
        number = folder.name.removeprefix(_scratch_prefix()).partition("-")[0]
        if number.isdecimal() and not _alive(int(number)):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        pass
    return True


def _missing(folder: Path) -> str | None:
    """A path that a run's settings name and that does not exist on this machine."""
    settings = read_settings(folder / SETTINGS)
    paths = (settings.data.path, settings.init.path)
    return next((path for path in paths if path is not None and not Path(path).exists()), None)
