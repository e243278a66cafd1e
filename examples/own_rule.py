"""A keep rule of your own: of the stored images, the one that was drawn most often leaves.

python examples/own_rule.py
"""

import numpy as np
import torch

import ocssl
from ocssl.memory import KEEPS, Keep
from ocssl.memory.keep import REFUSED, lowest


@KEEPS.add("drawn-out")
class DrawnOut(Keep):
    """The stored image that was drawn most often leaves; of equals the oldest."""

    needs = frozenset({"born", "draws"})

    def place(self, store, arriving, generator):  # type: ignore[no-untyped-def]
        count = len(arriving["born"])
        slots = torch.full((count,), REFUSED)
        kept = min(count, store.capacity)
        slots[count - kept :] = lowest(-store["draws"], store["born"], kept)
        return slots


def main(batches: int = 10, width: int = 16) -> ocssl.Learner:
    settings = {"encoder.width": width, "memory.capacity": 60, "memory.keep": "drawn-out", "memory.draw": "uniform"}
    learner = ocssl.Learner("er-reservoir", image_size=16, settings=settings)
    images = np.random.default_rng(0)
    for _ in range(batches):
        learner.partial_fit(images.integers(0, 256, (10, 16, 16, 3), dtype=np.uint8))
    print(learner)
    return learner


if __name__ == "__main__":
    main()
