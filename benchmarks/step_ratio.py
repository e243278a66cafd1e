"""What SOLAR costs beside FIFO replay: the same network, batch and images, steps interleaved in one process.

    python benchmarks/step_ratio.py --rounds 60

Prints the median time of a step of each method and the median of the ratios of neighbouring steps, with its quartiles.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import ocssl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60, help="pairs of steps that are timed")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--size", type=int, default=16, help="pixels of a side")
    parser.add_argument("--capacity", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (4096, 3, args.size, args.size), dtype=torch.uint8, generator=generator)
    settings = {"encoder.width": args.width, "memory.capacity": args.capacity, "schedule.passes": 1}
    learners = {m: ocssl.Learner(m, image_size=args.size, settings=settings) for m in ("er-fifo", "solar")}
    for learner in learners.values():  # fill the memory without training
        full = images[: args.capacity]
        statistics_ = {"loss": torch.rand(len(full)), "angle": torch.rand(len(full))}
        learner.memory.insert(
            full, torch.arange(len(full)), {**statistics_, "feature": torch.rand(len(full), 8 * args.width)}
        )

    seconds: dict[str, list[float]] = {m: [] for m in learners}
    for number in range(args.rounds + 5):
        order = list(learners) if number % 2 else list(learners)[::-1]
        batch = images[(10 * number) % 4000 :][:10]
        for method in order:
            start = time.perf_counter()
            learners[method].partial_fit(batch)
            seconds[method].append(time.perf_counter() - start)
    timed = {method: times[5:] for method, times in seconds.items()}
    ratios = sorted(s / f for s, f in zip(timed["solar"], timed["er-fifo"], strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    for method, times in timed.items():
        print(f"{method:<8} {1000 * statistics.median(times):7.1f} ms a step (median of {len(times)})")
    print(f"solar / er-fifo: {middle:.3f} (quartiles {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
