"""TensorBoard and Weights & Biases: they get each event of a run, and change nothing.

The events are the record; what a sink holds can be made from them. So a resumed run gives its sinks all events from the
beginning: curves have no gaps, also where a sink was not there before.
"""

import importlib
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ocssl._core.measures import MEASURES
from ocssl._files.atomic import replace_file
from ocssl._files.untrusted import read_text
from ocssl.errors import SettingError, install, unknown
from ocssl.runs.config import RunSettings, to_toml
from ocssl.runs.events import read_events
from ocssl.runs.folder import EVENTS
from ocssl.settings import flatten

TENSORBOARD, WANDB_ID = "tensorboard", "wandb-id"  # in a run folder
FINAL = ("start_accuracy", "final_accuracy", "average_accuracy", "steps", "seen")


class Sink(Protocol):
    """Something that shows a run: opened with its settings, it takes scalars at a position and the final numbers."""

    def scalars(self, position: int, values: Mapping[str, float]) -> None: ...

    def final(self, position: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class Follower:
    """Passes events to one sink; a sink that fails is dropped with a warning, and the run continues."""

    def __init__(self, name: str, folder: Path, settings: RunSettings, warn: Callable[[str], None]) -> None:
        self._name, self._folder, self._settings, self._warn = name, folder, settings, warn
        self._sink: Sink | None = None
        self._dropped = False
        self._position = 0

    def write(self, event: Mapping[str, Any]) -> None:
        """Pass on an event that is in the file by now; the first one opens the sink."""

        def show() -> None:
            if self._sink is None:
                self._sink = SINKS[self._name](self._folder, self._settings)
                for earlier in read_events(self._folder / EVENTS):
                    self._show(earlier)
            else:
                self._show(event)

        self._guarded(show)

    def close(self) -> None:
        if self._sink is not None:
            self._guarded(self._sink.close)
        self._sink, self._dropped = None, True

    def _show(self, event: Mapping[str, Any]) -> None:
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
        except Exception as error:  # no library or disk stops a training run
            self._dropped = True
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            self._warn(f"{self._name} is left out from here on: {first}")


def require_libraries(names: Sequence[str]) -> None:
    """Raise before a run is made if a tracker is unknown or not installed."""
    for name in names:
        if name not in SINKS:
            raise unknown("tracker", name, SINKS)
        if names.count(name) > 1:
            raise SettingError(f"--track {name} is given twice.")
        try:
            importlib.import_module(name)
        except ImportError:
            raise SettingError(f"--track {name} needs a package that is missing: {install('track')}") from None


def scalars(event: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an event that make curves, by the names that they have in a sink.

    >>> scalars({"event": "step", "loss": -0.5, "participation_ratio": None, "terms": {"overlap": 0.25}})
    {'train/loss': -0.5, 'terms/overlap': 0.25}
    """
    known = {m.key: f"{m.group}/{m.key}" for m in MEASURES.of(event["event"]) if not m.of_term}
    found = {known[key]: value for key, value in numbers(event, tuple(known)).items()}
    terms = event.get("terms") if event["event"] == "step" else None
    if isinstance(terms, Mapping):
        found |= {f"terms/{key}": value for key, value in numbers(terms, tuple(terms)).items()}
    return found


def numbers(facts: Mapping[str, Any], keys: Sequence[str]) -> dict[str, float]:
    """Those of the facts that are numbers; others are left out."""
    values = {key: facts.get(key) for key in keys}
    return {k: float(v) for k, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)}


class TensorBoard:
    """Event files in the run folder; a new one makes TensorBoard forget what earlier ones say."""

    def __init__(self, folder: Path, settings: RunSettings) -> None:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        self._writer = SummaryWriter(str(folder / TENSORBOARD), purge_step=0)
        self._writer.add_text("settings", "```toml\n" + to_toml(settings) + "```", 0)
        flat = dict(flatten(settings.model_dump(mode="json")))
        plain = {k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in flat.items()}
        for part in hparams(plain, {f"final/{key}": 0.0 for key in FINAL[:3]}):
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
            replace_file(note, secrets.token_hex(8).encode())
        offline = os.environ.get("WANDB_MODE") == "offline"
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "ocssl"),
            name=folder.name,
            id=read_text(note, 2**10).strip(),
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
