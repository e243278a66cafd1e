"""Speed and scale on this machine, as ratios: what `ocssl bench` runs, part by part.

Beside each part stands the naive code that it is compared with.
"""

from ocssl.bench.timing import Bar, Effort, Row, Spread, interleaved, ratio, spread

__all__ = ["Bar", "Effort", "Row", "Spread", "interleaved", "ratio", "spread"]
