"""Figures of the paper as data: panels of lines with a band over seeds, from runs and from looks back at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ocssl.results.chart import STREAM
from ocssl.results.paper.gather import Group, Result, Values

AXES = {
    "accuracy": "accuracy, %",
    "deviation": "Deviation",
    "overlap": "Overlap, share of pairs",
    "loss": "SSL loss",
    "final": "Final Accuracy, %",
    "average": "Average Accuracy, %",
}
TIMES = ("past", "current", "future")
Diagnoses = Callable[[Result], list[dict[str, Any]]]  # latent metrics of a run at its evaluations


@dataclass(frozen=True)
class Line:
    """A curve: mean over seeds and, where there are several, their standard deviation."""

    name: str
    x: Values
    y: Values
    deviation: Values


@dataclass(frozen=True)
class Panel:
    """Axes with lines."""

    title: str
    x: str
    y: str
    lines: list[Line]


def panels_of(show: dict[str, Any], groups: Sequence[Group], diagnoses: Diagnoses) -> list[Panel]:
    """The panels that a plan's `show` entry asks for; benchmarks never share one."""
    at = show.get("at") if isinstance(show.get("at"), dict) else None
    chosen = [group for group in groups if at is None or group.point == at]
    found: list[Panel] = []
    for benchmark in dict.fromkeys(group.benchmark for group in chosen):
        found += KINDS[show["kind"]](show, [g for g in chosen if g.benchmark == benchmark], diagnoses)
    return [panel for panel in found if panel.lines]


def _name(group: Group) -> str:
    """The row, with its point of the grid where there is one, in the numbers that were run."""
    settings = group.results[0].planned.settings
    values = {
        "memory.capacity": f"M = {settings.memory.capacity}",
        "schedule.passes": f"{settings.schedule.passes} passes",
    }
    point = [values.get(key, f"{key} {value}") for key, value in group.point.items()]
    return ", ".join([group.row, *point]) + group.short


def _number(group: Group, key: str) -> float:
    """The value of a grid's setting in the runs of a group: at a smaller scale it may not be the plan's."""
    value: Any = group.results[0].planned.settings.model_dump()
    for part in key.split("."):
        value = value[part]
    return float(value)


def _against(show: dict[str, Any], groups: Sequence[Group], _: Diagnoses) -> Iterator[Panel]:
    """A number of the whole run against a setting."""
    for measure in show["measures"]:
        lines = []
        for row in dict.fromkeys(group.row for group in groups):
            points = [group for group in groups if group.row == row]
            numbers = [group.number(lambda r: r.metrics[f"{measure}_accuracy"]) for group in points]  # noqa: B023
            x: Values = [_number(group, show["x"]) for group in points]
            short = next((group.short for group in points if group.short), "")
            lines.append(Line(row + short, x, [mean for mean, _ in numbers], [deviation for _, deviation in numbers]))
        yield Panel(groups[0].benchmark, show["x"], AXES[measure], lines)


def _curves(show: dict[str, Any], groups: Sequence[Group], diagnoses: Diagnoses) -> Iterator[Panel]:
    """Measures along the stream; Deviation and Overlap are those of stream images, looked back at."""

    def course(result: Result, measure: str) -> tuple[Values, Values]:
        if measure in ("deviation", "overlap"):
            return _looked(diagnoses(result), lambda row: row["stream"][measure])
        return result.course(measure)

    for measure in show["measures"]:
        lines = [Line(_name(g), *g.course(lambda result: course(result, measure))) for g in groups]  # noqa: B023
        yield Panel(groups[0].benchmark, STREAM, AXES[measure], lines)


def _times(show: dict[str, Any], groups: Sequence[Group], _: Diagnoses) -> Iterator[Panel]:
    """Average accuracy of the probes of past, current and future tasks."""
    lines = []
    for group in groups:
        for time in TIMES:
            course = group.course(lambda r: (r.course("accuracy")[0], r.metrics["tasks"][time]))  # noqa: B023
            lines.append(Line(f"{group.row}, {time}{group.short}", *course))
    yield Panel(groups[0].benchmark, STREAM, "accuracy of tasks' own probes, %", lines)


def _tasks(show: dict[str, Any], groups: Sequence[Group], _: Diagnoses) -> Iterator[Panel]:
    """Accuracy of every task's own probe, a panel a row."""
    for group in groups:
        lines = []
        for task in range(len(group.results[0].metrics["tasks"]["matrix"][0])):
            course = group.course(lambda r: (r.course("accuracy")[0], _column(r, task)))  # noqa: B023
            lines.append(Line(f"task {task + 1}", *course))
        yield Panel(
            f"{group.benchmark}: {group.row}{group.short}", STREAM, "accuracy of the task's own probe, %", lines
        )


def _column(result: Result, task: int) -> Values:
    return [row[task] for row in result.metrics["tasks"]["matrix"]]


def _places(show: dict[str, Any], groups: Sequence[Group], diagnoses: Diagnoses) -> Iterator[Panel]:
    """Deviation and Overlap on the stream and on the memory's images; the Overlap also from what is stored."""
    for measure in show["measures"]:
        lines = []
        for group in groups:
            for place in ("stream", "memory", *(["online"] if show.get("online") else [])):
                course = group.course(lambda r: _looked(diagnoses(r), lambda row: row[place] and row[place][measure]))  # noqa: B023
                lines.append(Line(f"{group.row}, {place}{group.short}", *course))
        yield Panel(groups[0].benchmark, STREAM, AXES[measure], lines)


def _uniformity(show: dict[str, Any], groups: Sequence[Group], diagnoses: Diagnoses) -> Iterator[Panel]:
    """Uniformity of the features of past, current and future tasks."""
    for time in TIMES:
        lines = []
        for group in groups:
            course = group.course(lambda r: _looked(diagnoses(r), lambda row: _of_time(row, time, "uniformity")))  # noqa: B023
            lines.append(Line(group.row + group.short, *course))
        yield Panel(f"{groups[0].benchmark}: {time} experiences", STREAM, "uniformity", lines)


def _of_time(row: dict[str, Any], time: str, key: str) -> Any:
    found = row["times"][time]
    return None if found is None else found[key]


def _looked(rows: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float | None]) -> tuple[Values, Values]:
    last = max(row["position"] for row in rows)
    return [100 * row["position"] / last for row in rows], [value(row) for row in rows]


def _spectrum(show: dict[str, Any], groups: Sequence[Group], diagnoses: Diagnoses) -> Iterator[Panel]:
    """Singular values of test features: as they are, normalised, and their cumulative share."""
    names = {"singular_values": "singular value", "normalised": "normalised", "cev": "cumulative explained variance"}
    for moment in show["at"]:
        for key, axis in names.items():
            lines = []
            for group in groups:
                for time in TIMES if show.get("times") else ("test",):
                    course = group.course(lambda r: _indexed(_moment(diagnoses(r), moment), time, key))  # noqa: B023
                    name = group.row if time == "test" else f"{group.row}, {time}"
                    lines.append(Line(name + group.short, *course))
            yield Panel(f"{groups[0].benchmark}: {moment}", "index", axis, [line for line in lines if line.x])


def _moment(rows: Sequence[dict[str, Any]], moment: str) -> dict[str, Any]:
    """The look after the first experience, after half of them, or at the end."""
    after = [row for row in rows if row["experience"] > 0]
    return after[{"early": 0, "middle": (len(after) - 1) // 2, "end": -1}[moment]]


def _indexed(row: dict[str, Any], time: str, key: str) -> tuple[Values, Values]:
    found = row["test"]["shape"] if time == "test" else row["times"][time]
    values: Values = list(found[key]) if found else []
    return list(range(1, len(values) + 1)), values


Kind = Callable[[dict[str, Any], Sequence[Group], Diagnoses], Iterator[Panel]]
KINDS: dict[str, Kind] = {
    "against": _against,
    "curves": _curves,
    "times": _times,
    "tasks": _tasks,
    "places": _places,
    "uniformity": _uniformity,
    "spectrum": _spectrum,
}
