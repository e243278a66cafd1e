"""The most that a run folder holds, stated before the run starts. What trackers write is not in it."""

from ocssl.cost.layers import shape_of
from ocssl.cost.work import ImageCounts
from ocssl.runs.config import RunSettings
from ocssl.runs.run import MOST_STEPS
from ocssl.runs.snapshots import MOST_TILES, TILE_SIDE

STEP = 2_000  # bytes of the event of a step
EVALUATION = 20_000  # of an evaluation's events and its part of metrics.json; and
NUMBER = 60  # of each class, task and feature in them
IMAGE = 2_000  # of what is written of an image that cannot be used: in the events, metrics.json and skipped.tsv
FILES = 500_000  # of run.toml, timing.json and the manifests of checkpoints, each rounded up
SPARE = 200_000  # of a checkpoint or snapshot: names, shapes, generators, and thumbnails' ids


def most_bytes(
    settings: RunSettings, images: ImageCounts, minibatches: int, evaluations: int, skipped: int = 0
) -> dict[str, int]:
    """Bytes of a run folder's parts at most, while it runs and after; they do not grow with its pauses or resumes.

    `skipped` images cannot be used, of those that are known before the start.
    """
    shape = shape_of(settings.learner(), settings.stream.image_size, work=False)
    slots = shape.slots * shape.slot
    state = shape.weights + shape.state + slots + SPARE
    pixels = 3 * settings.stream.image_size**2
    snapshot = shape.weights + shape.slots * max(0, shape.slot - pixels) + MOST_TILES * 3 * TILE_SIDE**2 + SPARE
    saved = min(evaluations, settings.checkpoint.most_snapshots) + 1 if settings.checkpoint.snapshots else 0
    numbers = images.classes + len(images.experiences) + shape.dimension
    return {
        "checkpoints": (settings.checkpoint.keep + 1) * state,  # an old one goes when the new one is written
        "snapshots": saved * snapshot,
        "steps": min(minibatches, MOST_STEPS) * STEP,
        "evaluations": evaluations * 2 * (EVALUATION + NUMBER * numbers),
        "images": (skipped + 1) * IMAGE,
        "files": FILES,
    }
