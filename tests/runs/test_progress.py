"""Facts about what the terminal shows of runs in progress."""

from __future__ import annotations

import io

from rich.console import Console

from ocssl.runs.progress import OVERALL, Bars, CountColumn


def counts(bars: Bars) -> dict[str, str]:
    return {task.description: CountColumn().render(task).plain for task in bars._rich.tasks}


def test_a_bar_says_what_it_counts_and_no_total_before_it_is_known() -> None:
    bars = Bars(Console(file=io.StringIO()))
    bars._task("listing images")
    bars.start("solar", 7)
    bars.overall(1.4, 3)
    assert counts(bars) == {"listing images": "0", "solar": "0/7 minibatches", OVERALL: "1/3 runs"}
    bars.step("solar", {"position": 2, "loss": -0.5})
    state = next(task.fields["state"] for task in bars._rich.tasks if task.description == "solar")
    assert counts(bars)["solar"] == "2/7 minibatches"
    assert "minibatches" not in state


def test_a_stream_of_one_experience_is_evaluated_at_shares_of_it() -> None:
    text = io.StringIO()
    bars = Bars(Console(file=text))
    bars.start("whole", 8, experiences=1)
    bars.start("parts", 8, experiences=2)
    for name in ("whole", "parts"):
        for experience, position in ((0, 0), (1, 2)):
            bars.evaluated(name, {"experience": experience, "position": position, "accuracy": None})
    assert [line.split(maxsplit=1)[1].strip() for line in text.getvalue().splitlines()] == [
        "before training",
        "after 25 %",
        "before training",
        "after experience 1",
    ]
