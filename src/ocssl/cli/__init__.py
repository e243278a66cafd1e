"""The command line: `ocssl demo`, `run`, `pretrain`, `resume`, `evaluate`, `diagnose`, `report`, `list`, `bench`."""

from ocssl.cli import looking, measuring, running  # noqa: F401 - the commands register themselves
from ocssl.cli.app import app, main

__all__ = ["app", "main"]
