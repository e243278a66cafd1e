"""Runs: a learner on a benchmark, with evaluation, events, checkpoints and exact resume."""
