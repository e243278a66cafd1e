"""The memory of the host: how much is free, and errors that mean that it was not enough. Imports no torch."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ocssl.errors import OutOfMemory

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

TORCH = 600 * 10**6  # bytes of address space that importing PyTorch takes; with less it may abort
TORCH_ADVICE = "PyTorch alone takes about 600 MB: raise the limit, or end other programs."

SIGNS = re.compile(  # in what torch, its libraries, numpy, Python and the linker say
    r"(can't|cannot|unable to|failed to) allocate|DefaultCPUAllocator|not enough memory|bad[ _]alloc|out of memory"
    r"|could not create a (primitive|memory)|failed to map segment|can't start new thread|insufficient memory",
    re.IGNORECASE,
)
WANTED = re.compile(r"allocate (\d+) bytes|unable to allocate ([\d.]+) ([KMGTP]?i?B)", re.IGNORECASE)
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def free_bytes() -> tuple[int, str] | None:
    """What this process can still take, and what sets the limit; None where the system does not say."""
    found = [(free, limit) for limit, free in _limits()]
    return min(found) if found else None


def address_space() -> int | None:
    """The bytes of address space that this process may have (`ulimit -v`); None without a limit."""
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0] if resource else -1
    return allowed if 0 <= allowed < 2**63 - 1 else None


def _limits() -> Iterator[tuple[str, int]]:
    with suppress(OSError, ValueError, IndexError):
        allowed = address_space()
        if allowed is not None:
            taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
            yield f"of {allowed:,} that ulimit -v allows", max(0, allowed - taken)
    with suppress(OSError, ValueError, IndexError):
        line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
        yield "on this machine", int(line.split()[1]) * 1024
    for most, used in CGROUPS:
        with suppress(OSError, ValueError):
            allowed = int(Path(most).read_text())
            yield f"of {allowed:,} that its control group allows", max(0, allowed - int(Path(used).read_text()))


def out_of_memory(error: BaseException) -> OutOfMemory | None:
    """The error that says how much was wanted and how much is free, if this one means that there was not enough."""
    if isinstance(error, OutOfMemory):
        return error
    text = str(error)
    if "CUDA" in text or "MPS" in text:
        return None
    lacking = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    if not lacking and not (isinstance(error, RuntimeError | ImportError | OSError) and SIGNS.search(text)):
        return None
    if isinstance(error, ImportError):
        return _no_room()
    wanted = f"{number:,} bytes were wanted" if (number := wanted_bytes(text)) else "more was wanted than is free"
    return OutOfMemory(f"out of memory: {wanted}{_free_words()}")


def require_room_for_torch() -> None:
    """Raise OutOfMemory where `ulimit -v` leaves no room for PyTorch: its libraries would abort the process."""
    if address_space() is not None and "torch" not in sys.modules and (free := free_bytes()) and free[0] < TORCH:
        raise _no_room()


def _no_room() -> OutOfMemory:
    return OutOfMemory(f"out of memory: PyTorch cannot be loaded{_free_words()}", TORCH_ADVICE)


def _free_words() -> str:
    free = free_bytes()
    return f", {free[0]:,} bytes are free {free[1]}" if free else ""


def wanted_bytes(text: str) -> int | None:
    """How many bytes could not be had, where the error says so.

    >>> wanted_bytes("you tried to allocate 4096 bytes. Error code 12")
    4096
    >>> wanted_bytes("Unable to allocate 1.5 KiB for an array")
    1536
    """
    found = WANTED.search(text)
    if found is None:
        return None
    if found[1]:
        return int(found[1])
    return int(float(found[2]) * UNITS[found[3].lower().rstrip("b").rstrip("i")])


def check_memory(error: BaseException) -> None:
    """Raise OutOfMemory if that is what an error means: before anything else is blamed for it."""
    if (lack := out_of_memory(error)) is not None:
        raise lack from None


@contextmanager
def memory_checked() -> Iterator[None]:
    """Turn an error in the block into OutOfMemory, if that is what it means."""
    try:
        yield
    except Exception as error:
        check_memory(error)
        raise
