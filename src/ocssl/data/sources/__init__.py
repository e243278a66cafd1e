"""Where images come from, one file a kind; each registers its benchmark."""

from ocssl.data.sources import cifar, clear, folder, hub, imagenet, inat, parquet, synthetic
from ocssl.data.sources.source import BENCHMARKS

__all__ = ["BENCHMARKS", "cifar", "clear", "folder", "hub", "imagenet", "inat", "parquet", "synthetic"]
