"""Figures on a terminal, a line each as soon as it is known."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from ocssl.bench.rows import Row
from ocssl.bench.run import Baseline

NAME, FIGURE = 66, 22


class Table:
    """Prints rows, and remembers which of them are not as they should be."""

    def __init__(self, screen: Console, baseline: Baseline | None = None) -> None:
        self.screen = screen
        self.baseline = baseline
        self.missed: list[str] = []
        self.worse: list[str] = []

    def head(self, machine: dict[str, Any]) -> None:
        """Where the figures come from; a baseline of another machine or effort is not silently compared with."""
        told = "{processor}, {cores} cores, {threads} threads, {instructions}, torch {torch}".format(**machine)
        self._print(f"{told}{', quick' if machine['quick'] else ''}; median, quartiles")
        if self.baseline:
            others = [
                f"{key} {self.baseline.machine.get(key)}, here {value}"
                for key, value in machine.items()
                if key != "ocssl" and self.baseline.machine.get(key) != value
            ]
            if others:
                self._print(f"The baseline is from elsewhere: {'; '.join(others)}. Only ratios (x) compare.", "yellow")

    def show(self, row: Row) -> None:
        value, unit = row.value, row.unit
        figure = f"{number(value.middle)} {'' if unit == 'count' else unit}".strip()
        around = f"{number(value.low)} to {number(value.high)}" if value.rounds > 1 else ""
        line, style = f"{row.key:<{NAME}} {figure:>14}  {around:<{FIGURE}}", ""
        if row.bar:
            met = row.bar.met(value.middle)
            line += f" {'met' if met else 'MISSED'}: {row.bar}"
            style = "green" if met else "bold red"
            if not met:
                self.missed.append(row.key)
        compared = self.baseline.against(row) if self.baseline else None
        if compared:
            times, worse = compared
            line += f"  {number(times)} of before{', WORSE' if worse else ''}"
            if worse:
                style = "bold red"
                self.worse.append(row.key)
        self._print(line.rstrip(), style)

    def foot(self) -> bool:
        """Say what is not as it should be. Returns whether there is anything."""
        for title, keys in (("Bars that were missed", self.missed), ("Worse than before", self.worse)):
            if keys:
                self._print(f"{title}: {'; '.join(keys)}", "bold red")
        return bool(self.missed or self.worse)

    def _print(self, text: str, style: str = "") -> None:
        self.screen.print(text, style=style or None, markup=False, highlight=False, soft_wrap=True)


def number(value: float) -> str:
    """Three or four figures that count."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{1 if size >= 100 else 2 if size >= 10 else 3}f}"
