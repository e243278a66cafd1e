"""What the Overlap loss does to features: whether it contracts them all, and moves all images of a batch together.

    ocssl sweep docs/results/search-cifar100/specs/overlap-alone.toml --data DIR
    python benchmarks/overlap_gradient.py runs/overlap-alone --data DIR

Each finished run continues from its last checkpoint for some minibatches of its own images (nothing is saved), and the
gradient of the Overlap loss with respect to the features is looked at in every step. It is split into the push away
from stored centres and the pull of a sample's own views together (what `terms.overlap.detach_angle` stops).

- Contraction, of push and of pull: the cosine between a step down that part of the loss and one in which every view
  moves straight towards the batch's mean. 1: the step shrinks the cloud of features and does nothing else; 0: it leaves
  its size alone; -1: it blows it up.
- Common share of the push: |mean over rows|^2 / mean over rows of |.|^2. 1 if all rows are moved alike, 1 / rows if
  they are moved at random.
- Pull: its length as a part of the whole gradient's.
- Cone: the mean cosine between features of different images.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

import ocssl
from ocssl._core.angles import unit
from ocssl._core.table import Row, Table
from ocssl.data import load_benchmark
from ocssl.results.read_runs import Run
from ocssl.results.run_groups import by_series, find_runs
from ocssl.runs.config import read_settings
from ocssl.runs.folder import SETTINGS
from ocssl.terms.overlap import Overlap
from ocssl.terms.term import Penalty, Step

MINIBATCHES = 5


def common_share(gradients: Tensor) -> float:
    """How much of the rows' squared length is their mean's: [B, D] -> scalar.

    >>> common_share(torch.ones(4, 3)), common_share(torch.tensor([[1.0], [-1.0]]))
    (1.0, 0.0)
    """
    return float(gradients.mean(0).square().sum() / gradients.square().sum(1).mean())


def contraction(gradient: Tensor, features: Tensor) -> float:
    """The cosine between a step down and one towards the mean of all views: [V, B, D] x 2 -> scalar.

    >>> x = torch.tensor([[[1.0], [3.0]]])
    >>> contraction(torch.tensor([[[-1.0], [1.0]]]), x), contraction(torch.tensor([[[1.0], [1.0]]]), x)
    (1.0, 0.0)
    """
    inwards = features.mean((0, 1)) - features
    return float(-(gradient * inwards).sum() / (gradient.norm() * inwards.norm()))


def cone(features: Tensor) -> float:
    """The mean cosine between different rows: [B, D] -> scalar."""
    rows, n = unit(features), len(features)
    return float((rows.sum(0).square().sum() - n) / (n * (n - 1)))


class Observer(Overlap):
    """The same loss; notes what its two parts do to the features in every step."""

    noted: list[tuple[float, ...]]

    def forward(self, step: Step) -> Penalty:
        penalty = super().forward(step)
        features = step.out.features  # [V, B, D]
        if features.requires_grad and penalty.loss.requires_grad:
            (whole,) = torch.autograd.grad(penalty.loss, features, retain_graph=True)
            self.detach_angle = True
            (push,) = torch.autograd.grad(super().forward(step).loss, features, retain_graph=True)
            self.detach_angle = False
            x, pull = features.detach(), whole - push
            active = float(penalty.signals["active"])
            part = float(pull.norm() / whole.norm())
            inwards = contraction(push, x), contraction(pull, x)
            self.noted.append((*inwards, common_share(push.mean(0)), part, active, cone(x[0])))
        return penalty


def watch(learner: ocssl.Learner, minibatches: Iterable[Tensor]) -> list[float]:
    """Means over the steps of some minibatches: contraction by both parts, common share, pull, active pairs, cone."""
    term = learner.terms["overlap"]
    term.__class__, term.noted = Observer, []
    for images in minibatches:
        learner.partial_fit(images)
    return [fmean(column) for column in zip(*term.noted, strict=True)]


def observe(run: Run, data: Path | None) -> list[float]:
    """The same of a run, on the first images of its stream."""
    settings = read_settings(run.folder / SETTINGS)
    benchmark = load_benchmark(settings.benchmark, settings.stream, settings.reading(data))
    rows = torch.arange(MINIBATCHES * settings.schedule.stream_batch).split(settings.schedule.stream_batch)
    return watch(ocssl.Learner.load(run.folder), (images for images, _ in benchmark.train.walk(rows)))


def table_of(runs: Sequence[Run], data: Path | None) -> Table:
    rows = []
    for name, own in by_series([run for run in runs if run.finished]).items():
        columns = zip(*(observe(run, data) for run in own), strict=True)
        push, pull, share, part, active, width = (fmean(column) for column in columns)
        numbers = [f"{push:+.2f}", f"{pull:+.2f}", f"{share:.0%}", f"{part:.2f}", f"{active:.1%}", f"{width:.2f}"]
        rows.append(Row([name, f"{len(own)}", *numbers]))
    heads = ["", "seeds", "push", "pull", "common share of the push", "pull", "active pairs", "cone"]
    above = ["", "", "contraction", "contraction", "", "", "", ""]
    return Table(
        heads, rows, title="What the Overlap loss does to features", caption="Means over seeds and steps.", above=above
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="folders of run folders")
    parser.add_argument("--data", type=Path, help="where the images are, if not where they were")
    options = parser.parse_args()
    print(table_of(find_runs(options.folders), options.data).markdown())


if __name__ == "__main__":
    main()
