"""Streams and benchmarks: images in an order, with labels that only evaluation sees."""

from ocssl.streams.benchmark import BENCHMARKS, Benchmark, BenchmarkMaker, Labelled, load_benchmark
from ocssl.streams.stream import Batch, ExperienceStream, Stream
from ocssl.streams.synthetic import Synthetic

__all__ = [
    "BENCHMARKS",
    "Batch",
    "Benchmark",
    "BenchmarkMaker",
    "ExperienceStream",
    "Labelled",
    "Stream",
    "Synthetic",
    "load_benchmark",
]
