"""Figures of the paper as data: panels of lines with a band over seeds, from runs and from their diagnoses."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from ocssl._core.measures import MEASURES
from ocssl._core.table import MISSING, Row, Table, number_cell
from ocssl.results.chart import STREAM, Line, Panel
from ocssl.results.evaluate_runs import TIMES
from ocssl.results.paper.run_store import Course, Group, Result, Values

AXES = {
    "accuracy": MEASURES["accuracy"].heading,
    "deviation": MEASURES["deviation"].heading,
    "overlap": "Overlap, share of pairs",
    "loss": MEASURES["ssl"].heading,
    "final": "Final Accuracy, %",
    "average": "Average Accuracy, %",
}
SPECTRUM = {"singular_values": "singular value", "normalised": "normalised", "cev": "cumulative explained variance"}
FEW = 6  # values of a line that the screen shows
Diagnose = Callable[[Result], list[dict[str, Any]]]  # latent metrics of a run at its evaluations


def panels_of(show: dict[str, Any], groups: Sequence[Group], diagnose: Diagnose) -> list[Panel]:
    """The panels that a plan's `show` entry asks for; benchmarks never share one."""
    at = show.get("at") if isinstance(show.get("at"), dict) else None
    chosen = [group for group in groups if at is None or group.point == at]
    found: list[Panel] = []
    for benchmark in dict.fromkeys(group.benchmark for group in chosen):
        found += KINDS[show["kind"]](show, [g for g in chosen if g.benchmark == benchmark], diagnose)
    return [panel for panel in found if panel.items]


def _against(show: dict[str, Any], groups: Sequence[Group], _: Diagnose) -> Iterator[Panel]:
    """A number of the whole run against a setting."""
    for measure in show["measures"]:
        lines = []
        for row in dict.fromkeys(group.row for group in groups):
            points = [group for group in groups if group.row == row]
            means, deviations = zip(*(group.number(f"{measure}_accuracy") for group in points), strict=True)
            short = next((group.short for group in points if group.short), "")
            lines.append(Line(row + short, [_setting(g, show["x"]) for g in points], list(means), list(deviations)))
        yield Panel(show["x"], AXES[measure], lines, groups[0].benchmark)


def _setting(group: Group, key: str) -> float:
    """The value of a grid's setting in the runs of a group: at a smaller scale it may not be the plan's."""
    value: Any = group.results[0].planned.settings.model_dump()
    for part in key.split("."):
        value = value[part]
    return float(value)


def _curves(show: dict[str, Any], groups: Sequence[Group], diagnose: Diagnose) -> Iterator[Panel]:
    """Measures along the stream; Deviation and Overlap are those of diagnoses on stream images."""
    for measure in show["measures"]:
        diagnosed = measure in ("deviation", "overlap")
        course = _diagnosed(diagnose, "stream", measure) if diagnosed else partial(Result.course, measure=measure)
        lines = [_line(_name(group), group, course) for group in groups]
        yield Panel(STREAM, AXES[measure], lines, groups[0].benchmark)


def _name(group: Group) -> str:
    """The row, with its point of the grid where there is one, in the numbers that were run."""
    settings = group.results[0].planned.settings
    values = {
        "memory.capacity": f"M = {settings.memory.capacity}",
        "schedule.passes": f"{settings.schedule.passes} passes",
    }
    return ", ".join([group.row, *(values.get(key, f"{key} {value}") for key, value in group.point.items())])


def _times(show: dict[str, Any], groups: Sequence[Group], _: Diagnose) -> Iterator[Panel]:
    """Average accuracy of the probes of past, current and future tasks."""
    lines = [_line(f"{g.row}, {time}", g, _of_tasks(itemgetter(time))) for g in groups for time in TIMES]
    yield Panel(STREAM, "accuracy of tasks' own probes, %", lines, groups[0].benchmark)


def _tasks(show: dict[str, Any], groups: Sequence[Group], _: Diagnose) -> Iterator[Panel]:
    """Accuracy of every task's own probe, a panel a row."""
    for group in groups:
        lines = []
        for task in range(len(group.results[0].metrics["tasks"]["matrix"][0])):
            column = group.course(_of_tasks(lambda tasks, task=task: [row[task] for row in tasks["matrix"]]))  # type: ignore[misc]
            lines.append(Line(f"task {task + 1}", *column))
        title = f"{group.benchmark}: {group.row}{group.short}"
        yield Panel(STREAM, "accuracy of the task's own probe, %", lines, title)


def _places(show: dict[str, Any], groups: Sequence[Group], diagnose: Diagnose) -> Iterator[Panel]:
    """Deviation and Overlap on the stream and on the memory's images; the Overlap also from what is stored."""
    places = ("stream", "memory", *(["online"] if show.get("online") else []))
    for measure in show["measures"]:
        lines = [
            _line(f"{group.row}, {place}", group, _diagnosed(diagnose, place, measure))
            for group in groups
            for place in places
        ]
        yield Panel(STREAM, AXES[measure], lines, groups[0].benchmark)


def _uniformity(show: dict[str, Any], groups: Sequence[Group], diagnose: Diagnose) -> Iterator[Panel]:
    """Uniformity of the features of past, current and future tasks."""
    for time in TIMES:
        lines = [_line(g.row, g, _diagnosed(diagnose, "times", time, "uniformity")) for g in groups]
        yield Panel(STREAM, "uniformity", lines, f"{groups[0].benchmark}: {time} experiences")


def _spectrum(show: dict[str, Any], groups: Sequence[Group], diagnose: Diagnose) -> Iterator[Panel]:
    """Singular values of test features: as they are, normalised, and their cumulative share."""
    for moment in show["at"]:
        for key, axis in SPECTRUM.items():
            lines = []
            for group in groups:
                for time in TIMES if show.get("times") else ("test",):
                    path = ("test", "shape", key) if time == "test" else ("times", time, key)
                    name = group.row if time == "test" else f"{group.row}, {time}"
                    lines.append(_line(name, group, partial(_values_at, diagnose=diagnose, moment=moment, path=path)))
            yield Panel("index", axis, [line for line in lines if line.x], f"{groups[0].benchmark}: {moment}")


def _values_at(result: Result, diagnose: Diagnose, moment: str, path: Sequence[str]) -> tuple[Values, Values]:
    """A list of numbers after the first experience, after half of them, or at the end."""
    after = [row for row in diagnose(result) if row["experience"] > 0]
    values: Values = _at(after[{"early": 0, "middle": (len(after) - 1) // 2, "end": -1}[moment]], path) or []
    return list(range(1, len(values) + 1)), values


def _line(name: str, group: Group, course: Course) -> Line:
    return Line(name + group.short, *group.course(course))


def _of_tasks(values: Callable[[dict[str, Any]], Values]) -> Course:
    """What the probes of tasks say along the stream."""
    return lambda result: (result.course("accuracy")[0], values(result.metrics["tasks"]))


def _diagnosed(diagnose: Diagnose, *path: str) -> Course:
    """A number of a run's diagnoses along the stream."""

    def course(result: Result) -> tuple[Values, Values]:
        rows = diagnose(result)
        last = max(row["position"] for row in rows)
        return [100 * row["position"] / last for row in rows], [_at(row, path) for row in rows]

    return course


def _at(row: Any, path: Sequence[str]) -> Any:
    """What stands in a diagnosis under these keys; None where it was not measured."""
    for key in path:
        row = row and row[key]
    return row


Kind = Callable[[dict[str, Any], Sequence[Group], Diagnose], Iterator[Panel]]
KINDS: dict[str, Kind] = {
    "against": _against,
    "curves": _curves,
    "times": _times,
    "tasks": _tasks,
    "places": _places,
    "uniformity": _uniformity,
    "spectrum": _spectrum,
}


def points_csv(panels: Sequence[Panel], scale: str) -> str:
    """Every point of every line as CSV; each says of which scale it is."""
    headers = ["scale", "panel", "line", "x axis", "y axis", "x", "mean", "standard deviation"]
    rows = []
    for panel in panels:
        for line in _lines(panel):
            for x, y, deviation in zip(line.x, line.y, line.deviation, strict=True):
                cells = [scale, panel.title, line.name, panel.x, panel.y, x, y, deviation]
                rows.append(Row(["" if cell is None else str(cell) for cell in cells]))
    return Table(headers, rows, (0, 1, 2, 3, 4)).csv()


def table_of(panel: Panel, title: str, note: str) -> Table:
    """A few points of each line of a panel."""
    longest = max(_lines(panel), key=lambda line: len(line.x))
    last = len(longest.x) - 1
    places = range(last + 1) if last < FEW else sorted({round(step * last / (FEW - 1)) for step in range(FEW)})
    headings = [f"{longest.x[place]:g}" for place in places]
    form = ".1f" if "%" in panel.y else ".3f"
    rows = []
    for line in _lines(panel):
        there = [place if place < len(line.y) else None for place in places]
        cells = [MISSING if i is None else number_cell(line.y[i], line.deviation[i], form) for i in there]
        rows.append(Row([line.name, *cells]))
    return Table([panel.x, *headings], rows, title=f"{title}\n{panel.title}: {panel.y}", caption=note, framed=True)


def _lines(panel: Panel) -> list[Line]:
    return [item for item in panel.items if isinstance(item, Line)]
