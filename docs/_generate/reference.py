"""The pages of the reference, written from the code: commands and their options, settings, names of parts, Python."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable

from docstring_parser import parse

import ocssl
from ocssl.cli import app
from ocssl.cli.list_names import names

KINDS = {
    "methods": "Methods, for `ocssl run METHOD`",
    "benchmarks": "Benchmarks, for `ocssl run METHOD BENCHMARK`",
    "sources": "Images of your own, for `ocssl run METHOD SOURCE`",
    "objectives": "Objectives: `objective.name`",
    "rules": "Memory rules",
    "terms": "Terms: `terms.NAME.weight`",
    "encoders": "Encoders: `encoder.name`",
    "optimizers": "Optimizers: `optimizer.name`",
    "measures": "Measures, in events and `metrics.json`",
    "experiments": "Experiments, for `ocssl reproduce`",
}
API = {  # what stands on the page of the Python reference, in this order
    "Learner": ["ocssl.Learner"],
    "Use an encoder": ["ocssl.load_encoder"],
    "Images and streams": ["ocssl.data"],
    "Evaluate": ["ocssl.evaluate"],
    "Memory": ["ocssl.memory"],
    "Objectives": ["ocssl.objectives"],
    "Terms": ["ocssl.terms"],
    "Encoders": ["ocssl.encoders"],
    "Check parts of your own": ["ocssl.checks"],
    "Errors": ["ocssl.errors"],
}
MEMBERS = {"ocssl.learner.Learner": ["partial_fit", "transform", "save", "load", "boundary", "encoder", "lr"]}
ERRORS = ("OcsslError", "SettingError", "DataError", "CheckpointError", "RunFolderError", "NonFiniteLoss")


def commands() -> str:
    """Every command with its example and options, from the functions that the command line calls."""
    text = ["# Commands", "", "`ocssl COMMAND --help` prints the same. Options may be given in any order.", ""]
    listed = sorted(name for name in app if not name.startswith("-"))
    text += ["| command | what it does |", "| --- | --- |"]
    for name in listed:
        text.append(f"| [`{name}`](#{name}) | {_line(parse(_doc(name)).short_description)} |")
    for name in listed:
        text += ["", *_command(name)]
    return "\n".join(text) + "\n"


def _doc(name: str) -> str:
    return inspect.getdoc(app[name].default_command) or ""


def _command(name: str) -> list[str]:
    doc = parse(_doc(name))
    told = (doc.long_description or "").strip()
    before, _, example = told.partition("Example: ")
    example, _, after = example.partition("\n\n")
    text = [f"## {name}", "", _line(doc.short_description), ""]
    for paragraph in (before, after):
        text += [_prose(paragraph), ""] if paragraph.strip() else []
    text += ["```sh", " ".join(example.split()), "```", ""] if example else []
    rows = []
    for argument in app[name].assemble_argument_collection(parse_docstring=True):
        if not argument.parse or not argument.show:
            continue
        flags = " ".join(f"`{flag}`" for flag in argument.names)
        help_ = argument.parameter.help or ""
        default = argument.field_info.default
        shown = default if default not in (inspect.Parameter.empty, None, False, ()) else ""
        rows.append(f"| {flags} | {_cell(help_)} | {_code(shown)} |")
    return [*text, "| argument | meaning | default |", "| --- | --- | --- |", *rows] if rows else text


def settings() -> str:
    """Every key of `--set` with its default."""
    text = [
        "# Settings",
        "",
        "Every key for `--set key=value`, recipes and sweeps, with its default. A recipe or a benchmark may set",
        "another; `run.toml` has the values of a run. `ocssl list settings` prints this page.",
    ]
    for title, table in names("settings").items():
        section, _, words = title.partition(": ")
        text += ["", f"## {section}", "", words, "", "| setting | default | meaning |", "| --- | --- | --- |"]
        for key, meaning in table.items():
            name, _, default = key.partition(" = ")
            text.append(f"| `{name}` | {_code(default)} | {_cell(meaning)} |")
    return "\n".join(text) + "\n"


def parts() -> str:
    """Every registered name with its line."""
    text = ["# Names of parts", "", "`ocssl list KIND` prints these, and what a file of your own has registered."]
    for kind, title in KINDS.items():
        text += ["", f"## {title}", "", f"`ocssl list {kind}`"]
        for heading, table in names(kind).items():
            text += ["", f"**{heading}**" if heading else "", "", "| name | what it is |", "| --- | --- |"]
            text += [f"| `{name}` | {_cell(line)} |" for name, line in table.items()]
    return "\n".join(text) + "\n"


def api() -> str:
    """The public names, as docstrings for mkdocstrings; their examples run as tests."""
    text = [
        "# Python",
        "",
        "The public API: what `dir(ocssl)` shows. All other modules may change. The examples run as tests.",
        "Images are uint8, `[b, 3, H, W]` or `[b, H, W, 3]`; features are float32.",
    ]
    for title, places in API.items():
        text += ["", f"## {title}", ""]
        for place in places:
            for name in _members(place):
                chosen = f", members: {MEMBERS[name]}" if name in MEMBERS else ""
                text += [f"::: {name}", f"    options: {{heading_level: 3, inherited_members: false{chosen}}}", ""]
    return "\n".join(text) + "\n"


def _members(place: str) -> Iterable[str]:
    """A function or class by its own name; of a module, what it exports, by the name of where it is defined."""
    short = place.removeprefix("ocssl.")
    found = getattr(ocssl, short)
    if not inspect.ismodule(found):
        return [f"{found.__module__}.{found.__qualname__}"]
    exported = getattr(found, "__all__", ERRORS)
    objects = [getattr(found, name) for name in exported if not name.isupper()]
    return [f"{one.__module__}.{one.__qualname__}" for one in objects if inspect.getdoc(one)]


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def _prose(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def _cell(text: str) -> str:
    return _line(re.sub(r"(?<!\\)\|", r"\\|", text)).replace("<", "&lt;").replace("*", r"\*")


def _code(value: object) -> str:
    return f"`{value}`" if value != "" else ""


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands,
    "settings.md": settings,
    "names.md": parts,
    "api.md": api,
}
