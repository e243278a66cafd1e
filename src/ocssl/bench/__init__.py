"""Speed and scale on this machine, as ratios: what `ocssl bench` runs.

A part is a module of this package with a function `rows(effort)` that yields rows as they are measured.
"""

from ocssl.bench.rows import Bar, Effort, Row
from ocssl.bench.timing import Spread, interleaved, ratio, spread

__all__ = ["Bar", "Effort", "Row", "Spread", "interleaved", "ratio", "spread"]
