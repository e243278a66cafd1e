"""What a machine of a cluster does with a run that it is handed: go on with it, and tell what is new."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ocssl import __version__
from ocssl.launch.transfer import Files, News, Reporter, unpack
from ocssl.launch.worker import Worker
from ocssl.runs.config import read_settings
from ocssl.runs.folder import SETTINGS

PERIOD = 0.5  # seconds between two looks at the run
SCRATCH = "OCSSL_SCRATCH"  # in a node's environment: where its runs work; by default the folder for temporary files


@dataclass(frozen=True)
class Message:
    """What a node tells of a run: what is new, and in the last one that it has ended, and why if it failed."""

    news: News | None = None
    ended: bool = False
    failure: str | None = None
    warnings: Sequence[str] = ()


def attend(
    name: str, parcel: Files, threads: int, options: Sequence[str], version: str, asked: Callable[[], bool]
) -> Iterator[Message]:
    """Go on with a run in a folder of this machine's own, and tell of it."""
    host = socket.gethostname()
    if version != __version__:
        yield Message(None, True, f"{host} has ocssl {__version__}, and this is {version}; install the same.")
        return
    place = Path(os.environ.get(SCRATCH) or tempfile.gettempdir())
    _clear_away(place)
    scratch = Path(tempfile.mkdtemp(prefix=f"{_mine()}{os.getpid()}-", dir=place))
    worker: Worker | None = None
    try:
        folder = scratch / name
        folder.mkdir()
        unpack(parcel, folder)
        if missing := _missing(folder):
            yield Message(None, True, f"{missing} is not there on {host}; put it at the same place on every node.")
            return
        worker, stopping = Worker(folder, threads, options=options), False
        reporter = Reporter(folder, parcel)
        while worker.running:
            time.sleep(PERIOD)
            if not stopping and asked():
                worker.ask_to_stop()
                stopping = True
            if worker.running and (news := reporter.news()):
                yield Message(news)
        yield Message(reporter.news(ended=True), True, worker.failure(stopping), worker.warnings())
    finally:
        if worker is not None:
            worker.end()
        shutil.rmtree(scratch, ignore_errors=True)


def _mine() -> str:
    """How the folders of this machine's runs begin; a process number follows."""
    return f"ocssl-{re.sub(r'[^A-Za-z0-9]+', '', socket.gethostname())}-"


def _clear_away(place: Path) -> None:
    """Remove what processes of this machine have left that were killed."""
    for folder in place.glob(f"{_mine()}*-*"):
        number = folder.name.removeprefix(_mine()).partition("-")[0]
        if number.isdecimal() and not _alive(int(number)):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def _missing(folder: Path) -> str | None:
    """A path that a run's settings name and that is not on this machine."""
    settings = read_settings(folder / SETTINGS)
    paths = (settings.data.path, settings.init.path)
    return next((path for path in paths if path is not None and not Path(path).exists()), None)
