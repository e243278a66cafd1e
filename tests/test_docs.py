"""What the documentation tells people to do, done to the letter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT
from ocssl import recipes
from ocssl.memory import DRAWS, KEEPS
from ocssl.objectives import OBJECTIVES
from ocssl.terms import TERMS

pytestmark = pytest.mark.process

PAGE = (ROOT / "docs" / "methods.md").read_text()
SMALL = "encoder.width=4 objective.projection=16 schedule.passes=1 schedule.batch=20 memory.capacity=40"
SMALL_STREAM = "stream.image_size=8 stream.classes=4 stream.experiences=2 stream.train=20 stream.test=5"
QUICK = "evaluate.probe=ridge evaluate.latent_samples=0"


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    bin_folder = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    return subprocess.run(command, shell=True, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def test_adding_a_method_of_your_own_works_as_written(tmp_path: Path) -> None:
    text = section("Add your own method")
    assert len(text.splitlines()) < 90  # under a page and a half of code and prose
    (tmp_path / "mine.py").write_text(*blocks(text, "python"))
    (tmp_path / "mine.toml").write_text(*blocks(text, "toml"))
    check, run = blocks(text, "sh")[0].strip().splitlines()
    checked = shell(check, tmp_path)
    assert checked.returncode == 0, checked.stderr
    sets = " ".join(f"--set {word}" for word in f"{SMALL} {SMALL_STREAM} {QUICK}".split())
    ran = shell(f"{run} {sets}", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "final accuracy" in ran.stdout
    folder = tmp_path / "runs" / "mine-synthetic-seed0"
    assert "free = 3" in (folder / "run.toml").read_text()
    again = shell(f"ocssl resume {folder} --parts mine.py", tmp_path)
    assert again.returncode == 0, again.stderr
    (folder / "metrics.json").unlink()  # as if it had been killed before its end
    forgotten = shell(f"ocssl resume {folder}", tmp_path)
    assert forgotten.returncode == 2
    assert "named with --parts" in forgotten.stderr
    assert any((folder / "checkpoints").iterdir())
    wrong = shell(f"{run} {sets} --out other --set memory.rules.worn-out.fre=5", tmp_path)
    assert wrong.returncode == 2
    assert "'free'" in wrong.stderr


def test_without_its_parts_a_recipe_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(*blocks(section("Add your own method"), "toml"))
    refused = shell("ocssl run mine.toml synthetic", tmp_path)
    assert refused.returncode == 2
    assert "worn-out" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("name", [*recipes.methods(), *KEEPS, *DRAWS, *OBJECTIVES, *TERMS])
def test_every_name_is_in_the_documentation(name: str) -> None:
    assert f"`{name}`" in PAGE or f"={name}" in PAGE


def test_every_method_cites_its_paper_and_has_a_row() -> None:
    for name in recipes.methods():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}`"))
        assert row.count("|") == 8
        assert name == "finetune" or recipes._read("methods", name)["paper"]


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")], ids=lambda path: path.name)
def test_a_paragraph_is_one_line(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    pairs = zip(text.splitlines(), text.splitlines()[1:], strict=False)
    assert [line for above, line in pairs if above[:1].isalpha() and line[:1].isalpha()] == []
    assert [line for above, line in pairs if above.startswith("- ") and re.match(r"  \w", line)] == []


def test_files_that_the_contributing_page_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:src|tests|docs)/[\w/.]+)`", text)
    assert len(named) > 15
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_files_that_the_architecture_page_names_exist() -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / "architecture.md").read_text()))
    files = [
        f"/{path.relative_to(ROOT)}" for part in ("src", "tests", "benchmarks") for path in (ROOT / part).rglob("*.py")
    ]
    assert len(named) > 60
    assert sorted(name for name in named if not any(file.endswith(f"/{name}") for file in files)) == []
