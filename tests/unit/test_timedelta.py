"""timedelta as a type: what comes in, what its arithmetic gives at the extremes, what stays on disk."""

from __future__ import annotations

import datetime
import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.declare.limits import LONGEST, SPANS
from penstock.publish.files import OutcomeFiles, as_read
from penstock.replica.directory import Directory
from penstock.testing import assert_same_outcomes

UTC = dt.UTC
US = dt.timedelta(microseconds=1)
FIRST, LAST = (one.replace(tzinfo=UTC) for one in (dt.datetime.min, dt.datetime.max))
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=UTC)
LEAP = dt.date(2024, 2, 29)
FIVE = dt.timedelta(minutes=5)
MINUTES = 5

app = ps.App("spans")


@app.table
class Timer:
    span: datetime.timedelta = ps.key()
    total: datetime.timedelta = datetime.timedelta(hours=-1)
    seen: int = 0


@app.event
class Tick:
    ts: int = ps.order()
    what: str
    s: datetime.timedelta
    u: datetime.timedelta
    n: int
    t: datetime.datetime
    v: datetime.datetime
    d: datetime.date
    f: datetime.date
    several: list[datetime.timedelta]


@app.transaction
def tick(e: Tick):
    if e.what == "t-v":
        return {"span": e.t - e.v}
    if e.what == "t+s":
        return {"time": e.t + e.s}
    if e.what == "s+t":
        return {"time": e.s + e.t}
    if e.what == "t-s":
        return {"time": e.t - e.s}
    if e.what == "d-f":
        return {"span": e.d - e.f}
    if e.what == "d+s":
        return {"day": e.d + e.s}
    if e.what == "s+d":
        return {"day": e.s + e.d}
    if e.what == "d-s":
        return {"day": e.d - e.s}
    if e.what == "s+u":
        return {"span": e.s + e.u}
    if e.what == "s-u":
        return {"span": e.s - e.u}
    if e.what == "s*n":
        return {"span": e.s * e.n}
    if e.what == "n*s":
        return {"span": e.n * e.s}
    if e.what == "s//n":
        return {"span": e.s // e.n}
    if e.what == "s//u":
        return {"whole": e.s // e.u}
    if e.what == "s%u":
        return {"span": e.s % e.u}
    if e.what == "s/u":
        return {"ratio": e.s / e.u}
    if e.what == "-s":
        return {"span": -e.s}
    if e.what == "abs":
        return {"span": abs(e.s)}
    if e.what == "max":
        return {"span": max(e.s, e.u), "holds": e.s < e.u}
    if e.what == "truth":
        return {"holds": not e.s}
    if e.what == "five":
        return {"span": FIVE + dt.timedelta(minutes=MINUTES, hours=-1, milliseconds=0.5) - datetime.timedelta(1)}
    if e.what == "sum":
        total = dt.timedelta()
        for one in e.several:
            total += one
        timer = Timer.get(e.s)
        timer.total += total
        timer.seen += 1
        return {"span": timer.total, "time": e.t + total}
    return None


NULLS: dict[str, Any] = dict.fromkeys(("s", "u", "n", "t", "v", "d", "f", "several"))


def both(what: str, **values: Any) -> Any:
    """What the event gives: the one field that is not null, or the reason. Reference and engine agree on it."""
    event = Tick(ts=1, what=what, **{**NULLS, **values})
    with app.open() as db:
        native, reference = db.run([event]), app.reference().run([event])
    assert_same_outcomes(native, reference)
    row = native.to_pylist()[0]
    if row["status"] == "aborted":
        return row["reason"]
    found = [row[name] for name in ("span", "time", "day", "whole", "ratio", "holds") if row[name] is not None]
    return found[0] if len(found) == 1 else found


# What Python itself gives, where Python has no limit of its own in the way.
CASES: list[tuple[str, dict[str, Any], Any]] = [
    ("t-v", {"t": NOON, "v": NOON - US}, US),
    ("t-v", {"t": LAST, "v": FIRST}, dt.timedelta(days=3652058, seconds=86399, microseconds=999999)),
    ("t-v", {"t": FIRST, "v": LAST}, -dt.timedelta(days=3652058, seconds=86399, microseconds=999999)),
    ("t+s", {"t": NOON, "s": dt.timedelta(days=366)}, dt.datetime(2025, 3, 1, 12, tzinfo=UTC)),
    ("t+s", {"t": LAST - US, "s": US}, LAST),
    ("t+s", {"t": LAST, "s": US}, "overflow"),
    ("t+s", {"t": LAST, "s": LONGEST}, "overflow"),
    ("t+s", {"t": FIRST, "s": -US}, "overflow"),
    ("s+t", {"t": FIRST, "s": LAST - FIRST}, LAST),
    ("s+t", {"t": FIRST, "s": -LONGEST}, "overflow"),
    ("t-s", {"t": FIRST + US, "s": US}, FIRST),
    ("t-s", {"t": FIRST, "s": US}, "overflow"),
    ("t-s", {"t": FIRST, "s": LONGEST}, "overflow"),
    ("t-s", {"t": LAST, "s": -LONGEST}, "overflow"),
    ("d-f", {"d": dt.date.max, "f": dt.date.min}, dt.timedelta(days=3652058)),
    ("d-f", {"d": LEAP, "f": dt.date(2024, 3, 1)}, dt.timedelta(days=-1)),
    # A date moves by the whole days of a timedelta, rounded down: a second before midnight is a day back.
    ("d+s", {"d": LEAP, "s": dt.timedelta(hours=47)}, dt.date(2024, 3, 1)),
    ("d+s", {"d": LEAP, "s": dt.timedelta(seconds=-1)}, dt.date(2024, 2, 28)),
    ("d-s", {"d": LEAP, "s": dt.timedelta(seconds=1)}, LEAP),
    ("d-s", {"d": LEAP, "s": dt.timedelta(seconds=-1)}, dt.date(2024, 3, 1)),
    ("s+d", {"d": LEAP, "s": dt.timedelta(days=-1, hours=23)}, dt.date(2024, 2, 28)),
    ("d+s", {"d": dt.date.max, "s": dt.timedelta(hours=23)}, dt.date.max),
    ("d+s", {"d": dt.date.max, "s": dt.timedelta(days=1)}, "overflow"),
    ("d-s", {"d": dt.date.min, "s": dt.timedelta(days=1)}, "overflow"),
    ("d+s", {"d": dt.date.min, "s": -LONGEST}, "overflow"),
    ("d-s", {"d": dt.date.max, "s": -LONGEST}, "overflow"),
    ("s+u", {"s": LONGEST - US, "u": US}, LONGEST),
    ("s+u", {"s": LONGEST, "u": US}, "overflow"),
    ("s+u", {"s": LONGEST, "u": LONGEST}, "overflow"),
    ("s+u", {"s": -LONGEST, "u": -LONGEST}, "overflow"),
    ("s-u", {"s": -LONGEST, "u": US}, "overflow"),
    ("s-u", {"s": -LONGEST, "u": LONGEST}, "overflow"),
    ("s-u", {"s": LONGEST, "u": LONGEST}, dt.timedelta()),
    ("s*n", {"s": LONGEST, "n": -1}, -LONGEST),
    ("s*n", {"s": LONGEST // 2, "n": 2}, LONGEST),
    ("s*n", {"s": LONGEST // 2 + US, "n": 2}, "overflow"),
    ("s*n", {"s": US, "n": -(2**63)}, "overflow"),
    ("s*n", {"s": -US, "n": -(2**63)}, "overflow"),
    ("n*s", {"s": US, "n": SPANS[1]}, LONGEST),
    ("n*s", {"s": US, "n": SPANS[1] + 1}, "overflow"),
    ("n*s", {"s": dt.timedelta(), "n": -(2**63)}, dt.timedelta()),
    ("s//n", {"s": 7 * US, "n": -2}, -4 * US),
    ("s//n", {"s": -LONGEST, "n": -1}, LONGEST),
    ("s//n", {"s": LONGEST, "n": -(2**63)}, -US),
    ("s//n", {"s": US, "n": 0}, "division by zero"),
    ("s//u", {"s": -LONGEST, "u": US}, SPANS[0]),
    ("s//u", {"s": -7 * US, "u": 2 * US}, -4),
    ("s//u", {"s": US, "u": dt.timedelta()}, "division by zero"),
    ("s%u", {"s": -7 * US, "u": 4 * US}, US),
    ("s%u", {"s": 7 * US, "u": -4 * US}, -US),
    ("s%u", {"s": LONGEST, "u": -US}, dt.timedelta()),
    ("s%u", {"s": US, "u": dt.timedelta()}, "division by zero"),
    ("s/u", {"s": dt.timedelta(hours=1), "u": dt.timedelta(minutes=-40)}, -1.5),
    ("s/u", {"s": LONGEST, "u": LONGEST - US}, SPANS[1] / (SPANS[1] - 1)),
    ("s/u", {"s": US, "u": 3 * US}, 1 / 3),
    ("s/u", {"s": US, "u": dt.timedelta()}, "division by zero"),
    ("-s", {"s": LONGEST}, -LONGEST),
    ("-s", {"s": -LONGEST}, LONGEST),
    ("abs", {"s": -LONGEST}, LONGEST),
    ("max", {"s": -US, "u": -2 * US}, [-US, False]),
    ("truth", {"s": dt.timedelta()}, True),
    ("truth", {"s": -US}, False),
    ("five", {}, FIVE + dt.timedelta(minutes=5, hours=-1, milliseconds=0.5) - dt.timedelta(days=1)),
    ("s+u", {"s": US}, "null u"),
]


@pytest.mark.parametrize(("what", "values", "want"), CASES, ids=[f"{n}:{what}" for n, (what, _, _) in enumerate(CASES)])
def test_arithmetic(what: str, values: dict[str, Any], want: Any) -> None:
    assert both(what, **values) == want


def ticks(count: int) -> list[Any]:
    spans = (dt.timedelta(days=1), -US, LONGEST, dt.timedelta(), -LONGEST)
    return [
        Tick(ts=n, what="sum", **{**NULLS, "s": spans[n % 5], "t": NOON, "several": [spans[n % 5], FIVE]})
        for n in range(count)
    ]


@pytest.mark.parametrize("log", ["changes", "input"])
def test_a_key_a_default_and_a_list_survive_reopening(tmp_path: Path, log: str) -> None:
    reference = app.reference()
    reference.run(ticks(10))
    with app.open(tmp_path / "state", log=log) as db:
        first = db.run(ticks(10))
        assert db.table(Timer).num_rows == 3
    with app.open(tmp_path / "state", log=log) as db:
        assert db.table(Timer).sort_by("span") == reference.table(Timer).sort_by("span")
        assert_same_outcomes(db.run(ticks(5)), reference_of(ticks(10), ticks(5)))
    assert first.schema.field("span").type == pa.duration("us")
    assert first.column("status").to_pylist().count("aborted") == 4


def reference_of(*batches: list[Any]) -> pa.Table:
    reference = app.reference()
    return [reference.run(batch) for batch in batches][-1]


def test_a_reader_without_the_app_and_outcomes_in_files(tmp_path: Path) -> None:
    with app.open(tmp_path / "state") as db:
        want = db.run(ticks(10))
        kept = db.table(Timer).sort_by("span")
    assert Directory(tmp_path / "state").table("Timer").sort_by("span") == kept
    OutcomeFiles(str(tmp_path / "out")).write(want)
    (found,) = (tmp_path / "out").glob("*.parquet")
    read = pq.read_table(found)
    assert read == as_read(want)
    assert read.column("span").cast(pa.duration("us")) == want.column("span")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_arrow_durations_of_every_unit_come_in(unit: str) -> None:
    with app.open() as db:
        db.load(Timer, pa.table({"span": pa.array([0, 3_000_000_000], pa.duration(unit))}))
        found = db.table(Timer).column("span").to_pylist()
    scale = {"s": 10**6, "ms": 1000, "us": 1, "ns": 0.001}[unit]
    assert sorted(found) == [dt.timedelta(), dt.timedelta(microseconds=int(3_000_000_000 * scale))]


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (pa.array([1500], pa.duration("ns")), "is not a timedelta.*give durations in whole microseconds"),
        (pa.array([2**50], pa.duration("s")), "is not a timedelta.*at most 106751991 days"),
        (pa.array([5], pa.int64()), "needs timedelta, got Arrow type int64; give durations"),
        (pa.array([0, SPANS[1] + 1], pa.duration("us")), "value 1 is longer than 106751991 days"),
        (pa.array([-(2**63)], pa.int64()).cast(pa.duration("us")), "value 0 is longer than 106751991 days"),
    ],
)
def test_arrow_that_would_lose_something_is_refused(array: pa.Array, match: str) -> None:
    with app.open() as db, pytest.raises(ps.InputError, match=match):
        db.load(Timer, pa.table({"span": array}))


@pytest.mark.parametrize("value", [5, 5.0, "5", np.timedelta64(5, "s"), NOON, LONGEST + US, -LONGEST - US])
def test_objects_that_are_no_timedelta_are_refused(value: Any) -> None:
    with (
        app.open() as db,
        pytest.raises(ps.InputError, match=r"needs timedelta, got .*; give durations in whole"),
    ):
        db.load(Timer, [{"span": value}])


def test_the_ends_come_in_and_go_out() -> None:
    with app.open() as db:
        db.load(Timer, [{"span": LONGEST}, {"span": -LONGEST}])
        assert sorted(db.table(Timer).column("span").to_pylist()) == [-LONGEST, LONGEST]
        assert db.sql("select count(*) as n from Timer where span < interval 1 day").to_pylist() == [{"n": 1}]


def test_a_default_out_of_range_is_refused() -> None:
    with pytest.raises(ps.DeclarationError, match="is not a timedelta"):

        @ps.App("x").table
        class Wrong:
            k: int = ps.key()
            s: datetime.timedelta = dt.timedelta.max
