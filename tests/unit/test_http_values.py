"""Values in JSON, in paths and in `where=`: one form for each type, which is read back as it was written."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.declare.limits import LONGEST
from penstock.declare.model import Column, TableDef
from penstock.declare.types import BOOL, DATE, DATETIME, FLOAT, INT, STR, TIMEDELTA, Type
from penstock.errors import InputError
from penstock.serve.http.answers import Refusal
from penstock.serve.http.routes import texts_of
from penstock.serve.http.values import dumps, finite, key_of_json, key_of_path, of_json, of_text, plain
from serving import key

DECIMAL = Type("decimal", 18, 8)
WORDS = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[Type, st.SearchStrategy[Any]] = {
    INT: WORDS,
    FLOAT: st.floats(),
    BOOL: st.booleans(),
    STR: st.text(),
    DECIMAL: st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-8)),
    DATETIME: st.datetimes().map(lambda t: t.replace(tzinfo=dt.UTC)),
    DATE: st.dates(),
    TIMEDELTA: st.timedeltas(-LONGEST, LONGEST),
}
KEYED = TableDef("Keyed", tuple(Column(t.kind, t, key=True) for t in VALUES if t is not FLOAT))


def same(a: Any, b: Any) -> bool:
    return a == b and type(a) is type(b) or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_what_is_written_is_read_back(type_: Type) -> None:
    @given(VALUES[type_])
    def holds(value: Any) -> None:
        name = type_.kind
        record = json.loads(dumps(finite({name: value}, [name] if type_ is FLOAT else [])))
        assert same(of_json(type_, record[name]), value), record
        if type_ not in (INT, FLOAT, BOOL):
            assert isinstance(record[name], str)
            assert same(of_text(type_, record[name]), value)
        # What comes from SQL has the same forms.
        assert json.loads(dumps(plain({name: value}))) == record

    holds()


@given(st.tuples(*(VALUES[column.type] for column in KEYED.keys)))
def test_a_key_in_a_path_is_read_back(parts: tuple[Any, ...]) -> None:
    texts = [json.loads(dumps(part)) for part in parts]
    shown = key(*(json.dumps(text) if not isinstance(text, str) else text for text in texts))
    assert key_of_path(KEYED, texts_of(shown.encode())) == parts
    assert key_of_json(KEYED, texts) == parts


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        *(
            (INT, text)
            for text in ("", "1.0", "+1", " 1", "1 ", "0x1", "1e3", "９", "9223372036854775808", "1" * 30, "--1")
        ),
        *((FLOAT, text) for text in ("", "nan", "inf", "1e999", "0x1p3", "1_0", "infinity")),
        *((BOOL, text) for text in ("", "True", "1", "yes")),
        *((DECIMAL, text) for text in ("", "NaN", "1e3", "1,5", "0.000000001", "1" * 20, "٣", "Infinity")),
        *((DATETIME, text) for text in ("", "now", "2026-13-01T00:00:00Z", "10000-01-01", "0001-01-01T00:00:00+05:00")),
        *((DATE, text) for text in ("", "2026-02-30", "2026-03-01T00:00:00Z", "0000-01-01")),
        *(
            (TIMEDELTA, text)
            for text in ("", "P", "PT", "P1DT", "1 day", "P1M", "P999999999D", "PT1.0000001S", "--PT1S")
        ),
    ],
)
def test_what_is_no_value_is_refused(type_: Type, text: str) -> None:
    table = TableDef("T", (Column("k", type_, key=True),))
    with pytest.raises(InputError, match=r"^table 'T': key 'k' is "):
        key_of_path(table, [text])


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        *((INT, value) for value in (True, 1.0, "1", None, [1], {}, 2**63, 1e300)),
        *((BOOL, value) for value in (1, "true", None)),
        *((STR, value) for value in (1, None, ["a"], {"a": 1})),
        *((DECIMAL, value) for value in (1.5, True, None, [], 10**18, "1e5")),
        *((DATETIME, value) for value in (0, 1.5, None, [])),
    ],
)
def test_json_of_another_type_is_refused(type_: Type, value: Any) -> None:
    table = TableDef("T", (Column("k", type_, key=True),))
    with pytest.raises(InputError, match=r"^table 'T'"):
        key_of_json(table, [value])


def test_a_key_of_too_few_parts_says_which_there_are() -> None:
    table = TableDef("T", (Column("w", INT, key=True), Column("i", STR, key=True)))
    with pytest.raises(InputError, match=r"has the key \(w, i\): give 2 parts, not 3; in a path, a comma"):
        key_of_path(table, ["1", "a", "b"])
    with pytest.raises(InputError, match=r"give 2 parts, not 1$"):
        key_of_json(table, 1)


@pytest.mark.parametrize("raw", [b"%", b"%zz", b"a%2", b"%ff", b"%c3%28", b"%ed%a0%80"])
def test_a_path_that_is_no_text_is_refused(raw: bytes) -> None:
    with pytest.raises(Refusal):
        texts_of(raw)


def test_values_that_only_sql_has() -> None:
    value = {
        "huge": 2**100,
        "blob": b"\x00\xff",
        "month": pa.MonthDayNano([14, 3, 5_000_000_000]),
        "list": [1.5, math.nan, {"in": Decimal("1.50")}],
        "map": [("a", 1)],
        "time": dt.time(1, 2, 3),
        "none": None,
    }
    assert dumps(plain(value)) == (
        b'{"huge":1267650600228229401496703205376,"blob":"00ff","month":"P14M3DT5S",'
        b'"list":[1.5,"NaN",{"in":"1.50"}],"map":[["a",1]],"time":"01:02:03","none":null}'
    )
