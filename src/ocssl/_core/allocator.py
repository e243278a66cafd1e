"""How this process deals with memory that tensors give back."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def keep_freed_memory() -> bool:
    """Keep what tensors give back for those of the next step, instead of returning it to the system.

    glibc returns freed memory of some megabytes at once and asks for it anew a moment later; the system then hands it
    out page by page, each time zeroed, which can take as long as making the views. The process stays as large as
    its peak. Returns whether it has glibc, which agreed. For programs, not libraries: it holds for the whole process.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(MMAP_THRESHOLD, 2**30) and mallopt(TRIM_THRESHOLD, 2**31 - 1))
