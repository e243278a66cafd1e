"""Images in tar shards as WebDataset writes them: `wds:shards/train-{000..019}.tar`."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ocssl._files.untrusted import reason
from ocssl.data.decode.decode_processes import Fault
from ocssl.data.decode.files import Report
from ocssl.data.decode.shard_files import ShardFiles
from ocssl.data.sources.source import (
    BENCHMARKS,
    Collection,
    Numbers,
    SourceImages,
    numbered,
    refuse_unlearned,
)
from ocssl.errors import DataError, SettingError, counted, printable, unknown
from ocssl.settings import StreamSettings

TRAIN = "train"
TESTS = ("test", "val", "valid", "validation")  # the first of them that is there
LABELS = ("auto", "cls", "none")
MOST_SHARDS = 100_000
_BRACES = re.compile(r"\{(?:(\d{1,9})\.\.(\d{1,9})|([^{}]*,[^{}]*))\}")


@BENCHMARKS.add("wds")
@dataclass(kw_only=True)
class WebDataset:
    """wds:PATTERN: images in tar shards as WebDataset writes them: a file, a folder, * or {000..019} in the last name.

    Classes are the numbers in `.cls` files, if every image has one. In a folder, shards named train*, test* or val* are
    what their names say. Shards are read in place: nothing is unpacked to disk.
    """

    label: str = "auto"  # cls: every image must have one; none: images without labels
    after_colon: ClassVar[str] = "path"
    suffixes: ClassVar[tuple[str, ...]] = (".tar",)

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> SourceImages:
        if where is None:
            raise SettingError("benchmark wds needs the place of your shards: wds:PATTERN, such as wds:photos-*.tar.")
        if self.label not in LABELS:
            raise unknown("stream.label", self.label, LABELS)
        splits = [ShardFiles(paths, report) for paths in _splits(where)]
        left_out = [Fault(name, why) for files in splits for name, why in files.left_out]
        if not len(splits[0]):
            raise DataError(f"there are no images in {counted(len(splits[0].paths), 'shard')} of {where}.")
        labels, classes = self._labels(splits, where)
        collections = [Collection(files, own) for files, own in zip(splits, labels, strict=True)]
        test = collections[1] if len(collections) > 1 else None
        return SourceImages(collections[0], test, classes, left_out=left_out)

    def _labels(self, splits: list[ShardFiles], where: Path) -> tuple[list[Numbers | None], list[str]]:
        known = [files.labels for files in splits]
        labels = [own for own in known if own is not None]
        missing = sum(files.unlabelled for files in splits)
        if self.label == "cls" and len(labels) < len(known):
            raise DataError(f"{missing:,} images of {where} have no .cls file beside them: set stream.label to none.")
        if self.label == "none" or len(labels) < len(known):
            return [None] * len(splits), []
        numbers, names = numbered([own.tolist() for own in labels])
        titles = [str(name) for name in names]
        refuse_unlearned(numbers, titles, where)
        return list(numbers), titles


def _splits(where: Path) -> list[list[Path]]:
    """The shards to learn from and, in a folder, those to test on."""
    try:
        folder = where.is_dir()
        paths = sorted(where.glob("*.tar")) if folder else expanded(where)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot list {where}: {reason(error).lower()}.") from None
    if not paths:
        raise DataError(f"there are no shards {where}{'/*.tar' if folder else ''}: check the path.")
    if len(paths) > MOST_SHARDS:
        raise DataError(f"{where} is more than {MOST_SHARDS:,} shards.")
    if not folder:
        return [paths]
    found = {role: [path for path in paths if path.name.lower().startswith(role)] for role in (TRAIN, *TESTS)}
    if not found[TRAIN]:
        return [paths]
    return [found[TRAIN], *[found[role] for role in TESTS if found[role]][:1]]


def expanded(pattern: Path) -> list[Path]:
    """The files that a pattern names: {000..019} and {a,b} as a shell would, then * and ? in the last part.

    >>> [path.name for path in expanded(Path("a-{08..10}.tar"))]
    ['a-08.tar', 'a-09.tar', 'a-10.tar']
    """
    text = str(pattern)
    if "://" in text or re.match(r"(https?|s3|gs|pipe):", text):
        raise DataError(f"{printable(text)} is not a local path: wds reads shards on this machine; fetch them first.")
    pieces: list[list[str]] = []
    end, count = 0, 1
    for match in _BRACES.finditer(text):
        low, high, words = match.groups()
        choices = words.split(",") if words is not None else range(int(low), int(high) + 1)
        count *= len(choices)
        if max(count, len(choices)) > MOST_SHARDS:
            raise DataError(f"{printable(text)} is more than {MOST_SHARDS:,} shards.")
        pieces += [[text[end : match.start()]], [str(choice).rjust(len(low or ""), "0") for choice in choices]]
        end = match.end()
    names = ["".join(parts) for parts in itertools.product(*pieces, [text[end:]])]
    found: list[Path] = []
    for path in map(Path, names):
        found += sorted(path.parent.glob(path.name)) if set("*?[") & set(path.name) else [path]
    return found
