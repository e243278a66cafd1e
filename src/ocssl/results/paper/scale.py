"""Scales: the paper's setting to the letter, or one fixed, smaller protocol that a CPU can run."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from ocssl.errors import unknown
from ocssl.runs.config import RunSettings, resolve_run

SCALES = ("mini", "paper")
SLOTS, TARGETS = "memory.capacity", "terms.overlap.k"  # what a smaller memory scales: its slots, and the Overlap's K
PRETRAIN = "pretrain"  # the recipe whose runs others start from


@dataclass(frozen=True)
class Scale:
    """What a scale changes about every run of a plan."""

    label: str
    note: str
    diagnosed: int  # stream images on which figures measure Deviation and Overlap; 0: all
    own: Mapping[str, Any]  # settings of all runs
    benchmark: str | None = None  # on which all run; None: those of the paper
    factor: float = 1.0  # of the paper's memory
    special: Mapping[str, Any] | None = None  # settings on that benchmark
    pretrain: Mapping[str, Any] | None = None  # benchmark and settings of pre-training

    def benchmarks(self, wanted: list[str]) -> list[str]:
        """Where a plan that names these benchmarks runs at this scale."""
        return [self.benchmark] if self.benchmark else wanted

    def resolve(self, method: str, benchmark: str, seed: int, wanted: Mapping[str, Any]) -> RunSettings:
        """The settings of a run for which a plan wants these."""
        if method == PRETRAIN and self.pretrain:
            stream = self._resolve(method, benchmark, seed, wanted)  # what it makes must fit into the stream's network
            same = {
                "stream.image_size": stream.stream.image_size,
                "encoder.name": stream.encoder.name,
                "encoder.width": stream.encoder.width,
                "objective.projection": stream.objective.projection,
            }
            other = {**wanted, **same, **self.pretrain["set"]}
            return self._resolve(method, self.pretrain["benchmark"], seed, other)
        return self._resolve(method, benchmark, seed, wanted)

    def _resolve(self, method: str, benchmark: str, seed: int, wanted: Mapping[str, Any]) -> RunSettings:
        given = {**self.own, **(self.special or {}), **wanted}
        settings = resolve_run(method, benchmark, seed, given)
        if self.factor == 1:
            return settings
        paper = resolve_run(method, "cifar100", seed, wanted)  # a benchmark may have a memory of its own
        smaller: dict[str, Any] = {}
        if paper.memory.capacity:
            smaller[SLOTS] = round(self.factor * paper.memory.capacity)
        if "overlap" in settings.terms:
            smaller[TARGETS] = round(self.factor * paper.terms["overlap"]["k"])
        return resolve_run(method, benchmark, seed, {**given, **smaller})


def read_scale(name: str, benchmark: str | None = None) -> Scale:
    """The scale of a name; one that runs everything on one benchmark takes the first that it knows unless told."""
    if name not in SCALES:
        raise unknown("scale", name, SCALES)
    table = tomllib.loads(files(__package__).joinpath("scales", f"{name}.toml").read_text())
    known = table.pop("benchmarks", {})
    told = {"own": table.pop("set"), "pretrain": table.pop(PRETRAIN, None)}
    if benchmark is None and known:
        benchmark = next(iter(known))
    if benchmark is not None:
        if benchmark not in known:
            choice = list(known) or ["none: the paper's benchmarks belong to it"]
            raise unknown(f"benchmark of the scale {name}", benchmark, choice)
        told |= {"benchmark": benchmark, "factor": known[benchmark]["memory"], "special": known[benchmark]["set"]}
    return Scale(**table, **told)
