"""The way of an image from disk to the report, as `docs/architecture.md` lists it, is the way that it really takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import ROOT

PACKAGE = ROOT / "src" / "ocssl"
SECTION = (ROOT / "docs" / "architecture.md").read_text().split("## The path of an image")[1].split("\n## ")[0]
STEPS = re.findall(r"(\d+) `([\w/]+\.py)`", SECTION)
PATH = [path for _, path in STEPS]
AROUND = set(re.findall(r"(?<!\d )`([\w/]+\.py)`", SECTION)) - {"tests/test_path.py"}
FOLDERS_AROUND = set(re.findall(r"`(\w+)/`", SECTION))

SETTINGS = """
stream.image_size=16 stream.experiences=2 stream.validation=0.2 encoder.width=2 objective.projection=8
memory.capacity=8 terms.overlap.k=4 schedule.batch=10 schedule.stream_batch=5 schedule.passes=1
evaluate.latent_views=3 evaluate.latent_samples=8
"""
# In a process of its own: notes every function that is called from now on, and prints the files they stand in.
TRACED = """
import json, sys, threading

def note(frame, event, argument):
    if event == "call" and frame.f_code.co_name != "<module>":
        entered.add(frame.f_code.co_filename)

from ocssl import cli
import ocssl.results, ocssl.runs.run  # what runs while they are imported is no part of the way

entered = set()
sys.setprofile(note)
threading.setprofile(note)
for words in json.loads(sys.argv[1]):
    try:
        cli.main(words)
    except SystemExit as end:
        assert not end.code
sys.setprofile(None)
print(json.dumps(sorted(entered)))
"""


def test_the_path_of_an_image_is_short_and_enters_no_folder_twice_before_the_learner() -> None:
    assert [int(number) for number, _ in STEPS] == list(range(1, len(STEPS) + 1))
    assert len(STEPS) <= 45
    before = [str(Path(path).parent) for path in PATH[: PATH.index("learner.py")]]
    entered = [folder for place, folder in enumerate(before) if place == 0 or before[place - 1] != folder]
    assert len(entered) == len(set(entered))


def test_no_file_is_both_on_the_path_and_beside_it() -> None:
    assert not AROUND & set(PATH)
    assert all((PACKAGE / path).is_file() for path in [*PATH, *AROUND])


@pytest.mark.slow
@pytest.mark.process
def test_a_run_and_its_report_enter_the_files_that_are_listed(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for number in range(16):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(path)
    sets = [word for pair in SETTINGS.split() for word in ("--set", pair)]
    run = ["run", "solar", "folder:photos", "--out", "run", "--cache", "cache", "--quiet", *sets]
    commands = json.dumps([run, ["report", "run", "-o", "report.html"]])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", TRACED, commands],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout.splitlines()[-1])
    entered = {str(Path(file).relative_to(PACKAGE)) for file in files if Path(file).is_relative_to(PACKAGE)}
    entered = {path for path in entered if path.endswith(".py")}  # templates are entered, too
    assert sorted(set(PATH) - entered) == []
    unlisted = {path for path in entered - set(PATH) - AROUND if path.split("/")[0] not in FOLDERS_AROUND}
    assert sorted(unlisted) == []


def test_the_top_level_has_few_modules() -> None:
    modules = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert modules == {"learner.py", "settings.py", "views.py", "errors.py"}
