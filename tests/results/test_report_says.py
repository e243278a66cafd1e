"""Facts about what a report says first: who leads, how sure, what degrades; and what it shows without labels."""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
import threading
import time
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageColor
from report_folders import make_full_run, make_sweep
from test_page import Page, make_run, report

from conftest import random_images, small_learner
from ocssl.cli import main
from ocssl.results.chart import Level
from ocssl.results.compare import best_first, compare
from ocssl.results.draw_page import spread_out
from ocssl.results.figures import accuracy_levels, all_charts
from ocssl.results.latent_pictures import make_moments, plane
from ocssl.results.memory_pictures import FRAME, contact_sheet
from ocssl.results.page import pieces
from ocssl.results.run_groups import find_runs
from ocssl.results.summary import BAD, cards, summary
from ocssl.runs.snapshots import write_snapshot


def levelled(tmp_path: Path, levels: dict[str, dict[int, float]]) -> list[Path]:
    return [
        make_run(tmp_path / f"{name}{seed}", name, seed, accuracies=(level,) * 3)
        for name, seeds in levels.items()
        for seed, level in seeds.items()
    ]


def levels_of_three(tmp_path: Path) -> list[Path]:
    return levelled(tmp_path / "three", {"solar": {0: 30, 1: 32, 2: 31}, "minred": {0: 20, 1: 21, 2: 21}})


def test_cards_say_who_leads_by_how_much_and_how_sure(tmp_path: Path) -> None:
    folders = levelled(tmp_path, {"solar": {0: 30, 1: 32, 2: 31}, "minred": {0: 20, 1: 21, 2: 21}})
    found = {card.title: card for card in cards(find_runs(folders))}
    assert (found["Leads"].value, found["Leads"].series) == ("solar", "solar")
    assert found["By how much"].value == "+10.3 points"
    assert found["How sure"].value == "better"
    few = {card.title: card for card in cards(find_runs(folders[:2] + folders[3:5]))}
    assert few["How sure"].value == "too few seeds to tell"
    assert found["Runs"].value == "6 of 6"


def test_decay_is_listed_best_first_in_whatever_order_runs_are_named(tmp_path: Path) -> None:
    folders = levelled(tmp_path, {"minred": {0: 20}, "er-fifo": {0: 10}, "solar": {0: 30}})
    for folder in folders:
        events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
        text = "".join(json.dumps({**e, "overlap": 0.1} if "deviation" in e else e) + "\n" for e in events)
        (folder / "events.jsonl").write_text(text)
    for order in (folders, folders[::-1]):
        words = " ".join(summary(find_runs(order)))
        assert "too few evaluations to tell decay (5 are needed) in solar, minred and er-fifo." in words


def test_a_card_warns_of_decay_and_collapse(tmp_path: Path) -> None:
    folders = [make_full_run(tmp_path / name, name) for name in ("er-reservoir", "solar")]
    (warning,) = [card for card in cards(find_runs(folders)) if card.title == "Does anything degrade?"]
    assert (warning.value, warning.words, warning.tone) == ("yes", "1 of 2 decays", BAD)
    folders = [make_run(tmp_path / "a", collapse="spread is 0.001.")]
    (warning,) = [card for card in cards(find_runs(folders)) if card.title == "Does anything degrade?"]
    assert (warning.value, warning.words) == ("yes", "1 of 1 collapsed")


def test_headline_table_and_comparison_name_the_same_best(tmp_path: Path) -> None:
    """A method with one good seed is not ahead of one that was as good on that seed."""
    page = report(tmp_path, *levelled(tmp_path, {"solar": {2: 60}, "er-fifo": {0: 20, 1: 21, 2: 62}}))
    assert "er-fifo has the best average accuracy: 62.0 %" in page.visible
    assert [row[0] for row in page.tables["methods"]] == ["method", "er-fifo", "solar"]
    assert page.tables["methods"][0] == ["method", "seeds", "final, %", "average, %", "latent space"]
    assert [row[1:4] for row in page.tables["methods"][1:]] == [["1 of 3", "62.0", "62.0"], ["1", "60.0", "60.0"]]
    assert page.charts["accuracy"][0]["lines"][0]["y"] == [5.0, 62.0, 62.0, 62.0]  # the same seed
    assert "the seeds that all methods have" in page.visible
    assert page.tables["comparison"][1][:2] == ["er-fifo", "solar"]
    assert [line["name"] for line in page.charts["accuracy"][0]["lines"]] == ["er-fifo", "solar"]


def test_the_best_is_compared_with_the_next_also_where_solar_is_neither(tmp_path: Path) -> None:
    levels = {name: dict.fromkeys(range(3), level) for name, level in (("solar", 1), ("minred", 2), ("er-fifo", 3))}
    found = [(c.series, c.reference) for c in compare(find_runs(levelled(tmp_path, levels)))]
    assert found == [("er-fifo", "minred"), ("er-fifo", "solar"), ("minred", "solar")]


def test_without_intervals_no_interval_is_spoken_of(tmp_path: Path) -> None:
    page = report(tmp_path, *levelled(tmp_path, {"solar": {0: 30, 1: 32}, "minred": {0: 20, 1: 21}}))
    assert "There are no intervals: too few seeds." in page.visible
    assert "confidence interval" not in page.visible
    assert "whisker" not in {attrs.get("class") for _, attrs in page.tags}
    more = report(tmp_path, *levels_of_three(tmp_path))
    assert "whisker" in {attrs.get("class") for _, attrs in more.tags}
    assert "with a 95 % confidence interval by Student's t" in more.visible


def test_chance_and_the_untrained_level_are_drawn(tmp_path: Path) -> None:
    runs = find_runs([make_full_run(tmp_path / "a", classes=20)])
    chance, untrained = accuracy_levels(runs)
    assert chance == Level(5.0, "chance 5 %")
    assert untrained.y == runs[0].start
    page = report(tmp_path, tmp_path / "a")
    assert "among its own classes only" in page.visible
    assert "Chance is 50 %." in page.visible  # of tasks of two classes
    assert {"chance 5 %", untrained.words} <= {text.strip() for text in page.texts["span"].split("\n")}


def test_a_fall_of_the_spread_is_said_to_be_no_collapse(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a")
    events = (folder / "events.jsonl").read_text().splitlines()
    for i, line in enumerate(events):
        if '"step"' in line:
            events[i] = line.replace('"spread": 0.5', f'"spread": {0.65 - 0.004 * (i - 2):.3f}')
    (folder / "events.jsonl").write_text("\n".join(events) + "\n")
    words = report(tmp_path, folder).visible
    assert "far from the alarm." in words
    assert "alarm below 0.03" in words
    said = re.search(r"solar: from (0\.\d\d) to (0\.\d\d), lowest", words)
    assert said
    assert f"{said[1]} → {said[2]}" in report(tmp_path, folder).tables["health-table"][1]  # the numbers of the table


def test_captions_speak_of_bands_and_of_ends_of_experiences_where_there_are_any(tmp_path: Path) -> None:
    one = report(tmp_path, make_run(tmp_path / "one")).visible
    assert "Bands:" not in one
    assert "Dotted lines: ends of experiences." in one
    several = report(tmp_path, *levels_of_three(tmp_path))
    assert "Bands: one standard deviation over seeds." in several.visible
    assert "These 2 intervals are not corrected for their number" in several.visible


def test_a_centred_method_is_said_to_be_measured_otherwise(tmp_path: Path) -> None:
    words = "solar-c: trained on features less their running mean, but measured here without that."
    plain = make_full_run(tmp_path / "a")
    assert words not in report(tmp_path, plain).visible
    assert words in report(tmp_path, plain, make_full_run(tmp_path / "b", "solar-c")).visible


def test_a_chart_without_a_neighbour_takes_the_whole_width(tmp_path: Path) -> None:
    page = report(tmp_path, make_full_run(tmp_path / "a"), make_full_run(tmp_path / "b", "er-fifo"))
    wide = {(attrs["id"] or "")[6:] for tag, attrs in page.tags if attrs.get("class") == "chart wide"}
    assert {"forest", "tasks", "age"} <= wide  # rows, several panels, one curve among heat maps
    assert not {"deviation", "overlap", "spread"} & wide


def test_runs_are_called_by_the_folder_names_that_a_person_gave(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "small memory"),
        make_run(tmp_path / "large memory", settings={"memory.capacity": 900}),
        make_run(tmp_path / "er-fifo-synthetic-seed0", "er-fifo"),
    ]
    page = report(tmp_path, *runs)
    names = {line["name"] for line in page.charts["accuracy"][0]["lines"]}
    assert names == {"solar (small memory)", "solar (large memory)", "er-fifo"}
    assert "small memory (solar (small memory))" not in page.visible


def test_variants_of_a_sweep_are_called_by_what_the_sweep_added(tmp_path: Path) -> None:
    many = {"views.hue": 0.2, "optimizer.lr": 0.1, "memory.capacity": 900, "objective.projection": 64}
    runs = [
        make_run(tmp_path / "solar-synthetic-seed0"),
        make_run(tmp_path / "solar-synthetic-hue0.2-seed0", settings=many),
        make_run(tmp_path / "solar-synthetic-hue0.3-seed0", settings=many | {"views.hue": 0.3}),
    ]
    page = report(tmp_path, *runs)
    assert [row[0] for row in page.tables["methods"][1:]] == ["solar", "solar (hue0.2)", "solar (hue0.3)"]


def test_streams_that_cannot_be_compared_are_parts_of_the_table(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "a"),
        make_run(tmp_path / "b", "er-fifo", accuracies=(90.0,) * 3, settings={"stream.fraction": 0.5}),
    ]
    rows = [row[0] for row in report(tmp_path, *runs).tables["methods"][1:]]
    assert rows == [
        "synthetic, linear probe; stream.fraction=1.0",
        "solar",
        "synthetic, linear probe; stream.fraction=0.5",
        "er-fifo",
    ]


def test_settings_stand_once_and_differences_in_a_table(tmp_path: Path) -> None:
    page = report(tmp_path, make_run(tmp_path / "a"), make_run(tmp_path / "b", "er-fifo", settings={"views.hue": 0.3}))
    rows = {row[0]: row[1:] for row in page.tables["settings-that-differ"]}
    assert rows["setting"] == ["solar", "er-fifo"]
    assert rows["views.hue"] == ["0.1", "0.3"]
    assert "optimizer.momentum" not in rows
    assert page.texts["code"].count("optimizer.momentum = 0.9") == 1


def test_skipped_images_are_listed_by_reason(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a")
    (folder / "skipped.tsv").write_text(
        ".me\tread.me\tno image\ndamaged\tcats/1.jpg\ttruncated\ndamaged\t<b>2.jpg\ttruncated\n"
    )
    page = report(tmp_path, folder)
    assert page.tables["skipped"][1:] == [
        ["solar", "2 images", "truncated", "cats/1.jpg, <b>2.jpg"],
        ["solar", "1 other file", "no image", "read.me"],
    ]
    assert "Skipped: 2 images and 1 other file." in page.visible
    (folder / "skipped.tsv").write_bytes(b"\xff\xfe")
    assert "skipped.tsv cannot be read" in report(tmp_path, folder).visible


def test_names_beside_a_plot_never_cover_each_other() -> None:
    for wanted in ([50.0, 50.0, 50.0], [0.0, 1.0, 99.0], [100.0, 100.0], [float(i % 7) for i in range(10)]):
        found = sorted(spread_out(wanted, 9.0))
        assert all(after - before >= 9.0 - 1e-6 for before, after in itertools.pairwise(found))
        assert found[0] >= -1e-6
    assert spread_out([20.0, 60.0], 9.0) == [20.0, 60.0]


# ---- without labels --------------------------------------------------------------------------------------------------


def unlabelled(folder: Path) -> Path:
    """A run that measured its latent space alone, with three snapshots and a final memory."""
    make_run(folder, finished=False)
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    for event in events:
        if event["event"] == "evaluation":
            event |= {"accuracy": None, "overlap": 0.2}
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    metrics = {"method": "solar", "benchmark": "folder:x", "seed": 0, "final_accuracy": None, "average_accuracy": None}
    (folder / "metrics.json").write_text(json.dumps(metrics | {"steps": 120, "seconds": 1.0}))
    learner = small_learner("er-fifo")
    for position in (0, 30, 60):
        if position:
            learner.partial_fit(random_images(20, seed=position), ids=torch.arange(20) + position)
        write_snapshot(folder, learner, position)
    learner.save(folder / "checkpoints" / "00000060")
    return folder


def sections(page: Page) -> set[str]:
    """Addresses of the sections, which are those of the contents."""
    found = {attrs["id"] for tag, attrs in page.tags if tag == "section"}
    assert found == {(attrs["href"] or "")[1:] for tag, attrs in page.tags if tag == "a"} - {"main"}
    return {address or "" for address in found}


def test_sections_without_anything_are_left_out_and_one_sentence_says_why(tmp_path: Path) -> None:
    for name in ("solar", "er-fifo"):
        folder = make_run(tmp_path / name, name)
        for state in (folder / "checkpoints").glob("*/*"):
            state.unlink()
    page = report(tmp_path, tmp_path / "solar", tmp_path / "er-fifo")
    assert sections(page) >= {"compared", "accuracy", "settings"}
    assert not sections(page) & {"final-memory", "neighbours"}
    assert "Final memory of all runs: No checkpoint can be read" in page.visible
    assert page.visible.count("No checkpoint can be read") == 1
    assert "How decay is found" in page.visible


def test_names_break_after_dots_and_underscores_only(tmp_path: Path) -> None:
    page = report(tmp_path, make_run(tmp_path / "a"), make_run(tmp_path / "b", "er-reservoir", recipe="er-reservoir"))
    assert '<span class="whole">er-reservoir</span>' in page.source
    assert 'memory.<wbr>rules.<wbr><span class="whole">least-drawn.</span><wbr>probability' in page.source
    hostile = "/".join(["x" * 60] * 3)
    assert "".join(piece for piece, _ in pieces(hostile)) == hostile
    assert not any(whole for _, whole in pieces(hostile))


def test_the_query_of_a_row_of_neighbours_is_framed() -> None:
    plain, framed = (contact_sheet(random_images(6, 40), "", columns=3, apart=apart) for apart in (0, 10))
    assert framed.width == plain.width + 10
    packed = base64.b64decode(framed.address.partition(",")[2])
    pixels = Image.open(io.BytesIO(packed)).convert("RGB")
    frame = ImageColor.getrgb(FRAME)
    for top in (0, 42):
        assert pixels.getpixel((0, top)) == pixels.getpixel((39, top + 39)) == frame
    assert pixels.getpixel((52, 0)) != frame


def test_shares_of_a_stream_without_boundaries_are_no_ends_of_experiences(tmp_path: Path) -> None:
    folder = unlabelled(tmp_path / "a")
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    for event in events:
        if event["event"] == "evaluation" and event["experience"]:
            event["experience"] = 1
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (chart,) = [chart for chart in all_charts(find_runs([folder]), [])["latent"] if chart.key == "deviation"]
    assert chart.panels[0].boundaries == [100.0]


def test_a_run_without_labels_shows_health_hyperballs_and_neighbours(tmp_path: Path) -> None:
    page = report(tmp_path, unlabelled(tmp_path / "a"))
    assert "no labels, so no accuracy" in page.visible
    assert "decay cannot be detected for" not in page.visible
    assert "There are no labels, so no probe was trained" in page.visible
    assert sections(page) >= {"overview", "latent", "health", "memory", "final-memory", "neighbours"}
    assert not sections(page) & {"compared", "accuracy"}
    assert page.rows[0] == ["method", "benchmark", "seed", "steps", "seconds", "health"]
    assert "accuracy" not in page.tables["evaluations"][0]
    assert "How decay is found" not in page.visible
    assert page.tables["health-table"][1][:4] == ["solar", "600", "0.500 → 0.200", "20.0% → 20.0%"]
    shown = [attrs["alt"] or "" for tag, attrs in page.tags if tag == "img" and "neighbours" in (attrs["alt"] or "")]
    assert [text.rpartition(", ")[2] for text in shown] == ["untrained", "50 % of the stream", "100 % of the stream"]
    assert [tag for tag, _ in page.tags].count("circle") == 3 * 14


def test_neighbours_are_those_of_the_features(tmp_path: Path) -> None:
    run = find_runs([unlabelled(tmp_path / "a")])[0]
    moments, notes = make_moments(run)
    assert notes == []
    assert [moment.when for moment in moments] == ["untrained", "50 % of the stream", "100 % of the stream"]
    assert moments[0].stayed == ""
    assert moments[1].stayed.endswith("of 30 neighbours are those of the moment before.")
    again, _ = make_moments(run)
    assert again == moments
    for look in (run.folder / "snapshots").glob("*/*.safetensors"):
        look.write_bytes(b"damaged")
    assert make_moments(run)[0] == []
    assert len(make_moments(run)[1]) == 3


def test_points_in_the_plane_keep_distances_that_fit_into_it() -> None:
    points = torch.rand(9, 2, generator=torch.Generator().manual_seed(0)).double()
    distances = torch.cdist(points, points)
    found = plane(distances)
    assert torch.allclose(torch.cdist(found, found), distances, atol=1e-6)


# ---- while runs go on ------------------------------------------------------------------------------------------------


def test_a_followed_report_is_written_until_all_runs_are_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_sweep(tmp_path / "runs", ("solar", "er-fifo"), 1)
    metrics = folder / "er-fifo-0" / "metrics.json"
    packed, output = metrics.read_bytes(), tmp_path / "r.html"
    metrics.unlink()

    def finish() -> None:
        while not output.exists():
            time.sleep(0.05)
        pages.append(output.read_text())
        metrics.write_bytes(packed)

    pages: list[str] = []
    other = threading.Thread(target=finish)
    other.start()
    with pytest.raises(SystemExit) as end:
        main(["report", str(folder), "-o", str(output), "--follow", "0.5"])
    other.join()
    assert end.value.code == 0
    assert 'data-follow="0.5"' in pages[0]
    assert "data-follow=" not in output.read_text()
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["report", str(folder), "-o", str(output), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["bytes"] == output.stat().st_size
    assert [row["method"] for row in found["methods"]] == [run.series for run in best_first(find_runs([folder]))]
    assert isinstance(found["methods"][0]["final_mean"], float)


def test_strips_show_what_memories_keep_side_by_side_oldest_first(tmp_path: Path) -> None:
    page = report(tmp_path, make_run(tmp_path / "a"), make_run(tmp_path / "b", "er-fifo"))
    shown = [attrs["alt"] or "" for tag, attrs in page.tags if tag == "img" and "keeps" in (attrs["alt"] or "")]
    arrived = "oldest first: arrived between 0 and 7 % of the stream, half of them after 3 %"
    assert shown == [f"Images that {name} keeps, {arrived}" for name in ("solar", "er-fifo")]
    alone = report(tmp_path, tmp_path / "a")
    assert "What each memory keeps" not in alone.visible
