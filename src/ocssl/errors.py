"""Errors that a user can act on: one sentence each, with the nearest right name."""

import difflib
from collections.abc import Iterable
from pathlib import Path

LONGEST = 1500  # characters of an error: a value out of a file may have millions
SYNONYMS = {"gpu": "cuda", "metal": "mps"}  # what people say for a name that differs


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


class OutOfMemory(OcsslError, MemoryError):
    """The memory of the host was not enough; `advice` says what to lower, where that is known."""

    def __init__(self, lack: str, advice: str = "") -> None:
        super().__init__(f"{lack}; {advice}" if advice else lack)
        self.lack, self.advice = lack, advice


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
    if (meant := SYNONYMS.get(name.lower())) in candidates:
        return meant
    found = difflib.get_close_matches(name.lower(), candidates, n=1, cutoff=0.6)
    if found:
        return found[0]
    return next((c for c in candidates if name and c.startswith(name.lower())), None)


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "file"), counted(2000, "minibatch")
    ('1 file', '2,000 minibatches')
    """
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith(('s', 'ch')) else 's'}"


def install(extra: str) -> str:
    """The command that installs the packages of an extra, however ocssl itself was installed.

    >>> install("no such extra")
    "pip install 'ocssl[no such extra]'"
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        wanted = [line.partition(";") for line in requires("ocssl") or ()]
    except PackageNotFoundError:
        wanted = []
    named = [name.strip() for name, _, when in wanted if f"extra == '{extra}'" in when.replace('"', "'")]
    return "pip install " + " ".join(f"'{name}'" for name in named or [f"ocssl[{extra}]"])


def unknown(kind: str, name: str, known: Iterable[str]) -> SettingError:
    """The error for a name that is not in a list: what, which, and the nearest right one."""
    options = sorted(known)
    close = nearest(name, options)
    hint = f"did you mean {close!r}?" if close else f"known: {', '.join(options) or 'none'}."
    return SettingError(f"unknown {kind} {name!r}: {hint}")
