"""What the terminal shows of runs in progress: a bar with loss, rate and time left, and a line per evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from ocssl._core.measures import MEASURES

if TYPE_CHECKING:
    from ocssl.objectives.sample_statistics import Info

OVERALL = "all runs"
WARNING = "warning: "  # how a line with one begins


class Bars:
    """A bar a run on a terminal; plain lines where there is none; nothing when quiet."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console = console
        self.quiet = quiet
        self._rich = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._accuracy: dict[str, list[str]] = {}

    def __enter__(self) -> Bars:
        self._rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rich.stop()

    def _task(self, name: str) -> TaskID:
        """The bar of this name, made when it is first asked for."""
        if name not in self._tasks:
            self._tasks[name] = self._rich.add_task(name, state="")
        return self._tasks[name]

    def start(self, name: str, total: int, done: int = 0) -> None:
        """Show a run of `total` minibatches, of which some were done in an earlier session."""
        self._rich.update(self._task(name), total=total, completed=done)

    def end(self, name: str) -> None:
        """Take a run's bar away."""
        if name in self._tasks:
            self._rich.remove_task(self._tasks.pop(name))

    def overall(self, done: float, total: int) -> None:
        """Show how many of all runs are done; those in progress count in part."""
        self._rich.update(self._task(OVERALL), total=total, completed=done)

    def step(self, name: str, event: Mapping[str, Any]) -> None:
        """Show the event of a training step."""
        bar = next((b for b in self._rich.tasks if b.id == self._tasks.get(name)), None)
        if bar is None:
            return
        done = event["position"]
        rate = [f"{bar.speed:.1f} minibatches/s"] if bar.speed else []
        state = "  ".join([*rate, *measured("step", event), *self._accuracy.get(name, [])])
        self._rich.update(bar.id, completed=done, state=state)

    def evaluated(self, name: str, event: Mapping[str, Any]) -> None:
        """Show the event of an evaluation."""
        moment = f"after experience {event['experience']}" if event["experience"] else "before training"
        accuracy = event["accuracy"]
        self._accuracy[name] = [] if accuracy is None else [f"accuracy {accuracy:.1f} %"]
        self.say(f"{name:<14} {moment:<20} {'  '.join(measured('evaluation', event))}".rstrip())

    def report(self, what: str, done: int, total: int) -> None:
        """Show the progress of a preparation, such as decoding images or a download."""
        if what not in self._tasks and not self.console.is_terminal:
            self.say(f"{what} ({total})" if total else what)
        self._rich.update(self._task(what), total=total, completed=done, visible=done < total)

    def say(self, text: str) -> None:
        if not self.quiet:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def warn(self, message: str) -> None:
        """A warning is shown even when quiet."""
        self.console.print(Text.assemble((WARNING, "bold yellow"), message), soft_wrap=True)


def measured(kind: str, event: Mapping[str, Any]) -> list[str]:
    """The measures of an event that the progress line shows.

    >>> measured("step", {"loss": -0.5, "spread": 0.81, "participation_ratio": None})
    ['loss -0.500', 'spread 0.81']
    """
    shown = [(measure.progress, event.get(measure.key)) for measure in MEASURES.of(kind) if measure.progress]
    return [text.format(value) for text, value in shown if value is not None and not math.isnan(value)]


class Progress:
    """The progress of one run, as the run itself reports it."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._name = ""

    def start(self, name: str, total: int, done: int) -> None:
        self._name = name
        self._bars.start(name, total, done)

    def step(self, done: int, info: Info) -> None:
        self._bars.step(self._name, {"position": done, **vars(info)})

    def evaluated(self, event: Mapping[str, Any]) -> None:
        self._bars.evaluated(self._name, event)

    def report(self, what: str, done: int, total: int) -> None:
        self._bars.report(what, done, total)

    def warn(self, message: str) -> None:
        self._bars.warn(message)
