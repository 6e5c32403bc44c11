"""The table of types: each row is at one with itself and with Arrow."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.declare.kinds import COLUMNS, KINDS, REAL, WORD, Kind
from penstock.declare.types import INT_MAX, INT_MIN, Type, of_annotation, of_text
from penstock.execute.validate import JUDGED
from penstock.state.arrow import from_arrow, to_arrow
from penstock.state.lanes import constant, dtype
from penstock.state.strings import Strings


def type_of(row: Kind) -> Type:
    return Type("decimal", 18, 2) if row.name == "decimal" else Type(row.name)


columns = pytest.mark.parametrize("row", COLUMNS, ids=[row.name for row in COLUMNS])


@columns
def test_its_text_and_its_annotation_name_it(row: Kind) -> None:
    type_ = type_of(row)
    assert of_text(str(type_)) == type_
    given = type_ if row.name == "decimal" else row.python
    assert of_annotation(given, where="here", lists=False) == type_


def test_texts_that_name_no_column() -> None:
    assert [of_text(text) for text in ("row", "list[int]", "decimal", "decimal(18,2)", "int key", "")] == [None] * 6


@columns
def test_arrow_has_values_of_its_width_and_is_taken(row: Kind) -> None:
    arrow = type_of(row).arrow()
    assert row.takes(arrow)
    assert row.width == (0 if row.name == "str" else arrow.bit_width)


@pytest.mark.parametrize("row", [row for row in COLUMNS if row.limits], ids=lambda row: row.name)
def test_limits_are_values_and_what_is_beyond_is_judged(row: Kind) -> None:
    type_ = type_of(row)
    low, high = row.limits
    assert INT_MIN < low < high < INT_MAX and row.lane is WORD and row.name in JUDGED and row.outside and row.sound
    whole = pa.int32() if row.width == 32 else pa.int64()
    ends = pa.array([low, high], whole).cast(type_.arrow()).to_pylist()
    assert [constant(row.given(one, type_), type_) for one in ends] == [low, high]
    # Arrow takes each end from Python, and gives it back.
    assert pa.array(ends, type_.arrow()).to_pylist() == ends


@columns
def test_what_is_false_lies_in_its_lane_and_crosses_the_border(row: Kind) -> None:
    type_, strings = type_of(row), Strings()
    if row.nothing is None:
        assert row.limits  # a place in time is never nothing
        return
    plain = row.python(row.nothing) if row.name == "decimal" else row.nothing
    assert not plain and row.given(plain, type_) == plain
    lane = from_arrow(pa.array([plain], type_.arrow()), type_, strings)
    assert lane.dtype == dtype(type_)
    assert to_arrow(lane, type_, strings).to_pylist() == [plain]


def test_floats_and_lists_are_no_keys() -> None:
    assert {row.name for row in KINDS.values() if "key" not in row.roles} == {"float", "list"}
    assert {row.name for row in COLUMNS if row.lane is REAL} == {"float"}
