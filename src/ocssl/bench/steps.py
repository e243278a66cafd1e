"""What a training step costs: beside the bare network, phase by phase, and for every method beside FIFO replay."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ocssl import recipes
from ocssl._training.assembly import can_compile
from ocssl.bench.timing import Bar, Effort, Row, Workload, interleaved, ratio, spread
from ocssl.cost.layers import fill, noise
from ocssl.learner import Learner
from ocssl.objectives.teachers import Teacher
from ocssl.runs.profiler import PHASES, PhaseClock

ROWS, STREAM = 138, 10  # samples of a step, and how many of them are new
SLIM, FULL = (16, 16), (64, 32)  # width of ResNet-18, pixels of a side
WHOLE = {SLIM: Bar(1.25), FULL: Bar(1.08)}  # how much longer than the bare network a whole step may take
SOLAR = {SLIM: Bar(1.03)}  # how much longer than a FIFO step one of SOLAR may take: where the network costs least

Pass = tuple[str, int, int]  # forward or both ways, views, rows
# Network passes beside those of FIFO's step: 2 views of 138 rows, forward and backward.
EXTRA: dict[str, list[Pass]] = {
    "minred": [("forward", 2, STREAM)],  # newcomers as they are
    "cla-e": [("forward", 2, ROWS)],  # teacher
    "climb": [("forward", 2, ROWS)],  # teacher
    "storyboard": [("forward", 2, STREAM)],  # newcomers as they are
    "scale": [("forward", 1, ROWS)],  # snapshot
    "mir": [("both", 2, STREAM), ("forward", 2, 512), ("forward", 2, 512)],  # virtual step; candidates before and after
    "gss": [("both", 2, 110)],  # gradients of ten parts of ten and of the newcomers: at most a whole backward pass
    "byol": [("forward", 2, ROWS)],  # target
    "moco": [("forward", 1, ROWS)],  # keys
    "cassle": [("forward", 2, ROWS)],  # frozen network
    "pfr": [("forward", 2, ROWS)],
    "sycon": [("forward", 2, ROWS)],
    "osiris-d": [("forward", 2, STREAM)],  # frozen encoder, stream rows
    "pocon": [("both", 2, ROWS), ("forward", 2, ROWS)],  # kept encoder; its past
}
INSTEAD: dict[str, list[Pass]] = {"cmp": [("both", 1, 200)]}  # methods whose step is another
OBJECTIVES = ("simclr", "byol", "barlow-twins", "moco", "vicreg")  # in the place of FIFO's SimSiam
QUICK = ("solar", "er-fifo", "er-reservoir", "minred")


def step_rows(effort: Effort) -> Iterator[Row]:
    yield from steps(*SLIM, rounds=effort.rounds(150, 40))
    yield from phases(*SLIM, rounds=effort.rounds(40, 10))
    yield from layout(*SLIM, rounds=effort.rounds(12, 4))
    if not effort.quick:
        yield from choices(*SLIM, rounds=20)
        yield from steps(*FULL, rounds=6)
        yield from phases(*FULL, rounds=2)
        yield from layout(*FULL, rounds=2)


def methods_rows(effort: Effort) -> Iterator[Row]:
    for name in QUICK if effort.quick else [*sorted(recipes.methods()), *OBJECTIVES]:
        yield from method_cost(name, 16, 16, effort.rounds(9, 3))


# ---- learners -------------------------------------------------------------------------------------------------------


def ready(method: str, width: int, size: int, **settings: object) -> Learner:
    """A learner with a full memory and, if its recipe uses boundaries, past the first.

    A name that is no method is an objective, which then takes SimSiam's place in FIFO replay. One pass, so that what a
    method does once a minibatch counts in full.
    """
    chosen: dict[str, object] = {"encoder.width": width, "schedule.passes": 1, **settings}
    if method not in recipes.methods():
        method, chosen["objective.name"] = "er-fifo", method
    learner = Learner(method, image_size=size, settings=chosen)
    fill(learner)
    if learner.settings.schedule.boundaries:
        learner.boundary()
    return learner


def minibatch(learner: Learner, generator: torch.Generator) -> Tensor:
    """One stream minibatch for this learner. Recipes without a memory take all their rows from the stream."""
    return noise(ROWS if learner.settings.schedule.stream_batch == ROWS else STREAM, learner.image_size, generator)


def full_step(learner: Learner, generator: torch.Generator) -> Workload:
    return lambda: learner.partial_fit(minibatch(learner, generator))


def bare_step(learner: Learner) -> Workload:
    """Forward pass, backward pass and update over views that are ready: no memory, no views, no check."""
    images = noise(ROWS, learner.image_size, torch.Generator().manual_seed(2))
    views, optimizer = learner._see(images), learner._optimizer

    def step() -> None:
        loss = learner.objective(*views).loss.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def to_nchw(learner: Learner) -> Learner:
    """The learner with its tensors and weights in NCHW, as most code has them."""
    learner.network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    see = learner._see
    learner._see = lambda images: tuple(views.contiguous() for views in see(images))  # type: ignore[method-assign]
    return learner


# ---- a step beside the bare network ---------------------------------------------------------------------------------


def steps(width: int, size: int, rounds: int) -> Iterator[Row]:
    """SOLAR's step beside FIFO's, and both beside the bare network."""
    shape, generator = f"width {width}, {size} px", torch.Generator().manual_seed(0)
    methods = {name: ready(name, width, size) for name in ("er-fifo", "solar")}
    workloads = {"bare": bare_step(ready("er-fifo", width, size))}
    workloads |= {name: full_step(learner, generator) for name, learner in methods.items()}
    times = interleaved(workloads, rounds, warmup=3 if width < FULL[0] else 1)
    yield Row("step", f"solar / er-fifo, {shape}", ratio(times, "solar", "er-fifo"), "x", SOLAR.get((width, size)))
    for name in methods:
        figure = ratio(times, name, "bare")
        yield Row("step", f"{name} / bare network, {shape}", figure, "x", WHOLE.get((width, size)))
    for name, seconds in times.items():
        yield Row("step", f"{name}, {shape}", spread(seconds, 1e3), "ms")


def phases(width: int, size: int, rounds: int) -> Iterator[Row]:
    """Where the time of SOLAR's step goes."""
    learner, generator = ready("solar", width, size), torch.Generator().manual_seed(0)
    step = full_step(learner, generator)
    step()
    clock = PhaseClock(learner)
    spent: dict[str, list[float]] = {phase: [] for phase in PHASES}
    for _ in range(rounds):
        clock.seconds = dict.fromkeys(PHASES, 0.0)
        step()
        for phase, seconds in clock.seconds.items():
            spent[phase].append(seconds)
    for phase, times in spent.items():
        yield Row("step", f"solar, {phase}, width {width}, {size} px", spread(times, 1e3), "ms")


def choices(width: int, size: int, rounds: int) -> Iterator[Row]:
    """What the settings of `compute` give, beside FIFO's step without them; compilation itself is not counted."""
    ways: dict[str, dict[str, object]] = {"plain": {}, "bfloat16": {"compute.precision": "bfloat16"}}
    if can_compile(torch.device("cpu")):
        ways["compiled"] = {"compute.compile": True}
    generator = torch.Generator().manual_seed(0)
    learners = {name: ready("er-fifo", width, size, **settings) for name, settings in ways.items()}
    times = interleaved({name: full_step(of, generator) for name, of in learners.items()}, rounds, warmup=3)
    for name in list(ways)[1:]:
        yield Row("step", f"{name} / plain, width {width}, {size} px", ratio(times, name, "plain"), "x")


def layout(width: int, size: int, rounds: int) -> Iterator[Row]:
    """Channels last, beside the same network in NCHW."""
    last, nchw = ready("er-fifo", width, size), to_nchw(ready("er-fifo", width, size))
    times = interleaved({"last": bare_step(last), "nchw": bare_step(nchw)}, rounds)
    name = f"channels_last, faster than NCHW, width {width}, {size} px"
    yield Row("step", name, ratio(times, "nchw", "last"), "x", faster=True)


# ---- every method beside FIFO ---------------------------------------------------------------------------------------


def method_cost(name: str, width: int, size: int, rounds: int) -> Iterator[Row]:
    """A method or objective beside FIFO, and beside FIFO with the method's extra passes alone; the memory is full."""
    fifo, other, generator = ready("er-fifo", width, size), ready(name, width, size), torch.Generator().manual_seed(0)
    rows = trained_rows(other, generator)
    extra = [passes(other, p) for p in INSTEAD.get(name, EXTRA.get(name, []))]
    workloads: dict[str, Workload] = {
        "fifo": full_step(fifo, generator),
        "other": full_step(other, generator),
        "extra": lambda: [run() for run in extra],
    }
    times = interleaved(workloads, rounds)
    least = [0.0 if name in INSTEAD else seconds for seconds in times["fifo"]]
    times["allowed"] = [a + b for a, b in zip(least, times["extra"], strict=True)]
    shape = f"width {width}, {size} px"
    speed = spread([rows / s for s in times["other"]])
    yield Row("methods", f"{name}, {shape}", speed, "images/s", note=f"{rows} images a step")
    yield Row("methods", f"{name} / er-fifo, {shape}", ratio(times, "other", "fifo"), "x")
    if extra:
        figure = ratio(times, "other", "allowed")
        yield Row("methods", f"{name} / er-fifo and its extra passes, {shape}", figure, "x")


def trained_rows(learner: Learner, generator: torch.Generator) -> int:
    """Images that a step of this learner trains on, seen in one step."""
    seen: list[int] = []
    hook = learner.objective.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1]))
    learner.partial_fit(minibatch(learner, generator))
    hook.remove()
    return seen[-1]


def passes(of: Learner, shape: Pass) -> Callable[[], None]:
    """Encoder and projector alone, over ready tensors."""
    kind, views, count = shape
    network = Teacher(of.objective, live=True).requires_grad_(kind == "both")
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(views * count, 3, of.image_size, of.image_size, generator=generator)
    images = images.contiguous(memory_format=torch.channels_last)

    def run() -> None:
        for view in images.split(count):
            if kind == "forward":
                network(view[None])
            else:
                network.projector(network.encoder(view)).sum().backward()

    return run
