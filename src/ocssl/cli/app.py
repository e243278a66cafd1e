"""The command line: errors that a user can act on become one sentence on stderr and exit code 2."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, get_args

import cyclopts
from cyclopts import App, CycloptsError, Group

from ocssl._core.transfer import keep_freed_memory
from ocssl.errors import NonFiniteLoss, OcsslError, OutOfMemory, nearest, printable

if TYPE_CHECKING:
    from rich.console import Console


def _version() -> str:
    from ocssl import __version__  # it reads the metadata of the package, which takes a while

    return __version__


app = App(
    name="ocssl",
    help="Online continual self-supervised learning: train an image encoder on a changing stream that is seen once.",
    version=_version,
    version_flags=["--version"],
    help_format="plaintext",  # it has no markup, and a renderer of markup takes long to import
)

GROUPS = ("Start", "Your images", "Experiments", "Tools")  # of commands, in the order of --help
START, IMAGES, STUDY, TOOLS = (Group(name, sort_key=place) for place, name in enumerate(GROUPS))
for flag in ("--help", "--version"):
    app[flag].group = TOOLS
TORCHLESS = {"--help", "-h", "--version", "completion"}
BAD_INPUT, FAILED = 2, 1
LACKING = "lower schedule.batch, encoder.width, memory.capacity or stream.image_size, or end other programs."
WIDE = 250  # characters of a line that goes to a file or pipe


def main(words: Sequence[str] | None = None) -> None:
    """Entry point: errors that a user can act on become one sentence on stderr."""
    _open_standard_streams()
    warnings.formatwarning = _warning
    keep_freed_memory()
    status = _run(words)
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # Threads of torch.distributed may outlive its end by a moment, and abort a process that is taking itself down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _run(words: Sequence[str] | None) -> int:
    try:
        _require_current_folder()
        if not TORCHLESS.intersection(sys.argv[1:] if words is None else words):
            from ocssl._core.host_memory import require_room_for_torch

            require_room_for_torch()
        status = app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        return complain(str(OcsslError(_one_sentence(error))), BAD_INPUT)
    except OutOfMemory as error:
        return complain(str(OutOfMemory(error.lack, error.advice or LACKING)), FAILED)
    except OcsslError as error:
        return complain(str(error), FAILED if isinstance(error, NonFiniteLoss) else BAD_INPUT)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has gone
        _drop_output()
        return FAILED
    except Exception as error:
        from ocssl._core.host_memory import out_of_memory

        if lack := out_of_memory(error):
            return complain(str(OutOfMemory(lack.lack, LACKING)), FAILED)
        if not isinstance(error, OSError):
            raise
        _drop_output()  # such as a full disk behind standard output
        return complain(f"cannot read or write {error.filename or 'the output'}: {error.strerror or error}.", FAILED)
    return status if isinstance(status, int) else 0


def _open_standard_streams() -> None:
    """Closed standard streams lead to nowhere; else the next file that is opened would take their place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # a name that is no text, or a locale that lacks a character


def _require_current_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise OcsslError("the current folder has been removed; change to one that exists.") from None


def _warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning in one line, without the line of code that it comes from."""
    return f"ocssl: warning: {printable(str(message))}\n"


def _drop_output() -> None:
    """Write nothing more, also not what is buffered when the process ends."""
    with suppress(OSError):
        handle = sys.stdout.fileno()
        os.close(handle)  # first: there may be as many open files as the process may have
        found = os.open(os.devnull, os.O_WRONLY)
        if found != handle:
            os.dup2(found, handle)


def console(silent: bool = False) -> Console:
    """Where commands print: names of the user's are no markup, and lines to a file or pipe are not wrapped."""
    from rich.console import Console

    narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(quiet=silent, markup=False, highlight=False, width=None if narrow else WIDE)


def complain(message: str, status: int = BAD_INPUT) -> int:
    """Say what is wrong in one line; the exit code is handed back."""
    sys.stderr.write(f"ocssl: {message}\n")
    return status


def _one_sentence(error: CycloptsError) -> str:
    """Cyclopts' message in one line, with the nearest command if a command was misspelled."""
    if isinstance(error, cyclopts.UnknownCommandError) and error.unused_tokens:
        word = error.unused_tokens[0]
        close = nearest(word, [name for name in app if not name.startswith("-")])
        hint = f"did you mean {close!r}?" if close else "see: ocssl --help"
        return f"unknown command {word!r}: {hint}"
    choices = [choice for choice in get_args(getattr(error, "target_type", None)) if isinstance(choice, str)]
    if isinstance(error, cyclopts.CoercionError) and error.token and choices:
        name = error.token.keyword or (error.argument.name.lstrip("-").upper() if error.argument else "the value")
        close = nearest(error.token.value, choices)
        hint = f"did you mean {close!r}? " if close else ""
        return f"{name} is {error.token.value!r}: {hint}Known: {', '.join(choices)}."
    return " ".join(str(error).split())


@app.command(group=TOOLS)
def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print the script that completes commands and options in a shell.

    Example: ocssl completion bash > ~/.local/share/bash-completion/completions/ocssl

    Parameters
    ----------
    shell
        bash, zsh or fish.
    """
    sys.stdout.write(app.generate_completion(shell=shell))
    return 0


def print_json(found: object) -> int:
    """Print a result for programs; what was not measured is null."""
    import json

    from ocssl.runs.events import nan_to_none

    sys.stdout.write(f"{json.dumps(nan_to_none(found), indent=1)}\n")
    return 0
