"""Probes of features: seconds at the paper's size, and how much longer naive code takes.

Joint: 100 classes, 45,000 training, 5,000 validation and 10,000 test features of 512-d. Tasks: 20 of 5 classes with
2,250, 250 and 500. A fifth of all that with --quick. Features are overlapping classes behind a ReLU, so that
training takes many epochs.
"""

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from ocssl.bench.timing import Bar, Effort, Row, Workload, interleaved, ratio, spread
from ocssl.data import Benchmark, load_benchmark
from ocssl.errors import OcsslError
from ocssl.evaluate import ProbeResult, Task, knn_probe, linear_probe, linear_probes, ridge_probe
from ocssl.evaluate.evaluation import encode_benchmark, probe
from ocssl.learner import Learner
from ocssl.settings import DataSettings, StreamSettings

Sizes = tuple[int, int, int]  # training, validation and test samples
Pair = tuple[Tensor, Tensor]  # features and labels
JOINT: Sizes = (45_000, 5_000, 10_000)
TASK: Sizes = (2_250, 250, 500)
WIDTH, CLASSES, TASKS, TASK_CLASSES = 512, 100, 20, 5
JOINT_SECONDS, TASKS_SECONDS = 60, 30  # at most
PROBES = ("linear", "ridge", "knn")
RATE, LEAST, PATIENCE = 0.05, 1e-4, 5  # of `linear_probe`
ALIKE = 0.98  # part of the answers that two ways of the same arithmetic must share: rounding decides a few


def probes_rows(effort: Effort) -> Iterator[Row]:
    sizes, each = (fifth(JOINT), fifth(TASK)) if effort.quick else (JOINT, TASK)
    joint = overlapping(CLASSES, sizes, noise=3.0, seed=0)
    tasks = [overlapping(TASK_CLASSES, each, noise=6.0, seed=seed) for seed in range(TASKS)]
    yield from to_the_end(joint, tasks, effort.rounds(3, 2), bars=not effort.quick)
    yield from against_autograd(joint, epochs=5, rounds=effort.rounds(3, 2))
    yield from side_by_side(tasks, epochs=10, rounds=effort.rounds(5, 3))
    yield from closed_form(joint, rounds=2)
    learner, benchmark = encoding(*((40, 10) if effort.quick else (240, 60)))
    yield from shared(learner, benchmark, effort.rounds(5, 3))


def fifth(sizes: Sizes) -> Sizes:
    return sizes[0] // 5, sizes[1] // 5, sizes[2] // 5


def overlapping(classes: int, sizes: Sizes, noise: float, seed: int, width: int = WIDTH) -> Task:
    """Classes of equal size: a centre each, 32 directions of variation that all share, noise, and a ReLU."""
    generator = torch.Generator().manual_seed(seed)
    centres, common = torch.randn(classes, width, generator=generator), torch.randn(32, width, generator=generator)
    parts = []
    for n in sizes:
        y = (torch.arange(n) % classes)[torch.randperm(n, generator=generator)]
        x = 0.5 * centres[y] + 0.3 * torch.randn(n, 32, generator=generator) @ common
        parts.append(((x + noise * torch.randn(n, width, generator=generator)).relu_(), y))
    train, val, test = parts
    return Task(*train, *test, *val)


def to_the_end(joint: Task, tasks: Sequence[Task], rounds: int, bars: bool) -> Iterator[Row]:
    """The linear probes as an evaluation runs them, to the end."""
    epochs: list[int] = []
    ways: dict[str, Workload] = {
        "joint": lambda: epochs.append(len(linear(joint).learning_rates)),
        "tasks": lambda: linear_probes(tasks),
    }
    times = interleaved(ways, rounds, warmup=0)
    joint_bar, tasks_bar = (Bar(JOINT_SECONDS), Bar(TASKS_SECONDS)) if bars else (None, None)
    note = f"it ended after {epochs[0]} epochs of at most 100"
    yield Row("probes", f"joint linear probe, {shape(joint)}", spread(times["joint"]), "s", joint_bar, note=note)
    name = f"linear probes of {len(tasks)} tasks, {shape(tasks[0])}"
    yield Row("probes", name, spread(times["tasks"]), "s", tasks_bar)


def against_autograd(joint: Task, epochs: int, rounds: int) -> Iterator[Row]:
    """The first epochs of the joint probe, beside torch.optim.Adam and autograd."""
    ours, theirs = Way(lambda: [linear(joint, epochs)]), Way(lambda: [autograd_probe(joint, epochs)])
    times = interleaved({"ours": ours, "autograd": theirs}, rounds)
    require_alike(ours.answers, theirs.answers)
    note, faster = f"{shape(joint)}, {epochs} epochs", ratio(times, "autograd", "ours")
    yield Row("probes", "joint linear probe, faster than by autograd", faster, "x", faster=True, note=note)


def side_by_side(tasks: Sequence[Task], epochs: int, rounds: int) -> Iterator[Row]:
    """The first epochs of the tasks' probes side by side, beside one after the other, and beside autograd."""
    ways = {
        "together": Way(lambda: linear_probes(tasks, epochs=epochs)),
        "one by one": Way(lambda: [linear(task, epochs) for task in tasks]),
        "by autograd": Way(lambda: [autograd_probe(task, epochs) for task in tasks]),
    }
    times = interleaved(ways, rounds)
    require_same(ways["together"].answers, ways["one by one"].answers)
    require_alike(ways["together"].answers, ways["by autograd"].answers)
    note = f"{len(tasks)} tasks, {shape(tasks[0])}, {epochs} epochs, {torch.get_num_threads()} threads"
    for peer in ("one by one", "by autograd"):
        faster = ratio(times, peer, "together")
        yield Row("probes", f"probes of tasks together, faster than {peer}", faster, "x", faster=True, note=note)


def closed_form(joint: Task, rounds: int) -> Iterator[Row]:
    """The probes in closed form."""
    data = joint.train_x, joint.train_y, joint.test_x, joint.test_y
    ways = {"ridge": lambda: ridge_probe(*data), "kNN": lambda: knn_probe(*data)}
    for name, seconds in interleaved(ways, rounds, warmup=0).items():
        yield Row("probes", f"{name} probe, {shape(joint)}", spread(seconds), "s")


def encoding(train: int, test: int, width: int = 16, size: int = 16) -> tuple[Learner, Benchmark]:
    """An encoder as slim as a study on a laptop takes, and images of ten classes, `train` and `test` of each."""
    stream = StreamSettings.model_validate({"image_size": size, "classes": 10, "train": train, "test": test})
    benchmark = load_benchmark("synthetic", stream, DataSettings())
    settings = {"encoder.width": width, "objective.projection": 64}
    return Learner("finetune", image_size=size, settings=settings), benchmark


def shared(learner: Learner, benchmark: Benchmark, rounds: int) -> Iterator[Row]:
    """Three probes of features that are encoded once, beside encoding for each of them."""
    once = Way(lambda: encoded_once(learner, benchmark))
    each = Way(lambda: encoded_for_each(learner, benchmark))
    faster = ratio(interleaved({"once": once, "each": each}, rounds), "each", "once")
    require_same(once.answers, each.answers)
    images = sum(map(len, (benchmark.train, benchmark.val, benchmark.test)))
    note = f"{images:,} images of {learner.image_size} px, width {learner.settings.encoder.model_dump()['width']}"
    yield Row("probes", "three probes of shared features, faster than encoding for each", faster, "x", None, True, note)


def encoded_once(learner: Learner, benchmark: Benchmark) -> list[ProbeResult]:
    features = encode_benchmark(learner, benchmark)
    return [probe(features, name, "none", 0) for name in PROBES]


def encoded_for_each(learner: Learner, benchmark: Benchmark) -> list[ProbeResult]:
    return [probe(encode_benchmark(learner, benchmark), name, "none", 0) for name in PROBES]


def linear(task: Task, epochs: int = 100) -> ProbeResult:
    return linear_probe(**vars(task), epochs=epochs)


class Way:
    """A way to train probes, which remembers their last predictions."""

    def __init__(self, work: Callable[[], Sequence[ProbeResult] | Sequence[Tensor]]) -> None:
        self.work, self.answers = work, torch.zeros(0)

    def __call__(self) -> None:
        found = [r if isinstance(r, Tensor) else torch.from_numpy(r.predictions) for r in self.work()]
        self.answers = torch.cat(found)


def require_same(ours: Tensor, theirs: Tensor) -> None:
    if not torch.equal(ours, theirs):
        raise OcsslError("two ways to the same probes do not answer the same.")


def require_alike(ours: Tensor, theirs: Tensor) -> None:
    same = float((ours == theirs).float().mean())
    if same < ALIKE:
        raise OcsslError(f"the linear probe and that by autograd share only {100 * same:.1f} % of their answers.")


def shape(task: Task) -> str:
    n, width = torch.as_tensor(task.train_x).shape
    return f"{n:,} x {width}"


# ---- by an optimizer and autograd -----------------------------------------------------------------------------------


def autograd_probe(task: Task, epochs: int = 100, batch: int = 256, seed: int = 0) -> Tensor:
    """The predictions of `linear_probe` on the test features, by `nn.Linear`, `torch.optim.Adam` and autograd.

    Labels are 0, 1, 2 and so on, and there is a validation set. On one thread, as `linear_probe`.
    """
    x, val_x, test_x = (
        nn.functional.normalize(torch.as_tensor(part).float()) for part in (task.train_x, task.val_x, task.test_x)
    )
    y, val_y = torch.as_tensor(task.train_y), torch.as_tensor(task.val_y)
    layer = nn.utils.skip_init(nn.Linear, x.shape[1], int(y.max()) + 1)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        _train(layer, (x, y), (val_x, val_y), epochs, batch, torch.Generator().manual_seed(seed))
    finally:
        torch.set_num_threads(threads)
    with torch.no_grad():
        predictions: Tensor = layer(test_x).argmax(1)
    return predictions


def _train(layer: nn.Module, data: Pair, val: Pair, epochs: int, batch: int, generator: torch.Generator) -> None:
    """Until the rate is spent; the layer ends with its best weights on the validation set."""
    x, y = data
    optimizer, loss = torch.optim.Adam(layer.parameters(), lr=RATE), nn.CrossEntropyLoss()
    best, most, stale = copy.deepcopy(layer.state_dict()), -1, 0
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(batch):
            optimizer.zero_grad()
            loss(layer(x[rows]), y[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            correct = int((layer(val[0]).argmax(1) == val[1]).sum())
        stale += 1
        if correct > most:
            best, most, stale = copy.deepcopy(layer.state_dict()), correct, 0
        elif stale == PATIENCE:
            optimizer.param_groups[0]["lr"] /= 3
            if optimizer.param_groups[0]["lr"] < LEAST:
                break
            layer.load_state_dict(best)
            stale = 0
    layer.load_state_dict(best)
