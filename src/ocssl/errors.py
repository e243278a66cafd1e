"""Errors that a user can act on: one sentence each, with the nearest right name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

LONGEST = 1500  # characters of an error: a value out of a file may have millions


class OcsslError(Exception):
    """The base of all errors that the command line shows without a traceback (exit code 2).

    Its text is printable, on one line, and of bounded length: the middle of a longer one is left out.
    """

    def __init__(self, message: str) -> None:
        text = printable(message)
        half = LONGEST // 2 - 3
        super().__init__(text if len(text) <= LONGEST else f"{text[:half]} ... {text[-half:]}")


class SettingError(OcsslError, ValueError):
    """A setting, name or value that cannot be used."""


class DataError(OcsslError, ValueError):
    """Images or files that cannot be used."""


class CheckpointError(OcsslError):
    """A checkpoint that is missing, damaged or does not fit."""


class RunFolderError(OcsslError):
    """A run folder that cannot be made, opened or continued."""


class NonFiniteLoss(OcsslError, ArithmeticError):
    """The loss became infinite or NaN; raised before the optimizer steps. ``ids`` names the samples."""

    def __init__(self, message: str, ids: list[int]) -> None:
        super().__init__(message)
        self.ids = ids


def printable(name: Path | str | bytes) -> str:
    """A name as text that can be shown and written anywhere, with escapes for other bytes and characters."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to a misspelled one, if any comes close."""
    candidates = list(known)
    found = difflib.get_close_matches(name.lower(), candidates, n=1, cutoff=0.5)
    if found:
        return found[0]
    return next((c for c in candidates if name and c.startswith(name.lower())), None)


def unknown(kind: str, name: str, known: Iterable[str]) -> SettingError:
    """The error for a name that is not in a list: what, which, and the nearest right one."""
    options = sorted(known)
    close = nearest(name, options)
    hint = f"did you mean {close!r}?" if close else f"known: {', '.join(options) or 'none'}."
    return SettingError(f"unknown {kind} {name!r}: {hint}")
