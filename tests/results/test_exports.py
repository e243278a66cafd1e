"""Facts about figures and tables in files: the charts of the page, the numbers of its tables, the same bytes again."""

from __future__ import annotations

import ast
import csv
import io
import json
from pathlib import Path

import pytest
from PIL import Image
from report_folders import make_full_run, make_sweep

import ocssl.results
from ocssl.errors import RunFolderError
from ocssl.results import write_report
from ocssl.results.chart import Bars, Chart, Line, Panel, Style
from ocssl.results.compare import best_first, compare
from ocssl.results.draw_matplotlib import print_chart
from ocssl.results.draw_page import draw
from ocssl.results.figures import all_charts
from ocssl.results.run_groups import find_runs
from ocssl.results.tables import _exact

pytestmark = pytest.mark.slow

STYLES = {"er-reservoir": "var(--c1)"}
KEYS = ["forest", "accuracy", "tasks", "deviation", "overlap", "online-overlap", "spectrum", "ssl-1", "term-1"]
KEYS += ["spread", "participation-ratio", "active", "born", "age", "classes", "losses", "compute"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sweep")
    return make_sweep(place, ("solar", "er-reservoir"), seeds=2, experiences=8, each=3, classes=6)


@pytest.fixture(scope="module")
def charts(sweep: Path) -> dict[str, Chart]:
    runs = find_runs([sweep])
    return {chart.key: chart for group in all_charts(runs, compare(runs)).values() for chart in group}


def test_a_run_that_recorded_everything_has_every_chart(charts: dict[str, Chart]) -> None:
    assert list(charts) == KEYS
    for chart in charts.values():
        assert all(plot.curves or plot.rows or plot.picture for plot in map(draw, chart.panels))


def test_a_series_has_its_own_panel(charts: dict[str, Chart]) -> None:
    for key in ("tasks", "spectrum", "born", "classes", "losses"):
        assert [panel.title for panel in charts[key].panels] == ["er-reservoir", "solar"]


def test_heat_maps_hold_means_over_seeds(charts: dict[str, Chart], sweep: Path) -> None:
    runs = [run for run in find_runs([sweep]) if run.method == "solar"]
    shown = draw(charts["tasks"].panels[1]).numbers["heat"]
    for column in range(9):
        for task in range(8):
            mean = sum(run.evaluations[column].tasks[task] for run in runs) / 2
            assert shown["z"][task][column] == pytest.approx(mean, abs=0.051)
    for key in ("born", "classes", "losses"):  # shares of a memory
        for panel in (draw(panel).numbers for panel in charts[key].panels):
            cells = panel["heat"]["z"]
            assert [sum(column) for column in zip(*cells, strict=True)] == pytest.approx([100] * 8, abs=1)


def test_seconds_are_grouped_by_phase(charts: dict[str, Chart]) -> None:
    bars = {item.name: list(item.lengths) for item in charts["compute"].panels[0].items if isinstance(item, Bars)}
    assert list(bars) == ["data", "views", "forward", "backward", "memory", "terms", "probe", "save", "other"]
    assert bars["backward"] == [4.5 + 5.5] * 2
    assert bars["memory"] == [0.5 + 6.5 + 7.5] * 2
    assert bars["other"] == [8.5] * 2


def test_every_evaluation_is_a_line_of_numbers(sweep: Path, tmp_path: Path) -> None:
    write_report([sweep], tmp_path / "r.html", tables=tmp_path)
    rows = list(csv.DictReader((tmp_path / "evaluations.csv").read_text().splitlines()))
    evaluations = [(run, e) for run in best_first(find_runs([sweep])) for e in run.evaluations]
    assert len(rows) == len(evaluations) == 2 * 2 * 9
    for row, (run, e) in zip(rows, evaluations, strict=True):
        assert (row["method"], int(row["seed"]), int(row["experience"])) == (run.method, run.seed, e.experience)
        assert float(row["accuracy"]) == pytest.approx(e["accuracy"], rel=1e-5)
        assert float(row["overlap"]) == pytest.approx(e["overlap"], rel=1e-5)


def test_whole_numbers_for_programs_have_all_their_digits() -> None:
    assert [_exact(value) for value in (1234567, 12345678.0, 0.123456789, None)] == [
        "1234567",
        "12345678",
        "0.123457",
        "-",
    ]


def test_the_phase_of_decay_is_shaded_in_the_colour_of_its_method(charts: dict[str, Chart]) -> None:
    for key in ("deviation", "overlap"):
        ((left, width, colour, words),) = draw(charts[key].panels[0]).shades
        assert 50 <= left < left + width == pytest.approx(100)
        assert (colour, words) == (STYLES["er-reservoir"], "er-reservoir decays")
    assert draw(charts["accuracy"].panels[0]).shades == []


def test_charts_are_printed_as_pdf_and_png_with_the_same_bytes(charts: dict[str, Chart]) -> None:
    for key in ("tasks", "forest", "compute", "overlap"):
        made = print_chart(charts[key])
        assert made["pdf"].startswith(b"%PDF")
        assert b"CreationDate" not in made["pdf"]
        picture = Image.open(io.BytesIO(made["png"]))
        assert min(picture.size) >= 600
        assert len(picture.convert("RGB").resize((200, 120)).getcolors(24000) or []) > 20  # something is drawn
    assert print_chart(charts["overlap"]) == made


def test_names_in_print_are_no_formulas() -> None:
    line = Line("$x_{$", [1, 2], [1, None], style=Style("#000000"))
    print_chart(Chart("a", r"$\frac{$", "", [Panel("x", "y", [line])]))


def test_all_files_are_written_by_one_call(sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ocssl.results.draw_matplotlib.print_chart", lambda chart: {"pdf": b"pdf", "png": b"png"})
    write_report([sweep], tmp_path / "r.html", tmp_path / "figures", tmp_path / "deep" / "tables")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        f"{k}.{s}" for k in KEYS for s in ("pdf", "png")
    }
    names = {f"{k}.{s}" for k in ("methods", "comparison", "runs", "evaluations") for s in ("tex", "md", "csv")}
    assert {path.name for path in (tmp_path / "deep" / "tables").iterdir()} == names
    rows = list(csv.DictReader((tmp_path / "deep" / "tables" / "comparison.csv").read_text().splitlines()))
    (found,) = compare(find_runs([sweep]))
    assert found.final is not None
    assert [row["measure"] for row in rows] == ["final", "average"]
    assert float(rows[0]["difference"]) == pytest.approx(found.final.mean, rel=1e-5)
    assert (rows[0]["method"], rows[0]["against"], rows[0]["verdict"]) == ("er-reservoir", "solar", found.final.verdict)


def test_a_file_where_a_folder_should_be_is_an_error_before_anything_is_written(sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(RunFolderError, match="it is a file; name a folder"):
        write_report([sweep], tmp_path / "r.html", figures=tmp_path / "f")
    assert not (tmp_path / "r.html").exists()


def test_matplotlib_is_imported_when_figures_are_drawn_only() -> None:
    for path in Path(ocssl.results.__file__).parent.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            assert not isinstance(node, ast.Import | ast.ImportFrom) or "matplotlib" not in ast.unparse(node), path


@pytest.mark.parametrize("event", ["spectrum", "memory", "evaluation"])
def test_strange_records_are_left_out(tmp_path: Path, event: str) -> None:
    folder = make_full_run(tmp_path / "a", experiences=3, each=2, classes=4)
    strange = [
        "x",
        [[1]],
        ["x"],
        [1, None],
        {"low": 1},
        [-1.0] * 20,
        [1e400],
        list(range(5000)),
        [3, 2, 1, 0, -1],
        True,
    ]
    with open(folder / "events.jsonl", "a") as file:
        for value in strange:
            keys = ("values", "tasks", "born", "age", "loss", "losses", "classes")
            facts = dict.fromkeys(keys, value) | {
                "event": event,
                "position": 6,
                "stored": 3,
                "experience": 4,
                "seen": 1,
            }
            file.write(json.dumps(facts) + "\n")
    runs = find_runs([folder])
    for group in all_charts(runs, compare(runs)).values():
        for chart in group:
            json.dumps([draw(panel).numbers for panel in chart.panels], allow_nan=False)


@pytest.mark.parametrize("content", ["", "[]", '{"draw": "x", "views": -1, "data": NaN}'])
def test_a_damaged_timing_leaves_the_chart_out(tmp_path: Path, content: str) -> None:
    folder = make_full_run(tmp_path / "a", experiences=3, each=2)
    (folder / "timing.json").write_text(content)
    assert all_charts(find_runs([folder]), [])["compute"] == []
