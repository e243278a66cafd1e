"""The command line as a user meets it: real processes, exit codes, one sentence for what is wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from conftest import SMALL_STREAM, small_settings
from ocssl import cli, recipes
from ocssl._distributed.ranks import ALONE
from ocssl.cli.run import Job
from ocssl.memory import DRAWS, KEEPS
from ocssl.objectives import OBJECTIVES
from ocssl.runs.config import RunSettings
from ocssl.settings import flatten
from ocssl.terms import TERMS

SMALL_RUN = {**small_settings("solar"), **SMALL_STREAM, "checkpoint.every": 2}


def words(**more: object) -> list[str]:
    return [word for key, value in {**SMALL_RUN, **more}.items() for word in ("--set", f"{key}={value}")]


def call(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    out, err = capsys.readouterr()
    code = caught.value.code
    assert isinstance(code, int)
    return code, out, err


# ---- wrong input


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "sollar", "synthetic"], "unknown method 'sollar': did you mean 'solar'?"),
        (["run", "er-fifi", "synthetic"], "did you mean 'er-fifo'?"),
        (
            ["run", "solar", "syntetic"],
            "unknown benchmark 'syntetic': did you mean 'synthetic'? (for a folder of images: folder:PATH)",
        ),
        (["run", "solar", "synthetic", "--set", "memory.capacty=5"], "did you mean 'memory.capacity'?"),
        (["run", "solar", "synthetic", "--set", "stream.imagesize=5"], "did you mean 'stream.image_size'?"),
        (["run", "solar", "synthetic", "--set", "memory.keep=reservor"], "did you mean 'reservoir'?"),
        (["run", "solar", "synthetic", "--set", "memory.draw=least-drown"], "did you mean 'least-drawn'?"),
        (["run", "solar", "synthetic", "--set", "terms.overlop.k=5"], "did you mean 'overlap'?"),
        (["run", "solar", "synthetic", "--set", "objective.name=simsam"], "did you mean 'simsiam'?"),
        (["run", "solar", "synthetic", "--set", "encoder.widht=8"], "did you mean 'encoder.width'?"),
        (["run", "solar", "synthetic", "--set", "encoder.width=5000"], "option width is 5000"),
        (["run", "solar", "synthetic", "--set", "optimizer.lrr=1"], "did you mean 'optimizer.lr'?"),
        (["run", "solar", "synthetic", "--set", "memory.capacity=lots"], "setting memory.capacity is 'lots'"),
        (["run", "solar", "synthetic", "--set", "stream.classes=1000"], "classes is 1000"),
        (["run", "solar", "synthetic", "--set", "stream.experiences=21"], "only 20 classes"),
        (["run", "solar", "synthetic", "--set", "memory=5"], "memory.NAME=VALUE"),
        (["run", "solar", "synthetic", "--set", "memory.rules.fifo.x=1"], "'x'"),
        (["run", "solar", "synthetic", "--set", "seed=3"], "seed cannot be set"),
        (["run", "solar", "synthetic", "--set", "schedule.stream_batch=9999"], "or schedule.stream_batch"),
        (["run", "solar", "synthetic", "--out", "/proc/x/y"], "cannot write to /proc/x/y"),
        (["run", "solar", "synthetic", "--set", "memory.capacity"], "not of the form key=value"),
        (["run", "solar", "synthetic", "--seed", "-1"], "seed"),
        (["run", "solar", "synthetic", "--seed", "x"], "'x' is not a whole number"),
        (["reproduce", "table2", "--seed", "1.5", "--dry-run"], "'1.5' is not a whole number"),
        (["run", "solar", "synthetic", "--workers", "x"], "--workers: 'x' is not a whole number"),
        (["report", "nowhere", "--follow", "soon"], "--follow: 'soon' is not a number"),
        (["run", "solar", "synthetic", "--device", "gpu"], "did you mean 'cuda'?"),
        (["run", "solar", "synthetic", "--set", "objective.name=zzz"], "known: barlow-twins"),
        (["run", "solar", "nowhere/photos"], "nowhere/photos: check the path"),
        (["run", "solar", "synthetic", "--parts", "nowhere.py"], "there is no file nowhere.py"),
        (["run", "solar", "synthetic", "--seed", "1.5"], "seed"),
        (["run", "solar", "synthetic", "--out", "x" * 300], "too long"),
        (["run", "solar", "synthetic", "--sed", "1"], "--sed"),
        pytest.param(
            ["run", "solar", "synthetic", "--device", "cuda"],
            "cuda is not available",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU"),
        ),
        (["run", "nowhere/recipe.toml", "synthetic"], "nowhere/recipe.toml"),
        (["run"], "METHOD"),
        (["rnu"], "did you mean 'run'?"),
        (["list", "metods"], "methods"),
        (["resume", "nowhere"], "nowhere is not a run folder"),
        (["report", "nowhere"], "nowhere"),
    ],
)
def test_wrong_input_is_one_sentence_with_exit_code_2_and_leaves_nothing_behind(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(arguments, capsys)
    assert code == 2
    assert said.lower() in err.lower()
    assert err.startswith("ocssl: ")
    assert err.count("\n") == 1
    assert "Traceback" not in out + err
    assert list(tmp_path.iterdir()) == []


def test_with_json_a_run_prints_its_metrics_and_nothing_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = call(["run", "solar", "synthetic", "--out", str(tmp_path / "r"), "--json", *words()], capsys)
    assert code == 0
    found = json.loads(out)
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    assert found == {"folder": str(tmp_path / "r"), "finished": True, **metrics}
    assert json.loads(call(["resume", str(tmp_path / "r"), "--json"], capsys)[1]) == found


def test_a_second_run_in_one_folder_is_refused_with_what_to_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["run", "solar", "synthetic", "--out", str(tmp_path / "r"), "--quiet", *words()]
    assert call(arguments, capsys)[0] == 0
    before = (tmp_path / "r" / "metrics.json").read_bytes()
    code, _, err = call(arguments, capsys)
    assert code == 2
    assert "already holds a run" in err
    assert (tmp_path / "r" / "metrics.json").read_bytes() == before
    assert call(["resume", str(tmp_path / "r")], capsys)[0] == 0
    assert (tmp_path / "r" / "metrics.json").read_bytes() == before


# ---- what it shows


def test_help_has_an_example_for_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "pretrain", "resume", "evaluate", "diagnose", "demo", "report", "list"):
        code, out, _ = call([command, "--help"], capsys)
        assert code == 0
        assert f"Example: ocssl {command}" in " ".join(out.split())


def _flags(names: str) -> list[str]:
    return [f"--{name}" for name in names.split()]


def test_the_commands_and_flags_are_these_and_no_others() -> None:
    flags = {
        name: sorted(
            f for argument in cli.app[name].assemble_argument_collection() for f in argument.names if f.startswith("--")
        )
        for name in cli.app
        if not name.startswith("-")
    }
    assert flags == {
        "bench": _flags("compare json output quick threads"),
        "check": _flags("json method most quiet set workers"),
        "compare": _flags("json label-free parts"),
        "completion": [],
        "demo": _flags("json out seed"),
        "diagnose": _flags("checkpoint data device json on output parts quiet samples times views workers"),
        "export": _flags("format license output"),
        "embed": _flags("align device dtype output quiet refresh update workers"),
        "evaluate": _flags("checkpoint data device json output parts per-task probe probe-compat quiet workers"),
        "list": ["--json"],
        "pretrain": _flags("bad-images batch cache data device epochs json out quiet seed set"),
        "report": _flags("figures follow json output parts tables"),
        "reproduce": _flags("benchmark cache data device dry-run json machine only out ray scale seed threads workers"),
        "resume": _flags("data device json parts quiet track"),
        "run": _flags(
            "bad-images cache data device init json out parts preset probe-compat quiet seed set track workers"
        ),
        "search": _flags("duplicates encoder html json threshold top"),
        "sweep": _flags("data device dry-run json out parts quiet ray threads track workers"),
    }


def test_list_shows_every_name_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for kind, known in {
        "methods": list(recipes.methods()),
        "rules": [*KEEPS, *DRAWS],
        "terms": list(TERMS),
        "objectives": list(OBJECTIVES),
        "benchmarks": ["synthetic", "cifar100", "imagenet100", "clear100", "inat", "folder", "parquet", "hf"],
        "encoders": ["resnet10", "resnet18"],
        "optimizers": ["adamw", "lars-sgd", "sgd"],
        "measures": ["loss", "participation_ratio", "overlap.active", "accuracy", "online_overlap"],
        "experiments": ["table1", "table7", "figure2", "figure20"],
    }.items():
        code, out, _ = call(["list", kind], capsys)
        assert code == 0
        lines = {line.split()[0]: line for line in out.splitlines() if line}
        assert all(len(lines[name].split()) > 2 for name in known)


def test_list_shows_every_setting_with_its_default_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(["list", "settings"], capsys)
    assert code == 0
    defaults = dict(flatten(RunSettings(method="", benchmark="").model_dump(mode="json")))
    for key in defaults.keys() - {"method", "benchmark", "seed", "preset"}:
        (line,) = (line for line in out.splitlines() if line.startswith((f"{key} ", f"{key}=")))
        found = re.fullmatch(r"\S+(?: = (.+?))?  +(\S.{7,})", line)
        assert found, line
        assert defaults[key] == (json.loads(found[1]) if found[1] else None)
    for line in (
        "memory.rules.mir.candidates = 512",
        "terms.overlap.k = 500",
        "objective.rate = 3.0",
        "stream.kingdom",
        "encoder.width = 64 ",
        'encoder.stem = "auto" ',
        "optimizer.trust_coefficient = 0.001 ",
    ):
        assert f"\n{line}" in out


def test_an_own_recipe_is_a_method(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('[memory]\nkeep = "reservoir"\ndraw = "least-drawn"\n')
    pairs = [w for pair in zip(words()[::2], words()[1::2], strict=True) if "terms" not in pair[1] for w in pair]
    code, out, _ = call(["run", str(recipe), "synthetic", "--out", str(tmp_path / "r"), *pairs], capsys)
    assert code == 0
    assert "final accuracy" in out
    table = (tmp_path / "r" / "run.toml").read_text()
    assert 'keep = "reservoir"' in table
    assert 'draw = "least-drawn"' in table


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("missing.py", None, "there is no file"),
        ("notes.txt", "x = 1", "not a Python file"),
        ("broken.py", "x = (", "SyntaxError"),
        ("failing.py", "import nothing_of_this_name", "ModuleNotFoundError"),
        ("twice.py", "from ocssl.memory import KEEPS\n@KEEPS.add('fifo')\nclass F: pass", "registered twice"),
    ],
)
def test_wrong_parts_are_one_sentence(
    name: str, text: str | None, complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    out = tmp_path / "r"
    code, _, err = call(["run", "solar", "--parts", str(tmp_path / name), "--out", str(out), *words()], capsys)
    assert code == 2
    assert complaint in err
    assert err.count("\n") == 1
    assert not out.exists()


def test_a_recipe_of_any_name_is_recorded_readably(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    recipe = tmp_path / "\U0001f600 é.toml"
    recipe.write_text('[memory]\nkeep = "fifo"\n')
    pairs = [w for pair in zip(words()[::2], words()[1::2], strict=True) if "terms" not in pair[1] for w in pair]
    assert call(["run", str(recipe), "synthetic", "--out", str(tmp_path / "r"), *pairs], capsys)[0] == 0


def test_a_run_prints_its_evaluations_and_its_result(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = call(["run", "solar", "synthetic", "--out", str(tmp_path / "r"), *words()], capsys)
    assert code == 0
    assert "solar          before training" in out
    assert "after experience 2" in out
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    assert re.search(rf"r: {metrics['steps']} steps, about \d+ MB of memory beside PyTorch's own, at most ", out)
    assert re.search(r"at most \d+ MB on disk\n", out)
    assert f"final accuracy {metrics['final_accuracy']:.1f} %" in out


def test_the_command_to_continue_with_has_all_that_the_first_one_had(tmp_path: Path) -> None:
    how = Job(ALONE, "cuda", False, Path("my parts.py"), ["tensorboard", "wandb"])
    told = ["--device", "cuda", "--data", "images", "--parts", "my parts.py"]
    assert how.resume_words(Path("images")) == [*told, "--track", "tensorboard", "--track", "wandb"]
    assert Job(ALONE, "cpu", False, None, []).resume_words(None) == []


# ---- real processes


def started(arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from ocssl.cli import main; main()", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_a_signal_finishes_the_step_saves_and_says_how_to_resume(number: signal.Signals, tmp_path: Path) -> None:
    long = words(**{"stream.train": 400, "schedule.passes": 4})
    process = started(["run", "solar", "synthetic", "--out", str(tmp_path / "r"), *long])
    events, deadline = tmp_path / "r" / "events.jsonl", time.monotonic() + 60
    while not (events.exists() and b'"step"' in events.read_bytes()):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"continue with: ocssl resume {tmp_path / 'r'}" in out
    last = json.loads(events.read_text().splitlines()[-1])
    saved = max((tmp_path / "r" / "checkpoints").iterdir())
    assert int(saved.name) == last["position"]


def test_import_and_help_do_not_load_torch() -> None:
    code = "import sys, ocssl, ocssl.cli; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


@pytest.mark.slow
def test_the_package_loads_its_learner_when_it_is_asked_for() -> None:
    code = "import sys, ocssl; assert ocssl.Learner.__name__ == 'Learner' and 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
