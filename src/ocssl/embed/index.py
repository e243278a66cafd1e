"""`ocssl.Index`: the nearest images of an image, by the cosine of their vectors; near-duplicates and outliers."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ocssl._core.exclusive_call import own_torch_state
from ocssl.embed.image_encoder import ImageEncoder, load_encoder
from ocssl.embed.vectors import Vectors, read_vectors, require_dimension, require_one_encoder, require_same
from ocssl.errors import DataError, OcsslError, SettingError, install
from ocssl.learner import Learner
from ocssl.settings import checked_int

MOST_EXACT = 1_000_000  # vectors; above, usearch finds most of the nearest of many queries instead of all
MANY = 1000  # queries at a time; for fewer, an exact product takes less time than building usearch's index
AT_ONCE = 2**24  # similarities that are computed at a time
NEAREST = 32  # neighbours of each image that are looked at for near-duplicates
OUTLIER = 10  # neighbours that an image is far from if it is an outlier


@dataclass(frozen=True)
class Match:
    """An image that was found."""

    path: str
    similarity: float  # cosine of its vector and the query's
    id: int
    row: int  # of the file of vectors


class Index:
    """Vectors of one encoder, to search in.

    >>> index = Index.load("vectors.parquet")  # doctest: +SKIP
    >>> index.search(["photos/cat.jpg"], top=3)[0][0].path  # doctest: +SKIP
    'photos/cat.jpg'
    """

    @own_torch_state()
    def __init__(self, vectors: Vectors, encoder: ImageEncoder | Learner | str | Path | None = None) -> None:
        self.fingerprint = require_one_encoder(vectors.encoders, "this file")
        self.rows = vectors
        self._given = encoder
        found = torch.from_numpy(np.asarray(vectors.vector, np.float32))
        self.unit = torch.nn.functional.normalize(found)  # [n, d]; a vector of zeros stays one
        if encoder is not None and len(vectors):
            _ = self.encoder  # another one is refused now, also where no query will need it

    @classmethod
    def load(cls, path: str | Path, encoder: ImageEncoder | Learner | str | Path | None = None) -> Index:
        """The vectors that `ocssl embed` wrote. `encoder`: by default the run or export that made them."""
        return cls(read_vectors(Path(path)), encoder)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Index({len(self):,} vectors of {self.unit.shape[1]:,} dimensions, encoder {self.fingerprint})"

    @cached_property
    def encoder(self) -> ImageEncoder:
        """The encoder of these vectors; a SettingError where it is another one."""
        source, kept = self._given, self.rows.facts.get("run")
        if source is None:
            if not isinstance(kept, str) or not kept or not os.path.isdir(kept):
                raise SettingError("the encoder of these vectors is not where it was: name its run with --encoder RUN.")
            source = kept
        # a copy, which stays as it was checked: the caller's may learn on
        found = copy.deepcopy(source) if isinstance(source, ImageEncoder) else load_encoder(source)
        require_same(self.fingerprint, found.fingerprint, "these vectors and this run", _ADVICE)
        if len(self):
            require_dimension(self.unit.shape[1], found.dimension, "the file of vectors")
        return found

    @own_torch_state()
    def vectors_of(self, queries: Any) -> Tensor:
        """Unit vectors [q, d] of images, or of vectors (float [q, d] or [d]), or of the rows of another index.

        Vectors must be of the encoder of this index: an array of numbers does not say which encoder made it.
        """
        if isinstance(queries, Index):
            require_same(self.fingerprint, queries.fingerprint, "two files of vectors", _ADVICE)
            return queries.unit
        kind = getattr(queries, "dtype", None)
        if kind is not None and "float" in str(kind):
            found = torch.as_tensor(queries).detach().cpu().float()
            found = found[None] if found.ndim == 1 else found
            if found.ndim != 2 or found.shape[1] != self.unit.shape[1]:
                raise DataError(f"wanted vectors [n, {self.unit.shape[1]}], got {list(found.shape)}.")
            if not bool(torch.isfinite(found).all()):
                raise DataError("wanted vectors of finite numbers.")
        else:
            found = self.encoder(queries).cpu().float()
        return torch.nn.functional.normalize(found)

    @own_torch_state()
    def search(self, queries: Any, top: int = 20) -> list[list[Match]]:
        """For each image or vector the `top` most similar rows, the most similar first.

        Images are a list of PIL images or paths, or uint8 arrays; they go through the encoder of these vectors.
        Vectors (float [q, d] or [d]) are compared as they are: they must be of the same encoder, which is not checked.
        """
        top = min(checked_int("top", top, 1, 2**20), len(self))
        if not top:  # no vectors, and no encoder either
            return [[] for _ in range(1 if getattr(queries, "ndim", 2) == 1 else len(queries))]
        wanted = self.vectors_of(queries)
        if len(self) > MOST_EXACT and len(wanted) > MANY:
            return self._approximate(wanted, top)
        found = []
        for _, values, places in self._nearest(wanted, top):
            found += [self._matches(*pair) for pair in zip(values.tolist(), places.tolist(), strict=True)]
        return found

    def _matches(self, values: Sequence[float], places: Sequence[int]) -> list[Match]:
        best = sorted(zip(values, places, strict=True), key=lambda pair: (-pair[0], pair[1]))
        return [self._match(*pair) for pair in best]

    def _match(self, similarity: float, row: int) -> Match:
        return Match(self.rows.path[row], similarity, int(self.rows.id[row]), row)

    def _nearest(self, wanted: Tensor, top: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Similarities and rows of the nearest, block by block; with the first query of the block."""
        step = max(1, AT_ONCE // max(1, len(self)))
        for start in range(0, len(wanted), step):
            values, places = (wanted[start : start + step] @ self.unit.T).topk(top)
            yield start, values, places

    @cached_property
    def _graph(self) -> Any:
        """usearch's index, built when it is first searched in."""
        graph = _usearch().Index(ndim=self.unit.shape[1], metric="cos", dtype="f16")
        graph.add(np.arange(len(self)), self.unit.numpy())
        return graph

    def _approximate(self, wanted: Tensor, top: int) -> list[list[Match]]:
        found = self._graph.search(wanted.numpy(), top)
        keys = np.asarray(found.keys).reshape(len(wanted), -1).tolist()
        return [self._matches((self.unit[row] @ query).tolist(), row) for row, query in zip(keys, wanted, strict=True)]

    @own_torch_state()
    def neighbours(self) -> tuple[Tensor, Tensor]:
        """Of each row the most similar other rows: similarities and row numbers, [n, at most 32]."""
        return self._neighbours

    @cached_property
    def _neighbours(self) -> tuple[Tensor, Tensor]:
        top = min(NEAREST, len(self) - 1)
        values = torch.full((len(self), max(0, top)), -1.0)
        places = torch.zeros(len(self), max(0, top), dtype=torch.int64)
        if top < 1:
            return values, places
        for start, near, where in self._nearest(self.unit, top + 1):
            own = torch.arange(start, start + len(near))[:, None] == where
            own[~own.any(dim=1), -1] = True  # many equal vectors: the row itself was not among the nearest
            values[start : start + len(near)] = near[~own].view(len(near), top)
            places[start : start + len(near)] = where[~own].view(len(near), top)
        return values, places

    @own_torch_state()
    def duplicates(self, threshold: float = 0.97) -> list[list[Match]]:
        """Groups of near-duplicates: an image, and those whose similarity to it is at least `threshold`.

        The image with the most of them starts the first group. The similarity of a match is that to the first image of
        its group, so that no chain of ever less similar images makes one. Files of one checksum stay together. Larger
        groups come first.
        """
        if not -1 <= threshold <= 1:
            raise SettingError(f"threshold is {threshold}: a cosine, between -1 and 1, is wanted.")
        values, places = self.neighbours()
        close = values >= threshold
        copies: dict[str, list[int]] = {}
        for row, digest in enumerate(self.rows.sha256):
            copies.setdefault(digest, []).append(row)
        counts = close.sum(dim=1).tolist()
        counts = [max(counts[row], len(copies[digest]) - 1) for row, digest in enumerate(self.rows.sha256)]
        free, groups = set(range(len(self))), []
        for first in sorted(free, key=lambda row: (-counts[row], row)):
            if not counts[first]:
                break
            if first not in free:
                continue
            if bool(close[first].all()):  # there may be more than the neighbours that are known
                near = (self.unit @ self.unit[first] >= threshold).nonzero().flatten().tolist()
            else:
                near = places[first][close[first]].tolist()
            alike = {first, *near} & free
            group = {copy for row in alike for copy in copies[self.rows.sha256[row]]} & free
            free -= group
            if len(group) > 1:
                rows = [first, *(group - {first})]
                similar = (self.unit[rows] @ self.unit[first]).tolist()
                head, *others = (self._match(*pair) for pair in zip(similar, rows, strict=True))
                groups.append([head, *sorted(others, key=lambda match: (-match.similarity, match.row))])
        return sorted(groups, key=lambda group: (-len(group), group[0].row))

    @own_torch_state()
    def outliers(self, top: int = 20) -> list[Match]:
        """The images that are least like their ten nearest others; the similarity is the mean of those."""
        top = min(checked_int("top", top, 1, 2**20), len(self))
        mean = self.neighbours()[0][:, :OUTLIER].mean(dim=1)
        if len(self) < 2:
            return []
        values, places = mean.topk(top, largest=False)
        return [self._match(*pair) for pair in sorted(zip(values.tolist(), places.tolist(), strict=True))]


_ADVICE = "embed the images again with ocssl embed --refresh, or name the run that made the vectors with --encoder"


def _usearch() -> Any:
    try:
        import usearch.index
    except ImportError:
        said = f"more than {MANY:,} queries in more than {MOST_EXACT:,} vectors need usearch: {install('search')}"
        raise OcsslError(said) from None
    return usearch.index
