"""Weights to start from: those of another run, or of a saved learner."""

import hashlib
import warnings
from pathlib import Path
from typing import Any

from torch import Tensor

from ocssl._core import checkpoint
from ocssl._training.checkpoint_checks import check_values, check_weights
from ocssl.errors import CheckpointError, SettingError
from ocssl.learner import Learner
from ocssl.runs.config import InitSettings
from ocssl.runs.folder import SETTINGS
from ocssl.runs.snapshots import saved_states

OBJECTIVE = "network.objective."


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The objective's weights, encoder and heads, in the newest state of a run folder or in a saved learner."""
    return _read(path)[0]


def _read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Those weights, and the facts of their learner."""
    folder = Path(path)
    if (folder / SETTINGS).is_file():
        known = saved_states(folder)
        if not known:
            raise SettingError(f"cannot start from {folder}: the run has no checkpoint yet.")
        folder = known[max(known)]
    try:
        tensors, facts = checkpoint.read(folder, check_weights)
        check_values(tensors)
    except CheckpointError as error:
        raise SettingError(f"cannot start from {path}: {error}") from None
    weights = {name.removeprefix(OBJECTIVE): t for name, t in tensors.items() if name.startswith(OBJECTIVE)}
    if not weights:
        raise SettingError(f"cannot start from {path}: it holds no weights of a learner.")
    return weights, facts


def digest(weights: dict[str, Tensor]) -> str:
    """A checksum of weights, by which a resumed run finds that they have changed."""
    whole = hashlib.sha256()
    for name in sorted(weights):
        whole.update(name.encode() + weights[name].contiguous().numpy().tobytes())
    return whole.hexdigest()


def _warn_of_other_colours(learner: Learner, facts: dict[str, Any], path: str) -> None:
    """Say so where the weights were trained on images of another mean or std."""
    theirs = facts.get("settings", {}).get("views", {})
    own = learner.settings.views.model_dump(mode="json")
    other = {key: theirs[key] for key in ("mean", "std") if theirs.get(key, own[key]) != own[key]}
    if other:
        words = " ".join(f"--set views.{key}='{value}'" for key, value in other.items())
        said = f"the weights in {path} were trained on images of another mean or std; theirs: {words}"
        warnings.warn(said, stacklevel=3)


def start_from(learner: Learner, options: InitSettings) -> None:
    """Give a new learner the weights that its run starts from."""
    if options.path is None:
        return
    weights, facts = _read(options.path)
    if options.sha256 not in (None, digest(weights)):
        raise SettingError(f"the weights in {options.path} are not those that this run was to start from.")
    _warn_of_other_colours(learner, facts, options.path)
    own = learner.objective.state_dict()
    wanted = {name: t for name, t in own.items() if options.parts == "all" or name.startswith("encoder.")}
    for name, tensor in wanted.items():
        given = weights.get(name)
        if given is None or given.shape != tensor.shape:
            what = "are missing" if given is None else f"are {list(given.shape)}, here {list(tensor.shape)}"
            hint = "" if options.parts == "encoder" else "; for the encoder alone: --set init.parts=encoder"
            raise SettingError(
                f"cannot start from {options.path}: its weights {name!r} {what}; encoder, image size and objective "
                f"have to be the same{hint}."
            )
    learner.objective.load_state_dict({**own, **{name: weights[name] for name in wanted}})
    learner.objective.begin()  # slow copies of the network are copies of these weights
    for term in learner.terms.values():
        term.begin(learner.objective)
