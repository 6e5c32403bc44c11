"""A stream on which nothing comes: its clock goes on, and what waited for that runs, once."""

import datetime
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps

UTC = datetime.UTC
MINUTE = datetime.timedelta(minutes=1)
hall = ps.App("hall")


@hall.table
class Seat:
    id: str = ps.key()
    booking: str = ""


@hall.event
class Book:
    ts: datetime.datetime = ps.order()
    id: str = ps.id()
    seat: str


@hall.event
class Expire:
    seat: str


@hall.event
class Freed:
    seat: str


@hall.transaction
def book(e: Book):
    Seat.get(e.seat).booking = e.id
    ps.emit(Expire(seat=e.seat), at=e.ts + MINUTE)


@hall.transaction
def expire(e: Expire):
    Seat[e.seat].booking = ""
    ps.emit(Freed(seat=e.seat))


def put(folder: Path, ts: datetime.datetime, *ids: str) -> None:
    folder.mkdir(exist_ok=True)
    rows = [{"ts": ts, "id": id_, "seat": f"seat {id_}"} for id_ in ids]
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("id", pa.string()), ("seat", pa.string())])
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / f"{ids[0]}.parquet")


def brief(folder: Path) -> list[tuple[Any, ...]]:
    return sorted((r["version"], r["transaction"], r["id"]) for r in pq.read_table(folder).to_pylist())


def waited(holds: Any) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def start(folder: Path, **more: Any) -> Any:
    return hall.start(
        {Book: ps.parquet(folder / "in")},
        state=folder / "state",
        outcomes=folder / "out",
        outputs={Freed: folder / "freed"},
        **more,
    )


class Stage:
    """An Idle whose times are given."""

    def __init__(self) -> None:
        from penstock.spark.idle import Idle

        self.now, self.wall, self.moved = 0.0, datetime.datetime(2024, 2, 29, tzinfo=UTC), list[Any]()
        self.fails: BaseException | None = None
        self.idle = Idle(self.advance, 30 * 10**6, 5 * 10**6, wall=lambda: self.wall, elapsed=lambda: self.now)

    def advance(self, t: datetime.datetime) -> None:
        if self.fails is not None:
            raise self.fails
        self.moved.append(t)


def test_after_so_long_without_a_batch_the_clock_goes_to_the_wall_clock_minus_the_watermark() -> None:
    stage = Stage()
    stage.now = 29
    stage.idle.look()
    with stage.idle.batch():
        stage.now = 100
    stage.now = 129
    stage.idle.look()
    assert stage.moved == []
    stage.now = 130
    stage.idle.look()
    stage.idle.look()  # just done
    assert stage.moved == [stage.wall - datetime.timedelta(seconds=5)]
    stage.now = 160
    stage.wall = datetime.datetime.min.replace(tzinfo=UTC)  # minus the watermark, this is no time
    stage.idle.look()
    assert len(stage.moved) == 1


def test_what_goes_wrong_beside_the_stream_is_told_by_the_next_batch_or_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for told in ("batch", "close"):
        stage = Stage()
        stage.now, stage.fails = 31, OSError("full")
        stage.idle.start()
        assert stage.idle._thread is not None
        stage.idle._thread.join()
        tell = stage.idle.close if told == "close" else stage.idle.batch().__enter__
        with pytest.raises(OSError, match="full"):
            tell()
        stage.idle.close()
    told_at_once = [record.exc_text for record in caplog.records if "stands still" in record.message]
    assert [text is not None and "OSError: full" in text for text in told_at_once] == [True, True]


def test_a_stream_that_stays_idle_does_not_keep_its_log_for_ever(tmp_path: Path) -> None:
    from penstock.publish.files import OutcomeFiles
    from penstock.spark import databases
    from penstock.spark.batch import MicroBatch

    ts, second = datetime.datetime(2024, 2, 29, 12, tzinfo=UTC), datetime.timedelta(seconds=1)
    spec = databases.spec(hall.plan, tmp_path / "state", retain=2, snapshot_every=1, background=False)
    batch = MicroBatch(spec, OutcomeFiles(str(tmp_path / "out"), spec.path), None)
    opened = databases.reserve(spec)
    try:
        db = opened.database
        db.run([Book(ts=ts + k * second, id=f"{k}", seat=f"{k}") for k in range(12)], id=0, source="s", offsets="0")
        for k in range(12):
            if k == 6:
                (tmp_path / "state" / "checkpoint" / "commits").mkdir(parents=True)
                (tmp_path / "state" / "checkpoint" / "commits" / "0").write_text("v1")
            if k <= 6:
                assert db.outcomes(1).num_rows == 12
            batch.go_on(opened, ts + MINUTE + k * second)
        assert db.version == 13
        with pytest.raises(ps.StateError, match="not retained"):
            db.outcomes(1)
    finally:
        databases.release(spec.path)
    assert [(row[1], row[2]) for row in brief(tmp_path / "out")][12:] == [("expire", f"{k}") for k in range(12)]


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")
def test_timers_and_held_events_run_on_an_idle_stream(spark: Any, tmp_path: Path) -> None:
    long_ago = datetime.datetime.now(UTC) - 60 * MINUTE
    put(tmp_path / "in", long_ago, "a", "b")
    query = start(tmp_path, watermark="10 minutes", idle="300 milliseconds")
    # Both are held until the clock is far enough, and then their timers run.
    waited(lambda: (tmp_path / "freed").is_dir() and len(list((tmp_path / "freed").glob("version*"))) == 1)
    query.stop()
    rows = brief(tmp_path / "out")
    assert [row[1:] for row in rows] == [("book", "a"), ("book", "b"), ("expire", "a"), ("expire", "b")]
    with hall.open(tmp_path / "state") as db:
        assert (db.held, db.pending(Expire).num_rows, db.table(Seat).column("booking").to_pylist()) == (0, 0, ["", ""])
        assert db.version == 2 or db.outcomes(2).num_rows == 2  # both at once, or the bookings and then their ends
        late = db.run([Book(ts=datetime.datetime.now(UTC) - 20 * MINUTE, id="c", seat="a")], watermark=600 * 10**6)
        assert late.column("status").to_pylist() == ["late"]


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")
def test_versions_behind_the_streams_last_batch_get_their_files_at_the_next_start(spark: Any, tmp_path: Path) -> None:
    ts = datetime.datetime(2024, 2, 29, 12, tzinfo=UTC)
    put(tmp_path / "in", ts, "a", "b")
    start(tmp_path, trigger={"availableNow": True}).awaitTermination()
    with hall.open(tmp_path / "state") as db:  # as one that was killed behind its commits
        for second in (30, 60, 90):
            db.advance(ts + datetime.timedelta(seconds=second))
        assert db.version == 4
    put(tmp_path / "in", ts + 5 * MINUTE, "c")
    start(tmp_path, trigger={"availableNow": True}).awaitTermination()
    assert brief(tmp_path / "out") == [
        (1, "book", "a"),
        (1, "book", "b"),
        (3, "expire", "a"),
        (3, "expire", "b"),
        (5, "book", "c"),
    ]
    assert sorted(r["seat"] for r in pq.read_table(tmp_path / "freed").to_pylist()) == ["seat a", "seat b"]


@pytest.mark.spark
def test_idle_is_refused_where_it_has_no_sense(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "in", datetime.datetime.now(UTC), "a")
    app = ps.App("ints")

    @app.event
    class Note:
        ts: int = ps.order()

    @app.transaction
    def note(e: Note):
        pass

    where = {"state": tmp_path / "state"}
    with pytest.raises(ps.InputError, match="moves the clock by the wall clock, and ts is int"):
        app.start({Note: ps.parquet(tmp_path / "in")}, outcomes=tmp_path / "out", idle="1 second", **where)
    with pytest.raises(ps.InputError, match="give a directory for outcomes, not a function"):
        hall.start({Book: ps.parquet(tmp_path / "in")}, outcomes=lambda df, _: None, idle="1 second", **where)
    for idle, words in [("soon", "idle='soon' is not"), (0, "is no time to wait for")]:
        with pytest.raises(ps.InputError, match=words):
            hall.start({Book: ps.parquet(tmp_path / "in")}, outcomes=tmp_path / "out", idle=idle, **where)
