"""A high mark that a wild ts has set is set back, and the stream goes on; both sides of the law mean the same by it."""

import datetime as dt
import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.check.check import check
from penstock.cli.commands import app as cli
from penstock.commit import Disk
from penstock.errors import InputError, StateError
from penstock.store.reset import opened
from penstock.testing import assert_same_outcomes, assert_same_tables

meter = ps.App("meter")
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
WILD = NOON.replace(year=2100)


@meter.table(ttl=timedelta(minutes=10))
class Reading:
    key: str = ps.key()
    times: int = 0


@meter.event
class Read:
    ts: dt.datetime = ps.order()
    id: str = ps.id()
    key: str


@meter.event
class Forget:
    key: str


@meter.transaction
def read(e: Read):
    reading = Reading.get(e.key)
    reading.times += 1
    ps.emit(Forget(key=e.key), at=ps.now() + timedelta(minutes=7))
    return {"times": reading.times, "now": ps.now()}


@meter.transaction
def forget(e: Forget):
    Reading.get(e.key).times += 100


def at(minutes: float, key: str = "a", id: str | None = None) -> Any:
    ts = NOON + timedelta(minutes=minutes)
    return Read(ts=ts, id=id or f"{key}{minutes}", key=key)


def wild(id: str, years: int = 0) -> Any:
    return Read(ts=WILD.replace(year=2100 + years), id=id, key="wild")


def set_back(path: Path, to: str) -> None:
    with opened(path) as reset:
        reset.do(reset.time_of(to))


def both(db: Any, reference: Any, batch: Any, **how: Any) -> Any:
    got = db.run(batch, **how)
    assert_same_outcomes(got, reference.run(batch, **how))
    assert_same_tables(db.table(Reading), reference.table(Reading), ["key"])
    assert_same_outcomes(db.pending(Forget), reference.pending(Forget))
    assert db.held == reference.held
    return got


@pytest.mark.parametrize("log", ["changes", "input"])
def test_a_stream_that_is_stuck_goes_on(tmp_path: Path, log: Any) -> None:
    state, how = tmp_path / "state", {"watermark": 60 * 10**6}
    reference = meter.reference()
    with meter.open(state, log=log) as db:
        both(db, reference, [at(0), at(1, "b"), at(3)], **how)
        both(db, reference, [wild("w1"), wild("w2", years=3), wild("w3", years=3), at(2, "c")], **how)
        assert both(db, reference, [at(4), at(5)], **how)["status"].to_pylist() == ["late", "late"]
        assert db.held == 2
    set_back(state, "2026-03-01T12:05")
    reference.set_back(NOON + timedelta(minutes=5))
    with meter.open(state, log=log, snapshot_every=1) as db:
        assert db.version == reference.version == 4
        assert db.outcomes(4).num_rows == 0
        out = both(db, reference, [at(6), at(7, "b"), at(9)], **how).to_pylist()
        assert [(row["id"], row["status"]) for row in out] == [
            ("a6", "committed"),
            ("b7", "committed"),
            ("w2", "rejected"),
            ("w3", "rejected"),
        ]
        assert out[-1]["reason"] == "ts: 2103-03-01 12:00:00.000000Z lies beyond what the clock was set back to"
        assert out[0]["now"] == NOON + timedelta(minutes=6)
        assert db.held == 1
    for minutes in range(10, 40, 4):  # records expire and timers run, and those of the year 2100 wait for it
        with meter.open(state, log=log, snapshot_every=3) as db:
            both(db, reference, [at(minutes, "a" if minutes < 20 else "b"), at(minutes + 1, "c")], **how)
            assert "wild" in db.table(Reading)["key"].to_pylist()
            got, wanted = (
                db.advance(NOON + timedelta(minutes=minutes)),
                reference.advance(NOON + timedelta(minutes=minutes)),
            )
            assert_same_outcomes(got, wanted)
    assert not check(Disk(), state).damage


def test_in_one_process_records_still_expire_in_time(tmp_path: Path) -> None:
    """What says which records are the oldest is in order of the clock, which has fallen."""
    state, reference = tmp_path / "state", meter.reference()
    with meter.open(state) as db:
        both(db, reference, [at(0), wild("w")])
    set_back(state, "2026-03-01T12:00:00+00:00")
    reference.set_back(NOON)
    with meter.open(state) as db:
        for minutes in range(1, 60, 3):
            both(db, reference, [at(minutes, "abc"[minutes % 3 + (minutes > 30) - 1])])


def test_a_call_that_waits_beyond_is_answered(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with ThreadPoolExecutor(1) as pool:
        with meter.open(state) as db:
            db.run([at(0)], watermark=10**6)
            waiting = pool.submit(db.call, wild("called"))
            while not db._store.stream.waiting:
                time.sleep(0.001)
        assert isinstance(waiting.exception(), StateError)
    set_back(state, "2026-03-01T12:00")
    with meter.open(state) as db:
        assert db.run([at(5)], watermark=10**6)["id"].to_pylist() == ["called"]
        assert db.call(wild("called"))["status"] == "rejected"


def run(*words: Any, input: str | None = None) -> Any:
    return CliRunner().invoke(cli, ["advance", *map(str, words)], input=input)


@pytest.fixture
def stuck(tmp_path: Path) -> Path:
    with meter.open(tmp_path / "state") as db:
        db.run([at(0), wild("w")], watermark=0)
        db.run([wild("x", years=9)], watermark=10**6)
    return tmp_path / "state"


def test_the_command_shows_and_asks(stuck: Path) -> None:
    shown = run(stuck, "--to", "2026-03-01T12:00", input="n\n")
    assert shown.exit_code == 1
    assert all(word in shown.output for word in ("2109-03-01", "2100-03-01", "2026-03-01", "Read 1", "Set it back?"))
    assert "nothing was changed" in shown.output
    with meter.open(stuck) as db:
        assert db.version == 2
    assert run(stuck, "--to", "2026-03-01T12:00", input="y\n").exit_code == 0
    told = run(stuck, "--to", "2026-03-01T11:00", "--yes", "--json")
    assert json.loads(told.stdout) == {
        "done": True,
        "before": {
            "version": 3,
            "highest": "2026-03-01T12:00:00+00:00",
            "clock": "2026-03-01T12:00:00+00:00",
            "held": {"Read": 1},
        },
        "after": {
            "version": 4,
            "highest": "2026-03-01T11:00:00+00:00",
            "clock": "2026-03-01T11:00:00+00:00",
            "held": {"Read": 1},
        },
    }
    with meter.open(stuck) as db:
        assert db.version == 4
        assert db.run([at(-1)], watermark=0)["status"].to_pylist() == ["committed", "rejected"]


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("2200-01-01", "sets it back only"),
        ("soon", "is no place in time here: give a time"),
        ("7", "is no place in time"),
        ("0001-01-01T00:00:00+14:00", "is before all time: the first there is 0001-01-01 00:00:00"),
    ],
)
def test_what_is_no_way_back_is_refused(stuck: Path, to: str, words: str) -> None:
    refused = run(stuck, "--to", to, "--yes")
    assert refused.exit_code == 1 and words in refused.output


def test_it_is_refused_while_a_writer_runs(stuck: Path) -> None:
    with meter.open(stuck) as db:
        refused = run(stuck, "--to", "2026-03-01", "--yes")
        assert refused.exit_code == 1 and "is open for writing" in refused.output
        assert db.version == 2


def test_there_must_be_something_to_set_back(tmp_path: Path) -> None:
    meter.open(tmp_path / "state").close()
    with pytest.raises(StateError, match="no event has arrived yet"), opened(tmp_path / "state"):
        pass
    with pytest.raises(StateError, match="is not a state directory"), opened(tmp_path / "none"):
        pass


def test_windows_of_time_are_in_its_way(tmp_path: Path) -> None:
    watch = ps.App("watch")

    @watch.window(time=10)
    class Recent:
        amount: int

    @watch.event
    class Spend:
        ts: int = ps.order()
        amount: int

    @watch.transaction
    def spend(e: Spend):
        Recent.add(amount=e.amount)

    with watch.open(tmp_path / "state") as db:
        db.run([Spend(ts=2**40, amount=1)])
    with pytest.raises(StateError, match="has window 'Recent'"), opened(tmp_path / "state"):
        pass


def test_an_order_that_is_an_int(tmp_path: Path) -> None:
    plain = ps.App("plain")

    @plain.table
    class Seen:
        id: int = ps.key()

    @plain.event
    class See:
        ts: int = ps.order()

    @plain.transaction
    def see(e: See):
        Seen.get(e.ts)

    with plain.open(tmp_path / "state") as db:
        db.run({See: pa.table({"ts": [5, 2**50]})})
    with opened(tmp_path / "state") as reset:
        assert (reset.marks.highest, reset.marks.clock, reset.marks.held) == (2**50, 2**50, {})
        with pytest.raises(InputError, match="give an int"):
            reset.time_of("2026-01-01")
        with pytest.raises(InputError, match="before all time: the first there is -9223372036854775808"):
            reset.time_of(str(-(2**63) - 1))
        reset.do(reset.time_of("5"))
    with plain.open(tmp_path / "state") as db:
        assert db.run({See: pa.table({"ts": [5, 6]})}, watermark=0)["status"].to_pylist() == ["late", "committed"]
