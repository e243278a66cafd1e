"""Run folders as a report sees them: whatever can be read of them, with a note on what cannot.

Nothing here trusts a folder. A run may be under way, killed, damaged, or made by someone else.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ocssl._files.untrusted import read_regular
from ocssl.errors import RunFolderError
from ocssl.results.records import Evaluation, Holding, Spectrum, evaluation, holding, spectrum
from ocssl.results.untrusted_values import number
from ocssl.runs.events import read_events
from ocssl.runs.folder import EVENTS, LARGEST_METRICS, METRICS, SETTINGS
from ocssl.runs.timing import read_timing
from ocssl.settings import flatten

TRACED = ("share", "steps", "ssl", "spread", "rank")  # columns of `Run.trace`
LARGEST_SETTINGS, LARGEST_DIARY = 2**20, 2**30  # bytes
ONLINE = "online"


@dataclass
class Run:
    """One run folder. Numbers that are missing, infinite or no numbers are None."""

    folder: Path
    method: str
    benchmark: str
    seed: int | None
    text: str  # of run.toml
    settings: dict[str, Any]  # flat: "memory.capacity" -> 200
    finished: bool = False
    start: float | None = None
    final: float | None = None
    average: float | None = None
    steps: float | None = None
    seconds: float | None = None
    minibatches: tuple[float | None, float | None] = (None, None)  # done, of how many
    evaluations: list[Evaluation] = field(default_factory=list)
    spectra: list[Spectrum] = field(default_factory=list)
    holdings: list[Holding] = field(default_factory=list)
    images: str | None = None  # fingerprint of the benchmark's images
    phases: dict[str, float] = field(default_factory=dict)  # seconds
    trace: dict[str, list[float | None]] = field(default_factory=lambda: {name: [] for name in TRACED})
    terms: dict[str, list[float | None]] = field(default_factory=dict)  # loss of each term and `term.signal`, as long
    collapsed: bool = False
    alarms: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    variant: str = ""  # settings in which it differs from other runs of its method
    name: str = ""  # the method, with its variant if there are several
    series: str = ""  # the name, with the benchmark if there are several; shared by runs that differ in the seed only
    label: str = ""  # its own

    @property
    def regime(self) -> str:
        """Online, or what an offline run is allowed: it is told where experiences end, or sees them more than once."""
        if not self.settings:
            return "unknown whether online"
        told, epochs = self.settings.get("schedule.boundaries") is True, number(self.settings.get("stream.epochs")) or 1
        if not told and epochs <= 1:
            return ONLINE
        often = f"{epochs:.0f} {'epoch' if epochs == 1 else 'epochs'}"
        return f"offline: {'told of experience ends, ' if told else ''}{often}"

    @property
    def objective(self) -> str:
        return str(self.settings.get("objective.name", "unknown"))

    @property
    def has_loss(self) -> bool:
        """Whether the objective has a loss of its own that is trained; else a term is the whole loss."""
        return self.objective != "none" and self.settings.get("objective.weight") != 0


def read_runs(folders: Iterable[Path]) -> list[Run]:
    """The runs of the folders given: each is a run folder, or contains some. They have no names yet."""
    found: dict[Path, Path] = {}
    for folder in folders:
        inside = list(_run_folders(folder))
        if not inside:
            raise RunFolderError(f"{folder} holds no run: neither it nor a folder in it has a {SETTINGS}.")
        found.update({path.resolve(): path for path in inside})
    if not found:
        raise RunFolderError("no run folder was named.")
    return [read_run(path) for path in found]


def _run_folders(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is {'not a folder' if folder.exists() else 'missing'}; name a run folder.")
    try:
        inside = sorted(path for path in folder.iterdir() if (path / SETTINGS).is_file())
    except OSError as error:
        raise RunFolderError(f"cannot read {folder}: {error.strerror}.") from None
    yield from [folder] if (folder / SETTINGS).is_file() else inside


def read_run(folder: Path) -> Run:
    """Everything a report shows of a run except its memory."""
    notes, text, settings = [], "", {}
    try:
        read = read_regular(folder / SETTINGS, LARGEST_SETTINGS).decode()
        settings = dict(flatten(tomllib.loads(read)))
        text = read  # of a file that is no settings nothing is shown
    except (OSError, ValueError, RecursionError):
        notes.append(f"{SETTINGS} cannot be read; names come from {METRICS} or the folder.")
    metrics: Any = None
    try:
        metrics = json.loads(read_regular(folder / METRICS, LARGEST_METRICS))
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RecursionError):
        notes.append(f"{METRICS} is damaged; numbers come from {EVENTS}.")
    facts = (metrics if isinstance(metrics, dict) else {}) | settings
    seed = facts.get("seed")
    run = Run(
        folder,
        method=str(facts.get("method", folder.name)),
        benchmark=str(facts.get("benchmark", "unknown")),
        seed=seed if isinstance(seed, int) and 0 <= seed < 2**63 else None,
        text=text,
        settings=settings,
        notes=notes,
    )
    run.phases = read_timing(folder)
    _read_diary(run)
    if isinstance(metrics, dict):
        run.finished = True
        run.start, run.final, run.average, run.steps, run.seconds = (
            number(metrics.get(key))
            for key in ("start_accuracy", "final_accuracy", "average_accuracy", "steps", "seconds")
        )
        run.collapsed |= metrics.get("collapsed") is True
    if run.collapsed and not run.alarms:
        run.alarms.append("collapsed at an unknown step.")
    return run


def _read_diary(run: Run) -> None:
    """Evaluations, the course of the numbers and alarms; what is damaged ends the reading."""
    total: float | None = None
    try:
        for event in read_events(run.folder / EVENTS, LARGEST_DIARY):
            position = number(event.get("position"))
            share = _share(position, total)
            match event["event"]:
                case "start":
                    total, images = number(event.get("minibatches")), event.get("images")
                    run.images = images if isinstance(images, str) else None
                case "step":
                    facts = {**event, "ssl": event.get("ssl", event.get("loss")), "share": share}
                    before = len(run.trace["share"])
                    for name, column in run.trace.items():
                        column.append(number(facts.get(name)))
                    terms = event.get("terms")
                    terms = terms if isinstance(terms, dict) else {}
                    for name in [*run.terms, *(name for name in terms if name not in run.terms)]:
                        run.terms.setdefault(name, [None] * before).append(number(terms.get(name)))
                    run.steps, run.minibatches = number(event.get("steps")), (position, total)
                case "evaluation":
                    seconds = number(event.get("seconds"))
                    run.seconds = seconds if seconds is not None else run.seconds
                    run.evaluations += filter(None, [evaluation(event, share)])
                case "spectrum":
                    run.spectra += filter(None, [spectrum(event, share)])
                case "memory":
                    run.holdings += filter(None, [holding(event, share)])
                case "collapse":
                    run.collapsed = True
                    run.alarms.append(f"collapsed at step {_count(run.steps)}: {event.get('message', '')}")
                case "non-finite-loss":
                    run.alarms.append(f"stopped after step {_count(run.steps)}: {event.get('message', '')}")
    except (OSError, ValueError, RecursionError, RunFolderError):
        there = (run.folder / EVENTS).exists()
        how = "damaged; the curves show what could be read" if there else "missing; there are no curves"
        run.notes.append(f"{EVENTS} is {how}.")
    after = [e.accuracy for e in run.evaluations if e.experience > 0 and e.accuracy is not None]
    run.start = next((e.accuracy for e in run.evaluations if e.experience == 0), None)
    if after:
        run.final, run.average = after[-1], sum(after) / len(after)


def _share(position: float | None, total: float | None) -> float | None:
    """How much of the stream has passed, in per cent."""
    return 100 * position / total if position is not None and total else None


def _count(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f}"
