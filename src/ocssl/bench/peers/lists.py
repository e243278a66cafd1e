"""A replay memory as a Python list of samples, each a dictionary of tensors, the way public replay buffers hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


class ListMemory:
    """SOLAR's memory of at most `capacity` samples: the highest losses stay. Which samples are drawn it is told."""

    def __init__(self, capacity: int, ema: float = 0.5) -> None:
        self.capacity = capacity
        self.ema = ema
        self.seen = 0
        self.samples: list[dict[str, Any]] = []

    def draw(self, slots: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Images and ids of the samples in these places, whose draws are counted."""
        drawn = [self.samples[slot] for slot in slots]
        for sample in drawn:
            sample["draws"] += 1
        return torch.stack([sample["image"] for sample in drawn]), torch.tensor([sample["id"] for sample in drawn])

    def refresh(self, slots: Sequence[int], statistics: Mapping[str, Tensor]) -> None:
        """Move the statistics of these samples towards their new values, one by one."""
        for row, slot in enumerate(slots):
            sample = self.samples[slot]
            for name, new in statistics.items():
                sample[name] = torch.lerp(new[row], sample[name], self.ema)

    def insert(self, images: Tensor, ids: Tensor, statistics: Mapping[str, Tensor]) -> None:
        """Sort stored and new samples by loss, of equal ones the older first; the lowest go, and the rest stays put.

        A newcomer takes the place of a stored sample that goes, the newcomers in order and the lowest first.
        """
        new: list[dict[str, Any]] = []
        for row in range(len(images)):
            measured = {name: column[row].clone() for name, column in statistics.items()}
            new.append({**measured, "image": images[row].clone(), "id": int(ids[row]), "born": self.seen, "draws": 0})
            self.seen += 1
        free = self.capacity - len(self.samples)
        self.samples += new[:free]
        late = new[free:]
        if not late:
            return
        everyone = sorted(self.samples + late, key=lambda sample: (sample["loss"].item(), sample["born"]))
        gone = {sample["born"] for sample in everyone[: len(late)]}
        places = {sample["born"]: slot for slot, sample in enumerate(self.samples)}
        freed = [places[sample["born"]] for sample in everyone[: len(late)] if sample["born"] in places]
        stay = [sample for sample in late if sample["born"] not in gone]
        for slot, sample in zip(freed, stay, strict=True):
            self.samples[slot] = sample

    def column(self, name: str) -> Tensor:
        """One statistic of all samples, in their order."""
        return torch.stack([torch.as_tensor(sample[name]) for sample in self.samples])
