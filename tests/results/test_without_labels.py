"""Runs without labels are compared by instance@1: pairs of seeds, equal views only, and never beside accuracies."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, stdev

import pytest
from test_page import make_run

from ocssl.cli import main
from ocssl.results.compare import BETTER, OPEN, TOO_FEW, t_quantile
from ocssl.results.read_runs import Evaluation, Run
from ocssl.results.without_labels import last_value, records, standings, table

VALUES = {"solar": [0.30, 0.32, 0.31], "solar-c": [0.40, 0.43, 0.40]}


def run(method: str, seed: int, value: float | None, *, accuracy: float | None = None, crop: float = 0.2) -> Run:
    settings = {"views.crop_scale": [crop, 1.0], "seed": seed}
    made = Run(Path(f"{method}{seed}"), method, "photos", seed, "", settings, finished=True, series=method)
    made.evaluations = [
        Evaluation(i, 50.0 * i, i, {"accuracy": accuracy, "instance_at_1": value if i else 0.9}) for i in range(3)
    ]
    return made


def runs() -> list[Run]:
    return [run(method, seed, value) for method, own in VALUES.items() for seed, value in enumerate(own)]


def test_differences_are_paired_and_in_per_cent() -> None:
    best, reference = standings(runs())
    assert (best.series, best.reference, reference.series) == ("solar-c", "solar", "solar")
    gaps = [100 * (a - b) for a, b in zip(VALUES["solar-c"], VALUES["solar"], strict=True)]
    assert best.gap is not None
    assert best.gap.mean == pytest.approx(mean(gaps))
    assert best.gap.half == pytest.approx(t_quantile(2) * stdev(gaps) / 3**0.5)
    assert best.gap.verdict == BETTER
    assert reference.gap is None
    assert last_value(runs()[0]) == pytest.approx(30.0)  # of the last evaluation, not of the untrained encoder


def test_seeds_are_paired_whatever_their_order() -> None:
    assert standings(runs()[::-1])[0].gap == standings(runs())[0].gap


def test_other_views_are_another_group() -> None:
    found = standings([*runs(), run("minred", 0, 0.99, crop=0.9)])
    assert [(one.series, one.reference) for one in found] == [
        ("solar-c", "solar"),
        ("solar", "solar"),
        ("minred", "minred"),
    ]
    shown = table(found)
    assert [row.group for row in shown.rows][1:] == [
        "photos, views.crop_scale=[0.2, 1.0]",
        "photos, views.crop_scale=[0.9, 1.0]",
    ]


def test_runs_with_labels_unfinished_runs_and_runs_that_did_not_measure_it_are_left_out() -> None:
    labelled, silent, unfinished = run("a", 0, 0.9, accuracy=50.0), run("b", 0, None), run("c", 0, 0.9)
    unfinished.finished = False
    assert standings([labelled, silent, unfinished]) == []
    assert [one.series for one in standings([labelled, silent, unfinished, *runs()])] == ["solar-c", "solar"]


def test_few_seeds_and_equal_ones_decide_nothing() -> None:
    two = [r for r in runs() if r.seed != 2]
    assert table(standings(two)).rows[0].cells == ("solar-c", "2", "41.5 ± 2.1", "solar", "+10.50", TOO_FEW)
    noisy = [run("solar", s, v) for s, v in enumerate([0.3, 0.5, 0.4])] + [run("x", s, 0.4) for s in range(3)]
    best = standings(noisy)[0]
    assert {one.series: one.gap and one.gap.verdict for one in standings(noisy)}["x"] == OPEN
    assert best.reference == "solar"


def unlabelled(folder: Path, method: str, seed: int, value: float) -> Path:
    """A run folder without labels."""
    made = make_run(folder, method, seed, recipe=method)
    lines = [json.loads(line) for line in (made / "events.jsonl").read_text().splitlines()]
    for event in lines:
        if event["event"] == "evaluation":
            event |= {"accuracy": None, "instance_at_1": value}
    (made / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in lines))
    metrics = json.loads((made / "metrics.json").read_text())
    metrics |= {"start_accuracy": None, "final_accuracy": None, "average_accuracy": None}
    (made / "metrics.json").write_text(json.dumps(metrics))
    return made


def test_the_command_compares_runs_without_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method, own in VALUES.items():
        for seed, value in enumerate(own):
            unlabelled(tmp_path / f"{method}-{seed}", method, seed, value)
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["compare", str(tmp_path)])
    out = " ".join(capsys.readouterr().out.split())
    assert "instance@1, %" in out
    assert "It is no accuracy" in out
    assert "+10.00" in out
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["compare", str(tmp_path), "--json"])
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["measure"] == "instance_at_1"
    assert (entry["method"], entry["against"], entry["pairs"], entry["verdict"]) == ("solar-c", "solar", 3, BETTER)
    assert entry == pytest.approx(records(standings(runs()))[0] | {"benchmark": "synthetic"})
