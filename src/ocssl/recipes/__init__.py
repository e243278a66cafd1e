"""Recipes: what makes a method, and what a benchmark asks for, as TOML files and nothing else.

Settings are laid over one another in this order: defaults, benchmark, what the encoder asks for (its mean, std and
size), method, what the benchmark says of that method (`[methods.NAME]` in its file), and the user's own.
"""

import tomllib
import warnings
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from ocssl._files.toml import read_toml
from ocssl._files.untrusted import reading
from ocssl.errors import SettingError, unknown
from ocssl.settings import PART_SECTIONS, flatten, merge, nest

ABOUT = ("summary", "paper", "title")  # keys of a file that describe it


def methods() -> dict[str, str]:
    """Names of the methods that come with ocssl, with a line on each."""
    return _summaries("methods")


def benchmarks() -> dict[str, str]:
    """Names of the benchmarks that come with ocssl, with a line on each."""
    return _summaries("benchmarks")


def presets() -> dict[str, str]:
    """Names of the presets, sizes that a kind of machine can carry, with a line on each."""
    return _summaries("presets")


def preset(name: str) -> dict[str, float]:
    """The most that settings may be under a preset, by their dotted keys."""
    known = _names("presets")
    if name not in known:
        raise unknown("preset", name, known)
    return {key: most for key, most in flatten(_read("presets", name)) if key not in ABOUT}


def title(benchmark: str) -> str:
    """The name of a benchmark as papers print it."""
    return str(_read("benchmarks", benchmark).get("title", benchmark))


def resolve(method: str, benchmark: str | None, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The nested settings table of a method on a benchmark (None: a learner alone) under the user's overrides."""
    recipe = _method(method)
    tree: dict[str, Any] = {}
    special: Mapping[str, Any] = {}
    if benchmark is None:
        recipe.pop("stream", None)  # what a method asks of its stream is no concern of a learner alone
    else:
        known, kind = _names("benchmarks"), benchmark.partition(":")[0]
        if kind not in known:
            if "/" in benchmark or benchmark.startswith((".", "~")):  # meant as a path
                hint = f"say folder:{benchmark}" if Path(benchmark).expanduser().exists() else "check the path"
                there = "is no benchmark" if hint.startswith("say") else "does not exist"
                raise SettingError(f"{benchmark} {there}: {hint}, or see: ocssl list benchmarks")
            raise SettingError(f"{unknown('benchmark', kind, known)} (for a folder of images: folder:PATH)")
        table = _read("benchmarks", kind)
        special = table.pop("methods", {}).get(method, {})
        merge(tree, table)
    own = nest(overrides)
    _use_encoder(tree, recipe, own, benchmark is not None)
    tree = _without_options_of_another(tree, {"encoder": recipe.get("encoder", {})})
    merge(tree, recipe)
    merge(tree, special)
    for key in ABOUT:
        tree.pop(key, None)
    return merge(_without_options_of_another(tree, own), own)


def _use_encoder(tree: dict[str, Any], recipe: Mapping[str, Any], own: Mapping[str, Any], sized: bool) -> None:
    """What an encoder asks for, whatever the benchmark usually has: its mean, std and size, and care if it is good.

    An encoder that starts from trained weights gets the settings of pretrained.toml. Weights that ocssl wrote say their
    mean, std and size where the encoder's kind does not.
    """
    tables = [t for t in (tree.get("encoder"), recipe.get("encoder"), own.get("encoder")) if isinstance(t, Mapping)]
    named = next((table for table in reversed(tables) if "name" in table), None)
    chosen: dict[str, Any] = {}
    for table in tables:
        merge(chosen, table)
    found, trained = None, chosen.get("weights") is not None
    if named is not None:  # else the default, which takes what the benchmark has
        from ocssl.encoders import ENCODERS  # imports torch

        if not isinstance(named["name"], str) or named["name"] not in ENCODERS:
            return  # an error later
        found = ENCODERS.preprocessing(named["name"], chosen)
        default = ENCODERS.complete(named["name"]).get("pretrained", False)
        trained |= bool(default and chosen.get("pretrained", default))
    given = {key for table in (recipe, own) if isinstance(views := table.get("views"), Mapping) for key in views}
    if found is None and isinstance(path := chosen.get("weights"), str):
        from ocssl.encoders import preprocessing_of

        found = preprocessing_of(path)
        if found is None and not {"mean", "std"} <= given:
            warnings.warn(
                f"encoder.weights {path} does not say the mean and std of its images: those of the benchmark are used "
                "(see run.toml); set views.mean and views.std to what it was trained with.",
                stacklevel=2,
            )
    if found is not None:
        if found.guessed and trained and not {"mean", "std"} <= given:
            raise SettingError(f"{found.guessed}; set views.mean and views.std to those that it was trained with.")
        merge(tree, {"views": {"mean": list(found.mean), "std": list(found.std)}})
        if sized and found.size is not None:
            merge(tree, {"stream": {"image_size": found.size}})
    if trained:
        merge(tree, tomllib.loads(files(__package__).joinpath("pretrained.toml").read_text()))


def _without_options_of_another(tree: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Who names another part does not want the options that are there for the part that it replaces."""
    for section, model in PART_SECTIONS.items():
        given, chosen = tree.get(section, {}), own.get(section, {})
        name = chosen.get("name") if isinstance(chosen, Mapping) else None
        if name is not None and name != given.get("name", model.model_fields["name"].default):
            kept = set(model.model_fields)
            if section == "encoder":  # what is wanted of one encoder, a width, is wanted of another that has it
                from ocssl.encoders import ENCODERS  # imports torch

                kept |= set(ENCODERS.options(name) if name in ENCODERS else ())
            tree[section] = {key: value for key, value in given.items() if key in kept}
    return tree


def _method(name: str) -> dict[str, Any]:
    if not isinstance(name, str):
        raise SettingError(f"a method is a name or the path of a recipe as text, not {name!r}.")
    if name.endswith(".toml"):
        with reading(name, SettingError):
            return read_toml(Path(name))
    known = _names("methods")
    if name not in known:
        raise unknown("method", name, known)
    return _read("methods", name)


def _summaries(kind: str) -> dict[str, str]:
    return {name: str(_read(kind, name).get("summary", "")) for name in _names(kind)}


def _names(kind: str) -> list[str]:
    found = [Path(file.name) for file in files(__package__).joinpath(kind).iterdir()]
    return sorted(file.stem for file in found if file.suffix == ".toml")


def _read(kind: str, name: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(kind, f"{name}.toml").read_text())
