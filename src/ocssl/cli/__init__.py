"""The command line: `ocssl demo`, `run`, `pretrain`, `resume`, `evaluate`, `diagnose`, `report`, `compare`,
`list`, `bench`, `reproduce`, `sweep`, `completion`."""

from ocssl.cli import bench, reproduce, results, run, sweep  # noqa: F401 - the commands register themselves
from ocssl.cli.app import app, main

__all__ = ["app", "main"]
