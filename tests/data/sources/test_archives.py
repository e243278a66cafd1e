"""Files come out of an archive whole or not at all, within bounds, and nothing is ever unpacked to disk."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cifar_files import snapshot, tar, zipped

from ocssl.data.sources import archives
from ocssl.data.sources.archives import Limits, read_members
from ocssl.errors import DataError

WANTED = ("train.bin", "test.bin")
SMALL = Limits(archive=2**18, member=50_000, total=100_000, members=20)


def contents(seed: int = 0) -> dict[str, bytes]:
    """Half of each file can be packed, half cannot."""
    generator = np.random.default_rng(seed)
    return {name: generator.bytes(size) + bytes(size) for name, size in (("train.bin", 6148), ("test.bin", 3074))}


def pieces(data: bytes) -> list[bytes]:
    return [data[start : start + 4000] for start in range(0, len(data), 4000)]


FORMS: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "tar.gz": tar,
    "tar": lambda c: tar(c, packed=False),
    "zip": zipped,
    "zip, not packed": lambda c: zipped(c, how=zipfile.ZIP_STORED),
    "tar.gz without folder": lambda c: tar(c, folder=""),
    "tar.gz, pieces": lambda c: b"".join(
        gzip.compress(tar(c, packed=False)[i : i + 4000]) for i in range(0, 40_960, 4000)
    ),
    "tar.gz and something after": lambda c: tar(c) + b"\0" * 700,
}


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(data: bytes, limits: Limits = SMALL, wanted: tuple[str, ...] = WANTED) -> dict[str, bytes]:
    """As `read_members` does, seeing to it that nothing is written anywhere near."""
    path = Path("data") / "an.archive"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    before = snapshot(Path.cwd())
    try:
        return read_members(path, wanted, limits=limits)
    finally:
        assert snapshot(Path.cwd()) == before


@pytest.mark.parametrize("form", FORMS)
def test_members_are_read_by_their_last_name(form: str) -> None:
    data = FORMS[form](contents() | {"readme.txt": b"not this"})
    assert read(data) == contents()
    assert read(data, wanted=("test.bin", "nothing")) == {"test.bin": contents()["test.bin"]}
    assert read(data, wanted=("bin", "cifar-100-python/test.bin", "")) == {}


@pytest.mark.parametrize("style", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_dialect_of_tar_is_read(style: int) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=style) as archive:
        for name, content in {**contents(), "a" * 150 + ("/b" if style == 0 else "") + "/x": b"long"}.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.uname = len(content), 1e9 + 0.5, "Jérôme"  # which pax writes in a header
            archive.addfile(info, io.BytesIO(content))
    assert read(file.getvalue()) == contents()


def test_the_first_part_of_a_standard_name_counts() -> None:
    header = bytearray(entry("train.bin", content=b"x"))
    for first, found in (("cifar-100-python", {"train.bin": b"x"}), ("..", {}), ("/etc", {})):
        header[257:265] = b"ustar\x0000"
        header[345:500] = first.encode().ljust(155, b"\0")
        assert read(with_sum(header) + END) == found
    header[257:265] = b"ustar  \0"  # GNU's, which has no names there
    assert read(with_sum(header) + END) == {"train.bin": b"x"}


def entry(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(content), link
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def with_sum(data: bytearray) -> bytes:
    """The same with a header whose checksum is right again."""
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    return bytes(data)


END = bytes(1024)
BAD_NAMES = (
    "../train.bin",
    "/train.bin",
    "a/../train.bin",
    "..\\train.bin",
    "\\train.bin",
    "C:\\train.bin",
    "C:train.bin",
)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_lead_elsewhere_are_passed_over(name: str) -> None:
    assert read(entry(name, content=b"x") + END) == {}
    assert read(gzip.compress(entry(name, content=b"x") + END)) == {}
    assert read(zipped({name: b"x"}, folder="")) == {}


@pytest.mark.parametrize(
    "kind",
    [tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, b"S", b"Z"],
)
def test_what_is_no_plain_file_is_passed_over(kind: bytes) -> None:
    Path("secret").write_bytes(b"secret")
    link = str(Path("secret").resolve())
    assert read(entry("train.bin", kind, link=link) + entry("test.bin", content=b"x") + END) == {"test.bin": b"x"}


def test_links_and_folders_in_a_zip_are_passed_over() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        link = zipfile.ZipInfo("train.bin")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr(zipfile.ZipInfo("test.bin/"), b"")
    assert read(file.getvalue()) == {}


def test_a_name_that_was_cut_to_a_hundred_bytes_is_not_taken_for_another() -> None:
    long = "x" * 90 + "/train.bin" + "y" * 20
    assert read(entry(long, content=b"x") + END) == {}  # GNU tar has all of the name in an entry before
    assert read(tar({long: b"x"}, folder="")) == {}  # pax too, in an entry of another kind
    assert read(entry("x" * 90 + "/train.bin", content=b"x") + END) == {"train.bin": b"x"}


@pytest.mark.parametrize("pack", [tar, zipped], ids=["tar.gz", "zip"])
def test_a_file_that_is_there_twice_is_refused(pack: Callable[..., bytes]) -> None:
    with pytest.raises(DataError, match=r"holds train\.bin twice"):
        read(pack({"a/train.bin": b"1", "b/train.bin": b"2"}))


@pytest.mark.parametrize("form", FORMS)
def test_too_large_too_many_too_much(form: str) -> None:
    data = FORMS[form](contents())
    assert read(data, Limits(len(data), 12_296, 2**20, 20)) == contents()
    with pytest.raises(DataError, match="too large to be read"):
        read(data, Limits(len(data) - 1, 12_296, 2**20, 20))
    with pytest.raises(DataError, match=r"train\.bin in .* is too large: 12296 bytes"):
        read(data, Limits(len(data), 12_295, 2**20, 20))
    with pytest.raises(DataError, match="unpacks to more than 15000 bytes"):
        read(data, Limits(len(data), 12_296, 15_000, 20))
    with pytest.raises(DataError, match="more than 1 files"):
        read(data, Limits(len(data), 12_296, 2**20, 1))


BOMBS = {
    "a large member": lambda: gzip.compress(tar({"train.bin": bytes(20_000_000)}, packed=False)),
    "a large member that nobody wants": lambda: gzip.compress(tar({"other": bytes(20_000_000)}, packed=False)),
    "zeros": lambda: gzip.compress(bytes(512) + bytes(20_000_000)),
    "a long header of pax": lambda: gzip.compress(entry("x", b"x", bytes(20_000_000)) + entry("y") + END),
    "a long name of GNU": lambda: gzip.compress(entry("x", b"L", bytes(20_000_000)) + entry("y") + END),
    "many entries": lambda: gzip.compress(entry("x") * 40_000 + END),
    "many empty pieces": lambda: gzip.compress(b"", mtime=0) * 10_000,
    "a large member of a zip": lambda: zipped({"train.bin": bytes(20_000_000)}),
    "a member that says it is small": lambda: _understated(zipped({"train.bin": bytes(20_000_000)})),
    "many entries of a zip": lambda: zipped({f"{n:04}": b"" for n in range(2000)}),
}


def _understated(data: bytes) -> bytes:
    return data.replace(struct.pack("<I", 20_000_000), struct.pack("<I", 100))


def peak(data: bytes, reader: Callable[[bytes], object]) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(DataError):
            reader(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("case", BOMBS)
def test_a_bomb_is_refused_in_little_memory(case: str) -> None:
    data = BOMBS[case]()
    assert len(data) < SMALL.archive
    assert peak(data, read) < 3_000_000


def test_the_bombs_are_bombs() -> None:
    """A reader that trusts what headers say takes as much memory as they please."""

    def trusting(data: bytes) -> None:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.getmembers()
        raise DataError("")

    assert peak(BOMBS["a long name of GNU"](), trusting) > 20_000_000


def test_a_long_description_of_a_member_of_a_tar_is_refused() -> None:
    with pytest.raises(DataError, match="one of its headers is too long"):
        read(entry("x", b"x", bytes(70_000)) + entry("y") + END)


def test_a_table_of_contents_of_megabytes_is_refused() -> None:
    data = zipped({f"{n:06}": b"" for n in range(25_000)})
    with pytest.raises(DataError, match="table of contents is too long"):
        read(data, Limits(archive=2**23))


def test_a_member_in_an_unusual_packing_is_refused() -> None:
    with pytest.raises(DataError, match="encrypted or packed in an unusual way"):
        read(zipped(contents(), how=zipfile.ZIP_LZMA))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no tar, tar.gz or zip archive"),
        (b"PK", "is damaged"),
        (b"\x1f\x8b", "is cut off"),
        (b"<html>not found</html>" * 100, "no tar, tar.gz or zip archive"),
        (bytes(2048), "no tar, tar.gz or zip archive"),
        (gzip.compress(b"", mtime=0), "is cut off"),
        (gzip.compress(b"x" * 512, mtime=0), "is damaged"),
        (entry("x")[:124] + b"\x80" + bytes(11) + entry("x")[136:], "no tar, tar.gz or zip archive"),
    ],
)
def test_what_is_no_archive_is_named(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(data)
    assert str(Path("data") / "an.archive") in str(caught.value)
    assert "fetch it again" in str(caught.value)


@pytest.mark.parametrize("size", [b"\x80" + bytes(10) + b"\1", b"-0000000001\0", b"000000_1\0\0\0\0", bytes(12)])
def test_a_size_that_is_no_octal_number_is_refused(size: bytes) -> None:
    header = bytearray(entry("train.bin"))
    header[124:136] = size
    with pytest.raises(DataError, match="no size"):
        read(with_sum(header) + END)


def test_a_missing_file_is_a_data_error() -> None:
    with pytest.raises(DataError, match=r"cannot read none \(No such file or directory\)"):
        read_members(Path("none"), WANTED)
    with pytest.raises(DataError, match=r"cannot read \. \(Is a directory\)"):
        read_members(Path("."), WANTED)


@pytest.mark.parametrize("form", ["tar.gz", "tar", "zip"])
def test_progress_is_told_up_to_the_end(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_CHUNK", 2000)
    path = Path("an.archive")
    path.write_bytes(FORMS[form](contents()))
    told: list[tuple[str, int, int]] = []
    read_members(path, WANTED, lambda *report: told.append(report))
    size = path.stat().st_size
    assert {(what, total) for what, _, total in told} == {("reading an.archive", size)}
    done = [done for _, done, _ in told]
    assert done == sorted(done)
    assert len(set(done)) > 1
    assert size - 400 < done[-1] <= size  # a zip's table of contents is read first


# ---- damage


def damaged(number: int) -> bytes:
    """An archive with damage of a kind of its own; every second is a zip."""
    generator = np.random.default_rng(number)
    packed = zipped(contents()) if number % 2 else tar(contents())
    kind = number // 2 % 5
    data = bytearray(packed)
    if kind == 0:  # flipped bits, one to eight of them
        for place in generator.integers(0, 8 * len(data), 2 ** int(generator.integers(0, 4))):
            data[place // 8] ^= 1 << int(place % 8)
    elif kind == 1:  # cut off
        del data[int(generator.integers(0, len(data))) :]
    elif kind == 2:  # a stretch is missing, or there twice
        start, end = sorted(generator.integers(0, len(data), 2).tolist())
        data[start:end] = data[start:end] * (2 * int(generator.integers(0, 2)))
    elif kind == 3:  # a stretch of noise, often in the headers
        start = int(generator.integers(0, len(data)) if generator.integers(0, 2) else len(data) - 200)
        noise = generator.bytes(int(generator.integers(1, 40)))
        data[start : start + len(noise)] = noise
    elif number % 2:  # largest and smallest numbers in a zip's table of contents
        start = packed.index(b"PK\1\2") + int(generator.integers(4, 200))
        data[start : start + 4] = [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f"][number // 10 % 3]
    else:  # the same in a header of a tar, which then has its checksum again
        raw = bytearray(tar(contents(), packed=False))
        start = int(generator.integers(100, 340))
        raw[start : start + 4] = [b"\xff\xff\xff\xff", b"\0\0\0\0", b"7777"][number // 10 % 3]
        data = bytearray(gzip.compress(with_sum(raw), mtime=0))
    return bytes(data)


def read_or_refused(data: bytes) -> dict[str, bytes] | str:
    try:
        return read(data)
    except DataError as error:
        return str(error)


def test_two_hundred_damaged_archives_are_refused_or_read_right() -> None:
    right = contents()
    outcomes = [read_or_refused(damaged(number)) for number in range(200)]
    refused = [found for found in outcomes if isinstance(found, str)]
    assert all("data/an.archive" in message and "\n" not in message for message in refused)
    for found in outcomes:
        assert isinstance(found, str) or all(right[name] == content for name, content in found.items())
    assert len(refused) > 120
    assert outcomes.count(right) > 5  # the damage was where nothing is


def test_without_checksums_the_damage_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same archives catch a reader that does not compare them."""
    monkeypatch.setattr(zipfile.ZipExtFile, "_update_crc", lambda *_: None)
    right = contents()
    outcomes = [read_or_refused(damaged(number)) for number in range(1, 200, 2)]
    assert any(right[name] != found[name] for found in outcomes if not isinstance(found, str) for name in found)


def test_a_tar_cut_off_anywhere_is_refused() -> None:
    data = tar({"train.bin": b"x" * 700}, packed=False)
    used = 512 + 1024 + 512  # header, content in whole blocks, the block of zeros that ends it
    for end in [*range(0, used, 37), used - 1]:
        with pytest.raises(DataError, match=r"cut off|no tar"):
            read(data[:end])
    assert read(data[:used]) == {"train.bin": b"x" * 700}


def test_a_tar_gz_cut_off_anywhere_is_refused() -> None:
    data = tar({"train.bin": b"x" * 700})
    for end in range(2, len(data)):
        with pytest.raises(DataError, match="cut off"):
            read(data[:end])


def test_a_header_with_another_checksum_is_refused() -> None:
    first, second = entry("train.bin", content=b"x"), bytearray(entry("test.bin", content=b"x"))
    second[0] ^= 1
    with pytest.raises(DataError, match="one of its headers has a wrong checksum"):
        read(first + bytes(second) + END)


def test_a_member_that_is_shorter_than_a_zip_says_is_refused() -> None:
    data, size = zipped({"train.bin": b"x" * 700}), struct.pack("<I", 700)
    place = data.rindex(size)  # in the table of contents
    with pytest.raises(DataError, match="cut off"):
        read(data[:place] + struct.pack("<I", 701) + data[place + 4 :])


def test_a_reader_that_writes_would_be_caught() -> None:
    before = snapshot(Path.cwd())
    with tarfile.open(fileobj=io.BytesIO(tar(contents()))) as archive:
        for name in archive.getnames():  # not extractall: early Pythons 3.11 cannot filter, late ones must
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_bytes(b"")
    assert snapshot(Path.cwd()) != before
    assert os.listdir() == ["cifar-100-python"]
