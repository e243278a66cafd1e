"""Images in an order: sources, benchmarks and streams, with labels that only evaluation sees.

Worker processes import parts of this package to decode images, so it imports nothing (above all not torch) by itself.
"""

from typing import TYPE_CHECKING

from ocssl._core.lazy_import import lazy

if TYPE_CHECKING:
    from ocssl.data.benchmark import Benchmark, load_benchmark
    from ocssl.data.orders import Experience
    from ocssl.data.sources import BENCHMARKS
    from ocssl.data.sources.source import BenchmarkMaker
    from ocssl.data.sources.synthetic import Synthetic
    from ocssl.data.stream import Batch, ExperienceStream, Stream, Subset

__all__ = [
    "BENCHMARKS",
    "Batch",
    "Benchmark",
    "BenchmarkMaker",
    "Experience",
    "ExperienceStream",
    "Stream",
    "Subset",
    "Synthetic",
    "load_benchmark",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "BENCHMARKS": "ocssl.data.sources",
        "Batch": "ocssl.data.stream",
        "Benchmark": "ocssl.data.benchmark",
        "BenchmarkMaker": "ocssl.data.sources.source",
        "Experience": "ocssl.data.orders",
        "ExperienceStream": "ocssl.data.stream",
        "Subset": "ocssl.data.stream",
        "Stream": "ocssl.data.stream",
        "Synthetic": "ocssl.data.sources.synthetic",
        "load_benchmark": "ocssl.data.benchmark",
    },
)
