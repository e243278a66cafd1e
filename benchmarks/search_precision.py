"""Precision at 10 of search by class: how many of an image's ten nearest others have its class, in per cent.

    python benchmarks/search_precision.py ../shared/data/mini-imagenet-64/test-*.parquet untrained=UNTRAINED trained=RUN

Each encoder is `NAME=PATH` of a run, a saved learner or an export. Images are the first of each class; labels are only
counted. With --folder the images are written to a folder, for `ocssl embed` and a page of pictures.
"""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import ocssl
from ocssl.data.decode.arrow_files import ParquetFiles, read_column

TOP = 10


def chosen(paths: list[Path], each: int) -> tuple[list[Image.Image], np.ndarray[Any, Any]]:
    """The first images of each class, and their classes."""
    labels, files = np.asarray(read_column(paths, "label")), ParquetFiles(paths)
    rows = np.sort(np.concatenate([np.flatnonzero(labels == label)[:each] for label in np.unique(labels)]))
    return [Image.open(io.BytesIO(files.read(int(row)))) for row in rows], labels[rows]


def precision(vectors: torch.Tensor, labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of each image the share of its ten nearest others that have its class, in per cent."""
    unit = torch.nn.functional.normalize(vectors)
    nearest = (unit @ unit.T).fill_diagonal_(-2).topk(TOP).indices.numpy()
    return np.asarray(100 * (labels[nearest] == labels[:, None]).mean(axis=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", help="parquet files, then NAME=PATH of encoders")
    parser.add_argument("--each", type=int, default=20, help="images of a class")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_intermixed_args()
    files = [Path(word) for word in given.paths if "=" not in word]
    images, labels = chosen(files, given.each)
    if given.folder:
        for n, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
            path = given.folder / f"{label:03d}" / f"{n:05d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.convert("RGB").save(path)
    for word in given.paths:
        if "=" in word:
            name, _, place = word.partition("=")
            encoder = ocssl.load_encoder(place)
            found = precision(encoder(images), labels)
            by_class = [float(found[labels == label].mean()) for label in np.unique(labels)]
            low, middle, high = np.quantile(by_class, [0.1, 0.5, 0.9]).round(1).tolist()
            facts = {"encoder": name, "images": len(images), "precision": round(float(found.mean()), 2)}
            print(json.dumps({**facts, "classes": {"10 %": low, "50 %": middle, "90 %": high}}), flush=True)
