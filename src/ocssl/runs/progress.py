"""What a person sees while runs are under way: a bar with loss, rate and time left, and a line per evaluation."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

if TYPE_CHECKING:
    from ocssl._training.info import Info
    from ocssl.evaluate.evaluation import Evaluation

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
        self._accuracy: dict[str, str] = {}

    def __enter__(self) -> Bars:
        self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rich.stop()

    def start(self, name: str, total: int, done: int = 0) -> None:
        """Show a run of so many minibatches, of which some were done in an earlier session."""
        if name not in self._tasks:
            self._tasks[name] = self._rich.add_task(name, state="")
        self._rich.update(self._tasks[name], total=total, completed=done)

    def end(self, name: str) -> None:
        """Take a run's bar away."""
        if name in self._tasks:
            self._rich.remove_task(self._tasks.pop(name))

    def overall(self, done: float, total: int) -> None:
        """Show how many of all runs are done, those under way by the part that is done of them."""
        if OVERALL not in self._tasks:
            self._tasks[OVERALL] = self._rich.add_task(OVERALL, state="")
        self._rich.update(self._tasks[OVERALL], total=total, completed=done)

    def step(self, name: str, done: int, steps: int, loss: float, spread: float | None, rank: float | None) -> None:
        bar = next((b for b in self._rich.tasks if b.id == self._tasks.get(name)), None)
        if bar is None:
            return
        rate = f"{bar.speed * steps / max(done, 1):.1f} steps/s  " if bar.speed else ""
        health = "" if spread is None or rank is None else f"  spread {spread:.2f}  rank {rank:.0f}"
        state = f"{rate}loss {loss:+.3f}{health}{self._accuracy.get(name, '')}"
        self._rich.update(bar.id, completed=done, state=state)

    def evaluated(
        self, name: str, experience: int, accuracy: float | None, deviation: float | None, overlap: float | None
    ) -> None:
        moment = f"after experience {experience}" if experience else "before training"
        latent = "" if deviation is None or overlap is None else f"  Deviation {deviation:.3f}  Overlap {overlap:5.1%}"
        measured = "" if accuracy is None else f"accuracy {accuracy:5.1f} %"
        self._accuracy[name] = "" if accuracy is None else f"  accuracy {accuracy:.1f} %"
        self.say(f"{name:<14} {moment:<20} {measured}{latent}".rstrip())

    def report(self, what: str, done: int, total: int) -> None:
        """Show how far a preparation has come, such as decoding images or a download."""
        if what not in self._tasks:
            self._tasks[what] = self._rich.add_task(what, state="")
            if not self.console.is_terminal:
                self.say(f"{what} ({total})" if total else what)
        self._rich.update(self._tasks[what], total=total, completed=done, visible=done < total)

    def say(self, text: str) -> None:
        if not self.quiet:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def warn(self, message: str) -> None:
        """A warning is shown even when quiet."""
        self.console.print(Text.assemble((WARNING, "bold yellow"), message), soft_wrap=True)


class Progress:
    """The progress of one run, as the run itself tells it."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._name = ""

    def start(self, name: str, total: int, done: int) -> None:
        self._name = name
        self._bars.start(name, total, done)

    def step(self, done: int, info: Info) -> None:
        self._bars.step(self._name, done, info.steps, info.loss, info.spread, info.rank)

    def evaluated(self, experience: int, result: Evaluation) -> None:
        self._bars.evaluated(self._name, experience, result.accuracy, result.deviation, result.overlap)

    def report(self, what: str, done: int, total: int) -> None:
        self._bars.report(what, done, total)

    def warn(self, message: str) -> None:
        self._bars.warn(message)
