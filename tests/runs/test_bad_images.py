"""Images that cannot be used, in a real run: skipped and listed by name, or the run stops; never trained on."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from conftest import SMALL
from ocssl.cli import main
from ocssl.data.sources.shapes import render
from ocssl.runs.events import read_events

pytestmark = pytest.mark.slow

SETTINGS = {
    **SMALL,
    "terms.overlap.k": 6,
    "stream.image_size": 16,
    "stream.experiences": 3,
    "schedule.stream_batch": 6,
    "evaluate.probe": "ridge",
    "evaluate.latent_samples": 6,
    "evaluate.latent_views": 2,
    "checkpoint.every": 3,
}
FORMATS = ("JPEG", "PNG", "WEBP")


def tree(root: Path, classes: int = 3, images: int = 34, broken: int = 3) -> list[str]:
    """A tree of mixed pictures, some of them broken in different ways; the names of the broken ones."""
    pixels = render(np.arange(classes).repeat(images), np.arange(classes * images), 20, 0).permute(0, 2, 3, 1).numpy()
    generator = np.random.default_rng(0)
    spoilt = sorted(generator.choice(classes * images, broken, replace=False).tolist())
    names = []
    for number, picture in enumerate(pixels):
        kind = FORMATS[number % 3]
        file = io.BytesIO()
        Image.fromarray(picture).save(file, kind)
        content = file.getvalue()
        path = root / f"class{number // images}" / f"{number:03d}.{kind.lower()}"
        if number in spoilt:
            content = (content[: len(content) // 2], b"", b"no picture")[spoilt.index(number) % 3]
            names.append(str(path.relative_to(root)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return names


def run(root: Path, out: Path, *words: str, **more: Any) -> int:
    settings = {**SETTINGS, **{key.replace("__", "."): value for key, value in more.items()}}
    pairs = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    cache = ["--cache", str(out.parent / "cache")]
    with pytest.raises(SystemExit) as end:
        main(["run", "solar", f"folder:{root}", "--out", str(out), "--quiet", *cache, *words, *pairs])
    assert isinstance(end.value.code, int)
    return end.value.code


def listed(out: Path) -> tuple[set[str], set[str]]:
    events = [e["name"] for e in read_events(out / "events.jsonl") if e["event"] == "bad-image"]
    assert len(events) == len(set(events))
    bad = json.loads((out / "metrics.json").read_text())["bad_images"]
    assert bad["count"] == len(bad["images"])
    assert all(image["reason"] for image in bad["images"])
    return set(events), {image["name"] for image in bad["images"]}


def test_broken_pictures_are_skipped_and_listed_whatever_way_they_are_read(tmp_path: Path) -> None:
    broken = set(tree(tmp_path / "photos"))
    metrics = []
    for name, words in (("cached", ()), ("again", ()), ("alone", ("--workers", "1")), ("pool", ("--workers", "2"))):
        assert run(tmp_path / "photos", tmp_path / name, "--bad-images", "skip", *words) == 0
        events, summary = listed(tmp_path / name)
        assert events == summary == broken
        metrics.append(json.loads((tmp_path / name / "metrics.json").read_text()))
    for other in metrics[1:]:
        assert {**other, "seconds": 0, "bad_images": 0} == {**metrics[0], "seconds": 0, "bad_images": 0}


def test_a_resumed_run_that_decodes_live_knows_what_it_could_not_use_before(tmp_path: Path) -> None:
    tree(tmp_path / "photos", classes=1, broken=10)
    out = tmp_path / "run"
    assert run(tmp_path / "photos" / "class0", out, "--workers", "1") == 0  # no labels: nothing is read twice
    whole = recorded(out)
    for path in (out / "metrics.json", *sorted((out / "checkpoints").iterdir())[1:]):  # back to an earlier state
        path.unlink() if path.is_file() else shutil.rmtree(path)
    with pytest.raises(SystemExit) as end:
        main(["resume", str(out), "--quiet"])
    assert end.value.code == 0
    assert recorded(out) == whole


def recorded(out: Path) -> tuple[str, list[dict[str, Any]]]:
    """What was skipped, and the events without times."""
    events = [{**event, "seconds": 0} for event in read_events(out / "events.jsonl") if event["event"] != "resume"]
    return (out / "skipped.tsv").read_text(), events


def test_at_the_first_broken_picture_a_run_stops_where_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tree(tmp_path / "photos")
    assert run(tmp_path / "photos", tmp_path / "run", "--bad-images", "stop") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert any(name in said for name in broken)
    assert not (tmp_path / "run").exists()
    assert not list((tmp_path / "cache").glob("*.part"))


def test_pictures_without_labels_are_learned_from_and_not_probed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(tmp_path / "photos", broken=0)
    flat = tmp_path / "flat"
    flat.mkdir()
    for path in sorted((tmp_path / "photos").rglob("*.*")):
        shutil.copy(path, flat / path.name)
    assert run(flat, tmp_path / "run") == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["final_accuracy"] is None
    assert metrics["seen"] == 102  # one experience, whose incomplete last minibatch is kept
    assert all(value is not None for value in metrics["deviations"])
    assert "accuracy" not in capsys.readouterr().out


def test_a_run_goes_on_after_its_pictures_have_moved_but_not_with_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(tmp_path / "photos", broken=1)
    assert run(tmp_path / "photos", tmp_path / "whole") == 0
    assert run(tmp_path / "photos", tmp_path / "run") == 0
    out = tmp_path / "run"
    for path in (out / "metrics.json", *sorted((out / "checkpoints").iterdir())[1:]):  # back to an earlier state
        path.unlink() if path.is_file() else shutil.rmtree(path)
    (tmp_path / "photos").rename(tmp_path / "moved")
    (tmp_path / "moved" / "class0" / "999.png").write_bytes(b"one more")
    for words, code in (([], 2), (["--data", str(tmp_path / "moved")], 2)):
        with pytest.raises(SystemExit) as end:
            main(["resume", str(out), "--quiet", *words])
        assert end.value.code == code
    assert "not those that the run" in capsys.readouterr().err
    (tmp_path / "moved" / "class0" / "999.png").unlink()
    with pytest.raises(SystemExit) as end:
        main(["resume", str(out), "--quiet", "--data", str(tmp_path / "moved")])
    assert end.value.code == 0
    done, whole = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("run", "whole"))
    assert {**done, "seconds": 0} == {**whole, "seconds": 0}
