"""The package as others get it: built, checked, and used from the wheel alone, without the repository."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
import torch

from conftest import ROOT
from ocssl._training.assembly import usable_device
from ocssl.errors import SettingError, install

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
DISTRIBUTIONS = {  # that bring a module of another name
    "PIL": "pillow",
    "huggingface_hub": "transformers",
    "markupsafe": "jinja2",
    "sklearn": "scikit-learn",
    "torchvision": "timm",  # or none: it is only asked whether it can be imported
}
DEMO = """
from ocssl.cli import demo, main
demo.COMMON.update({"stream.image_size": 8, "stream.train": 6, "stream.test": 2, "encoder.width": 2,
                    "memory.capacity": 20, "schedule.passes": 1, "schedule.stream_batch": 4,
                    "evaluate.latent_samples": 20})
main(["demo", "--out", "demo"])
"""


def call(*words: str | Path, cwd: Path, check: bool = True) -> str:
    """Run a program that must not see this repository; its output, warnings included."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    env = {key: value for key, value in os.environ.items() if key not in hidden and not key.startswith("GIT_")}
    done = subprocess.run([*map(str, words)], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def name_of(requirement: str) -> str:
    return re.split(r"[\s;\[<>=!~]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def imports(tree: ast.AST) -> Iterator[str]:
    """The top-level modules that a file imports when it runs: what only the type checker reads is left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]
        yield from imports(node)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "-o", out, ROOT, cwd=out)
    return out


@pytest.fixture(scope="module")
def python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with this wheel: dependencies are lent by this one, without what it has of ocssl."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, symlinks=True)
    (wheel,) = built.glob("*.whl")
    python = home / "bin" / "python"
    call(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel, cwd=home)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_paths()["purelib"])  # .pth files in there, as ours, are not followed
    return python


def test_the_architecture_page_justifies_every_dependency() -> None:
    section = (ROOT / "docs" / "architecture.md").read_text().split("## Dependencies\n")[1]
    rows = re.findall(r"^\| (?!package|---)([^|]+?) \|", section, flags=re.MULTILINE)
    named = {name_of(name) for row in rows for name in row.partition(" (")[0].split(", ")}
    extras = {extra: {name_of(wanted) for wanted in wants} - {"ocssl"} for extra, wants in EXTRAS.items()}
    assert named == {name_of(wanted) for wanted in PROJECT["dependencies"]}.union(*extras.values())
    of_extras = re.findall(r"^\| ([^|]+?) \(extra `(\w+)`\)", section, flags=re.MULTILINE)
    assert sorted((name_of(name), extra) for names, extra in of_extras for name in names.split(", ")) == sorted(
        (name, extra) for extra, names in extras.items() if extra != "dev" for name in names
    )


@pytest.mark.process
def test_wheel_and_sdist_pass_twine_check(built: Path) -> None:
    assert sorted(path.name.rpartition(".")[2] for path in built.iterdir()) == ["gz", "whl"]
    assert call(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir(), cwd=built).count("PASSED") == 2


@pytest.mark.process
def test_the_wheel_has_every_file_of_the_package_and_no_other(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    there = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    assert packed == {name for name in there if "__pycache__" not in name}
    assert wheel.stat().st_size < 2**20


@pytest.mark.process
def test_the_sdist_has_what_building_and_testing_need(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "Makefile", "constraints.txt"} <= names
    assert {"src/ocssl/learner.py", "tests/conftest.py", "docs/methods.md", "benchmarks/probe_accuracy.py"} <= names


@pytest.mark.process
def test_the_demo_runs_from_the_wheel_without_the_repository(python: Path, tmp_path: Path) -> None:
    where = call(python, "-c", "import ocssl; print(ocssl.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(python.parents[1])
    assert "report:" in call(python, "-c", DEMO, cwd=tmp_path)
    assert json.loads((tmp_path / "demo" / "solar" / "metrics.json").read_text())["steps"] > 0
    assert (tmp_path / "demo" / "report.html").stat().st_size > 100_000


@pytest.mark.process
def test_the_commands_of_the_wheel_tell_its_version(built: Path, python: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    version = wheel.name.split("-")[1]
    assert call(python.parent / "ocssl", "--version", cwd=tmp_path).strip() == version
    assert call(python, "-m", "ocssl", "--version", cwd=tmp_path).strip() == version
    assert "usage: python -m ocssl" not in call(python, "-m", "ocssl", "--help", cwd=tmp_path)


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(python: Path, shell: str, tmp_path: Path) -> None:
    script = call(python, "-m", "ocssl", "completion", shell, cwd=tmp_path)
    assert all(word in script for word in ("ocssl", "resume", "reproduce", "device"))
    if program := shutil.which(shell):
        (tmp_path / "script").write_text(script)
        call(program, "-n", tmp_path / "script", cwd=tmp_path)


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("git"), reason="the tag is read by git")
def test_the_version_is_the_tag_and_without_git_the_fallback(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "src" / "ocssl").mkdir(parents=True)
    version = (sys.executable, "-m", "hatchling", "metadata", "version")
    assert call(*version, cwd=tmp_path).splitlines()[-1] == "0.1.0.dev0"
    git = ("git", "-c", "user.name=Nobody", "-c", "user.email=nobody@localhost")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "First"), ("tag", "v3.2.1")):
        call(*git, *words, cwd=tmp_path)
    assert call(*version, cwd=tmp_path).splitlines()[-1] == "3.2.1"


def test_every_import_is_a_dependency_or_of_an_extra_that_its_error_names() -> None:
    core = {name_of(requirement) for requirement in PROJECT["dependencies"]}
    extra = {
        name_of(requirement) for name, all_ in EXTRAS.items() if name not in ("dev", "docs") for requirement in all_
    }
    unknown = {}
    for path in (ROOT / "src").rglob("*.py"):
        for module in imports(ast.parse(path.read_text())):
            name = DISTRIBUTIONS.get(module, module).lower().replace("_", "-")
            if module not in sys.stdlib_module_names and name not in {"ocssl"} | core | extra:
                unknown.setdefault(module, path.relative_to(ROOT).as_posix())
    assert unknown == {}


def test_the_install_command_names_the_packages_of_the_extra() -> None:
    named = {
        extra
        for path in (ROOT / "src").rglob("*.py")
        for extra in re.findall(r"install\([\"']([\w-]+)[\"']\)", path.read_text())
    }
    assert {"data", "ray", "track"} <= named <= EXTRAS.keys()
    for extra in named - {"dev"}:
        assert install(extra).startswith("pip install '")


@pytest.mark.process
def test_the_install_command_is_true_for_the_wheel(built: Path, python: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata: Message = Parser().parsestr(archive.read(name).decode())
    code = "from ocssl.errors import install; print(install('data'))"
    command = call(python, "-c", code, cwd=tmp_path).strip()
    wanted = [line.partition(";")[0].strip() for line in metadata.get_all("Requires-Dist", []) if "'data'" in line]
    assert sorted(re.findall(r"'(.+?)'", command)) == sorted(wanted)
    assert sorted(wanted) == sorted(EXTRAS["data"])


@pytest.mark.parametrize(("there", "chosen"), [(set(), "cpu"), ({"mps"}, "mps"), ({"cuda", "mps"}, "cuda")])
def test_auto_takes_a_cuda_gpu_then_apples_then_the_processor(
    there: set[str], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in there)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in there)
    assert usable_device("auto").type == chosen
    if "mps" not in there:
        with pytest.raises(SettingError, match="mps is not available"):
            usable_device("mps")
