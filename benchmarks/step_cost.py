"""What a step of every method costs beside one of FIFO replay: same network, batch and images, steps interleaved.

    python benchmarks/step_cost.py                          # ResNet-18 of width 64 at 32 px: about half an hour
    python benchmarks/step_cost.py --width 16 --size 16     # quick

Each stream minibatch is one step (`schedule.passes=1`), so that what a method does once a minibatch counts in full. The
memory is full. A method that needs network passes beyond FIFO's is compared with what those passes alone would cost:
`allowed` is FIFO's step plus bare passes of the same shape, timed in the same rounds. Ratios are medians of rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import ocssl
from ocssl import recipes
from ocssl.teachers import Teacher

Pass = tuple[str, int, int]  # forward or both ways, views, rows
# Network passes beside those of FIFO's own step: 2 views of 138 rows, forward and backward.
EXTRA: dict[str, list[Pass]] = {
    "minred": [("forward", 2, 10)],  # newcomers as they are
    "cla-e": [("forward", 2, 138)],  # teacher
    "scale": [("forward", 1, 138)],  # snapshot
    "mir": [("both", 2, 10), ("forward", 2, 512), ("forward", 2, 512)],  # virtual step; candidates before and after
    "gss": [("both", 2, 110)],  # gradients of ten parts of ten and of the newcomers: at most a whole backward pass
    "byol": [("forward", 2, 138)],  # target
    "moco": [("forward", 1, 138)],  # keys
    "cassle": [("forward", 2, 138)],  # frozen network
    "pfr": [("forward", 2, 138)],
    "sycon": [("forward", 2, 138)],
    "osiris-d": [("forward", 2, 10)],  # frozen encoder, stream rows
    "pocon": [("both", 2, 138), ("forward", 2, 138)],  # kept encoder; its past
}
INSTEAD: dict[str, list[Pass]] = {"cmp": [("both", 1, 200)]}  # methods whose step is another
OBJECTIVES = ("simclr", "byol", "barlow-twins", "moco", "vicreg")  # in FIFO's place of SimSiam


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="methods and objectives; by default all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--size", type=int, default=32, help="pixels of a side")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    names = args.names or [*sorted(recipes.methods()), *OBJECTIVES]
    print(f"{'method':14}{'step':>9}{'/ FIFO':>9}{'allowed':>10}{'/ allowed':>11}   quartiles of the last")
    for name in names:
        measure(name, args)


def learner(name: str, args: argparse.Namespace) -> ocssl.Learner:
    """With a full memory, past a boundary if it knows of boundaries, on minibatches of ten and one pass."""
    settings = {"encoder.width": args.width, "schedule.passes": 1}
    if name in OBJECTIVES:
        settings |= {"objective.name": name}
    made = ocssl.Learner(name if name in recipes.methods() else "er-fifo", image_size=args.size, settings=settings)
    fill(made, args.size)
    if made.settings.schedule.boundaries:
        made.boundary()
    return made


def fill(made: ocssl.Learner, size: int) -> None:
    memory, objective, generator = made.memory, made.objective, torch.Generator().manual_seed(1)
    n = memory.store.capacity
    rows = {
        "loss": torch.rand(n, generator=generator) - 1,
        "angle": torch.rand(n, generator=generator),
        "feature": torch.randn(n, objective.dimension, generator=generator),
        "projected": torch.randn(n, objective.projection, generator=generator),
    }
    images = torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator)
    memory.insert(images, torch.arange(n), rows, made._context(images[:10]))


def measure(name: str, args: argparse.Namespace) -> None:
    """FIFO, the method and its bare extra passes, one after the other in every round."""
    fifo, other = learner("er-fifo", args), learner(name, args)
    # offline recipes have no memory: all 138 rows are the stream's, as many as FIFO's
    rows = 138 if other.settings.schedule.stream_batch == 138 else 10
    generator = torch.Generator().manual_seed(0)
    shape = (3, args.size, args.size)
    stream = torch.randint(0, 256, (args.rounds + 1, 138, *shape), dtype=torch.uint8, generator=generator)
    bare = [passes(other, p, args.size) for p in INSTEAD.get(name, EXTRA.get(name, []))]
    times = [
        (
            took(lambda batch=batch: fifo.partial_fit(batch[:10])),
            took(lambda batch=batch: other.partial_fit(batch[:rows])),
            sum(took(run) for run in bare),
        )
        for batch in stream
    ]
    base, own, extra = zip(*times[1:], strict=True)  # the first round warms up
    allowed = list(extra) if name in INSTEAD else [a + b for a, b in zip(base, extra, strict=True)]
    ratios = sorted(a / b for a, b in zip(own, allowed, strict=True))
    low, _, high = statistics.quantiles(ratios, n=4)
    print(
        f"{name:14}{1000 * statistics.median(own):7.0f} ms"
        f"{statistics.median(a / b for a, b in zip(own, base, strict=True)):9.3f}"
        f"{statistics.median(a / b for a, b in zip(allowed, base, strict=True)):10.3f}"
        f"{statistics.median(ratios):11.3f}   {low:.3f} to {high:.3f}",
        flush=True,
    )


def passes(of: ocssl.Learner, shape: Pass, size: int) -> Callable[[], None]:
    """Encoder and projector alone, over ready tensors."""
    kind, views, rows = shape
    network = Teacher(of.objective, live=True).requires_grad_(kind == "both")
    images = torch.randn(views * rows, 3, size, size).contiguous(memory_format=torch.channels_last)

    def run() -> None:
        for view in images.split(rows):
            if kind == "forward":
                network(view[None])
            else:
                network.projector(network.encoder(view)).sum().backward()

    return run


def took(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
