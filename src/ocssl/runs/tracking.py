"""TensorBoard and Weights & Biases as readers of a run's diary: they are told each event, and change nothing.

The diary is the record; what a sink holds can be made from it. So a run that is continued tells its sinks the diary
from the beginning: curves have no gaps, also where a sink was not there before.
"""

from __future__ import annotations

import importlib
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ocssl._core import checkpoint
from ocssl.errors import SettingError, unknown
from ocssl.runs.config import RunSettings, to_toml
from ocssl.runs.events import read_events
from ocssl.runs.folder import EVENTS
from ocssl.settings import flatten

TENSORBOARD, WANDB_ID = "tensorboard", "wandb-id"  # in a run folder
GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "step": {"train": ("loss", "ssl", "spread", "rank"), "memory": ("stored", "stored_loss")},
    "evaluation": {"evaluate": ("accuracy", "deviation", "overlap", "online_overlap")},
}
FINAL = ("start_accuracy", "final_accuracy", "average_accuracy", "steps", "seen")


class Sink(Protocol):
    """Something that shows a run: opened with its settings, then told scalars at a position, and the final numbers."""

    def scalars(self, position: int, values: Mapping[str, float]) -> None: ...

    def final(self, position: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class Follower:
    """Tells one sink the events of a diary; a sink that fails is dropped with a warning, and the run goes on."""

    def __init__(
        self, name: str, folder: Path, settings: RunSettings, warn: Callable[[str], None], make: Callable[..., Sink]
    ) -> None:
        self._name, self._folder, self._settings, self._warn, self._make = name, folder, settings, warn, make
        self._sink: Sink | None = None
        self._dropped = False
        self._position = 0

    def write(self, event: Mapping[str, Any]) -> None:
        """Tell an event that stands in the diary by now; the first one opens the sink."""

        def tell() -> None:
            if self._sink is None:
                self._sink = self._make(self._folder, self._settings)
                for earlier in read_events(self._folder / EVENTS):
                    self._tell(earlier)
            else:
                self._tell(event)

        self._guarded(tell)

    def close(self) -> None:
        if self._sink is not None:
            self._guarded(self._sink.close)
        self._sink, self._dropped = None, True

    def _tell(self, event: Mapping[str, Any]) -> None:
        assert self._sink is not None
        self._position = event.get("position", self._position)
        if values := scalars(event):
            self._sink.scalars(self._position, values)
        if event["event"] == "end":
            self._sink.final(self._position, numbers(event, FINAL))

    def _guarded(self, what: Callable[[], None]) -> None:
        if self._dropped:
            return
        try:
            what()
        except Exception as error:  # whatever a library or a disk does, training goes on
            self._dropped = True
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            self._warn(f"{self._name} is left out from here on: {first}")


def followers(names: Iterable[str], folder: Path, settings: RunSettings, warn: Callable[[str], None]) -> list[Follower]:
    """The sinks of these names for the diary of a run folder."""
    return [Follower(name, folder, settings, warn, SINKS[name]) for name in names]


def require_libraries(names: Sequence[str]) -> None:
    """Say before a run is made what its tracking lacks."""
    for name in names:
        if name not in SINKS:
            raise unknown("tracker", name, SINKS)
        if names.count(name) > 1:
            raise SettingError(f"--track {name} is given twice.")
        try:
            importlib.import_module(name)
        except ImportError:
            raise SettingError(f"--track {name} needs a package that is missing: pip install 'ocssl[track]'.") from None


def scalars(event: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an event that make curves, by the names that they have in a sink.

    >>> scalars({"event": "step", "loss": -0.5, "rank": None, "terms": {"overlap": 0.25}})
    {'train/loss': -0.5, 'terms/overlap': 0.25}
    """
    found: dict[str, float] = {}
    for group, keys in GROUPS.get(event["event"], {}).items():
        found |= {f"{group}/{key}": value for key, value in numbers(event, keys).items()}
    terms = event.get("terms") if event["event"] == "step" else None
    if isinstance(terms, Mapping):
        found |= {f"terms/{key}": value for key, value in numbers(terms, tuple(terms)).items()}
    return found


def numbers(facts: Mapping[str, Any], keys: Sequence[str]) -> dict[str, float]:
    """Those of the facts that are numbers; what was not measured is left out."""
    values = {key: facts.get(key) for key in keys}
    return {k: float(v) for k, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def _flat(settings: RunSettings) -> dict[str, Any]:
    found = flatten(settings.model_dump(mode="json"))
    return {key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in found}


class TensorBoard:
    """Event files in the run folder; a new one makes TensorBoard forget what earlier ones say."""

    def __init__(self, folder: Path, settings: RunSettings) -> None:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        self._writer = SummaryWriter(str(folder / TENSORBOARD), purge_step=0)
        self._writer.add_text("settings", "```toml\n" + to_toml(settings) + "```", 0)
        for part in hparams(_flat(settings), {f"final/{key}": 0.0 for key in FINAL[:3]}):
            self._writer._get_file_writer().add_summary(part, 0)

    def scalars(self, position: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self._writer.add_scalar(key, value, position)

    def final(self, position: int, values: Mapping[str, float]) -> None:
        self.scalars(position, {f"final/{key}": value for key, value in values.items()})

    def close(self) -> None:
        self._writer.close()


class WandB:
    """A run of Weights & Biases under an id that stays in the run folder; offline with WANDB_MODE=offline."""

    def __init__(self, folder: Path, settings: RunSettings) -> None:
        import wandb

        note = folder / WANDB_ID
        if not note.exists():
            checkpoint.replace_file(note, secrets.token_hex(8).encode())
        offline = os.environ.get("WANDB_MODE") == "offline"
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "ocssl"),
            name=folder.name,
            id=note.read_text().strip(),
            dir=str(folder),
            config=settings.model_dump(mode="json"),
            resume=None if offline else "allow",  # offline each file holds the whole run
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._known = int(self._run.step)  # steps before that are there from an earlier session, and are the same

    def scalars(self, position: int, values: Mapping[str, float]) -> None:
        if position >= self._known:
            self._run.log(dict(values), step=position)

    def final(self, position: int, values: Mapping[str, float]) -> None:
        self._run.summary.update(dict(values))

    def close(self) -> None:
        self._run.finish()


SINKS: dict[str, Callable[..., Sink]] = {"tensorboard": TensorBoard, "wandb": WandB}
