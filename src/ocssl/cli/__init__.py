"""The command line: each module holds the commands of one kind, which register themselves when it is imported."""

from ocssl.cli import bench, check, embed, reproduce, results, run, sweep  # noqa: F401 - the commands register themselves
from ocssl.cli.app import app, main

__all__ = ["app", "main"]
