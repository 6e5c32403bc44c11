"""What passes the Arrow border, what is refused, and with which words."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.declare.model import Column, EventDef, Field, Program, TableDef, TransactionDef
from penstock.declare.objects import EventType
from penstock.declare.types import BOOL, DATE, DATETIME, FLOAT, INT, STR, Type
from penstock.errors import InputError
from penstock.execute import intake
from penstock.execute.order import order

D2 = Type("decimal", 6, 2)
KINDS = {
    "i": INT,
    "f": FLOAT,
    "b": BOOL,
    "s": STR,
    "d": D2,
    "t": DATETIME,
    "day": DATE,
    "xs": Type("list", item=INT),
    "ds": Type("list", item=D2),
}
ALL = EventDef("All", (Field("ts", INT), Field("id", STR), *(Field(n, t) for n, t in KINDS.items())), "ts", "id")
TICK = EventDef("Tick", (Field("ts", INT), Field("n", INT)), "ts", None)
IDLE = EventDef("Idle", (Field("ts", INT),), "ts", None)
ACCOUNT = TableDef(
    "Account", (Column("id", STR, key=True), Column("n", INT), Column("balance", D2, default=Decimal("0.00")))
)
PAIR = TableDef("Pair", (Column("a", INT, key=True), Column("b", D2, key=True), Column("x", FLOAT, default=0.0)))
PROGRAM = Program(
    "app",
    tables=(ACCOUNT, PAIR),
    events=(ALL, TICK, IDLE),
    transactions=(TransactionDef("all_", lambda e: None, ALL), TransactionDef("tick", lambda e: None, TICK)),
)
All, Tick = EventType(ALL), EventType(TICK)


def one(name: str, array: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """The column `name` of an All table, after intake."""
    n = len(array)
    columns = {"ts": pa.array(range(n)), "id": pa.array([str(i) for i in range(n)])}
    columns |= {k: pa.nulls(n, t.arrow()) for k, t in KINDS.items()}
    columns[name] = array
    (arrived,) = intake.events(PROGRAM, {All: pa.table(columns)})
    return arrived.table.column(name)


def message(batch: Any) -> str:
    with pytest.raises(InputError) as caught:
        intake.events(PROGRAM, batch)
    return str(caught.value)


def load_message(table: TableDef, rows: Any) -> str:
    with pytest.raises(InputError) as caught:
        intake.rows(table, rows)
    return str(caught.value)


def test_a_table_of_the_right_types_is_not_copied() -> None:
    table = pa.table({"n": pa.array([1, 2]), "extra": pa.array([0, 0]), "ts": pa.array([5, 6])})
    (arrived,) = intake.events(PROGRAM, {"Tick": table})
    assert arrived.event is TICK
    assert arrived.table.schema.equals(TICK.arrow())
    for name in ("ts", "n"):
        assert arrived.table[name].chunk(0).buffers()[1].address == table[name].chunk(0).buffers()[1].address


def test_a_table_of_exactly_the_declared_shape_passes_as_it_is() -> None:
    table = pa.table({"ts": pa.array([5, 6]), "n": pa.array([1, None])})
    (arrived,) = intake.events(PROGRAM, {"Tick": table})
    assert arrived.table is table


def test_the_declared_shape_does_not_hide_a_null_place_in_time() -> None:
    table = pa.table({"ts": pa.array([5, None]), "n": pa.array([1, 2])})
    assert "column 'ts', row 1: is null" in message({"Tick": table})


@pytest.mark.parametrize("pieces", [[[], [5, 6]], [[5, 6], []], [[5], [6]]])
def test_the_declared_shape_in_pieces(pieces: list[list[int]]) -> None:
    ts = pa.chunked_array([pa.array(p, pa.int64()) for p in pieces])
    (arrived,) = intake.events(PROGRAM, {"Tick": pa.table({"ts": ts, "n": pa.array([1, 2])})})
    assert order(PROGRAM, [arrived]).ts.tolist() == [5, 6]


def test_arrival_counts_on_through_the_dict() -> None:
    whole = {k: [None] for k in KINDS}
    arrived = intake.events(
        PROGRAM,
        {Tick: pa.record_batch({"ts": [1, 1], "n": [1, 2]}), All: [{"ts": 1, "id": "x", **{k: None for k in whole}}]},
    )
    assert [(a.event.name, a.arrival.tolist()) for a in arrived] == [("Tick", [0, 1]), ("All", [2])]
    assert all(a.arrival.dtype == np.int64 for a in arrived)


def test_arrival_of_mixed_events_is_their_place_in_the_list() -> None:
    batch = [Tick(ts=1, n=1), All(ts=1, id="x"), Tick(ts=0, n=None)]
    arrived = intake.events(PROGRAM, batch)
    assert [(a.event.name, a.arrival.tolist()) for a in arrived] == [("Tick", [0, 2]), ("All", [1])]
    assert arrived[0].table.to_pylist() == [{"ts": 1, "n": 1}, {"ts": 0, "n": None}]
    assert arrived[1].table.schema.equals(ALL.arrow())


def test_chunks_become_one() -> None:
    got = one("i", pa.chunked_array([[1], [2, 3]]))
    assert got.num_chunks == 1 and got.to_pylist() == [1, 2, 3]
    assert one("i", pa.chunked_array([], pa.int64())).num_chunks == 1


UTC_2024 = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("name", "array", "want"),
    [
        ("i", pa.array([1], pa.uint8()), [1]),
        ("i", pa.nulls(1), [None]),
        ("i", pa.array([7]).dictionary_encode(), [7]),
        ("f", pa.array([1.5], pa.float32()), [1.5]),
        ("f", pa.array([2**53]), [2.0**53]),
        ("d", pa.array([3]), [Decimal("3.00")]),
        ("d", pa.array([3], pa.uint64()), [Decimal("3.00")]),
        ("d", pa.array([Decimal("1.500")]), [Decimal("1.50")]),
        ("d", pa.array([Decimal("9999.99")], pa.decimal256(40, 10)), [Decimal("9999.99")]),
        ("s", pa.array(["x"], pa.large_string()), ["x"]),
        ("s", pa.array(["x"], pa.string_view()), ["x"]),
        ("t", pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("s")), [UTC_2024]),
        ("t", pa.array([UTC_2024], pa.timestamp("ns", "Europe/Paris")), [UTC_2024]),
        ("day", pa.array([dt.date(2024, 1, 1)], pa.date64()), [dt.date(2024, 1, 1)]),
        ("xs", pa.array([[1], None, [None]], pa.large_list(pa.int8())), [[1], None, [None]]),
        ("xs", pa.array([[0], [1, 2], None, []], pa.list_(pa.int32()))[1:], [[1, 2], None, []]),
        ("xs", pa.array([[1, 2]], pa.list_(pa.int64(), 2)), [[1, 2]]),
        ("xs", pa.array([[], [None]], pa.list_(pa.null())), [[], [None]]),
        ("ds", pa.array([[1], [2, 3]]), [[Decimal("1.00")], [Decimal("2.00"), Decimal("3.00")]]),
        ("ds", pa.array([[Decimal("1.5")]]), [[Decimal("1.50")]]),
    ],
)
def test_casts_that_lose_nothing(name: str, array: pa.Array, want: list[Any]) -> None:
    got = one(name, array)
    got.validate(full=True)
    assert got.type == KINDS[name].arrow()
    assert got.to_pylist() == want


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("i", pa.array([1.0])),
        ("i", pa.array(["1"])),
        ("i", pa.array([True])),
        ("i", pa.array([2**63], pa.uint64())),
        ("i", pa.array([Decimal(1)])),
        ("f", pa.array([2**53 + 1])),
        ("f", pa.array([Decimal("1.5")])),
        ("b", pa.array([1])),
        ("s", pa.array([b"x"])),
        ("s", pa.array([1])),
        ("d", pa.array([1.5])),
        ("d", pa.array([Decimal("1.234")])),
        ("d", pa.array([10000])),
        ("d", pa.array([Decimal("10000.00")])),
        ("t", pa.array([1001], pa.timestamp("ns"))),
        ("t", pa.array([1])),
        ("t", pa.array([dt.date(2024, 1, 1)])),
        ("day", pa.array([dt.datetime(2024, 1, 1)])),
        ("day", pa.array([86_400_001], pa.date64())),
        ("xs", pa.array([1])),
        ("xs", pa.array([["1"]])),
        ("ds", pa.array([[1.5]])),
    ],
)
def test_casts_that_lose_or_guess_are_refused(name: str, array: pa.Array) -> None:
    with pytest.raises(InputError, match=rf"^event 'All', column '{name}': .*; give ") as caught:
        one(name, array)
    assert str(KINDS[name].item or KINDS[name]) in str(caught.value)


def test_dictionary_strings_stay_encoded() -> None:
    kind = pa.dictionary(pa.int32(), pa.string())
    assert one("s", pa.array(["x", "y", "x"]).dictionary_encode()).type == kind
    assert one("s", pa.array(["x", None], pa.dictionary(pa.int8(), pa.large_string()))).type == kind
    chunks = pa.chunked_array([pa.array(["x"]).dictionary_encode(), pa.array(["y"]).dictionary_encode()])
    assert one("s", chunks).to_pylist() == ["x", "y"]
    hidden = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["x", None]))
    assert one("s", hidden).null_count == 1


def test_unknown_events_are_refused() -> None:
    foreign = EventType(replace(TICK, fields=(Field("ts", INT),)))
    assert message({"Tock": []}) == "app 'app': 'Tock' is not an event of app 'app'; its events are All, Tick, Idle"
    assert "is not an event of app 'app'" in message([foreign(ts=1)])
    assert message([Tick(ts=1), foreign(ts=1)]) == (
        "event 1: this 'Tick' is not an event of app 'app', whose 'Tick' has other fields; make it with that one"
    )
    newer = EventType(replace(TICK, name="Newer"))
    assert message([newer(ts=1)]).endswith("; if the app has declared it since, open the database again")
    assert "event 'Idle' has no transaction" in message([EventType(IDLE)(ts=1)])
    assert "given twice" in message({Tick: [], "Tick": []})


@pytest.mark.parametrize("batch", [Tick(ts=1), pa.table({"ts": [1]}), "Tick", 3])
def test_what_is_no_batch_is_refused(batch: Any) -> None:
    assert "a batch is a list of events or a dict of tables" in message(batch)


def test_items_that_are_no_events_are_refused() -> None:
    assert message([Tick(ts=1), {"ts": 1}]) == (
        "app 'app', event 1: {'ts': 1} is not an event; make one as All(ts=…, ...), or give all rows by their event: "
        "db.run({All: [{…}]})"
    )
    assert message([3]).endswith("3 is not an event; make one as All(ts=…, ...)")
    assert "not int" in message({Tick: 3})


def test_missing_and_double_columns_and_nulls_are_refused() -> None:
    assert message({Tick: pa.table({"ts": [1]})}) == "event 'Tick', column 'n': is missing; add it to the Arrow table"
    double = pa.Table.from_arrays([pa.array([1])] * 3, names=["ts", "n", "n"])
    assert message({Tick: double}) == "event 'Tick', column 'n': is there twice; keep one"
    null = pa.table({"ts": pa.array([1, None], pa.int64()), "n": [1, 1]})
    assert message({Tick: null}) == "event 'Tick', column 'ts', row 1: is null; every Tick needs its ts"
    assert message([Tick(ts=1), All(ts=1)]) == "event 1 (All), field 'id': is null; every All needs its id"
    assert "there is no field 'm'" in message({Tick: [{"ts": 1, "m": 2}]})


@pytest.mark.parametrize(
    ("name", "value", "want"),
    [
        ("i", np.int32(3), 3),
        ("f", 3, 3.0),
        ("f", float("inf"), float("inf")),
        ("d", 3, Decimal("3.00")),
        ("d", Decimal("1.5000"), Decimal("1.50")),
        ("t", dt.datetime(2024, 1, 1), UTC_2024),
        ("t", UTC_2024.astimezone(dt.timezone(dt.timedelta(hours=2))), UTC_2024),
        ("xs", (1, None), [1, None]),
        ("ds", [1], [Decimal("1.00")]),
    ],
)
def test_python_values(name: str, value: Any, want: Any) -> None:
    (arrived,) = intake.events(PROGRAM, [All(ts=1, id="x", **{name: value})])
    assert arrived.table.schema.equals(ALL.arrow())
    assert arrived.table[name].to_pylist() == [want]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("i", True),
        ("i", 1.0),
        ("i", "1"),
        ("i", 2**63),
        ("f", 2**53 + 1),
        ("f", Decimal(1)),
        ("b", 1),
        ("s", 1),
        ("s", "\ud800"),
        ("d", 1.5),
        ("d", True),
        ("d", 10**4),
        ("d", 10**70),
        ("d", Decimal("1.234")),
        ("d", Decimal("10000")),
        ("d", Decimal("nan")),
        ("t", dt.date(2024, 1, 1)),
        ("day", dt.datetime(2024, 1, 1)),
        ("xs", 1),
        ("xs", ["1"]),
        ("xs", "12"),
    ],
)
def test_python_values_of_the_wrong_type_are_refused(name: str, value: Any) -> None:
    text = message([Tick(ts=1), All(ts=1, id="x", **{name: value})])
    assert text.startswith(f"event 1 (All), field '{name}': needs {KINDS[name]}, got {value!r}; give ")


def test_rows_get_their_defaults() -> None:
    want = [{"id": "a", "n": 1, "balance": Decimal("0.00")}, {"id": "b", "n": 2, "balance": Decimal("5.00")}]
    got = intake.rows(ACCOUNT, [{"id": "a", "n": 1}, {"balance": 5, "n": 2, "id": "b"}])
    assert got.schema.equals(ACCOUNT.arrow()) and got.to_pylist() == want
    arrow = intake.rows(ACCOUNT, pa.table({"n": pa.array([1], pa.int8()), "id": pa.array(["a"]).dictionary_encode()}))
    assert arrow.schema.equals(ACCOUNT.arrow()) and arrow.to_pylist() == want[:1]
    assert intake.rows(ACCOUNT, []).num_rows == 0


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([{"id": "a"}], "table 'Account', column 'n', row 0: is missing and has no default; give it a value"),
        ([{"id": "a", "n": 1, "m": 2}], "table 'Account', row 0: there is no column 'm'; it has balance, id, n"),
        ([{"id": None, "n": 1}], "table 'Account', key 'id', row 0: is null; give it a value"),
        (
            [{"id": "a", "n": 1, "balance": None}],
            "table 'Account', column 'balance', row 0: is null; give it a value, or leave it out for its default, 0.00",
        ),
        ([{"id": "a", "n": "1"}], "table 'Account', column 'n', row 0: needs int, got '1'; give integers within int64"),
        (
            [{"id": "a", "n": 1}, {"id": "b", "n": 1}, {"id": "a", "n": 1}],
            "table 'Account': rows 0 and 2 have the same key, 'a'; give each key once",
        ),
        (pa.table({"id": ["a"]}), "table 'Account', column 'n': is missing; add it to the Arrow table"),
        (
            pa.table({"id": ["a"], "n": [1], "m": [1]}),
            "table 'Account' has no column 'm'; it has id, n, balance: rename it or leave it out",
        ),
        (pa.table({"id": ["a"], "n": pa.nulls(1)}), "table 'Account', column 'n', row 0: is null; give it a value"),
        (
            pa.table({"id": ["a"], "n": [1.5]}),
            "table 'Account', column 'n': needs int, got Arrow type double; give integers within int64",
        ),
        (7, "table 'Account': give a list of dicts or an Arrow table, not int"),
    ],
)
def test_rows_that_are_refused(rows: Any, text: str) -> None:
    assert load_message(ACCOUNT, rows) == text


def test_composite_keys_are_compared_as_they_are_stored() -> None:
    assert intake.rows(PAIR, [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}]).num_rows == 3
    assert "rows 0 and 1 have the same key, 1, Decimal('1.00')" in load_message(
        PAIR, [{"a": 1, "b": 1}, {"a": 1, "b": Decimal("1.0")}]
    )
