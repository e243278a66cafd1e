"""What a person sees while a run is under way: a bar with loss, rate and time left, and a line per evaluation."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

if TYPE_CHECKING:
    from ocssl.evaluate.evaluation import Evaluation
    from ocssl.learner import Info


class Progress:
    """A bar on a terminal; plain lines where there is none; nothing when quiet."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console = console
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
            transient=True,
        )
        self._quiet = quiet
        self._name = ""
        self._first = 0
        self._task: int | None = None
        self._state = ""

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def start(self, name: str, total: int, done: int) -> None:
        """Show a run of so many minibatches, of which some were done in an earlier session."""
        self._name = name
        if self._task is not None:
            self._bars.remove_task(self._task)  # type: ignore[arg-type]
        self._task = self._bars.add_task(name, total=total, completed=done, rate="", state=self._state)

    def step(self, done: int, info: Info) -> None:
        if self._task is None:
            return
        bar = self._bars.tasks[-1]
        per_minibatch = info.steps / max(done, 1)
        rate = f"{bar.speed * per_minibatch:.1f} steps/s" if bar.speed else ""
        health = f"loss {info.loss:+.3f}  spread {info.spread:.2f}  rank {info.rank:.0f}"
        self._bars.update(bar.id, completed=done, rate=rate, state=f"{health}{self._state}")

    def evaluating(self, experience: int) -> None:
        self._note(
            f"evaluating after experience {experience} ..." if experience else "evaluating the untrained encoder ..."
        )

    def evaluated(self, experience: int, result: Evaluation) -> None:
        self._state = f"  accuracy {result.accuracy:.1f} %"
        latent = ""
        if result.deviation is not None and result.overlap is not None:
            latent = f"  Deviation {result.deviation:.3f}  Overlap {100 * result.overlap:.1f} %"
        moment = f"after experience {experience}" if experience else "before training"
        self._say(f"{moment:<22} accuracy {result.accuracy:5.1f} %{latent}")

    def warn(self, message: str) -> None:
        self.console.print(f"[bold yellow]warning:[/] {escape(message)}", highlight=False)

    def _note(self, text: str) -> None:
        if self._task is not None:
            self._bars.update(self._bars.tasks[-1].id, state=text)

    def _say(self, text: str) -> None:
        if not self._quiet:
            self.console.print(f"  {text}", highlight=False)
