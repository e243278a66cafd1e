"""Facts about the report: one file that fetches nothing, shows every run, and trusts none."""

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import re
import shlex
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from report_folders import make_full_run

from ocssl._core import checkpoint
from ocssl.errors import RunFolderError
from ocssl.results import write_report
from ocssl.runs.config import parse_assignments, read_settings, resolve_run, to_toml

HOSTILE = "<script>alert(1)</script>"
ACCURACIES = (11.25, 14.5, 17.75)


def make_run(
    folder: Path,
    method: str = "solar",
    seed: int = 0,
    accuracies: tuple[float, ...] = ACCURACIES,
    *,
    finished: bool = True,
    collapse: str | None = None,
    settings: dict[str, Any] | None = None,
    recipe: str = "solar",
    terms: dict[str, float] | None = None,
    minibatches: int = 20,
) -> Path:
    """A run folder as `ocssl run` leaves it, without the training: 3 experiences of 20 minibatches."""
    folder.mkdir(parents=True)
    known = resolve_run(recipe, "synthetic", seed, settings or {})
    terms = {"overlap": 0.1, "overlap.active": 0.25} if terms is None else terms
    (folder / "run.toml").write_text(to_toml(known.model_copy(update={"method": method})))
    events: list[dict[str, Any]] = [{"event": "start", "minibatches": 3 * minibatches, "experiences": 3}]
    events.append(evaluation(0, 0, 5.0))
    for position in range(1, minibatches * len(accuracies) + 1):
        events.append(
            {"event": "step", "position": position, "steps": 2 * position, "seen": 10 * position, "loss": 1 / position}
            | {"ssl": 1 / position, "spread": 0.5, "participation_ratio": None, "terms": terms}
        )
        if collapse and position == 30:
            events.append({"event": "collapse", "position": position, "message": collapse})
        if position % minibatches == 0:
            experience = position // minibatches
            events.append(evaluation(experience, position, accuracies[experience - 1]))
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    if finished:
        metrics = {"method": method, "benchmark": "synthetic", "seed": seed, "start_accuracy": 5.0}
        metrics |= {"final_accuracy": accuracies[-1], "average_accuracy": sum(accuracies) / len(accuracies)}
        metrics |= {"collapsed": bool(collapse), "steps": 120, "seconds": 12.345}
        (folder / "metrics.json").write_text(json.dumps(metrics))
    checkpoint.write(folder / "checkpoints" / "00000060", memory(), {})
    return folder


def evaluation(experience: int, position: int, accuracy: float) -> dict[str, Any]:
    facts = {"event": "evaluation", "experience": experience, "accuracy": accuracy, "seconds": 9.0}
    return facts | {"position": position, "seen": 10 * position, "deviation": 0.5 - experience / 10, "overlap": None}


def memory(slots: int = 5) -> dict[str, torch.Tensor]:
    """Slot i is an image of grey level 40 i and has loss i."""
    numbers = torch.arange(slots)
    image = (40 * numbers).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 8, 8)
    columns = {"image": image, "loss": numbers.float(), "id": numbers, "born": 10 * numbers, "draws": numbers.clone()}
    return {**{f"memory.column.{name}": column for name, column in columns.items()}, "memory.seen": torch.tensor(600)}


class Page(HTMLParser):
    """A page taken apart as a browser would: tags with attributes, cells of tables, text, charts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.texts: dict[str, str] = {}
        self._open: list[str] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.visible = " ".join(text for tag, text in self.texts.items() if tag not in ("script", "style"))
        self.charts: dict[str, Any] = json.loads(self.texts["script"].split("\n")[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "link", "br", "wbr"):
            self._open.append(tag)
        if tag == "table":
            self.tables[dict(attrs)["id"] or ""] = self._rows = []
        if tag == "tr":
            self._rows.append([])
        if tag in ("td", "th"):
            self._rows[-1].append("")

    @property
    def rows(self) -> list[list[str]]:
        """The table of all runs."""
        return self.tables["runs"]

    def row(self, first: str) -> list[str]:
        """The first row that begins so."""
        return next(row for row in self.rows if row[0] == first)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes nothing"
        self.texts[tag] = self.texts.get(tag, "") + "\n"

    def handle_data(self, data: str) -> None:
        tag = self._open[-1] if self._open else ""
        self.texts[tag] = self.texts.get(tag, "") + data
        if {"td", "th"} & set(self._open):
            self._rows[-1][-1] += data


def report(tmp_path: Path, *folders: Path) -> Page:
    output = tmp_path / "report.html"
    assert write_report(list(folders), output) == output.stat().st_size
    return Page(output)


def test_the_file_fetches_nothing(tmp_path: Path) -> None:
    page = report(tmp_path, make_run(tmp_path / "a"))
    assert {tag for tag, _ in page.tags} & {"link", "iframe", "object", "embed", "base", "form"} == set()
    addresses = [value or "" for _, attrs in page.tags for name, value in attrs.items() if name in ("src", "href")]
    assert addresses
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in addresses)
    assert "@import" not in page.texts["style"]
    assert "url(" not in page.texts["style"]
    policy = next(attrs["content"] for tag, attrs in page.tags if "http-equiv" in attrs)
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data: blob:;")
    assert "http" not in policy


def test_every_run_of_a_folder_is_shown_with_the_numbers_of_its_metrics(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "b", "solar")
    make_run(tmp_path / "runs" / "a", "er-fifo", accuracies=(10.0, 20.0, 30.0))
    page = report(tmp_path, tmp_path / "runs")
    assert page.rows[1] == ["er-fifo", "synthetic", "0", "5.0", "30.0", "20.0", "120", "12.3", "ok"]
    assert page.rows[2] == ["solar", "synthetic", "0", "5.0", "17.8", "14.5", "120", "12.3", "ok"]
    assert "er-fifo has the best average accuracy: 20.0 %, 5.5 points above solar" in page.visible
    assert [trace["name"] for trace in page.charts["accuracy"][0]["lines"]] == ["er-fifo", "solar"]


def test_metrics_count_more_than_events(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a")
    (folder / "metrics.json").write_text(json.dumps({"final_accuracy": 77.7, "average_accuracy": 66.6}))
    assert report(tmp_path, folder).rows[1][3:6] == ["-", "77.7", "66.6"]


def test_an_unfinished_run_is_shown_from_its_events_and_not_ranked(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a", "er-fifo"), make_run(tmp_path / "b", "solar", accuracies=(90.0,), finished=False)]
    with open(runs[1] / "events.jsonl", "a") as file:
        file.write('{"event": "step", "posit')  # killed while it wrote
    page = report(tmp_path, *runs)
    assert page.rows[2][3:6] == ["5.0", "90.0", "90.0"]
    assert page.rows[2][8] == "unfinished (20 of 60 minibatches)"
    assert "Unfinished, so not compared: solar" in page.visible
    assert "best average accuracy" not in page.visible


def test_a_collapse_is_warned_of_with_run_and_step(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a", "er-fifo"), make_run(tmp_path / "b", "solar", collapse="spread is 0.001.")]
    page = report(tmp_path, *runs)
    assert {"class": "alarm", "role": "alert"} in [attrs for tag, attrs in page.tags if tag == "div"]
    assert "collapsed at step 60: spread is 0.001." in page.visible
    assert [row[8] for row in page.rows[1:3]] == ["ok", "collapsed"]
    assert "Nothing collapsed" not in page.visible
    assert "Nothing collapsed" in report(tmp_path, runs[0]).visible


def test_texts_of_a_run_are_never_markup(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "<b>bold</b>", HOSTILE, collapse=HOSTILE)
    page = report(tmp_path, folder)
    assert page.rows[1][0] == HOSTILE
    assert HOSTILE not in page.source
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert "b" not in {tag for tag, _ in page.tags}
    assert page.charts["accuracy"][0]["lines"][0]["name"] == HOSTILE  # as text


def test_strange_values_are_left_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a")
    strange = ['"x"', "NaN", "1e999", "1" + "0" * 400, "[[]]", "{}", "true", '"\\ud800"']
    with open(folder / "events.jsonl", "a") as file:
        for value in strange:
            keys = ("experience", "seen", "accuracy", "deviation", "steps", "ssl", "terms", "message", "minibatches")
            facts = ", ".join(f'"{key}": {value}' for key in keys)
            file.writelines(f'{{"event": "{kind}", {facts}}}\n' for kind in ("start", "step", "evaluation", "collapse"))
    (folder / "metrics.json").write_text('{"final_accuracy": NaN, "average_accuracy": "<b>", "steps": 1e999}')
    page = report(tmp_path, folder)
    assert page.rows[1][3:8] == ["-"] * 5
    assert page.charts["accuracy"][0]["lines"][0]["y"] == [5.0, *ACCURACIES]


def test_the_memory_is_shown_highest_loss_first(tmp_path: Path) -> None:
    page = report(tmp_path, make_run(tmp_path / "a"))
    image = next(attrs for tag, attrs in page.tags if tag == "img")
    assert image["alt"] == "Contact sheet of 5 images in the final memory of solar, highest stored loss first"
    packed = base64.b64decode((image["src"] or "").partition(",")[2])
    sheet = Image.open(io.BytesIO(packed)).convert("RGB")
    assert sheet.size == (5 * 42 - 2, 40)
    assert [sheet.getpixel((42 * i + 20, 20)) for i in range(5)] == [(40 * i,) * 3 for i in (4, 3, 2, 1, 0)]
    facts = "mean stored loss 2.000, mean age 580 stream images, median draws 2."
    assert f"5 slots filled (all shown, highest stored loss first), {facts}" in page.visible


def test_a_damaged_checkpoint_gives_a_note_and_the_older_one_is_shown(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a")
    checkpoint.write(folder / "checkpoints" / "00000070", memory(3), {})
    newest = next((folder / "checkpoints" / "00000070").glob("*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-1])
    page = report(tmp_path, folder)
    assert "Checkpoint 00000070 is damaged" in page.visible
    assert "5 slots filled" in page.visible


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        memory() | {"memory.column.image": torch.zeros(5, 1, 8, 8, dtype=torch.uint8)},
        memory() | {"memory.column.image": torch.zeros(5, 3, 0, 0, dtype=torch.uint8)},
        memory() | {"memory.column.image": torch.zeros(5)},
        memory() | {"memory.column.loss": torch.zeros(2)},
        memory() | {"memory.seen": torch.zeros(3)},
    ],
)
def test_a_checkpoint_without_a_proper_memory_gives_a_note(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    folder = make_run(tmp_path / "a")
    checkpoint.write(folder / "checkpoints" / "00000060", tensors, {})
    page = report(tmp_path, folder)
    assert "No checkpoint can be read, so the memory is not shown." in page.visible
    assert "img" not in {tag for tag, _ in page.tags}


@pytest.mark.parametrize("name", ["run.toml", "events.jsonl", "metrics.json"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe{[", b"[" * 100_000, b"[1]\n"])
def test_a_damaged_file_leaves_the_rest_of_the_report(tmp_path: Path, name: str, content: bytes) -> None:
    folder = make_run(tmp_path / "a")
    (folder / name).write_bytes(content)
    page = report(tmp_path, folder, make_run(tmp_path / "b", "er-fifo"))
    assert page.row("er-fifo")[:6] == ["er-fifo", "synthetic", "0", "5.0", "17.8", "14.5"]
    assert page.row("solar")


def test_a_link_in_a_run_folder_shows_nothing_of_where_it_leads(tmp_path: Path) -> None:
    secret = tmp_path / "secret.toml"
    secret.write_text('password = "hunter2"\n')
    folder = make_run(tmp_path / "a")
    for name in ("run.toml", "metrics.json", "events.jsonl", "timing.json"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(secret)
    page = report(tmp_path, folder)
    assert "hunter2" not in (tmp_path / "report.html").read_text()
    assert "a: run.toml cannot be read" in page.visible
    (folder / "run.toml").unlink()
    (folder / "run.toml").write_text("root:x:0:0 hunter2\n")  # nor is a file that holds no settings
    report(tmp_path, folder)
    assert "hunter2" not in (tmp_path / "report.html").read_text()


def test_a_pipe_in_a_run_folder_holds_nobody_up(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a")
    for name in ("metrics.json", "events.jsonl"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    assert report(tmp_path, folder).row("solar")


@pytest.mark.parametrize("large", ["1e308", "-1.7e308", "1" + "0" * 400])
@pytest.mark.slow
def test_numbers_beyond_all_counting_are_left_out(tmp_path: Path, large: str) -> None:
    folders = [make_full_run(tmp_path / method, method) for method in ("solar", "er-fifo")]
    for folder in folders:
        events = (folder / "events.jsonl").read_text()
        for key in ("position", "seen", "stored", "accuracy"):
            events = re.sub(rf'"{key}": 1\d\d\b', f'"{key}": {large}', events)
        (folder / "events.jsonl").write_text(events.replace("[-0.9, -0.7", f"[-{large.lstrip('-')}, -0.7"))
        metrics = (folder / "metrics.json").read_text()
        (folder / "metrics.json").write_text(
            re.sub(r'"average_accuracy": [\d.]+', f'"average_accuracy": {large}', metrics)
        )
    (folders[0] / "run.toml").write_text(f"seed = 0x{'f' * 5000}\n" + (folders[0] / "run.toml").read_text())
    assert report(tmp_path, *folders).charts


def test_methods_that_have_more_to_work_with_are_named(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "a", "solar", settings={"encoder.width": 64}),
        make_run(tmp_path / "b", "er-fifo"),
        make_run(tmp_path / "c", "minred"),
    ]
    said = report(tmp_path, *runs).visible
    assert "differ in more than their rules: encoder.width (64: solar, 16: er-fifo and minred)." in said
    assert "differ in more" not in report(tmp_path, *runs[1:]).visible


def test_a_run_of_which_nothing_can_be_read_is_shown_by_its_folder(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", finished=False)
    (folder / "run.toml").write_text("[[")
    (folder / "events.jsonl").unlink()
    page = report(tmp_path, folder)
    assert page.row("a") == ["a", "unknown", "-", "-", "-", "-", "-", "-", "unfinished"]
    assert ["unknown whether online"] in page.rows
    assert "cannot make the run again" in page.visible
    assert "a: run.toml cannot be read" in page.visible
    assert "a: events.jsonl is missing" in page.visible
    assert page.charts == {}


def test_seeds_of_a_method_are_summed_up(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / str(seed), seed=seed, accuracies=(10.0 + 10 * seed,) * 3) for seed in range(3)]
    page = report(tmp_path, *runs)
    assert page.tables["methods"][1] == ["solar", "3", "20.0 ± 10.0", "20.0 ± 10.0", "not measured"]
    (line,) = page.charts["accuracy"][0]["lines"]
    assert line["y"] == [5.0, 20.0, 20.0, 20.0]
    assert line["sd"] == [0.0, 10.0, 10.0, 10.0]
    assert line["who"] == "solar, mean of 3 seeds"
    assert [attrs["d"] for tag, attrs in page.tags if tag == "path" and attrs.get("fill-opacity") == "0.18"]


def test_other_settings_make_another_series_in_the_same_colour(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", settings={"schedule.passes": 7})]
    page = report(tmp_path, *runs)
    first, second = page.charts["accuracy"][0]["lines"]
    assert second["name"] == "solar (schedule.passes=7)"
    assert first["ink"] == second["ink"] == "var(--c0)"
    assert len({attrs.get("stroke-dasharray") for tag, attrs in page.tags if tag == "line"}) == 2


def test_a_run_named_twice_is_shown_once(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs" / "a")
    assert len(report(tmp_path, folder, folder.parent).charts["accuracy"][0]["lines"]) == 1


def test_long_runs_are_smoothed_and_the_legend_says_so(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a")
    events = [{"event": "start", "minibatches": 1000}]
    events += [{"event": "step", "position": i + 1, "steps": i, "ssl": float(i % 2)} for i in range(1000)]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    page = report(tmp_path, folder)
    (line,) = page.charts["ssl-1"][0]["lines"]
    assert len(line["y"]) == 143
    assert line["y"][0] == pytest.approx(3 / 7, rel=1e-4)
    assert "smoothed: means of 7 recorded minibatches" in page.visible
    kept = [events[0], *events[1::10]]  # as in docs/results: one step in ten
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in kept))
    page = report(tmp_path, folder)
    assert len(page.charts["ssl-1"][0]["lines"][0]["y"]) == 100
    assert "not smoothed" in page.visible


def test_what_was_not_measured_has_no_chart(tmp_path: Path) -> None:
    charts = report(tmp_path, make_run(tmp_path / "a")).charts
    assert list(charts) == ["accuracy", "deviation", "ssl-1", "term-1", "spread", "active"]  # no overlap, no rank here


def test_every_chart_has_its_place_and_a_text(tmp_path: Path) -> None:
    page = report(tmp_path, make_run(tmp_path / "a"))
    places = {attrs["data-chart"]: attrs for tag, attrs in page.tags if tag == "div" and "data-chart" in attrs}
    assert set(places) == set(page.charts)
    assert all(attrs["role"] == "img" and attrs["aria-label"] for attrs in places.values())


def test_headings_go_down_one_level_at_a_time(tmp_path: Path) -> None:
    page = report(tmp_path, make_run(tmp_path / "a"))
    levels = [int(tag[1]) for tag, _ in page.tags if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in itertools.pairwise(levels))
    assert all("scope" in attrs for tag, attrs in page.tags if tag == "th")
    assert ("html", {"lang": "en"}) in page.tags


def test_the_command_makes_the_same_settings_again(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", seed=4, settings={"memory.keep": "fifo", "views.mean": [0.1, 0.2, 0.3]})
    page = report(tmp_path, folder)
    command = next(text for text in page.texts["code"].split("\n") if text.startswith("ocssl run"))
    assert (
        command
        == """ocssl run solar synthetic --seed 4 --set 'memory.keep="fifo"' --set 'views.mean=[0.1, 0.2, 0.3]'"""
    )
    again = resolve_run(
        "solar", "synthetic", 4, parse_assignments(['memory.keep="fifo"', "views.mean=[0.1, 0.2, 0.3]"])
    )
    assert again == read_settings(folder / "run.toml")


def test_settings_that_no_ocssl_writes_are_shown_all_the_same(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a")
    with open(folder / "run.toml", "a") as file:
        file.write("\n[strange]\nday = 1979-05-27\nlist = [nan, {x = 07:32:00}]\n")
    assert "day = 1979-05-27" in report(tmp_path, folder).visible


def test_a_loss_that_is_not_finite_is_warned_of(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", accuracies=(20.0,), finished=False)
    with open(folder / "events.jsonl", "a") as file:
        file.write(json.dumps({"event": "non-finite-loss", "position": 20, "message": "the loss is NaN."}) + "\n")
    assert "stopped after step 40: the loss is NaN." in report(tmp_path, folder).visible


@pytest.mark.slow
def test_many_runs_show_the_memory_of_one_seed_a_method(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"{name}{seed}", name, seed) for name in ("solar", "er-fifo") for seed in range(4)]
    page = report(tmp_path, *runs)
    shown = [attrs["alt"] or "" for tag, attrs in page.tags if tag == "img" and "Contact" in (attrs["alt"] or "")]
    assert [text.split(" of ")[-1] for text in shown] == [
        f"{m}, seed 3, highest stored loss first" for m in ("solar", "er-fifo")
    ]
    assert "Memories of 6 more runs are left out" in page.visible


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", collapse="x")
    assert report(tmp_path, folder).source == report(tmp_path, folder).source


def test_a_write_that_fails_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, output = make_run(tmp_path / "a"), tmp_path / "report.html"
    output.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(RunFolderError, match=r"cannot write .*report\.html: No space left on device\."):
        write_report([folder], output)
    assert output.read_text() == "old"


def test_missing_folders_of_the_output_are_made(tmp_path: Path) -> None:
    write_report([make_run(tmp_path / "a")], tmp_path / "new" / "deep" / "report.html")
    assert (tmp_path / "new" / "deep" / "report.html").stat().st_size > 0


@pytest.mark.parametrize("make", [lambda path: None, Path.mkdir, lambda path: path.write_text("x")])
def test_a_folder_without_a_run_is_an_error_that_names_it(tmp_path: Path, make: Any) -> None:
    folder, output = tmp_path / "nothing-here", tmp_path / "report.html"
    make(folder)
    with pytest.raises(RunFolderError, match="nothing-here"):
        write_report([make_run(tmp_path / "a"), folder], output)
    assert not output.exists()


def test_an_output_that_is_a_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="it is a folder; name a file"):
        write_report([make_run(tmp_path / "a")], tmp_path)


OFFLINE = {"schedule.boundaries": True, "stream.epochs": 3, "stream.drop_last": False}


def test_offline_runs_are_a_group_of_their_own_in_table_words_and_legends(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "a", "cassle", accuracies=(90.0,) * 3, settings=OFFLINE),
        make_run(tmp_path / "b", "pfr", accuracies=(80.0,) * 3, settings=OFFLINE),
        make_run(tmp_path / "c", "osiris-d", settings={"schedule.boundaries": True}),
        make_run(tmp_path / "d", "solar"),
        make_run(tmp_path / "e", "er-fifo", accuracies=(10.0,) * 3),
    ]
    page = report(tmp_path, *runs)
    assert [row[0] for row in page.rows[1:9]] == [
        "online",
        "solar",
        "er-fifo",
        "offline: knows where experiences end, 3 epochs",
        "cassle",
        "pfr",
        "offline: knows where experiences end, 1 epoch",
        "osiris-d",
    ]
    best = "has the best average accuracy"
    assert (
        f"(linear probe; online; stream.drop_last=true) solar {best}: 14.5 %, 4.5 points above er-fifo" in page.visible
    )
    told = "(linear probe; offline: knows where experiences end, 3 epochs; stream.drop_last=false)"
    assert f"{told} cassle {best}: 90.0 %, 10.0 points above pfr" in page.visible
    assert page.visible.count(best) == 2
    names = [trace["name"] for trace in page.charts["accuracy"][0]["lines"]]
    assert names == ["solar", "er-fifo", "cassle (offline)", "pfr (offline)", "osiris-d (offline)"]


def test_more_than_one_epoch_is_offline_without_boundaries_too(tmp_path: Path) -> None:
    assert report(tmp_path, make_run(tmp_path / "a", settings={"stream.epochs": 2})).rows[1] == ["offline: 2 epochs"]


def test_groups_that_are_not_compared_say_in_what_they_differ(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", "er-fifo", settings={"stream.fraction": 0.5})]
    words = report(tmp_path, *runs).visible
    assert "On synthetic (linear probe; stream.fraction=1.0) solar has" in words
    assert "On synthetic (linear probe; stream.fraction=0.5) er-fifo has" in words
    assert "are not compared with one another" in words
    assert "not compared" not in report(tmp_path, runs[0]).visible


def test_curves_of_streams_of_different_length_share_an_axis(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", "er-fifo", minibatches=500)]
    charts = report(tmp_path, *runs).charts
    for trace in charts["accuracy"][0]["lines"]:
        assert trace["x"] == pytest.approx([0, 100 / 3, 200 / 3, 100], rel=1e-3)
    assert [trace["details"][-1] for trace in charts["accuracy"][0]["lines"]] == [600, 15000]
    for trace in charts["spread"][0]["lines"]:
        assert trace["x"][-1] == pytest.approx(100, abs=1)


def test_each_objective_has_a_chart_and_one_without_a_loss_none(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "a"),
        make_run(tmp_path / "b", "er-fifo"),
        make_run(tmp_path / "c", "cmp", recipe="cmp", terms={}),
        make_run(tmp_path / "d", "scale", recipe="scale", terms={"scale": 3.0}),
        make_run(tmp_path / "e", "lars", settings={"objective.weight": 0}),
    ]
    page = report(tmp_path, *runs)
    shown = {key: [t["name"] for t in chart[0]["lines"]] for key, chart in page.charts.items() if key.startswith("ssl")}
    assert shown == {"ssl-1": ["solar", "er-fifo"], "ssl-2": ["cmp"]}
    assert "comparable between runs with the same objective" in page.visible
    assert "SSL loss: cmp" in page.visible


def test_losses_and_signals_of_terms_are_drawn_for_runs_that_have_them(tmp_path: Path) -> None:
    parts = {"osiris-r": 6.0, "osiris-r.current": 2.0, "osiris-r.past": 4.0}
    runs = [
        make_run(tmp_path / "a", "osiris-r", recipe="osiris-r", terms=parts),
        make_run(tmp_path / "b", "er-fifo", terms={}),
        make_run(tmp_path / "c", "solar"),
    ]
    page = report(tmp_path, *runs)
    drawn = {key: chart[0]["lines"] for key, chart in page.charts.items() if key.startswith("term")}
    assert {key: [(t["name"], t["y"][0]) for t in traces] for key, traces in drawn.items()} == {
        "term-1": [("osiris-r", 6.0), ("osiris-r: current", 2.0), ("osiris-r: past", 4.0)],
        "term-2": [("solar", 0.1)],
    }
    assert "Loss of the term osiris-r" in page.visible
    plain = report(tmp_path, runs[1])
    assert not [key for key in plain.charts if key.startswith("term")]


def test_a_signal_that_comes_late_stands_where_it_came(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", accuracies=(), finished=False)
    steps = [{}, {"late": 1.0}, {"late": 2.0, "late.part": 3.0}, {}]
    with open(folder / "events.jsonl", "a") as file:
        for position, terms in enumerate(steps, 1):
            file.write(json.dumps({"event": "step", "position": position, "terms": terms}) + "\n")
    loss, part = report(tmp_path, folder).charts["term-1"][0]["lines"]
    assert loss["y"] == [None, 1.0, 2.0, None]
    assert part["y"] == [None, None, 3.0, None]


@pytest.mark.parametrize("settings", [{"objective.weight": 0}, {"schedule.mix": 0.4, "schedule.stream_in": "all"}])
def test_a_memory_whose_losses_mean_nothing_is_shown_newest_first(tmp_path: Path, settings: dict[str, Any]) -> None:
    page = report(tmp_path, make_run(tmp_path / "a", settings=settings))
    image = next(attrs for tag, attrs in page.tags if tag == "img")
    assert "newest first" in (image["alt"] or "")
    assert "stored loss" not in page.visible
    assert "5 slots filled (all shown, newest first), mean age 580 stream images" in page.visible


def test_stored_losses_that_are_all_zero_are_none(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a")
    tensors = memory() | {"memory.column.loss": torch.zeros(5)}
    checkpoint.write(folder / "checkpoints" / "00000060", tensors, {})
    assert "stored loss" not in report(tmp_path, folder).visible


def test_methods_without_a_memory_are_named_and_take_no_place(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a", "cmp", settings={"memory.capacity": 0}), make_run(tmp_path / "b")]
    page = report(tmp_path, *runs)
    assert [tag for tag, _ in page.tags].count("img") == 1
    assert "No images are stored by cmp." in page.visible


def commands(page: Page) -> list[str]:
    return [text for text in page.texts["code"].split("\n") if text.startswith(("ocssl", "mkdir"))]


def test_the_command_leaves_out_what_follows_from_another_setting(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", settings={"objective.name": "simclr", "memory.keep": "fifo"})
    words = ["--set", 'objective.name="simclr"', "--set", 'memory.keep="fifo"']
    assert shlex.split(commands(report(tmp_path, folder))[0]) == [
        "ocssl",
        "run",
        "solar",
        "synthetic",
        "--seed",
        "0",
        *words,
    ]


@pytest.mark.parametrize(("method", "keep"), [("mine.toml", "fifo"), ("solar", "a-rule-of-my-own")])
def test_a_run_of_own_recipe_or_parts_is_made_again_from_its_settings(tmp_path: Path, method: str, keep: str) -> None:
    folder = make_run(tmp_path / "my runs" / "a b", method, settings={"memory.keep": "fifo"})
    text = (folder / "run.toml").read_text().replace('keep = "fifo"', f'keep = "{keep}"')
    (folder / "run.toml").write_text(text)
    page = report(tmp_path, folder)
    assert "--parts" in page.visible
    make, copy, resume = commands(page)[0].split(" && ")
    for line in (make, copy):
        subprocess.run(shlex.split(line), cwd=folder.parent, check=True)
    _, _, again = shlex.split(resume)
    assert (folder.parent / again / "run.toml").read_text() == text


def test_an_objective_swap_is_named_by_the_objective(tmp_path: Path) -> None:
    swap = {"objective.name": "simclr"}
    runs = [
        make_run(tmp_path / "a", "scale", recipe="scale"),
        make_run(tmp_path / "b", "scale", recipe="scale", settings=swap),
        make_run(tmp_path / "c", "scale", recipe="scale", settings=swap | {"objective.temperature": 0.3}),
    ]
    names = [row[0] for row in report(tmp_path, *runs[:2]).rows[1:3]]
    assert names == ["scale (objective.name=none)", "scale (objective.name=simclr)"]
    names = [row[0] for row in report(tmp_path, *runs).rows[1:4]]
    assert names == [
        "scale (objective.name=none)",
        "scale (objective.name=simclr, objective.temperature=0.5)",
        "scale (objective.name=simclr, objective.temperature=0.3)",
    ]


def test_a_rule_swap_is_named_by_the_rule(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", settings={"memory.draw": "per"})]
    names = [row[0] for row in report(tmp_path, *runs).rows[1:3]]
    assert names == ["solar (memory.draw=least-drawn)", "solar (memory.draw=per)"]


def test_where_images_lie_makes_no_variant_but_which_are_skipped_does(tmp_path: Path) -> None:
    places = [{"data.path": "/old", "data.decode": "live"}, {"data.path": "/new", "data.cache": "/fast"}]
    for own, place in zip(places, ("/old/start", "/new/start"), strict=True):
        own["init.path"] = place
    moved = [make_run(tmp_path / f"{seed}", seed=seed, settings=own) for seed, own in enumerate(places)]
    page = report(tmp_path, *moved)
    assert [row[:2] for row in page.tables["methods"][1:]] == [["solar", "2"]]
    stopped = make_run(tmp_path / "c", settings={"data.path": "/old", "data.bad_images": "stop"})
    names = [row[0] for row in report(tmp_path, *moved, stopped).tables["methods"][1:]]
    assert sorted(names) == ["solar (data.bad_images=skip)", "solar (data.bad_images=stop)"]


def test_a_variant_that_is_long_is_cut_after_what_tells_it_apart(tmp_path: Path) -> None:
    many = {"objective.name": "simclr", "optimizer.lr": 0.125, "schedule.passes": 3, "views.hue": 0.25}
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", settings=many)]
    page = report(tmp_path, *runs)
    assert page.rows[2][0] == "solar (objective.name=simclr, …)"
    assert "Variant: objective.name=simclr, optimizer.lr=0.125, schedule.passes=3, views.hue=0.25" in page.visible


def test_a_term_that_only_one_variant_has_is_named(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a", "m", recipe="er-fifo"), make_run(tmp_path / "b", "m", recipe="er-fifo")]
    with open(runs[1] / "run.toml", "a") as file:
        file.write("\n[terms.overlap]\nweight = 1.0\nk = 5\n")
    names = [row[0] for row in report(tmp_path, *runs).rows[1:3]]
    assert names == ["m (terms.overlap=none)", "m (terms.overlap=on)"]


@pytest.mark.slow
def test_twenty_methods_have_twenty_looks(tmp_path: Path) -> None:
    page = report(tmp_path, *(make_run(tmp_path / f"{i:02}", f"method-{i}", minibatches=1) for i in range(20)))
    marks = [(attrs["stroke"], attrs.get("stroke-dasharray")) for tag, attrs in page.tags if tag == "line"]
    assert len(set(marks)) == 20
    assert "double-click to see it alone" in page.visible


@pytest.mark.slow
def test_the_summary_says_how_sure_the_gap_is(tmp_path: Path) -> None:
    def runs(name: str, *levels: float) -> list[Path]:
        return [
            make_run(tmp_path / f"{name}{seed}", name, seed, accuracies=(level,) * 3)
            for seed, level in enumerate(levels)
        ]

    solar, near, far = (
        runs("solar", 30.0, 32.0, 31.0),
        runs("er-fifo", 31.0, 29.0, 31.0),
        runs("minred", 20.0, 21.0, 21.0),
    )
    open_ = report(tmp_path, *solar, *near).visible
    assert "Over 3 paired seeds the gap in average accuracy is -4.5 to +5.8 points (95 %): there is no clear" in open_
    sure = report(tmp_path, *solar, *far)
    assert "points (95 %): solar is better." in sure.visible
    assert sure.tables["comparison"][1][:3] == ["minred", "solar", "3"]
    assert sure.tables["comparison"][1][4] == "worse"
    alone = report(tmp_path, solar[0], far[0])
    assert "There are too few seeds to tell which is better: 1 shared seed" in alone.visible
    assert alone.tables["comparison"][1][3:5] == ["-10.00", "too few seeds to tell"]


@pytest.mark.slow
def test_the_best_is_the_best_over_the_seeds_that_all_have(tmp_path: Path) -> None:
    levels = {"solar": {2: 60.0}, "er-fifo": {0: 20.0, 1: 21.0, 2: 62.0}, "minred": {0: 19.0, 2: 50.0}}
    folders = {
        (name, seed): make_run(tmp_path / f"{name}{seed}", name, seed, accuracies=(level,) * 3)
        for name, seeds in levels.items()
        for seed, level in seeds.items()
    }
    words = report(tmp_path, *folders.values()).visible
    assert "er-fifo has the best average accuracy: 62.0 %, 2.0 points above solar; its final accuracy is 62.0" in words
    assert "This is over seed 2, the only one that all methods have finished: solar lacks 2 of 3 and minred" in words
    two = [folder for (name, _), folder in folders.items() if name != "solar"]
    words = report(tmp_path, *two).visible
    assert "er-fifo has the best average accuracy: 41.0 %, 6.5 points above minred" in words
    assert "too few seeds to tell which is better: 2 shared seeds" in words
    assert "This is over the 2 seeds that all methods have finished: minred lacks 1 of 3." in words
    apart = report(tmp_path, folders["solar", 2], folders["minred", 0]).visible
    assert "solar has the best average accuracy: 60.0 %, 41.0 points above minred" in apart
    assert "No seed is shared by all, so small differences may be chance." in apart
    every = report(tmp_path, folders["er-fifo", 2], folders["minred", 2]).visible
    assert "have finished" not in every


def test_equal_gaps_decide_nothing(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / f"{name}{seed}", name, seed, accuracies=(30.0 + seed + more,) * 3)
        for name, more in (("solar", 0.5), ("er-fifo", 0.0))
        for seed in range(3)
    ]
    page = report(tmp_path, *runs)
    assert "Over 3 paired seeds the gap in average accuracy is +0.5 points each time: equal gaps show" in page.visible
    assert "solar is better" not in page.visible
    assert page.tables["comparison"][1][3:] == ["-0.50", "3 equal gaps: no interval"] * 2


def test_methods_are_listed_best_first(tmp_path: Path) -> None:
    levels = {"er-fifo": 20.0, "solar": 40.0, "minred": 30.0}
    page = report(tmp_path, *(make_run(tmp_path / name, name, accuracies=(x,) * 3) for name, x in levels.items()))
    assert [row[0] for row in page.tables["methods"][1:]] == ["solar", "minred", "er-fifo"]


def test_runs_that_recorded_less_leave_quiet_notes(tmp_path: Path) -> None:
    words = report(tmp_path, make_run(tmp_path / "a")).visible
    for note in (
        "did not record what their memories held",
        "did not record where their time went",
        "No small pictures",
    ):
        assert note in words


@pytest.mark.slow
def test_what_was_evicted_is_shown_beside_what_is_kept(tmp_path: Path) -> None:
    folder = make_full_run(tmp_path / "a", experiences=4, each=5)
    page = report(tmp_path, folder)
    shown = [attrs["alt"] for tag, attrs in page.tags if tag == "img" and attrs["alt"]]
    assert len(shown) == 3  # kept, and evicted after two evaluations: a memory of 24 that takes 10 at a time
    assert shown[1] == "Images evicted from the memory of solar between 25 and 50 % of the stream"
    assert "6 of 20 pictured images left between 25 and 50 % of the stream." in page.visible
    for look in (folder / "snapshots").glob("*/*.safetensors"):
        look.write_bytes(b"damaged")
    assert "No small pictures were kept on the way." in report(tmp_path, folder).visible


@pytest.mark.slow
def test_a_decay_is_said_in_table_words_and_list(tmp_path: Path) -> None:
    page = report(tmp_path, make_full_run(tmp_path / "a", "er-reservoir"), make_full_run(tmp_path / "b", "solar"))
    said = {row[0]: row[-1] for row in page.tables["methods"][1:]}
    assert said["solar"] == "no decay seen"
    assert said["er-reservoir"].startswith("decays from 70 % of the stream on")
    assert "Latent space: er-reservoir decays from 70 %" in page.visible
    assert "no decay seen in solar." in page.visible
