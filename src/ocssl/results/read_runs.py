"""Run folders as a report reads them: all that can be read, with a note on what cannot.

Nothing here trusts a folder. A run may be in progress, killed, damaged, or made by someone else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ocssl._core.measures import MEASURES
from ocssl._files.toml import parse_toml
from ocssl._files.untrusted import read_json, read_text
from ocssl.errors import RunFolderError
from ocssl.runs.events import read_events
from ocssl.runs.folder import EVENTS, LARGEST_METRICS, METRICS, SETTINGS, SKIPPED
from ocssl.runs.profiler import read_timing
from ocssl.settings import flatten

LARGEST_SETTINGS, LARGEST_EVENTS, LARGEST_SKIPPED = 2**20, 2**30, 2**26  # bytes
MOST_NUMBERS = 4096  # of a list in an event; a longer one is not ours
LARGEST = 1e15  # of which sums and products are finite, too
QUANTILES = 5  # least, quarter, median, three quarters, most
ONLINE = "online"
BAD_IMAGES = (
    "damaged",
    "empty",
    "suspicious",
    "too large",
    "unreadable",
)  # kinds of skipped files that are images

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Evaluation:
    """What was measured after an experience, by key; experience 0 is the untrained encoder."""

    experience: int
    share: float | None  # of the stream, in per cent
    seen: float
    measured: Mapping[str, float | None]
    tasks: Numbers = ()  # accuracy of each task's own probe

    def __getitem__(self, key: str) -> float | None:
        return self.measured.get(key)


@dataclass(frozen=True)
class Spectrum:
    """Singular values of mean features, the largest 1."""

    share: float | None
    values: Numbers


@dataclass(frozen=True)
class MemorySummary:
    """What a memory held at an evaluation."""

    share: float | None
    stored: float
    born: Numbers  # counts over equal parts of the stream
    age: Numbers  # quantiles, in stream images
    loss: Numbers  # quantiles
    losses: Numbers  # counts over equal parts of the range of the loss
    classes: Numbers  # counts


@dataclass(frozen=True)
class Skipped:
    """A file that was not used, and why."""

    name: str
    reason: str
    image: bool  # or a file of another kind, a link, a hidden one


def _empty_trace() -> dict[str, list[float | None]]:
    charted = [measure.key for measure in MEASURES.of("step") if measure.caption and not measure.of_term]
    return {key: [] for key in ("share", "steps", *charted)}


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
    memories: list[MemorySummary] = field(default_factory=list)
    images: str | None = None  # fingerprint of the benchmark's images
    phases: dict[str, float] = field(default_factory=dict)  # seconds
    trace: dict[str, list[float | None]] = field(default_factory=_empty_trace)  # of every step
    terms: dict[str, list[float | None]] = field(default_factory=dict)  # loss of each term and `term.signal`, as long
    skipped: list[Skipped] = field(default_factory=list)
    collapsed: bool = False
    alarms: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    variant: str = ""  # settings in which it differs from other runs of its method
    name: str = ""  # the method, with its variant if there are several
    series: str = ""  # the name, with the benchmark if there are several; shared by runs that differ in the seed only
    label: str = ""  # its own

    @property
    def regime(self) -> str:
        """Online, or what an offline run is allowed: it knows where experiences end, or sees them more than once."""
        if not self.settings:
            return "unknown whether online"
        boundaries = self.settings.get("schedule.boundaries") is True
        epochs = number(self.settings.get("stream.epochs")) or 1
        if not boundaries and epochs <= 1:
            return ONLINE
        often = f"{epochs:.0f} {'epoch' if epochs == 1 else 'epochs'}"
        return f"offline: {'knows where experiences end, ' if boundaries else ''}{often}"

    @property
    def labelled(self) -> bool:
        """Whether it has an accuracy, or may have had one: only evaluations without tell that there are no labels."""
        return not self.evaluations or any(e["accuracy"] is not None for e in self.evaluations)

    @property
    def objective(self) -> str:
        return str(self.settings.get("objective.name", "unknown"))

    @property
    def has_loss(self) -> bool:
        """Whether the objective's own loss is trained; else a term is the whole loss."""
        return self.objective != "none" and self.settings.get("objective.weight") != 0


def read_runs(folders: Iterable[Path]) -> list[Run]:
    """The runs of the folders given: each is a run folder, or contains some. They have no names yet."""
    found: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise RunFolderError(f"{folder} is {'not a folder' if folder.exists() else 'missing'}; name a run folder.")
        try:
            inside = [folder] if (folder / SETTINGS).is_file() else sorted(folder.iterdir())
            inside = [path for path in inside if (path / SETTINGS).is_file()]
        except OSError as error:
            raise RunFolderError(f"cannot read {folder}: {error.strerror}.") from None
        if not inside:
            raise RunFolderError(f"{folder} holds no run: neither it nor a folder in it has a {SETTINGS}.")
        found.update({path.resolve(): path for path in inside})
    if not found:
        raise RunFolderError("no run folder was named.")
    return [read_run(path) for path in found]


def read_run(folder: Path) -> Run:
    """Everything a report shows of a run except its memory."""
    notes, text, settings = [], "", {}
    try:
        read = read_text(folder / SETTINGS, LARGEST_SETTINGS, links=False)
        settings = dict(flatten(parse_toml(read)))
        text = read  # of a file that is no settings nothing is shown
    except (OSError, ValueError):
        notes.append(f"{SETTINGS} cannot be read; names come from {METRICS} or the folder.")
    metrics: Any = None
    try:
        metrics = read_json(folder / METRICS, LARGEST_METRICS, links=False)
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
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
        phases=read_timing(folder),
    )
    _read_events(run)
    _read_skipped(run)
    if isinstance(metrics, dict):
        run.finished = True
        keys = ("start_accuracy", "final_accuracy", "average_accuracy", "steps", "seconds")
        run.start, run.final, run.average, run.steps, run.seconds = (number(metrics.get(key)) for key in keys)
        run.collapsed |= metrics.get("collapsed") is True
    if run.collapsed and not run.alarms:
        run.alarms.append("collapsed at an unknown step.")
    return run


def _read_events(run: Run) -> None:
    """Evaluations, curves and alarms; the first damaged line ends the reading."""
    total: float | None = None
    try:
        for event in read_events(run.folder / EVENTS, LARGEST_EVENTS):
            position = number(event.get("position"))
            share = 100 * position / total if position is not None and total else None
            match event["event"]:
                case "start":
                    total, images = number(event.get("minibatches")), event.get("images")
                    run.images = images if isinstance(images, str) else None
                case "step":
                    _read_step(run, event, share)
                    run.steps, run.minibatches = number(event.get("steps")), (position, total)
                case "evaluation":
                    seconds, experience, seen = (number(event.get(key)) for key in ("seconds", "experience", "seen"))
                    run.seconds = seconds if seconds is not None else run.seconds
                    if experience is not None and seen is not None:
                        measured = {m.key: number(event.get(m.key)) for m in MEASURES.of("evaluation")}
                        tasks = numbers(event.get("tasks"))
                        run.evaluations.append(Evaluation(int(experience), share, seen, measured, tasks))
                case "spectrum" if values := numbers(event.get("values")):
                    run.spectra.append(Spectrum(share, values))
                case "memory" if memory := _memory(event, share):
                    run.memories.append(memory)
                case "bad-image":
                    name, reason = (str(event.get(key, "unknown")) for key in ("name", "reason"))
                    run.skipped.append(Skipped(name, reason, image=True))
                case "collapse" | "non-finite-loss" as kind:
                    run.collapsed |= kind == "collapse"
                    what = "collapsed at" if kind == "collapse" else "stopped after"
                    step = "unknown" if run.steps is None else f"{run.steps:.0f}"
                    run.alarms.append(f"{what} step {step}: {event.get('message', '')}")
    except (OSError, ValueError, RecursionError, RunFolderError):
        there = (run.folder / EVENTS).exists()
        how = "damaged; the curves show what could be read" if there else "missing; there are no curves"
        run.notes.append(f"{EVENTS} is {how}.")
    known = [(e.experience, e["accuracy"]) for e in run.evaluations]
    after = [accuracy for experience, accuracy in known if experience > 0 and accuracy is not None]
    run.start = next((accuracy for experience, accuracy in known if experience == 0), None)
    if after:
        run.final, run.average = after[-1], sum(after) / len(after)


def _read_skipped(run: Run) -> None:
    """Files that were not used: the list in the run's folder, which holds more than the events."""
    try:
        text = read_text(run.folder / SKIPPED, LARGEST_SKIPPED, links=False)
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        run.notes.append(f"{SKIPPED} cannot be read; skipped images come from {EVENTS}.")
        return
    lines = (line.split("\t") for line in text.splitlines())
    found = [Skipped(name, why, kind in BAD_IMAGES) for kind, name, why in (part for part in lines if len(part) == 3)]
    run.skipped = found or run.skipped


def _read_step(run: Run, event: Mapping[str, Any], share: float | None) -> None:
    facts = {**event, "ssl": event.get("ssl", event.get("loss")), "share": share}
    before = len(run.trace["share"])
    for name, column in run.trace.items():
        column.append(number(facts.get(name)))
    terms = event.get("terms")
    terms = terms if isinstance(terms, dict) else {}
    for name in [*run.terms, *(name for name in terms if name not in run.terms)]:
        run.terms.setdefault(name, [None] * before).append(number(terms.get(name)))


def _memory(event: Mapping[str, Any], share: float | None) -> MemorySummary | None:
    """What was stored; None of a memory that is empty or cannot be understood."""
    stored = number(event.get("stored"))
    if not stored or stored < 0:
        return None
    losses = event.get("losses")
    counts = {**event, "losses": losses.get("counts") if isinstance(losses, dict) else None}
    born, losses, classes = (_counts(numbers(counts.get(key))) for key in ("born", "losses", "classes"))
    age, loss = (_quantiles(numbers(event.get(key))) for key in ("age", "loss"))
    return MemorySummary(share, stored, born, age, loss, losses, classes)


def _counts(values: Numbers) -> Numbers:
    return values if all(count >= 0 for count in values) else ()


def _quantiles(values: Numbers) -> Numbers:
    return values if len(values) == QUANTILES and list(values) == sorted(values) else ()


def number(value: object) -> float | None:
    """A number that can be calculated with, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        return None
    return float(value)


def numbers(value: object) -> Numbers:
    """A list of finite numbers; anything else is an empty one."""
    if not isinstance(value, list) or len(value) > MOST_NUMBERS:
        return ()
    found = [number(item) for item in value]
    return tuple(item for item in found if item is not None) if None not in found else ()
