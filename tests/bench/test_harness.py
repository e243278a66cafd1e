"""Running parts, keeping their figures, and comparing with an earlier run."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

from ocssl.bench import harness
from ocssl.bench import startup_and_memory as processes
from ocssl.bench.harness import Baseline, Printer, number
from ocssl.bench.timing import Bar, Effort, Row, Spread
from ocssl.cli import main
from ocssl.errors import DataError, SettingError


def row(middle: float, *, low: float | None = None, high: float | None = None, **options: object) -> Row:
    value = Spread(middle if low is None else low, middle, middle if high is None else high, 5)
    return Row("part", "name", value, options.pop("unit", "x"), **options)  # type: ignore[arg-type]


def fake(monkeypatch: pytest.MonkeyPatch, rows: Iterable[Row]) -> None:
    """The part `start`, with these rows."""
    monkeypatch.setattr(processes, "start_rows", lambda effort: iter(rows))


def shown(rows: list[Row], baseline: Baseline | None = None) -> tuple[str, bool]:
    text = io.StringIO()
    printer = Printer(Console(file=text, width=300), baseline)
    for one in rows:
        printer.show(one)
    failed = printer.foot()
    return text.getvalue(), failed


def test_parts_are_run_in_their_usual_order_and_none_means_all() -> None:
    assert harness.select_parts(["views", "start"]) == ("start", "views")
    assert harness.select_parts([]) == harness.PARTS


def test_every_part_exists() -> None:
    import importlib

    for part in harness.PARTS:
        module = importlib.import_module(f"ocssl.bench.{harness.MODULES.get(part, part)}")
        assert callable(getattr(module, f"{part}_rows"))


def test_an_unknown_part_gets_the_nearest_name() -> None:
    with pytest.raises(SettingError, match="'memmory': did you mean 'memory'"):
        harness.select_parts(["memmory"])


def test_threads_are_set_while_measuring_and_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    fake(monkeypatch, [row(1.0)])
    seen = [torch.get_num_threads() for _ in harness.measure(["start"], Effort(threads=before + 1))]
    assert (seen, torch.get_num_threads()) == ([before + 1], before)


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    rows = [row(2.0, low=1.5, high=2.5, bar=Bar(3.0))]
    harness.save(tmp_path / "b.json", harness.machine(Effort(quick=True, threads=1)), rows)
    baseline = harness.load_baseline(tmp_path / "b.json")
    assert baseline.figures == {"part: name": (1.5, 2.0, 2.5)}
    assert baseline.machine["quick"] is True


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "machine": {}, "rows": [{"part": 1}]}', "\x00"])
def test_a_file_of_something_else_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(DataError, match=r"is not a file that|not JSON"):
        harness.load_baseline(tmp_path / "b.json")


def test_a_missing_baseline_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        harness.load_baseline(tmp_path / "b.json")


@pytest.mark.parametrize(
    ("before", "now", "worse"),
    [
        ((1.0, 1.0, 1.0), row(1.1), False),  # within what is noise
        ((0.9, 1.0, 1.1), row(1.3, low=1.2, high=1.4), True),
        ((0.9, 1.0, 1.4), row(1.3, low=1.2, high=1.4), False),  # quartiles overlap
        ((1.0, 1.0, 1.0), row(0.5), False),  # better
        ((10.0, 10.0, 10.0), row(8.0, faster=True), True),  # fewer times faster
        ((10.0, 10.0, 10.0), row(12.0, faster=True), False),
        ((10.0, 10.0, 10.0), row(8.0, unit="images/s"), True),
    ],
)
def test_worse_is_beyond_the_noise_of_both_runs(before: tuple[float, float, float], now: Row, worse: bool) -> None:
    compared = Baseline({}, {"part: name": before}).compare(now)
    assert compared == (pytest.approx(now.value.middle / before[1]), worse)


def test_a_new_figure_has_nothing_to_be_compared_with() -> None:
    assert Baseline({}, {}).compare(row(1.0)) is None


def test_a_missed_bar_is_said_twice_and_fails() -> None:
    text, failed = shown([row(2.0, bar=Bar(1.5)), row(2.0, bar=Bar(1.5, at_least=True))])
    assert failed
    assert text.count("MISSED: at most 1.5") == 1
    assert text.count("met: at least 1.5") == 1
    assert "Bars that were missed: part: name" in text


def test_figures_within_their_bars_do_not_fail() -> None:
    text, failed = shown([row(1.0, bar=Bar(1.5))])
    assert not failed
    assert "missed" not in text


def test_a_baseline_of_another_machine_is_said(tmp_path: Path) -> None:
    text = io.StringIO()
    machine = harness.machine(Effort(threads=1))
    Printer(Console(file=text, width=300), Baseline({**machine, "cores": 96}, {})).head(machine)
    assert f"cores 96, here {machine['cores']}" in text.getvalue()


def test_numbers_have_three_or_four_figures() -> None:
    assert [number(x) for x in (0.12345, 1.2345, 12.345, 123.45, 1234.5)] == [
        "0.123",
        "1.234",
        "12.35",
        "123.5",
        "1,234",
    ]


def test_the_command_writes_all_figures_and_fails_on_a_missed_bar(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, [row(1.0, bar=Bar(2.0)), row(3.0, bar=Bar(2.0))])
    with pytest.raises(SystemExit) as ended:
        main(["bench", "start", "--quick", "-o", str(tmp_path / "b.json")])
    assert ended.value.code == 1
    assert [r["value"]["middle"] for r in json.loads((tmp_path / "b.json").read_text())["rows"]] == [1.0, 3.0]
    assert "MISSED" in capsys.readouterr().out


def test_the_command_compares_with_an_earlier_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, [row(1.0)])
    with pytest.raises(SystemExit):
        main(["bench", "start", "-o", str(tmp_path / "b.json")])
    fake(monkeypatch, [row(2.0)])
    with pytest.raises(SystemExit) as ended:
        main(["bench", "start", "--compare", str(tmp_path / "b.json")])
    assert ended.value.code == 1
    assert "2.000 of before, WORSE" in capsys.readouterr().out


def test_figures_are_kept_as_they_come(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So that neither Ctrl-C nor a place that cannot be written to loses what took minutes."""

    def measured() -> Iterator[Row]:
        yield row(1.0)
        raise KeyboardInterrupt

    fake(monkeypatch, measured())
    with pytest.raises(SystemExit):
        main(["bench", "start", "-o", str(tmp_path / "b.json")])
    assert len(json.loads((tmp_path / "b.json").read_text())["rows"]) == 1


@pytest.mark.parametrize("words", [["--threads", "-1"], ["-o", f"{__file__}/b.json"]])
def test_what_cannot_be_is_said_before_anything_is_measured(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harness, "measure", lambda *_: pytest.fail("measured"))
    with pytest.raises(SystemExit) as ended:
        main(["bench", "start", *words])
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
