"""`ps.id(unique=…)`: an id runs once within a span of event time, everywhere; who brings it again is a duplicate."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import DeclarationError
from penstock.declare.model import EventDef, Field
from penstock.declare.types import INT
from penstock.execute.source_files import SourceFile, SourceRows
from penstock.publish.files import OutcomeFiles
from penstock.replica.directory import Directory
from penstock.state.strings import Strings
from penstock.state.unique_ids import UniqueIds
from penstock.store.reset import opened
from penstock.testing import assert_same_outcomes, assert_same_tables, check

shop = ps.App("shop")


@shop.table
class Stock:
    item: str = ps.key()
    left: int = 5

    @ps.check("sold out")
    def some(self) -> bool:
        return self.left >= 0


@shop.event
class Sale:
    ts: int = ps.order()
    id: str = ps.id(unique=10)
    item: str
    count: int


@shop.event
class Return:
    ts: int = ps.order()
    id: str = ps.id(unique=10)
    item: str


@shop.event
class Look:
    id: str = ps.id(unique=10)
    item: str


@shop.event
class Refill:
    id: str = ps.id(unique=10)
    item: str


@shop.transaction
def sell(e: Sale) -> dict[str, int]:
    stock = Stock.get(e.item)
    stock.left -= e.count
    return {"left": stock.left}


@shop.transaction
def take_back(e: Return) -> None:
    Stock.get(e.item).left += 1


@shop.transaction
def look(e: Look) -> dict[str, int]:
    return {"left": Stock.get(e.item).left}


@shop.transaction
def refill(e: Refill) -> dict[str, int]:
    Stock.get(e.item).left += 10
    return {"left": Stock[e.item].left}


def sale(ts: int, id: str, count: int = 1) -> Any:
    return Sale(ts=ts, id=id, item="a", count=count)


def told(outcomes: pa.Table) -> list[tuple[Any, ...]]:
    return [(row["id"], row["status"], row["version"]) for row in outcomes.to_pylist()]


def test_an_id_runs_once_within_its_span_and_then_again() -> None:
    with shop.open() as db:
        out = db.run([sale(1, "x"), sale(1, "x"), sale(3, "y"), sale(10, "x"), sale(11, "x")])
        assert told(out) == [
            *(("x", "committed", 1), ("x", "duplicate", 1), ("y", "committed", 1), ("x", "duplicate", 1)),
            ("x", "committed", 1),
        ]
        assert out.column("left").to_pylist() == [4, None, 3, None, 2]
        report = db.last_batch
        assert report is not None and (report.committed, report.duplicate, report.events) == (3, 2, 5)
        # The second x counts from itself; the duplicates before it have prolonged nothing.
        assert told(db.run([sale(20, "x"), sale(21, "x")])) == [("x", "duplicate", 1), ("x", "committed", 2)]
        assert db.table(Stock).to_pylist() == [{"item": "a", "left": 1}]


def test_an_abort_counts_and_a_late_event_does_not() -> None:
    with shop.open() as db:
        assert told(db.run([sale(5, "x", 9)], watermark=0)) == [("x", "aborted", 1)]
        assert told(db.run([sale(6, "x"), sale(6, "y")], watermark=0)) == [("x", "duplicate", 1), ("y", "committed", 2)]
        assert told(db.run([sale(3, "z"), sale(3, "y"), sale(9, "z"), sale(9, "y")], watermark=0)) == [
            *(("y", "late", 3), ("z", "late", 3), ("y", "duplicate", 2), ("z", "committed", 3)),
        ]


def test_each_type_of_event_has_its_own_ids() -> None:
    with shop.open() as db:
        out = db.run([sale(1, "x"), Return(ts=2, id="x", item="a"), Return(ts=3, id="x", item="a")])
        assert told(out) == [("x", "committed", 1), ("x", "committed", 1), ("x", "duplicate", 1)]


def test_events_out_of_order_are_judged_by_their_own_times() -> None:
    with shop.open() as db:
        db.run([sale(100, "x")])
        # A backfill: further away than the span, before the first one.
        assert told(db.run([sale(50, "x"), sale(52, "x"), sale(91, "x")])) == [
            *(("x", "committed", 2), ("x", "duplicate", 2), ("x", "duplicate", 1)),
        ]
        # Remembered for a span of the clock, which is at 100, and no longer.
        db.run([sale(109, "y")])
        assert told(db.run([sale(50, "x")])) == [("x", "duplicate", 2)]
        db.run([sale(110, "z")])
        assert told(db.run([sale(50, "x")])) == [("x", "committed", 6)]


def test_a_duplicate_moves_the_clock_as_an_abort_does() -> None:
    with shop.open() as db:
        db.run([sale(1, "x")])
        db.run([sale(8, "x")])
        assert db.call(Refill(id="r", item="a"))["ts"] == 8


def test_calls_have_the_first_outcome_and_others_are_duplicates_of_them() -> None:
    for side in (shop.open(), shop.reference()):
        with side as db:
            db.run([sale(1, "s")])
            first = db.call(Refill(id="r", item="a"))
            assert (first["status"], first["version"], first["left"]) == ("committed", 2, 14)
            assert db.call(Refill(id="r", item="a")) == first
            # What came in a batch was not called: the call is told that it has run.
            again = db.call(sale(2, "s"))
            assert (again["status"], again["version"], again["left"]) == ("duplicate", 1, None)
            assert db.call(sale(3, "s")) == again
            db.call(sale(4, "t"))
            assert told(db.run([sale(5, "t")])) == [("t", "duplicate", 4)]
            # To read counts as nothing.
            assert [db.call(Look(id="s", item="a"))["status"] for _ in range(2)] == ["committed"] * 2
            db.run([sale(30, "u")])
            assert db.call(Refill(id="r", item="a")) == first


def test_calls_that_are_no_longer_retained_are_duplicates(tmp_path: Path) -> None:
    with shop.open(tmp_path / "state", retain=2) as db:
        db.run([sale(1, "s")])
        first = db.call(Refill(id="r", item="a"))
        for number in range(3):
            db.call(Refill(id=str(number), item="a"))
        again = db.call(Refill(id="r", item="a"))
    assert (first["version"], again["status"], again["version"]) == (2, "duplicate", 2)


def _batches(seed: int) -> list[Any]:
    rng, batches = Random(seed), []
    for number in range(8):
        events = [sale(4 * number + rng.randrange(-3, 8), rng.choice("abcdefgh")) for _ in range(rng.randrange(9))]
        batches.append((events, rng.choice((None, 0, 3, 12)), rng.random() < 0.2))
    return batches


@pytest.mark.parametrize("log", ["changes", "input"])
@pytest.mark.parametrize("snapshot_every", [1, 3, 100])
def test_it_holds_across_restarts(tmp_path: Path, log: Any, snapshot_every: int) -> None:
    for seed in range(4):
        reference, path = shop.reference(), tmp_path / f"{seed}"
        for events, watermark, flush in _batches(seed):
            with shop.open(path, log=log, snapshot_every=snapshot_every, background=False) as db:
                wanted = reference.run(events, watermark=watermark, flush=flush)
                assert_same_outcomes(db.run(events, watermark=watermark, flush=flush), wanted)
                assert_same_outcomes(db.outcomes(db.version), wanted)
                assert_same_tables(db.table(Stock), reference.table(Stock), ["item"])


def test_it_holds_in_a_log_of_files(tmp_path: Path) -> None:
    reference, rng = shop.reference(), Random(5)
    for number in range(6):
        events = [sale(3 * number + rng.randrange(6), rng.choice("abcdef")) for _ in range(8)]
        table = pa.Table.from_pylist([e.values for e in events])
        path = tmp_path / f"{number}.parquet"
        pq.write_table(table, path)
        with shop.open(tmp_path / "state", log="source", background=False, snapshot_every=4) as db:
            rows: Any = SourceRows(table, (SourceFile.of(str(path), path.read_bytes()),))
            assert_same_outcomes(db.run({Sale: rows}, watermark=2), reference.run({Sale: table}, watermark=2))


def test_a_batch_that_comes_again_is_answered_and_one_that_ran_ahead_is_forgotten(tmp_path: Path) -> None:
    with shop.open(tmp_path / "state") as db:
        first = db.run([sale(1, "x"), sale(2, "x")], id=0, source="q", offsets="0")
        assert db.run([], id=0, source="q", offsets="0") == first
        db.run_ahead([sale(3, "y")], 1, source="q", offsets="1")
        assert told(db.run([sale(4, "y"), sale(5, "x")], id=1, source="q", offsets="other")) == [
            *(("y", "committed", 2), ("x", "duplicate", 1)),
        ]
        db.run_ahead([sale(6, "y"), sale(6, "z")], 2, source="q", offsets="2")
        assert told(db.run([], id=2, source="q", offsets="2")) == [("y", "duplicate", 2), ("z", "committed", 3)]


def test_outcomes_go_to_files_though_all_are_duplicates(tmp_path: Path) -> None:
    files = OutcomeFiles(str(tmp_path / "out"))
    with shop.open(tmp_path / "state") as db:
        for number in (1, 2):
            files.write(db.run([sale(number, "x")]), pa.array([number]))
    assert Directory(tmp_path / "state").outcomes().column("version").to_pylist() == [1, 1]
    assert files.written() == [1, 2]
    rows = pq.read_table(tmp_path / "out" / "version-000000000002.parquet").to_pylist()
    assert [(row["status"], row["version"]) for row in rows] == [("duplicate", 1)]


def test_another_span_holds_for_what_is_remembered(tmp_path: Path) -> None:
    def app(unique: Any) -> tuple[ps.App, Any]:
        app = ps.App("clicks")

        @app.event
        class Click:
            ts: int = ps.order()
            id: int = ps.id(unique=unique) if unique else ps.id()

        @app.transaction
        def click(e: Click):  # type: ignore[no-untyped-def]
            return {"n": e.id}

        return app, Click

    for log in ("changes", "input"):
        path = tmp_path / log
        before, click = app(10)
        with before.open(path, log=log) as db:  # type: ignore[arg-type]
            db.run([click(ts=ts, id=ts) for ts in range(40)])
        for unique, status in ((30, "duplicate"), (5, "committed"), (None, "committed")):
            again, click = app(unique)
            with again.open(path, log=log) as db:  # type: ignore[arg-type]
                got = db.run([click(ts=40, id=35)]).column("status").to_pylist()
                assert got == [status]


@pytest.mark.parametrize("log", ["changes", "input"])
@pytest.mark.parametrize("snapshot_every", [1, 100])
def test_a_wider_span_knows_all_that_ran_within_it(tmp_path: Path, log: Any, snapshot_every: int) -> None:
    """Two first ones of an id may then be nearer than the span: each of them still counts, and the lower is named."""

    def app(unique: int) -> tuple[ps.App, Any]:
        app = ps.App("clicks")

        @app.event
        class Click:
            ts: int = ps.order()
            id: str = ps.id(unique=unique)

        @app.transaction
        def click(e: Click) -> None:
            pass

        return app, Click

    before, click = app(3)
    options: dict[str, Any] = {"log": log, "snapshot_every": snapshot_every, "background": False}
    reference: Any = before.reference()
    with before.open(tmp_path, **options) as db:
        for ts in (140, 100, 105, 118, 119):  # so the clock stands still, and all are remembered
            batch = [click(ts=ts, id="a"), click(ts=ts - 2, id="b"), click(ts=ts - 2, id="b")]
            assert_same_outcomes(db.run(batch), reference.run(batch))
    wider, click = app(60)
    now = wider.reference()
    now.go_on(reference)
    ran = [click(ts=ts, id=id) for id in "ab" for ts in (41, 99, 50, 77, 79, 104, 118, 165, 178, 198)]
    with wider.open(tmp_path, **options) as db:
        for event in ran:
            assert_same_outcomes(db.run([event]), now.run([event]))


@pytest.mark.parametrize("snapshot_every", [1, 100])
def test_ids_outlive_a_change_of_the_schema(tmp_path: Path, snapshot_every: int) -> None:
    def app(wider: bool) -> tuple[ps.App, Any]:
        app = ps.App("clicks")

        @app.table
        class Seen:
            id: int = ps.key()
            if wider:
                times: int = 0

        @app.event
        class Click:
            ts: int = ps.order()
            id: int = ps.id(unique=10)

        @app.transaction
        def click(e: Click) -> None:
            Seen.get(e.id)

        return app, Click

    for number, wider in enumerate((False, True, True), 1):
        opened, click = app(wider)
        with opened.open(tmp_path, snapshot_every=snapshot_every, background=False) as db:
            out = db.run([click(ts=5, id=1), click(ts=5 + number, id=number)])
    assert told(out)[0] == (1, "duplicate", 1)


@pytest.mark.parametrize("snapshot_every", [1, 100])
def test_a_high_mark_that_is_set_back_leaves_what_is_remembered(tmp_path: Path, snapshot_every: int) -> None:
    batches = [
        [sale(1, "w"), sale(3, "x"), sale(12, "y"), sale(5, "z")],  # w is forgotten at 12
        [sale(3, "w"), sale(3, "x"), sale(5, "z")],
        [sale(4, "x"), sale(6, "y"), sale(14, "y")],
        [sale(15, "x"), sale(15, "y"), sale(24, "y"), sale(40, "q")],
        [sale(24, "y"), sale(41, "q")],
    ]
    reference = shop.reference()
    for number, batch in enumerate(batches):
        with shop.open(tmp_path, snapshot_every=snapshot_every, background=False) as db:
            assert_same_outcomes(db.run(batch), reference.run(batch))
        if number in (0, 3):
            with opened(tmp_path) as reset:
                reset.do(4)
            reference.set_back(4)


def test_times_may_be_datetimes_and_spans_text() -> None:
    for unique in ("2 days", timedelta(days=2)):
        app = ps.App("visits")

        @app.event
        class Visit:
            at: datetime = ps.order()
            id: int = ps.id(unique=unique)

        @app.transaction
        def visit(e: Visit):  # type: ignore[no-untyped-def]
            return {"n": e.id}

        day = [datetime(2024, 2, n, tzinfo=UTC) for n in (1, 2, 3)]
        check(app, batches=[[Visit(at=day[0], id=1)], [Visit(at=day[1], id=1), Visit(at=day[2], id=1)]])
        with app.open() as db:
            out = db.run([Visit(at=at, id=1) for at in day])
        assert out.column("status").to_pylist() == ["committed", "duplicate", "committed"]


def _declare(unique: Any, order: Any = int) -> ps.App:
    app = ps.App("odd")

    @app.event
    class E:
        ts: order = ps.order()
        id: int = ps.id(unique=unique)

    @app.transaction
    def run(e: E) -> None:
        pass

    return app


@pytest.mark.parametrize("unique", [0, -1, True, 1.5, "soon", "1 moon", timedelta(0), "0 days", 2**63])
def test_a_span_is_above_nothing(unique: Any) -> None:
    with pytest.raises(DeclarationError, match="no span of time"):
        _declare(unique)


@pytest.mark.parametrize(
    ("unique", "order", "words"),
    [("1 day", int, "give an int"), (5, datetime, '"1 day" or a timedelta'), (timedelta(1), int, "give an int")],
)
def test_a_span_is_in_the_unit_of_ts(unique: Any, order: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        _declare(unique, order).open()


def test_what_is_emitted_runs_as_often_as_it_is_emitted() -> None:
    app = ps.App("emits")

    @app.event
    class Order:
        ts: int = ps.order()

    @app.event
    class Ship:
        id: int = ps.id(unique=5)

    @app.transaction
    def order(e: Order) -> None:
        ps.emit(Ship(id=1))

    @app.transaction
    def ship(e: Ship) -> None:
        pass

    with pytest.raises(DeclarationError, match=r"emits 'Ship', but unique=.*Seen\.insert\(e\.id\)"):
        app.open()


def test_without_times_there_is_no_span() -> None:
    app = ps.App("calls")

    @app.event
    class Ask:
        id: int = ps.id(unique=5)

    @app.transaction
    def ask(e: Ask) -> None:
        pass

    with pytest.raises(DeclarationError, match=r"no event with a ps\.order\(\)"):
        app.open()


def test_a_call_before_there_is_a_clock_is_not_remembered() -> None:
    for side in (shop.open(), shop.reference()):
        with side as db:
            first = db.call(Refill(id="r", item="a"))
            assert first["ts"] is None
            assert told(db.run([sale(1, "s")])) == [("s", "committed", 2)]
            assert db.call(Refill(id="r", item="a")) == first


def test_memory_is_given_back() -> None:
    ids = UniqueIds(EventDef("E", (Field("ts", INT), Field("id", INT)), "ts", "id", 1000))
    most = 0
    for version in range(1, 200):
        ts = np.arange(version * 100, version * 100 + 100)
        assert not ids.judge(ts, ts, ts).any()
        ids.remember(ts, ts, ts, version, int(ts[-1]))
        most = max(most, len(ids))
    assert most <= 2000


def _naive(events: list[tuple[int, int, int]], span: int, then: int = 0, since: int = -1) -> list[int]:
    """then: the span from the place `since` on."""
    kept: list[tuple[int, int, int, int]] = []
    out = []
    for place, (id, ts, clock) in enumerate(events):
        if place == since:
            before = events[place - 1][2] if place else clock
            kept, span = [one for one in kept if before - one[2] < span], then
        near = [one for one in kept if one[0] == id and clock - one[2] < span and abs(ts - one[1]) < span]
        out.append(min(near, key=lambda one: one[1])[3] if near else -1)
        if not near:
            kept.append((id, ts, clock, place))
    return out


@pytest.mark.parametrize("span", [1, 2, 7, 1000, 2**62, 2**63 - 1])
def test_the_table_of_ids_says_what_a_list_says(span: int) -> None:
    ends = [-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1]
    for seed in range(30):
        rng = Random(seed)
        ids = UniqueIds(EventDef("E", (Field("ts", INT), Field("id", INT)), "ts", "id", span))
        events: list[tuple[int, int, int]] = []
        clock, got = -(2**63), []
        for version in range(1, 9):
            batch = []
            for _ in range(rng.randrange(40)):
                ts = rng.choice(ends) if rng.random() < 0.01 else rng.choice((0, 3 * version)) + rng.randrange(30)
                clock = max(clock, ts)
                batch.append((rng.randrange(6), ts, clock))
            lanes = [np.array([one[k] for one in batch], np.int64) for k in range(3)]
            found = ids.judge(*lanes)
            first = len(events)
            # Each event is a version of its own here, so that the first one is told by its place.
            got += [-1 if f == 0 else first - 1 - f if f < 0 else f - 1 for f in found.tolist()]
            runs = found == 0
            places = first + np.flatnonzero(runs)
            if runs.any():
                ids.remember(*(lane[runs] for lane in lanes), places + 1, clock)
            events += batch
        assert got == _naive(events, span), seed


@pytest.mark.parametrize(("span", "then"), [(1, 10), (3, 7), (5, 40), (7, 1000), (20, 3)])
def test_the_table_of_ids_says_what_a_list_says_behind_another_span(span: int, then: int) -> None:
    for seed in range(40):
        rng = Random(seed)
        of = EventDef("E", (Field("ts", INT), Field("id", INT)), "ts", "id", span)
        ids, strings, since = UniqueIds(of), Strings(), 0
        events: list[tuple[int, int, int]] = []
        clock, got = 0, []
        for version in range(1, 9):
            if version == 5:
                ids.set_back(clock, clock)
                known = ids.whole(strings)
                ids, since = UniqueIds(replace(of, unique=then)), len(events)
                ids.take(known, strings, 0)
            batch = []
            for _ in range(rng.randrange(1, 20)):
                ts = 5 * version + rng.randrange(30)
                clock = max(clock, ts)
                batch.append((rng.randrange(3), ts, clock))
            lanes = [np.array([one[k] for one in batch], np.int64) for k in range(3)]
            found = ids.judge(*lanes)
            first = len(events)
            got += [-1 if f == 0 else first - 1 - f if f < 0 else f - 1 for f in found.tolist()]
            runs = found == 0
            if runs.any():
                ids.remember(*(lane[runs] for lane in lanes), first + np.flatnonzero(runs) + 1, clock)
            events += batch
        assert got == _naive(events, span, then, since), seed
