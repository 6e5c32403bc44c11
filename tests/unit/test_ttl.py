"""Tables whose records have a ttl: what was not written for so long is absent, everywhere."""

import datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

import penstock as ps
from penstock import Policy
from penstock.testing import assert_same_outcomes, assert_same_tables, check

hall = ps.App("hall")


@hall.table(ttl=10)
class Hold:
    seat: int = ps.key()
    by: str = ""
    times: int = 0

    @ps.check("too often")
    def few(self) -> bool:
        return self.times < 4


@hall.table
class Count:
    id: int = ps.key()
    found: int = 0


@hall.event
class Touch:
    ts: int = ps.order()
    id: int = ps.id()
    seat: int
    what: str


@hall.transaction
def touch(e: Touch) -> dict[str, bool]:
    there = e.seat in Hold
    if e.what == "write":
        Hold.get(e.seat).by = e.what
        Hold.get(e.seat).times += 1
    elif e.what == "insert":
        Hold.insert(e.seat, by=e.what)
    elif e.what == "delete":
        del Hold[e.seat]
    elif e.what == "must":
        Hold[e.seat].by = "must"
    elif e.what == "abort":
        Hold.get(e.seat).by = "never"
        ps.abort("changed my mind")
    elif e.what == "all":
        for seat in range(6):
            if seat in Hold:
                Hold[seat].times += 1
                Count.get(seat).found += 1
    return {"there": there}


def _events(seed: int) -> list[list[Any]]:
    """Batches with gaps of time, some beyond a ttl; some events out of order."""
    rng, ts, number = Random(seed), 0, 0
    batches = []
    for size in (5, 30, 0, 40, 25):
        batch = []
        for _ in range(size):
            ts += rng.choice((0, 0, 1, 1, 2, 3, 9, 10, 11))
            number += 1
            what = rng.choice(("write", "write", "insert", "delete", "must", "abort", "look", "all"))
            batch.append(Touch(ts=ts - rng.choice((0, 0, 0, 4)), id=number, seat=rng.randrange(6), what=what))
        batches.append(batch)
    return batches


def test_a_record_that_was_not_written_for_so_long_is_absent() -> None:
    steps = [(0, "write", False), (9, "look", True), (9, "abort", True), (10, "insert", False), (19, "must", True)]
    steps += [(28, "look", True), (29, "write", False), (39, "delete", False), (40, "write", False)]
    batches = [[Touch(ts=ts, id=k, seat=1, what=what)] for k, (ts, what, _) in enumerate(steps)]
    for cut in (batches, [[event for batch in batches for event in batch]]):
        out = check(hall, batches=cut)
        found = [there for batch in out for there in batch.column("there").to_pylist()]
        reasons = [reason for batch in out for reason in batch.column("reason").to_pylist()]
        wanted = [there for _, _, there in steps]
        wanted[2] = wanted[7] = None  # type: ignore[call-overload]
        assert found == wanted and reasons[2] == "changed my mind" and reasons[7] == "missing Hold"


@pytest.mark.parametrize("seed", range(6))
def test_it_is_what_the_reference_has(seed: int) -> None:
    load = {Hold: [{"seat": 0}, {"seat": 5, "times": 2}]}
    check(hall, load=load, batches=_events(seed), watermark=[None, 5][seed % 2])
    check(hall, load=load, batches=_events(seed), policy=Policy(threads=2))


@pytest.mark.parametrize("log", ["changes", "input"])
def test_it_outlives_the_process_and_the_log_says_that_it_was_deleted(log: str, tmp_path: Path) -> None:
    path = tmp_path / "state"
    with hall.reference() as reference:
        for number, batch in enumerate(_events(7)):
            with hall.open(path, log=log, snapshot_every=2) as db:
                if number == 2:
                    for one in (db, reference):
                        one.load(Hold, [{"seat": 17, "by": "loaded"}])
                assert_same_outcomes(db.run(batch), reference.run(batch))
                assert_same_tables(db.table(Hold), reference.table(Hold), ["seat"])
            with hall.open(path) as db:
                assert_same_tables(db.table(Hold), reference.table(Hold), ["seat"])
    with hall.open(path) as db:
        last = db.version
        db.run([Touch(ts=10_000, id=1000, seat=99, what="look")])
        assert db.table(Hold).num_rows == 0
        assert db.sql("select count(*) as n from hold").to_pylist() == [{"n": 0}]
        before = db.table(Hold, version=last)
        assert before.num_rows > 0
        seat = before.column("seat")[0].as_py()
        assert db.history(Hold, seat).to_pylist()[-1] == {
            "version": last + 1,
            "change": "deleted",
            "seat": seat,
            "by": None,
            "times": None,
        }


def test_a_record_that_was_loaded_before_the_first_clock_stays_until_it_is_written() -> None:
    load = {Hold: [{"seat": 0}, {"seat": 1}, {"seat": 2}]}
    steps = [(5, "write", 0), (6, "write", 3), (20, "look", 0), (21, "look", 1), (90, "write", 1), (200, "look", 1)]
    batches = [[Touch(ts=ts, id=k, seat=seat, what=what)] for k, (ts, what, seat) in enumerate(steps)]
    found = [batch.column("there")[0].as_py() for batch in check(hall, load=load, batches=batches)]
    assert found == [True, False, False, True, True, False]


def test_scans_do_not_see_what_has_expired() -> None:
    app = ps.App("scans")

    @app.table(ttl=10)
    class Hold:
        seat: int = ps.key()
        by: int = ps.index()
        price: int = 0

    @app.event
    class Touch:
        ts: int = ps.order()
        seat: int
        by: int

    @app.transaction
    def touch(e: Touch) -> dict[str, int]:
        first = sum(1 for h in Hold)
        second = sum(h.price for h in Hold.where(by=e.by))
        third = sum(h.seat for h in Hold.between(1, 3))
        best = 0
        for h in Hold.top(2, by="price"):
            best = 10 * best + h.seat
        if e.seat in Hold:
            Hold[e.seat].price = e.ts
        else:
            Hold.insert(e.seat, by=e.by, price=e.ts)
        ps.require(e.ts % 5 != 4, "no")
        return {"first": first, "second": second, "third": third, "best": best}

    rng, ts, events = Random(3), 0, []
    for _ in range(120):
        ts += rng.choice((0, 1, 1, 2, 3, 8, 11))
        events.append(Touch(ts=ts, seat=rng.randrange(6), by=rng.randrange(3)))
    check(app, batches=[events[:50], events[50:70], events[70:]])


def test_ages_keep_to_their_records_where_all_are_written_in_another_order(tmp_path: Path) -> None:
    first = [Touch(ts=k, id=k, seat=k, what="write") for k in range(4)]
    second = [Touch(ts=5 + k, id=5 + k, seat=3 - k, what="write") for k in range(4)]  # rows 3, 2, 1, 0
    with hall.reference() as reference:
        for batch in (first, second, [Touch(ts=16, id=20, seat=9, what="look")]):
            with hall.open(tmp_path / "state") as db:
                assert_same_outcomes(db.run(batch), reference.run(batch))
                assert_same_tables(db.table(Hold), reference.table(Hold), ["seat"])
    assert sorted(reference.table(Hold).column("seat").to_pylist()) == [0, 1]


def test_memory_is_given_back() -> None:
    with hall.open() as db:
        for number in range(30):
            db.run([Touch(ts=20 * number, id=k, seat=1000 * number + k, what="write") for k in range(200)])
        state = db._engine.tables["Hold"]
        assert db.table(Hold).num_rows == 200 and state.capacity == 1024 and len(state) == 200


def test_why_says_that_records_expire() -> None:
    with hall.open() as db:
        db.run([Touch(ts=1, id=1, seat=1, what="write")], policy=Policy(threads=2))
        assert db.last_batch is not None
        assert db.last_batch.why == "its records expire by the clock, which moves from event to event"


def test_a_ttl_of_a_datetime_is_a_timedelta_and_may_be_added_later(tmp_path: Path) -> None:
    noon = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)

    def app(ttl: Any) -> Any:
        days = ps.App("days")

        @days.table(ttl=ttl)
        class Seen:
            id: int = ps.key()
            n: int = 0

        @days.event
        class See:
            ts: datetime.datetime = ps.order()
            who: int

        @days.transaction
        def see(e: See) -> dict[str, int]:
            Seen.get(e.who).n += 1
            return {"n": Seen[e.who].n}

        days.See, days.Seen = See, Seen  # type: ignore[attr-defined]
        return days

    day = datetime.timedelta(days=1)
    first = app(None)
    with first.open(tmp_path / "state") as db:
        db.run([first.See(ts=noon, who=1), first.See(ts=noon, who=2)])
    second = app(30 * day)
    check(second, batches=[[second.See(ts=noon + k * day, who=1)] for k in (0, 29, 59, 60, 200)])
    with second.open(tmp_path / "state") as db:  # what was written before has no time of its own, until it is written
        db.run([second.See(ts=noon + 90 * day, who=1)])
        assert db.table("Seen").to_pylist() == [{"id": 1, "n": 2}, {"id": 2, "n": 1}]
        out = db.run([second.See(ts=noon + 121 * day, who=2), second.See(ts=noon + 121 * day, who=1)])
        assert out.column("n").to_pylist() == [2, 1]


@pytest.mark.parametrize("snapshot_every", [1, 50])
def test_what_was_loaded_before_its_table_had_a_ttl_stays_until_it_is_written(
    snapshot_every: int, tmp_path: Path
) -> None:
    def app(ttl: int | None) -> Any:
        later = ps.App("later")

        @later.table(ttl=ttl)
        class Seen:
            id: int = ps.key()

        @later.event
        class See:
            ts: int = ps.order()
            who: int

        @later.transaction
        def see(e: See) -> None:
            Seen.insert(e.who)

        later.See = See  # type: ignore[attr-defined]
        return later

    first, second = app(None), app(10)
    with first.open(tmp_path / "state", snapshot_every=snapshot_every, background=False) as db:
        db.run([first.See(ts=5, who=1)])
        db.load("Seen", [{"id": 7}])
        db.run([first.See(ts=6, who=2)])
    with second.open(tmp_path / "state", background=False) as db:
        db.load("Seen", [{"id": 8}])
    with second.open(tmp_path / "state", background=False) as db:
        db.run([second.See(ts=100, who=3)])
        assert sorted(db.table("Seen").column("id").to_pylist()) == [1, 2, 3, 7]


@pytest.mark.parametrize("ttl", [0, -1, True, 1.5, "1 day", datetime.timedelta(0), 1 << 63])
def test_what_is_no_ttl_is_refused(ttl: Any) -> None:
    with pytest.raises(ps.DeclarationError, match="no time that a record lives"):

        @ps.App("odd").table(ttl=ttl)
        class Row:
            id: int = ps.key()


def test_a_ttl_of_another_unit_than_ts_is_refused() -> None:
    app = ps.App("units")

    @app.table(ttl=datetime.timedelta(days=1))
    class Row:
        id: int = ps.key()

    @app.event
    class Tick:
        ts: int = ps.order()

    @app.transaction
    def tick(e: Tick) -> None:
        del Row[e.ts]

    with pytest.raises(ps.DeclarationError, match="ts is int in this app; give an int, in its unit"):
        app.open()


def test_a_record_that_is_found_behind_its_time_and_missed_is_deleted_in_the_log_too(tmp_path: Path) -> None:
    """Nothing but the look itself could abort there: what the look had deleted was dead in memory alone."""
    sale = ps.App("sale")

    @sale.table(ttl=10)
    class Offer:
        id: int = ps.key()

    @sale.event
    class End:
        ts: int = ps.order()
        offer: int

    @sale.transaction
    def end(e: End) -> None:
        del Offer[e.offer]

    with sale.open(tmp_path / "sale") as db:
        db.load(Offer, [{"id": n} for n in range(3)])
        db.run([End(ts=0, offer=2)])
        db.load(Offer, [{"id": 3}])
        assert db.run([End(ts=100, offer=3)]).column("reason").to_pylist() == ["missing Offer"]
        left = db.table(Offer).to_pylist()
        assert left == [{"id": 0}, {"id": 1}]
    with sale.open(tmp_path / "sale") as db:
        assert db.table(Offer).to_pylist() == left
