"""TOML is written so that it reads back the same, and anything wrong with it is a ValueError."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocssl._files.toml import DEEPEST, dump_toml, parse_toml

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(texts, values, max_size=4))
def test_a_table_reads_back_the_same(table: dict[str, Any]) -> None:
    assert parse_toml(dump_toml(table)) == table


def test_keys_without_a_value_are_left_out() -> None:
    assert parse_toml(dump_toml({"a": None, "b": {"c": None, "d": {"e": None}}})) == {"b": {"d": {}}}


HUGE = [
    "a = 0x" + "f" * 5_000,
    "a = [[{b = 9223372036854775808}]]",
    "[a]\nb = -9223372036854775809",
    "a = 0b1" + "0" * 63,
]


@pytest.mark.parametrize("text", ["a", "a = " + "[" * 100_000, "a = " + "1" * 5_000, *HUGE])
def test_bad_toml_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(ValueError, match="not TOML"):
        parse_toml(text)


@pytest.mark.parametrize(("start", "inner", "end"), [("[", "", "]"), ("{a=", "1", "}")])
def test_nesting_has_a_bound(start: str, inner: str, end: str) -> None:
    for _ in range(DEEPEST - 1):
        inner = start + inner + end
    parse_toml(f"a = {inner}")
    with pytest.raises(ValueError, match="levels deep"):
        parse_toml(f"a = [{inner}]")
