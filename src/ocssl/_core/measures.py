"""Measures: one entry for each number that a run records as a curve.

Events, progress, tracking, `metrics.json`, tables, charts and exports take names and formats from here, so that a new
measure is one entry and one function. An evaluation measure of your own is a function of the features of a benchmark:

    @measure("norm", "feature norm", format=".2f", caption="Mean length of the features of test images.")
    def norm(features):
        return np.linalg.norm(features.test.x, axis=1).mean()

A step measure of your own is a signal of a term, named `term.signal`; `MEASURES.add` gives it a label and a chart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

Compute = Callable[[Any], float | None]  # of features: `.train`, `.val` and `.test`, each with `.x` and `.labels`
LEAST_SPREAD, LEAST_RATIO = 0.03, 1.2  # of an encoder that has not collapsed
EVENT_KEYS = {"event", "experience", "task", "tasks", "position", "step", "steps", "seen", "seconds", "terms"}


@dataclass(frozen=True)
class Measure:
    """What a number is called, and how it is written and drawn."""

    key: str  # in the events
    label: str
    event: Literal["step", "evaluation"] = "evaluation"
    group: str = ""  # in front of its name in TensorBoard and W&B
    unit: str = ""
    better: Literal["up", "down", "neither"] = "neither"
    format: str = ".3f"  # of a cell; one that ends with % shows a share in per cent
    progress: str = ""  # how it stands in the progress line; empty: not there
    series: str = ""  # the list in metrics.json
    caption: str = ""  # of its chart; empty: it has none
    title: str = ""  # of its chart
    axis: str = ""  # of its chart
    chart: str = ""  # names the chart's file
    section: str = ""  # of the page
    shaded: bool = False  # whether its chart shows phases of decay
    alarm: float | None = None  # below it something is wrong; drawn in its chart
    compute: Compute | None = None

    @property
    def of_term(self) -> bool:
        """Whether it is a signal of a term."""
        return "." in self.key

    @property
    def heading(self) -> str:
        """Label and unit; cells in per cent have the unit themselves."""
        return f"{self.label}, {self.unit}" if self.unit and not self.format.endswith("%") else self.label

    @property
    def factor(self) -> float:
        """What makes the recorded number that of the chart."""
        return 100.0 if self.format.endswith("%") else 1.0

    @property
    def summary(self) -> str:
        """One line: what it is, and which way is better."""
        way = {"up": ["higher is better"], "down": ["lower is better"], "neither": []}[self.better]
        return f"{self.label} ({'; '.join([*filter(None, [self.unit]), f'at each {self.event}', *way])})"


class Measures(dict[str, Measure]):
    """All measures by key, in the order of tables and charts."""

    def __init__(self, measures: Iterable[Measure]) -> None:
        super().__init__()
        for measure in measures:
            self.add(measure)

    def add(self, measure: Measure) -> None:
        """Register a measure; what it leaves open follows from its key and its event."""
        key = measure.key
        if key in self or key in EVENT_KEYS:
            raise ValueError(f"measure {key!r} is registered twice, or events have another number of that name")
        if not re.fullmatch(r"\w+(\.\w+)?", key, re.ASCII) or (measure.of_term and measure.event == "evaluation"):
            raise ValueError(f"measure {key!r}: a key has letters, digits and _, and a dot only for a term's signal")
        step = measure.event == "step"
        usual: dict[str, Any] = {
            "group": "train" if step else "evaluate",
            "series": f"{key}s",
            "title": measure.label[:1].upper() + measure.label[1:],
            "axis": measure.heading,
            "chart": re.sub(r"[._]", "-", key),
            "section": "health" if step else "latent",
        }
        self[key] = replace(measure, **{k: v for k, v in usual.items() if not getattr(measure, k)})

    def of(self, event: str) -> list[Measure]:
        """The measures that an event of this kind holds."""
        return [measure for measure in self.values() if measure.event == event]

    def charted(self, event: str, section: str) -> list[Measure]:
        """Those of them that have a chart in a section of the page."""
        return [measure for measure in self.of(event) if measure.caption and measure.section == section]


MEASURES = Measures(
    [
        Measure("loss", "loss", "step", better="down", progress="loss {:+.3f}"),
        Measure(
            "ssl",
            "SSL loss",
            "step",
            better="down",
            section="loss",
            caption="The objective's own loss, without terms; comparable between runs with the same objective.",
        ),
        Measure(
            "spread",
            "spread",
            "step",
            format=".2f",
            progress="spread {:.2f}",
            caption="How far the features of different images lie apart. Only the alarm line matters: near 0, all "
            "images get the same features. A fall that ends above it is usual, as the encoder puts similar images "
            "together.",
            axis="spread of features",
            alarm=LEAST_SPREAD,
        ),
        Measure(
            "participation_ratio",
            "participation ratio",
            "step",
            format=".1f",
            progress="participation ratio {:.0f}",
            caption="How many directions the features use. Near 1, they vary along one line only, which is a collapse; "
            "a rise means that images differ in more ways.",
            axis="participation ratio",
            alarm=LEAST_RATIO,
        ),
        Measure("stored", "stored images", "step", group="memory", format=".0f"),
        Measure("stored_loss", "mean stored loss", "step", group="memory"),
        Measure(
            "overlap.active",
            "active overlap pairs",
            "step",
            group="terms",
            unit="%",
            format=".1%",
            caption="Share of pairs on which the Overlap term acts; 0 means that it does nothing.",
            axis="active pairs, %",
            chart="active",
        ),
        Measure(
            "accuracy",
            "accuracy",
            unit="%",
            better="up",
            format=".1f",
            progress="accuracy {:5.1f} %",
            series="accuracies",
            caption="Accuracy of a probe on the frozen encoder. Below the level of the untrained encoder, training did "
            "harm.",
            title="Accuracy over the stream",
            section="accuracy",
        ),
        Measure(
            "deviation",
            "Deviation",
            progress="Deviation {:.3f}",
            caption="How far the views of one image lie apart, from 0 to 1, mean over a sample of stream images in the "
            "projector's space: a fall means that the encoder packs each image ever tighter.",
            shaded=True,
        ),
        Measure(
            "overlap",
            "Overlap",
            unit="%",
            better="down",
            format=".1%",
            progress="Overlap {:5.1%}",
            caption="Share of pairs of images whose views mix, of a sample of all stream images "
            "(evaluate.latent_samples), in the encoder's space: a rise means that images become harder to tell apart.",
            axis="Overlap, % of pairs",
            shaded=True,
        ),
        Measure(
            "online_overlap",
            "online Overlap",
            unit="%",
            better="down",
            format=".1%",
            caption="Share of pairs of all stored images, from the few views of training: what a method sees itself. "
            "Its sample and its views are others than those of Overlap, so compare its course, not its size.",
            axis="online Overlap, % of pairs",
        ),
        Measure("centred_overlap", "centred Overlap", unit="%", better="down", format=".1%"),
        Measure("rankme", "RankMe", better="up", format=".1f"),
        Measure("lidar", "LiDAR", better="up", format=".1f"),
        Measure("instance_at_1", "instance@1", unit="%", better="up", format=".1%", series="instances_at_1"),
        Measure("alignment", "alignment", better="down"),
        Measure("uniformity", "uniformity", better="down", series="uniformities"),
    ]
)


def measure(key: str, label: str, **facts: Any) -> Callable[[Compute], Compute]:
    """Decorator: register a function of a benchmark's features as an evaluation measure."""

    def register(function: Compute) -> Compute:
        MEASURES.add(Measure(key, label, compute=function, **facts))
        return function

    return register
