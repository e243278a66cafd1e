"""Settings of runs: a table of those that differ, and those that all runs share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ocssl._core.table import MISSING, Row, Table
from ocssl.results.read_runs import Run
from ocssl.results.run_groups import by_series

MOST_VALUES = 3  # of one setting among the seeds of a series
NAMED = ("method", "benchmark", "seed")  # they stand in other tables


def that_differ(runs: Sequence[Run]) -> Table:
    """One row a setting in which runs differ, one column a series."""
    known = [run for run in runs if run.settings]
    groups = by_series(known)
    rows = [
        Row((key, *(_values(key, group) for group in groups.values())))
        for key in _keys(known)
        if len({repr(run.settings.get(key)) for run in known}) > 1 and key not in NAMED
    ]
    headers = ("setting", *groups)
    caption = "Settings in which these runs differ; a dash stands for one that a run does not have."
    return Table(headers, rows, tuple(range(len(headers))), caption=caption, key="settings-that-differ")


def in_common(runs: Sequence[Run]) -> list[str]:
    """Lines of settings that all runs share."""
    known = [run for run in runs if run.settings]
    alike = (key for key in _keys(known) if len({repr(run.settings.get(key)) for run in known}) == 1)
    return [f"{key} = {_word(known[0].settings[key])}" for key in alike]


def _keys(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(key for run in runs for key in run.settings))


def _values(key: str, group: Sequence[Run]) -> str:
    words = list(dict.fromkeys(_word(run.settings[key]) if key in run.settings else MISSING for run in group))
    return ", ".join(words[:MOST_VALUES]) + ", …" * (len(words) > MOST_VALUES)


def _word(value: Any) -> str:
    """A value as in TOML, as far as that matters to a reader.

    >>> _word(True), _word([0.2, 1.0]), _word("solar")
    ('true', '[0.2, 1.0]', 'solar')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)
