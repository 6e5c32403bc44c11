"""Event time across batches: what is held back runs in event order, what comes too late changes nothing."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.execute import intake
from penstock.execute.order import order
from penstock.execute.watermark import WatermarkBuffer, release
from penstock.store.stream import StreamState
from penstock.testing import assert_same_outcomes, assert_same_tables, check

app = ps.App("waiting")


@app.table
class Log:
    k: int = ps.key()
    n: int = 0
    text: str = ""


@app.event
class Named:
    ts: int = ps.order()
    id: str = ps.id()
    k: int
    note: str


@app.event
class Plain:
    ts: int = ps.order()
    k: int
    tags: list[int]


@app.event
class Other:
    ts: int = ps.order()
    k: int


@app.transaction
def named(e: Named):
    log = Log.get(e.k)
    log.n = (log.n * 31 + 1) % 1000003  # what it is in the end depends on the order
    log.text = e.note
    return {"n": log.n, "text": log.text}


@app.transaction
def plain(e: Plain):
    log = Log.get(e.k)
    log.n = (log.n * 37 + len(e.tags)) % 1000003
    ps.require(log.n % 5 != 0, "five")
    return {"n": log.n}


@app.transaction
def other(e: Other):
    log = Log.get(e.k)
    log.n = (log.n * 41 + 2) % 1000003
    return {"n": log.n}


@st.composite
def stream(draw: Any, kinds: Any = (Named, Plain, Other)) -> list[Any]:
    """Events in any order; ties are common, ids unique."""
    out = []
    for place in range(draw(st.integers(0, 25))):
        ts, k = draw(st.integers(0, 30)), draw(st.integers(0, 2))
        kind = draw(st.sampled_from(kinds))
        if kind is Named:
            note = draw(st.sampled_from(["", "é", "x"]))
            out.append(Named(ts=ts, id=f"{draw(st.integers(0, 3))}-{place}", k=k, note=note))
        elif kind is Plain:
            out.append(Plain(ts=ts, k=k, tags=draw(st.lists(st.integers(0, 3), max_size=3))))
        else:
            out.append(Other(ts=ts, k=k))
    return out


def ts_of(event: Any) -> int:
    return int(event.values["ts"])


def disorder(some: list[Any]) -> int:
    """How late the latest comes."""
    worst, top = 0, None
    for event in some:
        top = ts_of(event) if top is None else max(top, ts_of(event))
        worst = max(worst, top - ts_of(event))
    return worst


def cut(some: list[Any], sizes: list[int]) -> list[list[Any]]:
    out, at = [], 0
    for size in sizes:
        out.append(some[at : at + size])
        at += size
    return [*out, some[at:]]


sizes = st.lists(st.integers(0, 8), max_size=5)


def model(batches: list[list[Any]], delay: int) -> tuple[list[list[tuple[Any, bool]]], int | None]:
    """What each batch (and a flush behind them) runs, in words of plain Python: (event, late), in event order."""
    highest: int | None = None
    frontier: int | None = None
    held: list[tuple[int, Any]] = []
    out, arrival = [], 0
    for number, batch in enumerate([*batches, []]):
        flush = number == len(batches)
        new = list(enumerate(batch, arrival))
        arrival += len(batch)
        highest = max([ts_of(e) for e in batch] + ([] if highest is None else [highest]), default=None)
        late = [(p, e) for p, e in new if frontier is not None and ts_of(e) <= frontier]
        there = held + [one for one in new if one not in late]
        limit = None if highest is None else highest - (0 if flush else delay)
        runs = [(p, e) for p, e in there if limit is not None and ts_of(e) <= limit]
        held = [one for one in there if one not in runs]
        frontier = max([ts_of(e) for _, e in runs] + ([] if frontier is None else [frontier]), default=None)
        both = [(p, e, False) for p, e in runs] + [(p, e, True) for p, e in late]
        both.sort(
            key=lambda one: (ts_of(one[1]), one[1].definition.id is not None, one[1].values.get("id", ""), one[0])
        )
        out.append([(e, is_late) for _, e, is_late in both])
    assert not held
    return out, frontier


def run_all(db: Any, batches: list[list[Any]], delay: int) -> list[pa.Table]:
    out = [db.run(batch, watermark=delay) for batch in batches]
    return [*out, db.run([], flush=True)]


def same_as_model(out: list[pa.Table], db: Any, batches: list[list[Any]], delay: int) -> None:
    """Outcomes and tables of a database that got these batches and a flush."""
    wanted, _ = model(batches, delay)
    reference = app.reference()
    for got, expected in zip(out, wanted, strict=True):
        assert got["ts"].to_pylist() == [ts_of(e) for e, _ in expected]
        assert [status == "late" for status in got["status"].to_pylist()] == [late for _, late in expected]
        for row, (event, late) in zip(got.to_pylist(), expected, strict=True):
            if late:
                assert row["transaction"] == event.definition.name.lower()
                assert row["id"] == event.values.get("id")
                assert (row["reason"], row["n"], row["text"]) == (None, None, None)
        # One by one, so that their order here is the model's.
        rows = [reference.run([e]) for e, late in expected if not late]
        ran = got.filter(pa.compute.not_equal(got["status"].cast(pa.string()), "late"))
        none = app.program.outcomes().empty_table()
        assert_same_outcomes(ran.drop("version"), pa.concat_tables([none, *rows]).drop("version"))
    assert db.held == 0
    assert_same_tables(db.table(Log), reference.table(Log), ["k"])


# --- release itself ---------------------------------------------------------------------------


@given(some=stream(), sizes=sizes, slack=st.integers(0, 5))
def test_within_the_delay_the_whole_stream_runs_in_event_order(some: list[Any], sizes: list[int], slack: int) -> None:
    waiting, delay, ran = WatermarkBuffer(), disorder(some) + slack, []
    for batch in [*cut(some, sizes), None]:
        arrived = intake.events(app.program, batch or [])
        released = release(app.program, arrived, waiting, delay, flush=batch is None)
        waiting = released.buffer
        # At the frontier itself a tie may still come late; strictly within the delay none does.
        if slack:
            assert all(mark is None for mark in released.late)
        ran += order(app.program, released.events).ts.tolist()
    if slack:
        assert ran == sorted(ts_of(e) for e in some)
    assert waiting.events == 0
    assert len(ran) == len(some)


@given(some=stream(), sizes=sizes, delay=st.integers(0, 40))
def test_what_is_held_is_newer_than_the_frontier(some: list[Any], sizes: list[int], delay: int) -> None:
    waiting, seen = WatermarkBuffer(), 0
    for batch in cut(some, sizes):
        released = release(app.program, intake.events(app.program, batch), waiting, delay)
        late = [int(mark.sum()) if mark is not None else 0 for mark in released.late]
        seen += len(batch)
        out = sum(a.table.num_rows for a in released.events)
        assert out + released.buffer.events == len(batch) + waiting.events
        waiting = released.buffer
        times = [t for table in waiting.held.values() for t in table["ts"].to_pylist()]
        if waiting.frontier is not None:
            assert all(t > waiting.frontier for t in times)
        if waiting.highest is not None:
            assert all(t > waiting.highest - delay for t in times)
        assert sum(late) <= len(batch)
        assert all(table.num_rows for table in waiting.held.values())


def test_nothing_in_gives_nothing_out() -> None:
    released = release(app.program, [], WatermarkBuffer(), 3, flush=True)
    assert released.events == []
    assert released.buffer == WatermarkBuffer()


# --- a database -------------------------------------------------------------------------------


@given(some=stream(), sizes=sizes, delay=st.integers(0, 40))
def test_a_database_runs_what_the_model_says(some: list[Any], sizes: list[int], delay: int) -> None:
    batches = cut(some, sizes)
    with app.open() as db:
        same_as_model(run_all(db, batches, delay), db, batches, delay)


@settings(max_examples=60)
@given(some=stream(), sizes=sizes)
def test_within_the_delay_a_cut_stream_means_what_the_whole_means(some: list[Any], sizes: list[int]) -> None:
    reference = app.reference()
    wanted = reference.run(some)
    with app.open() as db:
        out = run_all(db, cut(some, sizes), disorder(some) + 1)
        assert_same_outcomes(pa.concat_tables(out).drop("version"), wanted.drop("version"))
        assert_same_tables(db.table(Log), reference.table(Log), ["k"])


@contextmanager
def directory() -> Iterator[Path]:
    """In memory where there is such a place: syncs cost, and prove nothing here."""
    at = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=at) as name:
        yield Path(name)


options = st.fixed_dictionaries(
    {
        "log": st.sampled_from(["changes", "input"]),
        "snapshot_every": st.sampled_from([1, 2, 50]),
        "background": st.just(False),
    }
)


@settings(max_examples=40)
@given(some=stream(), sizes=sizes, delay=st.integers(0, 40), options=options, copied=st.booleans())
def test_what_is_held_survives_a_reopening(
    some: list[Any], sizes: list[int], delay: int, options: Any, copied: bool
) -> None:
    """Closed after each batch; or a copy of the directory, taken while it was open, is what is left of it."""
    batches = cut(some, sizes)
    with directory() as root:
        here, number, out = root / "0", 0, []
        for batch in [*batches, None]:
            db = app.open(here, **options)
            out.append(db.run([], flush=True) if batch is None else db.run(batch, watermark=delay, id=number))
            if copied:
                shutil.copytree(here, root / str(number + 1))
                here = root / str(number + 1)
            db.close()
            number += 1
        with app.open(here, **options) as db:
            same_as_model(out, db, batches, delay)
            if batches:
                assert_same_outcomes(db.run(batches[0], watermark=delay, id=0), out[0])


@pytest.mark.parametrize("log", ["changes", "input"])
def test_late_events_stay_late_when_the_log_is_read_again(log: str) -> None:
    with directory() as path:
        db = app.open(path, log=log)
        db.run([Other(ts=10, k=1)], watermark=0)
        out = db.run([Other(ts=5, k=1), Other(ts=11, k=2)], watermark=0)
        assert out["status"].to_pylist() == ["late", "committed"]
        there = db.table(Log)
        # As a kill leaves it: nothing was closed.
        shutil.copytree(path, path / "copy")
        db.close()
        with app.open(path / "copy", log=log) as again:
            assert_same_tables(again.table(Log), there, ["k"])


@pytest.mark.parametrize("log", ["changes", "input"])
def test_what_is_held_survives_a_kill(log: str) -> None:
    batches = [[Named(ts=i, id=f"n{i}", k=0, note="x"), Plain(ts=i + 3, k=0, tags=[1])] for i in range(8)]
    with directory() as path:
        app.open().close()  # compiled before the fork
        for number in range(len(batches)):
            child = os.fork()
            if child == 0:
                db = app.open(path, log=log, background=False, snapshot_every=3)
                db.run(batches[number], watermark=5, id=number)
                os.kill(os.getpid(), signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            assert os.WTERMSIG(status) == signal.SIGKILL
        reference = app.reference()
        reference.run([e for batch in batches for e in batch])
        with app.open(path, log=log) as db:
            assert db.held > 0
            db.run([], flush=True)
            assert_same_tables(db.table(Log), reference.table(Log), ["k"])
            assert sum(db.outcomes(v).num_rows for v in range(1, db.version + 1)) == 16


def test_strings_may_come_as_a_dictionary_one_time_and_plain_the_next() -> None:
    def table(ts: list[int], coded: bool) -> pa.Table:
        note = pa.array(["é"] * len(ts))
        ids = pa.array([f"i{t}" for t in ts])
        note = note.dictionary_encode() if coded else note
        return pa.table({"ts": ts, "id": ids.dictionary_encode() if coded else ids, "k": [0] * len(ts), "note": note})

    for first, second in ((True, False), (False, True), (True, True)):
        with directory() as path:
            for number, (ts, coded) in enumerate((([3, 1], first), ([4, 2], second), ([9], first))):
                with app.open(path) as db:
                    db.run({Named: table(ts, coded)}, watermark=3, id=number)
            with app.open(path) as db:
                assert db.held == 1
                db.run([], flush=True)
                ids = [i for v in range(1, db.version + 1) for i in db.outcomes(v)["id"].to_pylist()]
                assert ids == ["i1", "i2", "i3", "i4", "i9"]


def test_a_watermark_that_is_dropped_runs_all_that_was_held() -> None:
    with app.open() as db:
        assert db.run([Other(ts=1, k=0), Other(ts=2, k=0)], watermark=10).num_rows == 0
        assert db.held == 2
        assert db.run([Other(ts=3, k=0)])["ts"].to_pylist() == [1, 2, 3]
        assert db.held == 0


def both(*batches: tuple[list[int], dict[str, Any]]) -> list[list[tuple[int, str]]]:
    """(ts, status) of every outcome, batch by batch; engine and reference agree on them, and on what is held."""
    out = []
    with app.open() as db, app.reference() as reference:
        for times, options in batches:
            events = [Other(ts=ts, k=0) for ts in times]
            got = db.run(events, **options)
            assert_same_outcomes(got, reference.run(events, **options))
            assert db.held == reference.held
            out.append([(row["ts"], row["status"]) for row in got.to_pylist()])
        assert_same_tables(db.table(Log), reference.table(Log), ["k"])
    return out


def test_an_app_is_checked_with_a_watermark() -> None:
    out = check(app, batches=[[Other(ts=9, k=0), Other(ts=1, k=0)], [Other(ts=0, k=0)]], watermark=3)
    assert [table["status"].to_pylist() for table in out] == [["committed"], ["late"], ["committed"]]


def test_a_batch_without_a_watermark_moves_the_frontier() -> None:
    assert both(([100], {}), ([50, 101], {"watermark": 0}))[1] == [(50, "late"), (101, "committed")]
    assert both(([100], {}), ([50], {}), ([99], {"watermark": 7}))[2] == [(99, "late")]
    assert both(([100], {}), ([103, 101, 98], {"watermark": 2}))[1] == [(98, "late"), (101, "committed")]


def test_nothing_is_late_in_a_batch_without_a_watermark() -> None:
    found = both(([10, 1], {"watermark": 5}), ([0], {}), ([10, 11], {"watermark": 0}))
    assert found == [[(1, "committed")], [(0, "committed"), (10, "committed")], [(10, "late"), (11, "committed")]]


def test_what_a_flush_brings_may_be_late() -> None:
    found = both(([10, 20], {"watermark": 5}), ([9, 15], {"flush": True}), ([18], {"watermark": 1, "flush": True}))
    assert found == [
        [(10, "committed")],
        [(9, "late"), (15, "committed"), (20, "committed")],
        [(18, "late")],
    ]


def test_a_late_event_moves_nothing_and_an_aborted_one_does() -> None:
    with app.open() as db:
        db.run([Plain(ts=5, k=0, tags=None)])
        assert db.run([Other(ts=5, k=0), Other(ts=6, k=0)], watermark=0)["status"].to_pylist() == ["late", "committed"]
        assert db.run([Other(ts=3, k=0), Other(ts=6, k=0)], watermark=9)["status"].to_pylist() == ["late", "late"]
        assert db.run([Other(ts=7, k=0)], watermark=0)["status"].to_pylist() == ["committed"]


@pytest.mark.parametrize("delay", [2**63 - 1, 2**63, 2**70])
def test_a_watermark_wider_than_all_times(delay: int) -> None:
    times = [-(2**63), 0, 2**63 - 1]
    found = both((times, {"watermark": delay}), ([], {"flush": True}), (times, {"watermark": delay}))
    assert [ts for ts, _ in found[0] + found[1]] == times
    assert found[2] == [(ts, "late") for ts in times]


@pytest.mark.parametrize("log", ["changes", "input"])
@pytest.mark.parametrize("snapshot_every", [1, 50])
def test_the_frontier_of_a_batch_without_a_watermark_survives(log: str, snapshot_every: int) -> None:
    with directory() as path:
        with app.open(path, log=log, snapshot_every=snapshot_every, background=False) as db:
            db.run([Other(ts=10, k=1)])
            db.run([])
            db.load(Log, [{"k": 9}])
        with app.open(path, log=log) as db:
            out = db.run([Other(ts=10, k=1), Other(ts=11, k=2)], watermark=0)
            assert out["status"].to_pylist() == ["late", "committed"]


def test_a_header_of_before_the_frontier_was_kept_is_read() -> None:
    """Where nothing is said of what ran without a watermark, what comes first then is not late."""
    assert StreamState.read({"kind": "batch"}, {}).buffer == WatermarkBuffer()
    assert StreamState.read({"stream": {"source": "query", "highest": 5}}, {}).buffer == WatermarkBuffer(highest=5)


# --- a stream's own numbers -------------------------------------------------------------------


@pytest.mark.parametrize("log", ["changes", "input"])
def test_a_stream_sends_its_last_batch_again_as_it_was_and_no_other(log: str, tmp_path: Path) -> None:
    def feed(number: int, offsets: str, source: str = "query") -> Any:
        return db.run([Other(ts=number, k=1)], id=number, source=source, offsets=offsets)

    with app.open(tmp_path, log=log, snapshot_every=1, background=False) as db:
        feed(0, "plan 0")
        out = feed(1, "plan 1")
        db.run([Other(ts=9, k=2)])  # not the stream's: its numbers go on behind it
    with app.open(tmp_path, log=log) as db:
        assert feed(1, "plan 1").equals(out)
        for number, offsets in ((1, "plan 1, made anew"), (0, "plan 0")):
            with pytest.raises(ps.StateError, match=f"plans batch {number} anew.*run batches up to 1.*restore the one"):
                feed(number, offsets)
        with pytest.raises(ps.StateError, match=r"is at batch 3, but .* waits for batch 2"):
            feed(3, "plan 3")
        with pytest.raises(ps.StateError, match="written by query query, but this checkpoint is of query other"):
            feed(2, "plan 2", "other")
        feed(2, "plan 2")
        assert db.version == 4


def test_a_stream_does_not_take_batches_that_were_numbered_by_hand_for_its_own(tmp_path: Path) -> None:
    with app.open(tmp_path) as db:
        db.run([Other(ts=1, k=1)], id=0)
        with pytest.raises(ps.StateError, match=r"batches up to 0 that no query sent.*use another state directory"):
            db.stored(0, "query", "plan 0")


@pytest.mark.parametrize("log", ["changes", "input"])
def test_the_version_that_drained_a_stream_is_known_afterwards(log: str, tmp_path: Path) -> None:
    with app.open(tmp_path, log=log, snapshot_every=1, background=False) as db:
        assert db.drained is None
        db.run([Other(ts=1, k=1)], id=0, source="query", offsets="plan 0", watermark=5)
        assert (db.held, db.drained) == (1, None)
        out = db.run({}, flush=True, source="query")
        db.run([Other(ts=9, k=2)])
    with app.open(tmp_path, log=log) as db:
        assert (db.held, db.drained) == (0, 2)
        assert db.outcomes(2).equals(out)
        db.run({}, flush=True)  # by hand: whoever did has the outcomes
        assert db.drained == 2


def declared_as(how: str) -> tuple[ps.App, Any, Any]:
    """An app that takes Tick and Tock; how: what has become of Tock."""
    app = ps.App("clock")

    @app.table
    class Count:
        id: int = ps.key()
        n: int = 0

    @app.event
    class Tick:
        ts: int = ps.order()
        x: int

    if how == "emitted":

        class Tock:
            x: int

    elif how == "with more":

        class Tock:  # type: ignore[no-redef]
            ts: int = ps.order()
            x: int
            y: int

    elif how == "turned":

        class Tock:  # type: ignore[no-redef]
            x: int
            ts: int = ps.order()

    else:

        class Tock:  # type: ignore[no-redef]
            ts: int = ps.order()
            x: int

    tock = None if how == "gone" else app.event(Tock)

    if how == "emitted":

        @app.transaction
        def tick(e: Tick):
            ps.emit(tock(x=e.x))

    else:

        @app.transaction
        def tick_alone(e: Tick):
            Count.get(e.x).n += 1

    if how not in ("gone", "not taken"):

        @app.transaction
        def tocks(e: tock):  # type: ignore[valid-type]
            Count.get(e.x).n += 1

    return app, Tick, tock


@pytest.mark.parametrize("log", ["changes", "input"])
@pytest.mark.parametrize("how", ["emitted", "with more", "gone", "not taken"])
def test_held_events_that_an_app_does_not_take_any_more_are_refused(how: str, log: Any, tmp_path: Path) -> None:
    app, Tick, Tock = declared_as("as it was")
    with app.open(tmp_path, log=log) as db:
        db.run([Tick(ts=1, x=1), Tock(ts=5, x=2)], watermark=2)
        assert db.held == 1
    wrong = (
        "without the field 'y', which has neither a default nor None" if how == "with more" else "app 'clock' does not"
    )
    with pytest.raises(ps.StateError, match=rf"holds back 1 event\(s\) 'Tock'.* {wrong}"):
        declared_as(how)[0].open(tmp_path, log=log)
    with app.open(tmp_path, log=log) as db:
        db.run({}, flush=True)
        assert db.table("Count").sort_by("id").to_pylist() == [{"id": 1, "n": 1}, {"id": 2, "n": 1}]
    with declared_as(how)[0].open(tmp_path, log=log) as db:
        assert db.version == 3  # what it takes has changed, which is a version


@pytest.mark.parametrize("log", ["changes", "input"])
def test_held_events_outlive_another_order_of_their_fields(log: Any, tmp_path: Path) -> None:
    app, Tick, Tock = declared_as("as it was")
    with app.open(tmp_path, log=log) as db:
        db.run([Tick(ts=1, x=1), Tock(ts=5, x=2)], watermark=2)
    app, _, Tock = declared_as("turned")
    for held in (1, 2):
        with app.open(tmp_path, log=log) as db:
            assert db.held == held
            db.run([Tock(ts=6, x=3)], watermark=2)
    with app.open(tmp_path, log=log) as db:
        db.run({}, flush=True)
        assert db.table("Count").sort_by("id").to_pylist() == [{"id": i, "n": n} for i, n in ((1, 1), (2, 1), (3, 2))]
