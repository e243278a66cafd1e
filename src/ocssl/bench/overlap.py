"""Time and memory of Overlap and Deviation, beside their bare matrix product and beside an arccos for every pair.

Features are normal and angles uniform up to 0.9 radians. The bare product is that of all samples with all samples, in
blocks of 1,024 rows into memory made before; Overlap is symmetric and needs half of it.
"""

import json
import sys
from collections.abc import Iterator

import torch
from torch import Tensor

from ocssl._core.angles import unit
from ocssl.bench import timing
from ocssl.bench.timing import Bar, Effort, Row, Times, Workload, interleaved, ratio, spread
from ocssl.errors import OcsslError
from ocssl.evaluate import deviation, overlap_count, overlap_count_from

FEATURE, VIEWS, BLOCK = 512, 20, 1024
PRODUCTS = 1.5  # how many times the bare product Overlap of 20,000 may take
ROUNDED = 1e-5  # share of pairs that float32 may decide otherwise


def overlap_rows(effort: Effort) -> Iterator[Row]:
    yield from beside_product(1000, FEATURE, effort.rounds(40, 10))
    yield from beside_arccos(5000, FEATURE, effort.rounds(8, 2))
    yield from alone(20_000, FEATURE, effort.rounds(3, 1), effort.threads, bar=Bar(PRODUCTS))
    if not effort.quick:
        yield from alone(100_000, FEATURE, 1, effort.threads, every=10)
        yield from of_views(5000, VIEWS, FEATURE, 4)
    yield from beside_reading(2000 if effort.quick else 10_000, VIEWS, FEATURE, effort.rounds(10, 8))


def beside_product(n: int, d: int, rounds: int) -> Iterator[Row]:
    """Overlap from mean features and angles, as the memory stores them."""
    yield from product_rows(n, d, interleaved(workloads(*samples(n, d)), rounds))


def beside_arccos(n: int, d: int, rounds: int) -> Iterator[Row]:
    """The same, and beside the matrix of all angles."""
    means, angles = samples(n, d)
    if abs(overlap_count_from(means, angles) - arccos_per_pair(means, angles)) > ROUNDED:
        raise OcsslError("Overlap and its formula, pair by pair, do not count the same pairs.")
    all_three: dict[str, Workload] = {**workloads(means, angles), "arccos": lambda: arccos_per_pair(means, angles)}
    times = interleaved(all_three, rounds, warmup=0)
    yield from product_rows(n, d, times)
    name = f"Overlap of {n:,}, faster than an arccos per pair"
    yield Row("overlap", name, ratio(times, "arccos", "overlap"), "x", faster=True, note=f"{n:,} x {d}")


def alone(n: int, d: int, rounds: int, threads: int, every: int = 1, bar: Bar | None = None) -> Iterator[Row]:
    """The same in another process, and how far its memory grew beside the means."""
    answer = timing.in_process(measure_alone, n, d, rounds, threads, every)
    yield from product_rows(n, d, answer["times"], every, bar)
    if answer["beside"] is not None:
        note = f"{n:,} x {d}; the means take {n * d * 4 / 2**20:.0f} MB"
        yield Row(
            "overlap", f"Overlap of {n:,}, memory beside the means", timing.exact(answer["beside"]), "MB", note=note
        )


def measure_alone(n: int, d: int, rounds: int, threads: int, every: int) -> None:
    """Times of Overlap and the product, and the growth of this process in MB, as JSON on standard output."""
    torch.set_num_threads(threads)
    both = workloads(*samples(n, d), every)
    before = timing.resident_mb()
    times = interleaved(both, rounds, warmup=0)
    peak = timing.resident_mb("VmHWM")
    json.dump({"times": times, "beside": None if before is None or peak is None else peak - before}, sys.stdout)


def product_rows(n: int, d: int, times: Times, every: int = 1, bar: Bar | None = None) -> Iterator[Row]:
    """The ratio to the whole product, of which only every `every`-th block of rows was computed."""
    computed = sum(min(BLOCK, n - start) for start in range(0, n, every * BLOCK))
    figure = ratio({**times, "product": [s * n / computed for s in times["product"]]}, "overlap", "product")
    note = f"{n:,} x {d}" + (f"; the product from that of {computed:,} rows with all" if every > 1 else "")
    yield Row("overlap", f"Overlap of {n:,} / matrix product", figure, "x", bar, note=note)
    yield Row("overlap", f"Overlap of {n:,}", spread(times["overlap"], 1e3), "ms", note=f"{n:,} x {d}")


def of_views(n: int, v: int, d: int, rounds: int) -> Iterator[Row]:
    """Overlap that computes means and angles first."""
    views = around_centres(n, v, d)
    means = views.mean(1)
    both = {"overlap": lambda: overlap_count(views), "product": lambda: product(means)}
    figure = ratio(interleaved(both, rounds), "overlap", "product")
    yield Row("overlap", f"Overlap of {n:,} from {v} views / matrix product", figure, "x", note=f"{n:,} x {v} x {d}")


def beside_reading(n: int, v: int, d: int, rounds: int) -> Iterator[Row]:
    """Deviation, which has to read all views once."""
    views = around_centres(n, v, d)
    room = torch.empty_like(views)
    plain: dict[str, Workload] = {
        "deviation": lambda: deviation(views),
        "reading once": views.sum,
        "copying": lambda: room.copy_(views),
    }
    times = interleaved(plain, rounds)
    for other in ("reading once", "copying"):
        figure = ratio(times, "deviation", other)
        yield Row("overlap", f"Deviation of {n:,} / {other}", figure, "x", note=f"{n:,} x {v} x {d}")


def workloads(means: Tensor, angles: Tensor, every: int = 1) -> dict[str, Workload]:
    return {"overlap": lambda: overlap_count_from(means, angles), "product": lambda: product(means, every)}


def product(features: Tensor, every: int = 1) -> None:
    """The bare product of features [n, d] with themselves in blocks; only every `every`-th block of rows."""
    room = torch.empty(BLOCK * BLOCK)
    for a in features.split(BLOCK)[::every]:
        for b in features.split(BLOCK):
            torch.mm(a, b.T, out=room[: len(a) * len(b)].view(len(a), len(b)))


def samples(n: int, d: int) -> tuple[Tensor, Tensor]:
    """Mean features [n, d] and angles [n]."""
    generator = torch.Generator().manual_seed(0)
    return torch.empty(n, d).normal_(generator=generator), torch.rand(n, generator=generator) * 0.9


def around_centres(n: int, v: int, d: int) -> Tensor:
    """Views [n, v, d] around a centre of their sample."""
    generator = torch.Generator().manual_seed(0)
    views = torch.empty(n, v, d).normal_(generator=generator)
    return views.add_(torch.randn(n, 1, d, generator=generator))


def arccos_per_pair(means: Tensor, angles: Tensor) -> float:
    """Overlap by its formula: share of ordered pairs i != j with theta_i + theta_j - angle(mean i, mean j) > 0.

    In the precision of its input: in float32 pairs that nearly touch may be decided by rounding.
    """
    rows = unit(means)
    between = torch.arccos((rows @ rows.T).clamp(-1, 1))  # [n, n]
    hits = angles[:, None] + angles - between > 0
    return float(hits.fill_diagonal_(False).sum()) / (len(means) * (len(means) - 1))
