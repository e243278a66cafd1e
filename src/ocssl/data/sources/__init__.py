"""Where images come from, one file per kind; each registers its benchmarks."""

from ocssl.data.sources import cifar, clear, image_folder, imagenet, inat, parquet_hub, synthetic
from ocssl.data.sources.source import BENCHMARKS

__all__ = ["BENCHMARKS", "cifar", "clear", "image_folder", "imagenet", "inat", "parquet_hub", "synthetic"]
