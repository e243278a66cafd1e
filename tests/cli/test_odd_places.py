"""Commands in odd places: closed or full output, no home, names that are no text. One sentence, or they go on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import SMALL

pytestmark = pytest.mark.process

COMMAND = f"{sys.executable} -m ocssl"
SETTINGS = {
    **SMALL,
    "memory.capacity": 8,
    "stream.image_size": 8,
    "stream.experiences": 1,
    "optimizer.lr": 0.01,  # at the benchmark's 0.3 so small a network collapses or diverges, depending on rounding
    "evaluate.probe": "ridge",
    "evaluate.latent_samples": 0,
}
RUN = " ".join(f"--set {key}={value}" for key, value in SETTINGS.items())


def shell(line: str, folder: Path, **environment: str | None) -> tuple[int, str]:
    """The exit code of a line of shell, and what it says on stderr."""
    known: dict[str, str | None] = {**os.environ, "PYTHONUNBUFFERED": None}  # else nothing is left to write at the end
    known |= environment
    given = {name: value for name, value in known.items() if value is not None}
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=given, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, timeout=120
    )
    return done.returncode, done.stderr.decode("utf-8", "replace")


def one_sentence(message: str) -> bool:
    return message.startswith("ocssl: ") and message.count("\n") == 1


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    for name in (b"photos", b"ph\xffotos"):
        os.mkdir(os.fsencode(tmp_path) + b"/" + name)
        for number in range(20):
            with open(os.fsencode(tmp_path) + b"/" + name + b"/%d\xfe.png" % number, "wb") as file:
                Image.fromarray(generator.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(file, "png")
    return tmp_path / "photos"


@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_a_closed_stream_is_no_error(streams: str, tmp_path: Path) -> None:
    assert shell(f"{COMMAND} list methods {streams}", tmp_path) == (0, "")


def test_no_file_takes_the_place_of_a_closed_stream(photos: Path) -> None:
    code, message = shell(f"{COMMAND} run er-fifo folder:photos {RUN} --out r >&- 2>&- <&-", photos.parent)
    assert (code, message) == (0, "")
    assert (photos.parent / "r" / "metrics.json").exists()
    assert (photos.parent / "r" / "events.jsonl").read_bytes().startswith(b'{"event": "start"')


@pytest.mark.parametrize("words", ["list settings", "--help", "--version", "run --help"])
def test_a_full_disk_behind_the_output_is_one_sentence(words: str, tmp_path: Path) -> None:
    code, message = shell(f"{COMMAND} {words} > /dev/full", tmp_path)
    assert (code, message) == (1, "ocssl: cannot read or write the output: No space left on device.\n")


def test_a_limit_on_the_size_of_files_leaves_no_empty_folder(tmp_path: Path) -> None:
    code, message = shell(f"ulimit -f 1; {COMMAND} run er-fifo synthetic {RUN} --out new/r", tmp_path)
    assert code == 2
    assert one_sentence(message), message
    assert list(tmp_path.iterdir()) == []


def test_output_is_dropped_where_no_more_files_may_be_opened(tmp_path: Path) -> None:
    limit = "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))"
    drop = "sys.modules['ocssl.cli.app']._drop_output()"
    program = f"import resource, sys, ocssl.cli; print('x'); {limit}; {drop}; print('y')"
    assert shell(f'{sys.executable} -c "{program}" > written', tmp_path) == (0, "")
    assert b"y" not in (tmp_path / "written").read_bytes()


def test_a_word_of_many_characters_is_cut_in_the_answer(tmp_path: Path) -> None:
    code, message = shell(f"{COMMAND} run solar synthetic --seed {'9' * 5000}", tmp_path)
    assert code == 2
    assert one_sentence(message)
    assert len(message) < 1600


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    assert shell(f"{COMMAND} list settings | head -1", tmp_path) == (0, "")


def test_a_current_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    code, message = shell(f"mkdir gone; cd gone; rmdir ../gone; {COMMAND} list methods", tmp_path)
    assert (code, message) == (2, "ocssl: the current folder has been removed; change to one that exists.\n")


@pytest.mark.slow
@pytest.mark.parametrize("home", [None, "", "/proc/nothing"])
def test_a_home_that_is_no_home(home: str | None, photos: Path) -> None:
    environment = {"HOME": home, "XDG_CACHE_HOME": None}
    code, message = shell(f"{COMMAND} run er-fifo folder:photos {RUN} --quiet --out r", photos.parent, **environment)
    if home == "/proc/nothing":
        assert code == 2
        assert one_sentence(message)
        assert "--cache" in message
        code, message = shell(
            f"{COMMAND} run er-fifo folder:photos {RUN} --quiet --out r --cache c", photos.parent, **environment
        )
    assert code == 0, message


@pytest.mark.slow
def test_names_of_images_need_not_be_text(photos: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert shell(f"{COMMAND} run er-fifo folder:photos {RUN} --quiet --cache c --out r", photos.parent)[0] == 0
    again = f"{COMMAND} run er-fifo folder:photos {RUN} --quiet --cache c --out $'r\\xff'"
    assert shell(again, photos.parent, **plain)[0] == 0


def test_a_folder_whose_name_is_no_text_is_refused_and_nothing_is_made(photos: Path) -> None:
    code, message = shell(f"{COMMAND} run er-fifo $'folder:ph\\xffotos' {RUN} --quiet --out r", photos.parent)
    assert code == 2
    assert one_sentence(message)
    assert "not UTF-8" in message
    assert not (photos.parent / "r").exists()


@pytest.mark.slow
def test_check_embed_and_search_take_any_names_in_any_locale(photos: Path) -> None:
    pytest.importorskip("pyarrow", reason="vectors are parquet files")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    here = photos.parent
    assert shell(f"{COMMAND} run er-fifo folder:photos {RUN} --quiet --cache c --out r", here)[0] == 0
    assert shell(f"{COMMAND} check $'ph\\xffotos' --json", here, **plain) == (0, "")
    code, message = shell(f"{COMMAND} embed r $'ph\\xffotos' -o v.parquet", here, **plain)
    assert (code, one_sentence(message), "not UTF-8" in message) == (2, True, True)
    embed = f"{COMMAND} embed r photos -o $'v\\xff.parquet' --quiet"
    code, message = shell(f"{embed} > /dev/full", here, **plain)
    assert (code, message) == (1, "ocssl: cannot read or write the output: No space left on device.\n")
    assert shell(f"{embed} >&-", here, **plain) == (0, "")
    search = f"{COMMAND} search $'v\\xff.parquet' $'photos/3\\xfe.png' --json"
    assert shell(search, here, **plain) == (0, "")
    code, message = shell(f"{search} | head -1; exit ${{PIPESTATUS[0]}}", here, **plain)
    assert (code in (0, 1), message) == (True, "")
    assert not [name for name in os.listdir(os.fsencode(here)) if name.startswith(b".")]
