"""Where images come from: every file of this folder is imported, and registers its benchmarks."""

from importlib import import_module
from pkgutil import iter_modules

from ocssl.data.sources.source import BENCHMARKS

for _file in iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")

__all__ = ["BENCHMARKS"]
