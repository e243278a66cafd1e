"""Every command line and code block of the README and the documentation: read by the real command line, or executed.

A command that needs hours or data is parsed, and its method, benchmark, settings and files are checked as the command
itself checks them before it starts. What is quick is executed; EXECUTED_ELSEWHERE names the tests of all Python.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cyclopts import CycloptsError

from conftest import ROOT
from ocssl import cli, recipes
from ocssl.cli.run import benchmark_of
from ocssl.errors import SettingError
from ocssl.launch.sweep import plan, read_spec
from ocssl.results.paper import own_plans, plan_names
from ocssl.runs.config import parse_assignments, resolve_run
from torchvision_standin import require_timm

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))

STAND_INS = {"METHOD": "solar", "BENCHMARK": "synthetic", "N": "1", "NAME": "x", "ROW": "FIFO", "ADDRESS": "auto"}
NOT_OURS = {  # programs of others: why their lines are not run
    "cd": "a shell's own",
    "git": "needs a network or an account",
    "pre-commit": "needs a network",
    "source": "a shell's own",
    "tensorboard": "a server",
    "docker": "not everywhere",
    "wandb": "needs an account",
}
EXECUTED_ELSEWHERE = {  # pages whose Python is run as it stands, and the test that does it
    "README.md": "test_readme.py",
    "benchmarks.md": "test_readme.py",
    "concepts.md": "test_site.py",
    "methods.md": "test_docs.py",
    "parts.md": "test_site.py",
    "start.md": "test_site.py",
}
OWN_PARTS = {"parts.md", "methods.md"}  # their TOML names parts of the page, and is run by test_docs.py
QUICK = re.compile(r"ocssl (list \S+|completion \S+|--version|\S+ --help)$")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)


def lines(text: str) -> Iterator[str]:
    """Command lines of a page: those of shell blocks, and those that stand in running text."""
    for block in blocks(text, "sh"):
        yield from (line for line in block.replace("\\\n", " ").splitlines() if line.split("#")[0].strip())
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"(?<!`)`((?:ocssl|torchrun|pip|make|pytest) [^`…]+)`(?!`)", text)


def commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a line: pipes and lists are cut, a|b|c gives three, stand-ins are filled in."""
    line = re.sub(r"\s#.*", "", line.replace("...", ""))
    line = re.sub(r"^for \w+ in .*?; do |; done$", "", line)  # of a loop, what it repeats
    for part in re.split(r" && | > | \| ", line):
        words = [STAND_INS.get(word, word) for word in shlex.split(part, comments=True)]
        while words and re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]
        if not words:
            continue
        either = next((word.split("|") for word in words if re.fullmatch(r"\w+(\|\w+)+", word)), [""])
        for choice in either:
            yield [choice if choice and "|" in word else word for word in words]


WRITTEN = [
    pytest.param(path, line, id=f"{path.stem}: {line[:60]}")
    for path in PAGES
    for line in dict.fromkeys(lines(path.read_text()))
]


def checked(words: list[str]) -> None:
    """Our own command line reads these words; what they name exists."""
    if words and words[0] in cli.app and inspect.isfunction(cli.app[words[0]].default_command) and len(words) == 1:
        return  # a command as a word of a sentence
    if {"--help", "--version"} & set(words):
        return  # these are run below
    words = [re.sub(r"=N$", "=1", word) for word in words]
    function, bound, _ = cli.app.parse_args(words, exit_on_error=False, print_error=False)
    given = bound.arguments
    name = function.__name__
    if name in ("run", "pretrain"):
        method = "pretrain" if name == "pretrain" else given["method"]
        if not method.endswith(".toml"):
            benchmark = benchmark_of(given["benchmark"]) if "benchmark" in given else "synthetic"
            settings = parse_assignments(given.get("set") or [])
            resolve_run(method, benchmark, 0, settings)
    elif name == "reproduce":
        assert set(given["what"]) <= {*plan_names(), *own_plans(), "all"}
    elif name == "sweep" and (ROOT / given["spec"]).exists():
        assert plan(read_spec(ROOT / given["spec"]))


def run_of(words: list[str]) -> None:
    """One command: ours is checked; of others, what they name of this project exists."""
    if any("timm:" in word for word in words):
        require_timm()
    program, *rest = words
    if program == "ocssl":
        checked(rest)
    elif program == "torchrun":
        assert rest[rest.index("-m") + 1] == "ocssl"
        checked(rest[rest.index("-m") + 2 :])
    elif program == "pip":
        extras = re.findall(r"\[([\w,]+)\]", " ".join(rest))
        assert {extra for group in extras for extra in group.split(",")} <= EXTRAS.keys()
        assert all((ROOT / file).exists() for flag, file in pairwise(rest) if flag == "-c")
    elif program == "make":
        assert {word for word in rest if "=" not in word} <= TARGETS
    elif program == "pytest":
        places = [word for word in rest if word.startswith(("tests", "src"))]
        assert places
        assert all((ROOT / place).exists() for place in places)
    elif program == "python":
        if rest[0] == "-c":
            compile(rest[1], "line", "exec")
        else:
            assert (ROOT / rest[0]).exists() or rest[0] == "-m"
    else:
        assert program in NOT_OURS, f"{program} is neither checked nor excepted with a reason"


@pytest.mark.parametrize(("path", "line"), WRITTEN)
def test_a_written_command_line_is_right(
    path: Path, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)  # where a word may be a folder
    for words in commands(line):
        run_of(words)


def test_wrong_lines_are_seen() -> None:
    for wrong in (
        "ocssl run solar syntetic",
        "ocssl run solr synthetic",
        "ocssl run solar synthetic --set memory.capcity=5",
        "ocssl run solar synthetic --sed 1",
        "ocssl reproduce table99",
        "ocssl list methds",
        "ocssl lst methods",
        "pip install -c constraint.txt .",
        "pip install -e '.[dta]'",
        "make dmo",
        "pytest tests/test_nothing.py",
        "frobnicate now",
    ):
        with pytest.raises((AssertionError, CycloptsError, SettingError)):
            run_of(next(commands(wrong)))


def test_quick_commands_run(capsys: pytest.CaptureFixture[str]) -> None:
    found = {" ".join(words) for path in PAGES for line in lines(path.read_text()) for words in commands(line)}
    quick = sorted(line for line in found if QUICK.match(line))
    assert len(quick) > 8
    for line in quick:
        with pytest.raises(SystemExit) as ended:
            cli.main(shlex.split(line)[1:])
        assert ended.value.code == 0, line
        assert capsys.readouterr().out.strip(), line


@pytest.mark.parametrize(
    "path", [path for path in PAGES if blocks(path.read_text(), "python")], ids=lambda path: path.name
)
def test_python_is_run_by_a_test_or_at_least_names_what_exists(path: Path) -> None:
    for code in blocks(path.read_text(), "python"):
        compile(code, path.name, "exec")
        for module, names in re.findall(r"^from (ocssl[\w.]*) import ([\w, ]+)", code, re.MULTILINE):
            assert [name for name in names.split(", ") if not hasattr(importlib.import_module(module), name)] == []
    if test := EXECUTED_ELSEWHERE.get(path.name):
        assert path.name in (ROOT / "tests" / test).read_text() or path.name in _notebooks()


def _notebooks() -> str:
    return (ROOT / "docs" / "_generate" / "notebooks.py").read_text()


@pytest.mark.parametrize(
    "path", [path for path in PAGES if blocks(path.read_text(), "toml")], ids=lambda path: path.name
)
def test_toml_is_a_recipe_a_sweep_or_a_plan(path: Path, tmp_path: Path) -> None:
    for text in blocks(path.read_text(), "toml"):
        table: dict[str, Any] = tomllib.loads(text)
        if "rows" in table:
            assert {row["method"] for row in table["rows"]} <= set(recipes.methods())
        elif "methods" in table:
            (tmp_path / "spec.toml").write_text(text)
            assert plan(read_spec(tmp_path / "spec.toml"))
        elif path.name not in OWN_PARTS:
            (tmp_path / "mine.toml").write_text(text)
            resolve_run(str(tmp_path / "mine.toml"), "synthetic", 0, {})


@pytest.mark.process
@pytest.mark.slow
def test_the_run_of_the_start_page_works_as_written(tmp_path: Path) -> None:
    (block,) = (text for text in blocks((ROOT / "docs" / "start.md").read_text(), "sh") if "runs/first" in text)
    for line in block.strip().splitlines():
        program = f"{shlex.quote(sys.executable)} -m {line.replace('train=20', 'train=6')}"
        done = subprocess.run(program, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").stat().st_size > 10_000
