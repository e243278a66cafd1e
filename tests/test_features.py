"""Nothing that a user could do is lost: the list in `features.toml` holds what there was."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ocssl.bench.harness import PARTS
from ocssl.cli import main

HERE = Path(__file__).parent
FEATURES: dict[str, Any] = tomllib.loads((HERE / "features.toml").read_text())
KEPT_RUNS = HERE.parent / "docs" / "results" / "mini-cifar100"


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", sorted(FEATURES.keys() - {"commands", "report", "bench_parts"}))
def test_every_part_is_still_listed(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    listed = {line.split()[0] for line in printed(capsys, "list", kind).splitlines() if line.strip()}
    assert not set(FEATURES[kind]) - listed


@pytest.mark.parametrize("command", sorted(FEATURES["commands"]))
def test_every_command_still_has_its_options(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", printed(capsys, command, "--help")))
    assert not set(FEATURES["commands"][command]) - options


def test_every_part_of_bench_is_still_there() -> None:
    assert not set(FEATURES["bench_parts"]) - set(PARTS)


def test_the_report_still_has_every_chart_and_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    printed(capsys, "report", str(KEPT_RUNS), "-o", str(page))
    assert not set(FEATURES["report"]) - set(re.findall(r'id="(?:chart-)?([a-z-]+)"', page.read_text()))


def test_a_feature_that_is_gone_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    listed = {line.split()[0] for line in printed(capsys, "list", "methods").splitlines()}
    assert set(FEATURES["methods"]) - (listed - {"solar"}) == {"solar"}
