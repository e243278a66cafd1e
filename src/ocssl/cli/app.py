"""The command line's frame: errors that a user can act on become one sentence on stderr and exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import cyclopts
from cyclopts import App, CycloptsError

from ocssl import __version__
from ocssl._core.allocator import keep_freed_memory
from ocssl.errors import NonFiniteLoss, OcsslError, nearest

if TYPE_CHECKING:
    from rich.console import Console

app = App(
    name="ocssl",
    help="Online continual self-supervised learning: train an image encoder on a changing stream that is seen once.",
    version=__version__,
    version_flags=["--version"],
    help_format="plaintext",  # there is no markup in it, and a renderer of markup takes long to import
)

BAD_INPUT, FAILED = 2, 1
WIDE = 250  # characters of a line that no screen has to show


def main(words: Sequence[str] | None = None) -> None:
    """Entry point: errors that a user can act on become one sentence on stderr."""
    keep_freed_memory()
    try:
        status = app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        complain(_one_sentence(error))
        sys.exit(BAD_INPUT)
    except NonFiniteLoss as error:
        complain(str(error))
        sys.exit(FAILED)
    except OcsslError as error:
        complain(str(error))
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    sys.exit(status if isinstance(status, int) else 0)


def console(silent: bool = False) -> Console:
    """Where commands print: what users named is no markup, and a file or pipe is as wide as its lines."""
    from rich.console import Console

    narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(quiet=silent, markup=False, highlight=False, width=None if narrow else WIDE)


def complain(message: str) -> None:
    sys.stderr.write(f"ocssl: {message}\n")


def _one_sentence(error: CycloptsError) -> str:
    """Cyclopts' own message in one line, with the nearest command where a command was misspelled."""
    if isinstance(error, cyclopts.UnknownCommandError) and error.unused_tokens:
        word = error.unused_tokens[0]
        close = nearest(word, [name for name in app if not name.startswith("-")])
        hint = f"did you mean {close!r}?" if close else "see: ocssl --help"
        return f"unknown command {word!r}: {hint}"
    return " ".join(str(error).split())
