"""wds: shards are read by position, in order, with their classes; hostile ones are one sentence or left out."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import ocssl
from conftest import SMALL
from ocssl.cli import main
from ocssl.data import Benchmark, load_benchmark
from ocssl.data.decode.decoder import decode
from ocssl.data.decode.files import silent
from ocssl.data.decode.shard_files import ShardFiles
from ocssl.data.decode.tar_headers import extended_name
from ocssl.data.sources.source import SourceImages
from ocssl.data.sources.webdataset import WebDataset, expanded
from ocssl.errors import DataError, OcsslError
from ocssl.settings import DataSettings, StreamSettings

FORMATS = {tarfile.USTAR_FORMAT: "ustar", tarfile.GNU_FORMAT: "GNU", tarfile.PAX_FORMAT: "pax"}


def image(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (12, 8), (number, 0, 0)).save(file, "PNG")
    return file.getvalue()


def write_shard(path: Path, members: dict[str, bytes], how: int = tarfile.PAX_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=how) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def shards(root: Path, shard_count: int = 2, each: int = 6, labelled: bool = True, name: str = "part") -> Path:
    for shard in range(shard_count):
        members: dict[str, bytes] = {}
        for number in range(shard * each, (shard + 1) * each):
            members[f"{number:04d}.png"] = image(number)
            members[f"{number:04d}.json"] = b"{}"
            if labelled:
                members[f"{number:04d}.cls"] = str(number % 3).encode()
        write_shard(root / f"{name}-{shard:03d}.tar", members)
    return root


def find(where: Path | None, **options: Any) -> SourceImages:
    return WebDataset(**options).find(where, StreamSettings.model_validate({}), silent)


def load(word: str, cache: Path, decoding: str = "cache", workers: int = 0) -> Benchmark:
    options = {"image_size": 8, "fit": "crop", "order": "iid", "test_share": 0.25, "validation": 0}
    data = DataSettings.model_validate({"cache": str(cache), "decode": decoding, "workers": workers})
    return load_benchmark(word, StreamSettings.model_validate(options), data)


@pytest.mark.parametrize("how", FORMATS, ids=FORMATS.values())
def test_images_are_read_in_order_with_long_and_odd_names(tmp_path: Path, how: int) -> None:
    names = ["a.png", "folder/b.c.PNG", "x" * 90 + "/" + "y" * 95 + ".png", "\u00e9 z.png", "../../up.png", "/root.png"]
    path = write_shard(tmp_path / "s.tar", {name: image(n) for n, name in enumerate(names)}, how)
    files = ShardFiles([path])
    assert [bytes(name).decode() for name in files.names] == names
    assert [files.read(row) for row in range(len(files))] == [image(n) for n in range(len(names))]
    assert files.name(3) == "s.tar/\u00e9 z.png"
    assert not list(tmp_path.parent.glob("up.png"))
    again = pickle.loads(pickle.dumps(files.subset(np.array([4, 1]))))
    assert [again.read(0), again.read(1)] == [image(4), image(1)]
    assert again.stored().tolist() == [1, 0]


def test_classes_are_the_numbers_beside_the_images(tmp_path: Path) -> None:
    found = find(shards(tmp_path))
    assert found.classes == ["0", "1", "2"]
    assert found.train.labels is not None
    assert found.train.labels.tolist() == [0, 1, 2] * 4
    assert found.test is None
    assert find(tmp_path, label="none").train.labels is None
    write_shard(tmp_path / "part-002.tar", {"x.png": image(1)})
    assert find(tmp_path).train.labels is None
    with pytest.raises(DataError, match=r"1 images of .* have no \.cls"):
        find(tmp_path, label="cls")


def test_shards_of_a_folder_are_what_their_names_say(tmp_path: Path) -> None:
    shards(tmp_path, 2, name="train")
    shards(tmp_path, 1, name="val")
    found = find(tmp_path)
    assert found.test is not None
    assert (len(found.train), len(found.test)) == (12, 6)


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("part-{000..001}.tar", 12),
        ("part-{001..001}.tar", 6),
        ("part-00{0,1}.tar", 12),
        ("part-*.tar", 12),
        ("part-00?.tar", 12),
        ("part-001.tar", 6),
        ("", 12),
    ],
)
def test_patterns_name_shards(tmp_path: Path, pattern: str, wanted: int) -> None:
    assert len(find(shards(tmp_path) / pattern).train) == wanted


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), max_size=3))
def test_ranges_are_those_of_a_shell(ranges: list[tuple[int, int]]) -> None:
    text = "-".join(f"{{{low:02d}..{low + more:02d}}}" for low, more in ranges)
    wanted = [""]
    for place, (low, more) in enumerate(ranges):
        parts = [f"{number:02d}" for number in range(low, low + more + 1)]
        wanted = [start + "-" * bool(place) + part for start in wanted for part in parts]
    assert [path.name for path in expanded(Path(f"s{text}.tar"))] == [f"s{part}.tar" for part in wanted]


def test_it_is_the_same_stream_however_it_is_read(tmp_path: Path) -> None:
    word = f"wds:{shards(tmp_path / 'shards')}"
    streams = []
    for decoding, workers in (("cache", 0), ("cache", 0), ("live", 1), ("live", 2)):
        benchmark = load(word, tmp_path / "cache", decoding, workers)
        batches = list(benchmark.stream(4, seed=0, drop_last=False).batches())
        streams.append((torch.cat([b.images for b in batches]), torch.cat([b.ids for b in batches]).tolist()))
        for batch in batches:
            for pixels, path, label in zip(batch.images, batch.paths, batch.labels.tolist(), strict=True):
                number = int(path.rpartition("/")[2][:4])
                assert np.array_equal(pixels.numpy(), decode(image(number), 8, "crop"))
                assert label == number % 3
    assert len(streams[0][1]) == 9
    for images, ids in streams[1:]:
        assert torch.equal(images, streams[0][0])
        assert ids == streams[0][1]


@pytest.mark.slow
def test_a_run_and_a_check_of_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards(tmp_path / "shards", 2, 20)
    damaged = {f"{n}.png": image(n) if n else b"nothing" for n in range(3)}
    write_shard(tmp_path / "shards" / "part-002.tar", damaged)
    word = f"wds:{tmp_path / 'shards' / 'part-{000..002}.tar'}"
    settings = {**SMALL, "terms.overlap.k": 6, "stream.image_size": 16, "evaluate.latent_samples": 0}
    words = [w for key, value in settings.items() for w in ("--set", f"{key}={value}")]
    out = tmp_path / "run"
    with pytest.raises(SystemExit) as ended:
        main(["run", "solar", word, "--out", str(out), "--cache", str(tmp_path / "cache"), *words])
    assert ended.value.code == 0
    assert "used 42 of 43: 1 damaged" in capsys.readouterr().out
    assert json.loads((out / "metrics.json").read_text())["seen"] == 42
    assert (out / "skipped.tsv").read_text().startswith("damaged\tpart-002.tar/0.png\t")
    assert [len(batch.ids) for batch in ocssl.images(word, size=8, batch=30)] == [30, 12]


# What is refused, or left out


def test_links_and_devices_in_a_shard_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "s.tar"
    with tarfile.open(path, "w") as archive:
        for number, kind in enumerate((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(f"{number}.png")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        info = tarfile.TarInfo("good.png")
        info.size = len(image(1))
        archive.addfile(info, io.BytesIO(image(1)))
    found = find(path)
    assert len(found.train) == 1
    assert [fault.reason for fault in found.left_out] == ["not a regular file"] * 4


def test_a_damaged_shard_is_one_sentence(tmp_path: Path) -> None:
    whole = write_shard(tmp_path / "s.tar", {f"{n}.png": image(n) for n in range(3)}).read_bytes()
    start = whole.index(b"1.png")
    cases = {
        "cut off": whole[: start + 520],
        "cut off ": whole[: start + 100],
        "checksum": whole[:start] + b"Q" + whole[start + 1 :],
        "compressed": b"\x1f\x8b" + whole,
        "no images": bytes(1024),
        "no images ": b"",
    }
    for said, content in cases.items():
        (tmp_path / "s.tar").write_bytes(content)
        with pytest.raises(DataError, match=said.strip()) as caught:
            find(tmp_path / "s.tar")
        assert str(caught.value).isprintable()


def test_a_shard_that_stops_between_two_members_is_counted(tmp_path: Path) -> None:
    whole = write_shard(tmp_path / "s.tar", {f"{n}.png": image(n) for n in range(3)}).read_bytes()
    assert find(tmp_path / "s.tar").left_out == []
    end = whole.index(b"1.png") // 512 * 512
    (tmp_path / "s.tar").write_bytes(whole[:end])
    found = find(tmp_path / "s.tar")
    assert len(found.train) == 1
    assert [(fault.name, fault.reason) for fault in found.left_out] == [("s.tar", "shard without its end")]


def test_what_cannot_be_found_or_used_is_one_sentence(tmp_path: Path) -> None:
    shards(tmp_path / "shards")
    cases: list[tuple[Path | None, dict[str, Any], str]] = [
        (None, {}, "wds:PATTERN"),
        (tmp_path / "none.tar", {}, "none.tar"),
        (tmp_path, {}, r"no shards .*\*\.tar"),
        (tmp_path / "x-*.tar", {}, "no shards"),
        (Path("http:/example.org/x.tar"), {}, "not a local path"),
        (tmp_path / "x-{0..99999999}.tar", {}, "more than 100,000"),
        (tmp_path / "x-{0..999}-{0..999}.tar", {}, "more than 100,000"),
        (tmp_path / "shards", {"label": "class"}, "did you mean 'cls'"),
    ]
    for where, options, said in cases:
        with pytest.raises(OcsslError, match=said):
            find(where, **options)
    write_shard(tmp_path / "bad.tar", {"a.png": image(0), "a.cls": b"cat"})
    with pytest.raises(DataError, match=r"a\.cls in .* holds no class number"):
        find(tmp_path / "bad.tar")


def test_an_image_of_a_shard_that_shrank_is_a_bad_image(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "s.tar", {"a.png": image(0)})
    files = ShardFiles([path])
    path.write_bytes(b"")
    with pytest.raises(OSError, match="shorter"):
        files.read(0)


def test_extended_headers_are_read_within_their_length() -> None:
    assert extended_name(b"14 path=a.png\n") == b"a.png"
    assert extended_name(b"11 mtime=1\n") is None
    for wrong in (b"99 path=a\n", b"path=a\n", b"2 \n", b"0 x=1\n"):
        with pytest.raises(ValueError, match="no sense"):
            extended_name(wrong)
    with pytest.raises(ValueError, match="8 GiB"):
        extended_name(b"11 size=99\n")
