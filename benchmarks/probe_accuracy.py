"""The accuracy of the linear probe beside scikit-learn's logistic regression, which takes several minutes.

    python benchmarks/probe_accuracy.py

100 classes, 45,000 training, 5,000 validation and 10,000 test features of 512-d. The penalty of the logistic regression
is the one that does best on the same validation set. What probes cost is told by `ocssl bench probes`.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from ocssl.bench.probes import CLASSES, JOINT, linear, overlapping
from ocssl.evaluate import Task


def ours(task: Task) -> None:
    result = linear(task)
    print(f"joint probe: test {result.accuracy:.2f}, validation {result.val_accuracy:.2f}", flush=True)


def logistic_regression(task: Task, strength: float) -> None:
    model = LogisticRegression(C=strength, max_iter=200).fit(normalize(task.train_x), task.train_y)
    test, val = (100 * model.score(normalize(x), y) for x, y in ((task.test_x, task.test_y), (task.val_x, task.val_y)))
    print(f"logistic regression, C {strength:g}: test {test:.2f}, validation {val:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--share", type=int, default=1, help="of the samples, one in so many, to try it out")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    train, val, test = (n // options.share for n in JOINT)
    task = overlapping(CLASSES, (train, val, test), noise=3.0, seed=0)
    ours(task)
    for strength in (1.0, 10.0, 100.0):
        logistic_regression(task, strength)


if __name__ == "__main__":
    main()
