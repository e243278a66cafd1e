"""From a sweep's file to its runs, and the command from the first start to the table."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from conftest import SMALL_STREAM, small_settings
from ocssl import cli
from ocssl.errors import SettingError
from ocssl.launch.sweep import LONGEST_NAME, plan, read_spec
from ocssl.runs.config import resolve_run
from ocssl.runs.folder import create, finished

pytestmark = pytest.mark.process

SMALL = {**small_settings("er-fifo"), **SMALL_STREAM}


def write(path: Path, text: str, settings: dict[str, Any] = SMALL) -> Path:
    lines = [f'"{key}" = {json.dumps(value)}' for key, value in settings.items()]
    path.write_text("\n".join([text, "[set]", *lines]) + "\n")
    return path


def names(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "spec.toml").write_text(text)
    return [run.name for run in plan(read_spec(tmp_path / "spec.toml"))]


def test_a_grid_is_every_combination_with_readable_names(tmp_path: Path) -> None:
    text = """
    methods = ["solar", "er-fifo"]
    seeds = [0, 7]
    [set]
    encoder.width = 2
    [grid]
    memory.capacity = [50, 60]
    "optimizer.lr" = [0.05]
    [only.solar]
    terms.overlap.k = 5
    """
    (tmp_path / "spec.toml").write_text(text)
    runs = {run.name: run.settings for run in plan(read_spec(tmp_path / "spec.toml"))}
    expected = [
        f"{method}-synthetic-capacity{capacity}-lr0.05-seed{seed}"
        for method in ("solar", "er-fifo")
        for capacity in (50, 60)
        for seed in (0, 7)
    ]
    assert list(runs) == expected
    for name, settings in runs.items():
        own = {"terms.overlap.k": 5} if name.startswith("solar") else {}
        capacity = int(name.split("capacity")[1][:2])
        overrides = {"encoder.width": 2, "memory.capacity": capacity, "optimizer.lr": 0.05, **own}
        assert settings == resolve_run(settings.method, "synthetic", int(name.split("seed")[1]), overrides)


def test_a_setting_of_a_part_is_for_the_runs_that_have_the_part(tmp_path: Path) -> None:
    text = """
    methods = ["solar", "er-fifo", "finetune"]
    [grid]
    "terms.overlap.k" = [5, 6]
    "memory.keep" = ["fifo", "highest-loss"]
    "memory.rules.least-drawn.temperature" = [1.0, 2.0]
    """
    found = names(tmp_path, text)
    keeps, warmth = ("fifo", "highest-loss"), ("1.0", "2.0")
    expected = {f"solar-synthetic-k{k}-keep{r}-temperature{t}-seed0" for k in (5, 6) for r in keeps for t in warmth}
    expected |= {f"er-fifo-synthetic-keep{r}-seed0" for r in keeps} | {"finetune-synthetic-seed0"}
    assert set(found) == expected
    assert len(found) == len(expected)
    with_it = names(tmp_path, text + "[only.er-fifo]\nmemory.draw = 'least-drawn'\n")
    assert sum(name.startswith("er-fifo") for name in with_it) == 4


def test_a_point_that_is_added_changes_no_other_name(tmp_path: Path) -> None:
    few = names(tmp_path, 'methods = ["solar"]\n[grid]\n"encoder.name" = ["resnet10"]\n"optimizer.lr" = [0.1]\n')
    many = names(
        tmp_path,
        'methods = ["er-fifo", "solar"]\nseeds = [3, 0]\n'
        '[grid]\n"encoder.name" = ["resnet18", "resnet10"]\n"optimizer.lr" = [0.2, 0.1]\n',
    )
    assert set(few) < set(many)
    assert len(set(many)) == len(many) == 16


def test_names_are_safe_whatever_the_values_are(tmp_path: Path) -> None:
    found = names(
        tmp_path,
        'methods = ["er-fifo"]\n[grid]\n"data.cache" = ["../up", "a b", "a_b", "..", "/etc", "' + "long" * 99 + '"]\n'
        '"views.crop_scale" = [[0.2, 1.0], [0.5, 1.0]]\n"encoder.name" = ["resnet10"]\n',
    )
    assert len(set(found)) == 12
    for name in found:
        assert len(name) <= LONGEST_NAME
        assert not set(name) & set("/\\ \0:")
        assert name not in ("", ".", "..")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no methods"),
        ("methods = [", "not TOML: "),
        ("methods = []", "at least 1 item"),
        ('methods = "solar"', "a valid list"),
        ("methods = [1]", "a valid string"),
        ('methods = ["sollar"]', "did you mean 'solar'?"),
        ('methods = ["solar", "solar"]', "lists solar twice"),
        ('methods = ["solar"]\nbenchmarks = ["syntetic"]', "did you mean 'synthetic'?"),
        ('methods = ["solar"]\nseeds = [-1]', "seeds.0 is -1"),
        ('methods = ["solar"]\nseeds = [1.5]', "seeds.0 is 1.5"),
        ('methods = ["solar"]\nseeds = [1, 1]', "lists 1 twice"),
        ('methods = ["solar"]\nout = 5', "a valid string"),
        ('methods = ["solar"]\nset = 5', "it is a table"),
        ('methods = ["solar"]\n[gird]\nx = [1]', "did you mean 'grid'?"),
        ('methods = ["solar"]\n[only.solr]\nx = 1', "did you mean 'solar'?"),
        ('methods = ["solar"]\n[data]\ncifar = "x"', "benchmark in [data]"),
        ('methods = ["solar"]\n[grid]\nmemory.capacity = 5', "a valid list"),
        ('methods = ["solar"]\n[grid]\nmemory.capacity = [400, 400.0]', "lists 400 twice"),
        ('methods = ["solar"]\n[grid]\nmemory.capacity = [9223372036854775808]', "beyond 64 bits"),
        ('methods = ["solar"]\n[grid]\nterms = [{a = 1}]', "lists tables"),
        ('methods = ["solar"]\n[grid]\nmemory.capacty = [5]', "did you mean 'memory.capacity'?"),
        ('methods = ["er-fifo", "solar"]\n[grid]\nterms.overlap.wieght = [5]', "did you mean 'weight'?"),
        ('methods = ["er-fifo"]\n[grid]\nterms.overlop.k = [5]', "did you mean 'overlap'?"),
        ('methods = ["er-fifo"]\n[grid]\nterms.overlap.k = [5]', "no run of the sweep has the part"),
        ('methods = ["er-fifo"]\n[set]\nterms.overlap.k = 5', "no run of the sweep has the part"),
        ('methods = ["finetune"]\n[grid]\nmemory.capacity = [5]', "no run of the sweep has the part"),
        ('methods = ["er-fifo"]\n[grid]\nmemory.rules.fifi.x = [5]', "did you mean 'fifo'?"),
        ('methods = ["er-fifo"]\n[grid]\nstream.clases = [5]', "did you mean 'stream.classes'?"),
        ('methods = ["solar"]\n[grid]\nterms.overlap.k = ["x"]', "option k is 'x'"),
        ('methods = ["solar"]\n[grid]\nseed = [1, 2]', "write: seeds"),
        ('methods = ["solar"]\n[set]\noptimizer.lr = 1\n[grid]\noptimizer.lr = [1, 2]', "in [grid] and in [set]"),
        ('methods = ["solar"]\n[only.solar]\noptimizer.lr = 1\n[grid]\noptimizer.lr = [1]', "and in [only.solar]"),
        (f'methods = ["solar"]\nseeds = {list(range(10_001))}', "10,001 runs; at most 10,000"),
    ],
)
def test_what_is_wrong_is_one_sentence_before_anything_is_made(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError) as caught:
        names(tmp_path, text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["spec.toml"]


def test_recipes_of_the_same_name_are_refused(tmp_path: Path) -> None:
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "mine.toml").write_text("[memory]\nkeep = 'fifo'\n")
    with pytest.raises(SettingError, match="would be named mine-synthetic-seed0"):
        names(tmp_path, f"methods = ['{tmp_path}/a/mine.toml', '{tmp_path}/b/mine.toml']")


def call(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    out, err = capsys.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, out, err


def test_a_sweep_from_a_dry_run_to_the_table_and_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lr = "[grid]\noptimizer.lr = "
    spec, out = tmp_path / "spec.toml", tmp_path / "out"
    command = ["sweep", str(spec), "--out", str(out), "--workers", "2"]
    write(spec, f'methods = ["er-fifo"]\n{lr}[0.05, 1e30]\n')

    code, said, _ = call([*command, "--dry-run"], capsys)
    assert code == 0
    assert "er-fifo-synthetic-lr0.05-seed0" in said
    assert "12 steps" in said  # 6 minibatches of 10 of 2 x 36 images, 2 passes
    assert not out.exists()

    code, said, err = call(command, capsys)
    assert (code, err) == (1, "")
    good, bad = out / "er-fifo-synthetic-lr0.05-seed0", out / "er-fifo-synthetic-lr1e+30-seed0"
    metrics = finished(good)
    assert metrics
    assert finished(bad) is None
    assert f"failed: {bad.name}: " in said
    assert "not finite" in said
    assert "1 of 2 runs are finished" in said
    rows = list(csv.DictReader((out / "sweep.csv").open()))
    assert [row["state"] for row in rows] == ["finished", "failed"]
    assert float(rows[0]["final_accuracy"]) == metrics["final_accuracy"]
    assert rows[0]["optimizer.lr"] == "0.05"
    assert "not finite" in rows[1]["reason"]

    write(spec, f'methods = ["er-fifo"]\n{lr}[0.05]\n')
    before = (good / "metrics.json").stat().st_mtime_ns
    code, said, _ = call(command, capsys)
    assert code == 0
    assert (good / "metrics.json").stat().st_mtime_ns == before
    assert f"{metrics['final_accuracy']:.1f}" in said
    assert f"ocssl report {out} -o report.html" in said

    write(spec, f'methods = ["er-fifo"]\n{lr}[0.05]\n', {**SMALL, "memory.capacity": 25})
    code, _, err = call(command, capsys)
    assert code == 2
    assert "its memory.capacity is 24, and 25 is asked for" in err
    assert err.count("\n") == 1


def test_seeds_are_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, out = tmp_path / "spec.toml", tmp_path / "out"
    write(spec, f'methods = ["er-fifo"]\nseeds = [0, 1, 2]\nout = "{out}"\n')
    accuracies = [10.0, 20.0, 60.0]
    for planned, accuracy in zip(plan(read_spec(spec)), accuracies, strict=True):
        create(out / planned.name, planned.settings)
        facts = {"method": "er-fifo", "benchmark": "synthetic", "seed": planned.settings.seed, "steps": 1, "seconds": 1}
        numbers = {"start_accuracy": 1, "final_accuracy": accuracy, "average_accuracy": None, "positions": [1]}
        numbers |= {"accuracies": [accuracy], "deviations": [None], "overlaps": [None]}
        (out / planned.name / "metrics.json").write_text(json.dumps(facts | numbers))
    code, said, _ = call(["sweep", str(spec)], capsys)
    assert code == 0
    mean = sum(accuracies) / 3
    deviation = (sum((a - mean) ** 2 for a in accuracies) / 2) ** 0.5
    assert f"{mean:.1f} ± {deviation:.1f}" in said


def test_images_that_are_not_there_are_told_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, out = tmp_path / "spec.toml", tmp_path / "out"
    write(spec, 'methods = ["er-fifo"]\nbenchmarks = ["folder"]\n')
    code, said, err = call(["sweep", str(spec), "--out", str(out), "--data", str(tmp_path / "none")], capsys)
    assert (code, said) == (2, "")
    assert f"there is no {tmp_path / 'none'}" in err
    assert not out.exists()


def test_names_with_brackets_are_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = write(tmp_path / "spec.toml", 'methods = ["er-fifo"]\n')
    code, said, _ = call(["sweep", str(spec), "--out", str(tmp_path / "[bold]a[/b]"), "--dry-run"], capsys)
    assert code == 0
    assert "[bold]a[/b]" in said


def test_a_sweep_runs_with_rules_of_ones_own(tmp_path: Path) -> None:
    own = "from ocssl.memory import KEEPS\nfrom ocssl.memory.keep import Fifo\n"
    (tmp_path / "mine.py").write_text(own + '@KEEPS.add("mine")\nclass Mine(Fifo):\n    """As fifo."""\n')
    write(tmp_path / "spec.toml", 'methods = ["er-fifo"]\n', {**SMALL, "memory.keep": "mine"})
    command = [sys.executable, "-m", "ocssl", "sweep", "spec.toml", "--out", "out", "--parts", "mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 of 1 runs are finished" in done.stdout


def test_data_is_for_one_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = write(tmp_path / "spec.toml", 'methods = ["er-fifo"]\nbenchmarks = ["cifar100", "imagenet100"]\n', {})
    code, _, err = call(["sweep", str(spec), "--data", str(tmp_path), "--dry-run"], capsys)
    assert code == 2
    assert "2 of the sweep need one; write [data]" in err
    spec.write_text(f'methods = ["er-fifo"]\nbenchmarks = ["cifar100", "synthetic"]\n[data]\ncifar100 = "{tmp_path}"\n')
    runs = {run.name: run.settings for run in plan(read_spec(spec))}
    assert [settings.data.path for settings in runs.values()] == [str(tmp_path), None]


def test_options_of_encoders_and_optimizers_belong_to_those_that_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
    methods = ["er-fifo"]
    [set]
    encoder.width = 2
    encoder.depth = 2
    [grid]
    encoder.name = ["resnet10", "%s"]
    optimizer.name = ["sgd", "adamw"]
    optimizer.beta2 = [0.9, 0.99]
    """
    from ocssl.encoders import ENCODERS

    class Plain(nn.Module):
        """A linear layer."""

        def __init__(self, image_size: int, *, depth: int = 1) -> None:
            super().__init__()
            self.layer = nn.Linear(3 * image_size**2, 8 * depth)

        def forward(self, x: Tensor) -> Tensor:
            features: Tensor = self.layer(x.flatten(1))
            return features

    name = f"plain-{tmp_path.name}"
    monkeypatch.setitem(ENCODERS._parts, name, Plain)
    (tmp_path / "spec.toml").write_text(text % name)
    runs = plan(read_spec(tmp_path / "spec.toml"))
    found = [(run.settings.encoder.name, run.settings.optimizer.name, run.point.get("optimizer.beta2")) for run in runs]
    optimizers = [("sgd", None), ("adamw", 0.9), ("adamw", 0.99)]
    assert found == [(encoder, *optimizer) for encoder in ("resnet10", name) for optimizer in optimizers]
