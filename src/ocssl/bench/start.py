"""How long one waits before anything happens: `import ocssl` and `ocssl --help`, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from ocssl.bench.rows import Bar, Effort, Row
from ocssl.bench.timing import exactly, interleaved, spread
from ocssl.errors import OcsslError

WAIT = 0.5  # seconds that both together may take
IMPORT = "import ocssl"
HELP = """
import contextlib, io
from ocssl.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(["--help"])
"""
_COUNT = "\nimport sys; sys.stdout.write(str(sum(n.split('.')[0].startswith(sys.argv[1]) for n in sys.modules)))"


def rows(effort: Effort) -> Iterator[Row]:
    yield from waits(effort.rounds(15, 7))
    for name, code in {"import ocssl": IMPORT, "ocssl --help": HELP}.items():
        yield Row("start", f"{name}, modules of torch", exactly(imported(code, "torch")), "count", Bar(0))


def waits(rounds: int) -> Iterator[Row]:
    """Both, and the interpreter alone, from the start of a process to its end."""
    times = interleaved(
        {
            "python alone": lambda: python("-c", "pass"),
            "import ocssl": lambda: python("-c", IMPORT),
            "ocssl --help": lambda: python("-m", "ocssl", "--help"),
        },
        rounds,
    )
    both = [a + b for a, b in zip(times["import ocssl"], times["ocssl --help"], strict=True)]
    yield Row("start", "import ocssl and ocssl --help", spread(both), "s", Bar(WAIT))
    for name, seconds in times.items():
        yield Row("start", name, spread(seconds), "s")


def python(*words: str) -> str:
    """What a fresh interpreter writes when it is started with these words."""
    child = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    if child.returncode:
        why = (child.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise OcsslError(f"a process that was to be timed ended with {child.returncode}: {why}.")
    return child.stdout


def imported(code: str, prefix: str) -> int:
    """How many modules whose names begin so are there after some code has run in a fresh interpreter."""
    return int(python("-c", code + _COUNT, prefix))
