"""Streams and benchmarks: images in an order, with labels that only evaluation sees."""

from ocssl.streams import cifar, clear, folder, hub, imagenet, inat, parquet  # noqa: F401 - they register benchmarks
from ocssl.streams.benchmark import BENCHMARKS, Benchmark, BenchmarkMaker, load_benchmark
from ocssl.streams.orders import Experience
from ocssl.streams.part import Part
from ocssl.streams.stream import Batch, ExperienceStream, Stream
from ocssl.streams.synthetic import Synthetic

__all__ = [
    "BENCHMARKS",
    "Batch",
    "Benchmark",
    "BenchmarkMaker",
    "Experience",
    "ExperienceStream",
    "Part",
    "Stream",
    "Synthetic",
    "load_benchmark",
]
