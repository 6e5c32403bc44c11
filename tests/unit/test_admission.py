"""Rows that cannot be events are rejected, one by one, and the rest of their batch runs."""

import datetime as dt
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import InputError
from penstock.execute.request import Admission
from penstock.execute.source_files import SourceFile, SourceRows, read
from penstock.testing import assert_same_outcomes, assert_same_tables

gate = ps.App("gate")
NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
RULES = Admission(ahead=86_400 * 10**6, wall=lambda: NOW)


@gate.table
class Total:
    key: str = ps.key()
    sum: ps.decimal(8, 2) = 0
    times: int = 0


@gate.event
class Pay:
    ts: dt.datetime = ps.order()
    id: str = ps.id()
    key: str
    amount: ps.decimal(8, 2)
    on: dt.date
    items: list[int]
    note: str
    rate: float


@gate.event
class Look:
    ts: dt.datetime = ps.order()
    key: str


@gate.transaction
def pay(e: Pay):
    total = Total.get(e.key)
    total.sum += e.amount
    for item in e.items:
        total.times += item
    ps.require(total.sum < 500, "too much")
    return {"sum": total.sum}


@gate.transaction
def look(e: Look):
    return {"sum": Total[e.key].sum}


WIDE = pa.schema(
    [
        ("ts", pa.timestamp("ns", "UTC")),
        ("id", pa.large_string()),
        ("key", pa.dictionary(pa.int8(), pa.string())),
        ("amount", pa.decimal128(30, 4)),
        ("on", pa.date64()),
        ("items", pa.large_list(pa.uint64())),
        ("note", pa.string()),
        ("rate", pa.int64()),
    ]
)


def text(*values: bytes | None) -> pa.Array:
    """Text that need not be UTF-8."""
    made = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(made), made.buffers(), made.null_count)


def nanoseconds(time: dt.datetime) -> int:
    return int(time.timestamp()) * 10**9


def pays(rng: Random, count: int, bad: float) -> pa.Table:
    """Rows of which about that share cannot be events, for every reason that there is."""
    columns: dict[str, list[Any]] = {name: [] for name in WIDE.names}
    for i in range(count):
        row: dict[str, Any] = {
            "ts": nanoseconds(NOW) + rng.randrange(-3600, 1) * 10**9,
            "id": f"p{i}-{rng.randrange(10**6)}",
            "key": rng.choice(["a", "b", "c", None]),
            "amount": rng.choice([pa_decimal("1.50"), pa_decimal("20"), None]),
            "on": rng.choice([0, 86_400_000, None]),
            "items": rng.choice([[], [1, 2], [3, None], None]),
            "note": rng.choice([b"x", "ü".encode(), None]),
            "rate": rng.choice([1, 2**53, None]),
        }
        if rng.random() < bad:
            row |= rng.choice(BAD)
        for name, value in row.items():
            columns[name].append(value)
    made = [text(*columns[f.name]) if f.name == "note" else pa.array(columns[f.name], f.type) for f in WIDE]
    return pa.Table.from_arrays(made, schema=WIDE)


def pa_decimal(value: str) -> Any:
    import decimal

    return decimal.Decimal(value)


BAD: list[dict[str, Any]] = [
    {"ts": None},
    {"ts": nanoseconds(NOW) + 1},  # no whole microsecond
    {"ts": nanoseconds(NOW) + 2 * 86_400 * 10**9},  # too far ahead
    {"id": None},
    {"amount": pa_decimal("1.234")},
    {"amount": pa_decimal("99999999999")},
    {"on": 10**16},
    {"items": [1, 2**63]},
    {"note": b"\xff\xfe"},
    {"rate": 2**53 + 1},
    {"ts": None, "id": None, "rate": 2**60},
]


def looks(rng: Random, count: int) -> pa.Table:
    ts = [rng.choice([NOW, NOW - dt.timedelta(minutes=rng.randrange(90)), None]) for _ in range(count)]
    return pa.table({"ts": pa.array(ts, pa.timestamp("us", "UTC")), "key": pa.array(rng.choices("abc", k=count))})


def as_files(batch: dict[Any, pa.Table], folder: Path) -> dict[Any, SourceRows]:
    """The same from files, as a direct source reads it."""
    out = {}
    for event, table in batch.items():
        path = folder / f"{event.definition.name}-{len(list(folder.iterdir()))}.parquet"
        pq.write_table(table, path)
        out[event] = SourceRows(read(event.definition, [str(path)]), (SourceFile.of(str(path), path.read_bytes()),))
    return out


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("log", [None, "changes", "input"])
def test_rejected_rows_are_those_of_the_reference(seed: int, log: str | None, tmp_path: Path) -> None:
    rng = Random(f"{seed} {log}")
    options: dict[str, Any] = {} if log is None else {"path": tmp_path / "state", "log": log, "snapshot_every": 2}
    db, reference = gate.open(**options), gate.reference()
    found = 0
    for number in range(5):
        batch = {Pay: pays(rng, rng.choice((0, 1, 40)), rng.choice((0, 0.2, 1))), Look: looks(rng, rng.randrange(9))}
        how: dict[str, Any] = rng.choice(({}, {"watermark": 60 * 10**6}, {"flush": True}))
        got = db.run(batch, id=number, _admission=RULES, **how)
        assert_same_outcomes(got, reference.run(batch, _admission=RULES, **how))
        statuses = got["status"].to_pylist()
        found += statuses.count("rejected")
        assert statuses == sorted(statuses, key=lambda one: one == "rejected")
        assert db.last_batch.rejected == statuses.count("rejected")
        assert_same_outcomes(db.run({}, id=number), got)
        if log is not None:
            db._store.close(None)
            db = gate.open(**options)
            assert_same_outcomes(db.run({}, id=number), got)
        assert_same_tables(db.table(Total), reference.table(Total), ["key"])
    assert found or seed


def test_with_log_source_rejected_rows_are_listed(tmp_path: Path) -> None:
    """What is read again from the files is without them, whatever the wall clock says by then."""
    rng, rules = Random(11), [Admission(ahead=hours * 3600 * 10**6, wall=lambda: NOW) for hours in (0, 24, 10**4)]
    (tmp_path / "in").mkdir()
    with gate.reference() as reference:
        for number in range(6):
            table = pays(rng, 40, 0.3).drop_columns("note")
            batch = {Pay: table.append_column("note", pa.array(["x"] * table.num_rows)), Look: looks(rng, 5)}
            how: dict[str, Any] = {"watermark": rng.choice((None, 60 * 10**6)), "_admission": rules[number % 3]}
            db = gate.open(tmp_path / "state", log="source", snapshot_every=100)
            given = as_files(batch, tmp_path / "in")
            out = db.run(given, **how)
            assert_same_outcomes(out, reference.run({event: one.table for event, one in given.items()}, **how))
            assert "rejected" in out["status"].to_pylist()
            db._store.close(None)  # without the snapshot that closing makes
            db = gate.open(tmp_path / "state", log="source")
            assert_same_tables(db.table(Total), reference.table(Total), ["key"])
            db._store.close(None)


def test_what_was_good_runs_as_if_the_bad_had_not_come() -> None:
    rng = Random(5)
    table = pays(rng, 300, 0.1)
    with gate.open() as db, gate.reference() as reference:
        out = db.run({Pay: table}, _admission=RULES)
        bad = set(out.filter(pa.compute.equal(out["status"].cast("string"), "rejected"))["id"].to_pylist())
        rows = [i for i, id in enumerate(table["id"].to_pylist()) if id is not None and id not in bad]
        sound = pa.concat_tables([table.slice(i, 1) for i in rows])
        wanted = reference.run({Pay: sound})
        assert_same_outcomes(out.slice(0, len(rows)), wanted)
        assert_same_tables(db.table(Total), reference.table(Total), ["key"])
        assert 0 < len(rows) < 300
        assert out.num_rows == 300


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"ts": None}, "ts: null"),
        ({"ts": nanoseconds(NOW) + 1}, "ts: 2026-03-01 12:00:00.000000001Z is no datetime"),
        (
            {"ts": nanoseconds(NOW) + 2 * 86_400 * 10**9},
            "ts: 2026-03-03 12:00:00.000000Z is more than 1 day ahead",
        ),
        ({"id": None}, "id: null"),
        ({"amount": pa_decimal("99999999999")}, "amount: 99999999999.0000 is no decimal(8, 2)"),
        ({"items": [1, 2**63]}, "items: a list with 9223372036854775808 is no list[int]"),
        ({"note": b"\xff" * 50}, "note: b'\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xf... is no str"),
        ({"rate": 2**53 + 1}, "rate: 9007199254740993 is no float"),
    ],
)
def test_a_reason_names_the_column_and_the_value(given: dict[str, Any], reason: str) -> None:
    good = pays(Random(1), 1, 0)
    table = good
    for name, value in given.items():
        array = text(value) if name == "note" else pa.array([value], WIDE.field(name).type)
        table = table.set_column(WIDE.names.index(name), name, array)
    with gate.open() as db:
        out = db.run({Pay: pa.concat_tables([good, table])}, _admission=RULES)
    row = out.to_pylist()[1]
    assert (row["transaction"], row["status"], row["reason"]) == ("pay", "rejected", reason)
    assert row["id"] == (None if "id" in given else good["id"][0].as_py())
    assert (row["ts"] is None) == (given.get("ts", 0) in (None, nanoseconds(NOW) + 1))


def test_one_that_is_rejected_moves_no_watermark() -> None:
    wild, first, second = NOW + dt.timedelta(days=400), NOW, NOW + dt.timedelta(minutes=1)
    with gate.open() as db:
        for ts in (first, wild, second):
            db.run({Look: pa.table({"ts": [ts], "key": ["a"]})}, watermark=0, _admission=RULES)
        assert db._versions.clock == nanoseconds(second) // 1000


def test_a_schema_that_does_not_fit_is_refused_as_before() -> None:
    good = pays(Random(1), 3, 0)
    with gate.open() as db:
        for table in (good.drop_columns("key"), good.set_column(3, "amount", pa.array([1.5] * 3))):
            with pytest.raises(InputError, match=r"event 'Pay', column '(key|amount)'"):
                db.run({Pay: table}, _admission=RULES)
        assert db.version == 0


def test_a_stream_may_fail_instead() -> None:
    far = pa.table({"ts": [NOW + dt.timedelta(days=9)], "key": ["a"]})
    rules = Admission("fail", ahead=0, wall=lambda: NOW)
    with gate.open() as db:
        with pytest.raises(InputError, match=r"row 0: ts: 2026-03-10 12:00:00.000000Z is more than 0:00:00 ahead"):
            db.run({Look: far}, _admission=rules)
        with pytest.raises(InputError, match="is null"):
            db.run({Look: looks(Random(2), 30)}, _admission=rules)
