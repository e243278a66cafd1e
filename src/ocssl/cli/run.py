"""Commands that learn: `ocssl run`, `pretrain`, `resume`, `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ocssl.cli.app import app, console
from ocssl.cli.options import (
    COMPAT,
    Assignments,
    BadImages,
    Benchmark,
    Cache,
    Compat,
    Count,
    Data,
    Device,
    Moved,
    Parts,
    Quiet,
    RunFolder,
    Seed,
    Track,
)
from ocssl.cli.start import data_path, given_by, go_on, job, start


@app.command
def run(
    method: str,
    benchmark: Benchmark = "synthetic",
    /,
    *,
    out: Path | None = None,
    seed: Seed = 0,
    set: Assignments = None,
    data: Data = None,
    bad_images: BadImages = None,
    workers: Count | None = None,
    cache: Cache = None,
    init: Path | None = None,
    probe_compat: Annotated[Compat | None, COMPAT] = None,
    parts: Parts = None,
    track: Track = None,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> int:
    """Train a method on a benchmark, evaluating on the way.

    Example: ocssl run solar cifar100 --data cifar-100-python --seed 1 --set memory.capacity=500

    Parameters
    ----------
    method
        A method (see: ocssl list methods) or the path of a recipe of your own (.toml).
    out
        The run folder; by default runs/METHOD-BENCHMARK-seedN.
    seed
        Decides initial weights, order inside experiences, views and memory.
    workers
        Decode images on the way with so many processes, instead of once into the cache.
    init
        Start from the weights of this run folder or saved learner.
    """
    flags = {
        "data.path": data_path(benchmark, data),
        "data.bad_images": bad_images,
        "data.workers": workers,
        "data.decode": None if workers is None else "live",
        "data.cache": cache,
        "init.path": init,
        "evaluate.compat": probe_compat,
    }
    with job(device, quiet, parts, track) as how:
        return start(method, benchmark, seed, given_by(flags, set), out, how)


@app.command
def pretrain(
    benchmark: Benchmark,
    /,
    *,
    out: Path | None = None,
    epochs: Count = 100,
    batch: Count = 256,
    seed: Seed = 0,
    set: Assignments = None,
    data: Data = None,
    bad_images: BadImages = None,
    cache: Cache = None,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> int:
    """Pre-train offline: SimSiam over many epochs of all images, the learning rate warming up and falling as a cosine.

    Example: ocssl pretrain inat --data inat2021 --out plants && ocssl run solar inat --data inat2021 --init plants

    Parameters
    ----------
    out
        The run folder; by default runs/pretrain-BENCHMARK-seedN.
    epochs
        Times that all images are gone through.
    batch
        Images a step.
    seed
        Decides initial weights, order and views.
    """
    flags = {
        "stream.epochs": epochs,
        "schedule.batch": batch,
        "schedule.stream_batch": batch,
        "data.path": data_path(benchmark, data),
        "data.bad_images": bad_images,
        "data.cache": cache,
    }
    with job(device, quiet) as how:
        return start("pretrain", benchmark, seed, given_by(flags, set), out, how)


@app.command
def resume(
    folder: RunFolder,
    /,
    *,
    data: Moved = None,
    parts: Parts = None,
    track: Track = None,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> int:
    """Continue a run that was stopped or killed; the result is the same to the bit.

    Example: ocssl resume runs/solar-synthetic-seed0
    """
    with job(device, quiet, parts, track) as how:
        return go_on(folder, how, data=data)


@app.command
def demo(*, out: Path = Path("ocssl-demo"), seed: Seed = 0) -> int:
    """Three methods on the embedded stream, a table and a report, in about two minutes on two cores.

    Example: ocssl demo

    Parameters
    ----------
    out
        The folder for the three runs and report.html; runs of an earlier demo in it are replaced.
    seed
        Another seed gives another stream order, other weights and views.
    """
    from ocssl.cli.demo import run_demo

    return run_demo(out, seed, console())
