"""The work of a run, from its settings alone: floating-point operations, bytes moved, layer calls, memory.

A layer's work for one row and the rows that pass through it in a stream minibatch come from `layers.py`; the images
of the benchmark say how many minibatches, evaluations and checkpoints a run has. Moved bytes are counted by the simple
rules that stand below in capitals; everything else is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from ocssl.cost.layers import FLOAT, Layer, passes_of, shape_of
from ocssl.data import BENCHMARKS
from ocssl.data.benchmark import BY_CLASS, MOST_EXPERIENCES, Benchmark, class_counts
from ocssl.data.orders import equal_sizes
from ocssl.data.sources.source import Counted, parse_name
from ocssl.errors import SettingError
from ocssl.evaluate.evaluation import IMAGES_ENCODED, IMAGES_VIEWED
from ocssl.runs.config import SHARES, RunSettings
from ocssl.settings import EvaluateSettings, LearnerSettings, ScheduleSettings, StreamSettings

# How often something is written or read.
OUTPUT_TOUCHES = 6  # a layer's output, a pass: by the layer, twice and once more by batch norm, by ReLU, by the next
VIEW_TOUCHES = 48  # a pixel of a view: interpolated, coloured, clamped, laid out
WEIGHT_TOUCHES = 6  # a weight, a step: gradient, momentum and weight, read and written
SLOT_SCANS = 12  # a number of the memory's statistics, a step: races, ranks, refreshing
SAVED_TOUCHES = 40  # a byte of a checkpoint: packed, hashed, written, synchronised

KEPT = 2  # copies of a layer's output that wait for the backward pass: before batch norm, after ReLU
PROBE_EPOCHS = 50  # of the linear probe, which stops early; 100 at most
PROBE_BATCH = 256
PROBE_CALLS = 1  # layer calls that cost as much as a batch of the probe, beside its work


# ---- images ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageCounts:
    """The images of a benchmark under a run's stream settings."""

    experiences: tuple[int, ...]  # stream images of each
    train: int  # that the probe learns from
    val: int
    test: int
    classes: int  # 0: there are no labels, and so no probe

    @property
    def stream(self) -> int:
        return sum(self.experiences)

    @classmethod
    def of(cls, benchmark: Benchmark) -> ImageCounts:
        """Those of a benchmark that was loaded."""
        sizes = tuple(len(experience.rows) for experience in benchmark.experiences)
        train, val, test = map(len, (benchmark.train, benchmark.val, benchmark.test))
        return cls(sizes, train, val, test, len(benchmark.classes) if benchmark.labelled else 0)

    @classmethod
    def expected(cls, settings: RunSettings) -> ImageCounts:
        """Those of a benchmark whose size is known before it is read."""
        stream = settings.stream
        maker = BENCHMARKS.build(parse_name(settings.benchmark)[0], stream.model_extra)
        if not isinstance(maker, Counted):
            raise SettingError(
                f"how many images {settings.benchmark} has is not known before it is read; load it, or say how many."
            )
        counts = maker.counts()
        classes, test = counts.classes, counts.test
        if counts.groups:
            kept = 1 - stream.validation
            share = stream.fraction * kept * (1 - (stream.test_share if test is None else 0))
            grouped = stream.order in ("domain", "taxonomy")
            groups = [round(share * images) for images in (counts.groups if grouped else [counts.train])]
            train = sum(groups)
            parts = _parts(train, classes, stream, groups if grouped else ())
            test = round(stream.fraction * stream.test_share * counts.train) if test is None else test
            return cls(parts, train, round(train / kept) - train, test, classes)
        used = round(stream.fraction * (counts.train // classes))  # of each class
        held = round(stream.validation * used)
        train = classes * (used - held)
        if stream.imbalance > 1:  # sizes fall geometrically
            falling = (stream.imbalance ** (-rank / max(1, classes - 1)) for rank in range(classes))
            train = sum(max(1, round((used - held) * share)) for share in falling)
        return cls(_parts(train, classes, stream), train, classes * held, test or 0, classes)

    def minibatches(self, settings: RunSettings) -> list[int]:
        """How many minibatches have passed when each experience ends."""
        size, stream = settings.schedule.stream_batch, settings.stream
        ends, passed = [], 0
        for images in self.experiences:
            here = images // size if stream.drop_last else -(-images // size)
            passed += here * stream.epochs
            if here:
                ends.append(passed)
        return ends


def _parts(images: int, classes: int, stream: StreamSettings, groups: Sequence[int] = ()) -> tuple[int, ...]:
    """The images in experiences: groups, or parts as equal as whole classes, or whole images, can be."""
    wanted = stream.experiences or min(MOST_EXPERIENCES, classes)
    if groups:
        parts = list(groups)
    elif stream.order in ("auto", *BY_CLASS):
        parts = [round(images * group / classes) for group in class_counts(classes, wanted, stream.order, stream)]
    else:
        parts = equal_sizes(images, wanted)
    again = zip(*(equal_sizes(part, stream.repeats) for part in parts), strict=True)
    return tuple([each for time in again for each in time][: stream.stop or None])


# ---- work -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """What a machine is asked to do."""

    forward: float = 0.0  # floating-point operations of forward passes and other products
    backward: float = 0.0  # of backward passes
    bytes: float = 0.0  # moved between memory and processor
    calls: float = 0.0  # of layers

    @property
    def flops(self) -> float:
        return self.forward + self.backward

    def __add__(self, other: Load) -> Load:
        return Load(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: float) -> Load:
        return Load(*(times * value for value in astuple(self)))


def minibatch_load(settings: LearnerSettings, image_size: int) -> Load:
    """One stream minibatch, all its optimizer steps, with a full memory."""
    shape, passes = shape_of(settings, image_size), passes_of(settings)
    layers, both = shape.layers, passes.forward + passes.backward
    moved = OUTPUT_TOUCHES * sum(layers[name].bytes * rows for name, rows in both.items())
    moved += passes.views * view_bytes(image_size)
    moved += passes.steps * (WEIGHT_TOUCHES * shape.weights + SLOT_SCANS * 8 * shape.slots)
    return Load(
        forward=passes.other + sum(layers[name].flops * rows for name, rows in passes.forward.items()),
        backward=sum(layers[name].flops * rows for name, rows in passes.backward.items()),
        bytes=moved,
        calls=passes.calls,
    )


def optimizer_steps(settings: RunSettings, images: ImageCounts) -> int:
    """How many steps the optimizer takes in a run."""
    ends = images.minibatches(settings)
    return passes_of(settings.learner()).steps * (ends[-1] if ends else 0)


def training_load(settings: LearnerSettings, image_size: int, minibatches: int) -> Load:
    """The first minibatches of a stream, whose memory is empty in the beginning."""
    one, share = minibatch_load(settings, image_size), fullness(settings, minibatches)
    return Load(one.forward * share, one.backward * share, one.bytes * share, one.calls) * minibatches


def view_bytes(image_size: int) -> float:
    """Moved to make one view."""
    return VIEW_TOUCHES * FLOAT * 3 * image_size**2


def encode_load(layers: Mapping[str, Layer], rows: int, at_once: int) -> Load:
    """Rows through layers forwards, at most `at_once` at a time."""
    return Load(
        forward=rows * sum(layer.flops for layer in layers.values()),
        bytes=rows * OUTPUT_TOUCHES * sum(layer.bytes for layer in layers.values()),
        calls=len(layers) * math.ceil(rows / at_once),
    )


def evaluation_load(settings: RunSettings, images: ImageCounts) -> dict[str, Load]:
    """One evaluation, by its parts: encoding, probe, latent."""
    options, size = settings.evaluate, settings.stream.image_size
    shape, encoding, probe = shape_of(settings.learner(), size), Load(), Load()
    if images.classes:
        encoding = encode_load(shape.part("encoder"), images.train + images.val + images.test, IMAGES_ENCODED)
        probe = probe_load(options, images, shape.dimension)
        if options.per_task:  # as many samples in all, each among the classes of its task alone
            probe += probe_load(options, images, shape.dimension, len(images.experiences))
    rows = min(options.latent_samples, images.train) * options.latent_views
    latent = encode_load(shape.part("encoder", "projector"), rows, IMAGES_VIEWED * options.latent_views)
    latent += Load(bytes=rows * view_bytes(size))
    if shape.features:
        latent += Load(forward=2.0 * shape.slots**2 * shape.dimension)  # Overlap of what the memory stores
    return {"encoding": encoding, "probe": probe, "latent": latent}


def probe_load(options: EvaluateSettings, images: ImageCounts, dimension: int, tasks: int = 1) -> Load:
    """One probe of all classes, or one of each task's."""
    n, classes, d = images.train, math.ceil(images.classes / tasks), dimension + 1
    scored = images.val + images.test
    if options.probe == "ridge":  # in float64: twice the work
        return Load(forward=2 * tasks * (2 * n / tasks * d * d + d**3 / 3) + 2 * scored * d * classes, calls=4 * tasks)
    if options.probe == "knn":
        return Load(forward=2 * scored * n / tasks * d, bytes=8 * scored * n / tasks, calls=4 * tasks)
    batches = PROBE_EPOCHS * tasks * math.ceil(n / tasks / PROBE_BATCH)
    return Load(
        forward=PROBE_EPOCHS * 2 * (2 * n + images.val) * d * classes,
        bytes=PROBE_EPOCHS * 3 * n * d * FLOAT + batches * 10 * classes * d * FLOAT,
        calls=PROBE_CALLS * batches,
    )


def run_load(settings: RunSettings, images: ImageCounts) -> dict[str, Load]:
    """A whole run by its parts: training, encoding, probe, latent, saving."""
    ends = images.minibatches(settings)
    total = ends[-1] if ends else 0
    evaluations = evaluation_count(settings, ends, labelled=images.classes > 0)
    training = training_load(settings.learner(), settings.stream.image_size, total)
    parts = {name: load * evaluations for name, load in evaluation_load(settings, images).items()}
    shape = shape_of(settings.learner(), settings.stream.image_size)
    state = shape.weights + shape.state + shape.slots * shape.slot
    saved = state * math.ceil(total / settings.checkpoint.every)
    if settings.checkpoint.snapshots:
        saved += evaluations * shape.weights
    return {"training": training, **parts, "saving": Load(bytes=SAVED_TOUCHES * saved)}


def evaluation_count(settings: RunSettings, ends: list[int], labelled: bool = True) -> int:
    """How often the encoder is evaluated, `ends` being the minibatches after which experiences end."""
    options, total = settings.evaluate, ends[-1] if ends else 0
    if options.every:
        return int(options.start) + math.ceil(total / options.every)
    return int(options.start) + (len(ends) if labelled or len(ends) > 1 else min(SHARES, total))


def fullness(settings: LearnerSettings, minibatches: int) -> float:
    """Rows of a run's batches beside those with a full memory: below 1 while there is little to replay."""
    schedule, capacity = settings.schedule, settings.memory.capacity
    full = [_rows(schedule, p, capacity) for p in range(schedule.passes)]
    missing = 0
    for number in range(minibatches):
        arrived = [number + _admitted(schedule, p) for p in range(len(full))]  # minibatches
        now = [_rows(schedule, p, min(capacity, n * schedule.stream_batch)) for p, n in enumerate(arrived)]
        if now == full:
            break
        missing += sum(full) - sum(now)
    return 1 - missing / (minibatches * sum(full)) if minibatches else 1.0


def _admitted(schedule: ScheduleSettings, p: int) -> bool:
    """Whether the stream minibatch itself is in the memory when pass p draws."""
    return schedule.admit == "before" or (schedule.admit == "first" and p > 0)


def _rows(schedule: ScheduleSettings, p: int, stored: int) -> int:
    """Samples of a batch in pass p, as `Learner` and `Join` choose them."""
    has_stream = schedule.stream_in == "all" or (schedule.stream_in == "first" and p == 0) or not stored
    fresh = min(schedule.stream_batch, schedule.batch) if has_stream else 0
    wanted = 0 if schedule.mix else schedule.batch - fresh
    waits = schedule.short == "wait" and fresh > 0 and stored <= wanted
    return fresh + (0 if waits else min(wanted, stored))


def activation_bytes(settings: LearnerSettings, image_size: int) -> float:
    """What a step keeps for its backward pass."""
    layers, passes = shape_of(settings, image_size).layers, passes_of(settings)
    return KEPT * sum(layers[name].bytes * rows for name, rows in passes.kept.items()) / max(1, passes.steps)


def about_bytes(settings: RunSettings, images: ImageCounts) -> float:
    """The sum of `resident_bytes` at once, without a trial."""
    return sum(resident_bytes(settings, images, trial=False).values())


def resident_bytes(settings: RunSettings, images: ImageCounts, trial: bool = True) -> dict[str, float]:
    """What stays in memory, and the most that a step adds to it; without the interpreter and PyTorch themselves.

    Without a trial, activations are counted as if every step took two views of a whole batch.
    """
    learner, size = settings.learner(), settings.stream.image_size
    shape = shape_of(learner, size, work=trial)
    row = sum(layer.bytes for layer in shape.part("encoder", "projector").values())
    whole = float(KEPT * row * 2 * settings.schedule.batch)
    in_memory = getattr(BENCHMARKS[parse_name(settings.benchmark)[0]], "in_memory", False)
    held = images.train + images.val + images.test if in_memory else 0
    return {
        "network": float(shape.weights),
        "optimizer": float(shape.trained + shape.state),  # gradients, and momentum or the like
        "memory": float(shape.slots * shape.slot),
        "images": float(held * 3 * size**2),
        "activations": activation_bytes(learner, size) if trial else whole,
    }
