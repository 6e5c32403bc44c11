"""ps.now(): the highest ts that has run, for bodies."""

import datetime
from pathlib import Path

import pytest

import penstock as ps
from penstock import Policy
from penstock.testing import check

UTC = datetime.UTC
tolls = ps.App("tolls")


@tolls.table
class Seen:
    place: int = ps.key()
    at: int = -1
    passes: int = 0


@tolls.event
class Pass:
    ts: int = ps.order()
    place: int


@tolls.transaction
def note(e: Pass) -> dict[str, int]:
    Seen.get(e.place).passes += 1
    Seen.get(ps.now() // 10).at = ps.now()
    return {"now": ps.now(), "behind": ps.now() - e.ts}


BATCHES = [[Pass(ts=ts, place=ts % 3) for ts in batch] for batch in ([5, 3, 30], [10, 7], [], [-4], [31, 29, 12, 90])]


def test_the_clock_never_falls_and_is_what_the_reference_has() -> None:
    out = check(tolls, batches=BATCHES)
    assert [batch.column("now").to_pylist() for batch in out] == [[3, 5, 30], [30, 30], [], [30], [30, 30, 31, 90]]
    check(tolls, batches=BATCHES, watermark=5)


@pytest.mark.parametrize("policy", [Policy(threads=2), Policy.parse("tstream"), Policy.locking("lwm", threads=2)])
def test_a_key_made_of_the_clock_is_foreseen(policy: Policy) -> None:
    check(tolls, batches=BATCHES, policy=policy)


@pytest.mark.parametrize("log", ["changes", "input"])
def test_the_clock_outlives_the_process(log: str, tmp_path: Path) -> None:
    with tolls.reference() as reference:
        for batch in BATCHES:
            wanted = reference.run(batch)
            with tolls.open(tmp_path / "state", log=log, snapshot_every=2) as db:
                assert db.run(batch).to_pylist() == wanted.to_pylist()
        with tolls.open(tmp_path / "state") as db:
            assert sorted(map(str, db.table(Seen).to_pylist())) == sorted(map(str, reference.table(Seen).to_pylist()))


def test_of_datetimes_it_is_a_datetime_also_in_what_an_event_causes() -> None:
    app = ps.App("clocks")

    @app.event
    class Tick:
        ts: datetime.datetime = ps.order()

    @app.event
    class Tock:
        n: int

    @app.transaction
    def tick(e: Tick) -> dict[str, datetime.datetime]:
        ps.emit(Tock(n=1))
        return {"now": ps.now() + datetime.timedelta(minutes=1)}

    @app.transaction
    def tock(e: Tock) -> dict[str, datetime.datetime]:
        return {"now": ps.now()}

    noon = datetime.datetime(2024, 2, 29, 12, tzinfo=UTC)
    out = check(app, batches=[[Tick(ts=noon)], [Tick(ts=noon - datetime.timedelta(days=1))]])
    minute = noon + datetime.timedelta(minutes=1)
    assert [batch.column("now").to_pylist() for batch in out] == [[minute, noon], [minute, noon]]


def test_what_is_no_clock_is_refused_with_words() -> None:
    app = ps.App("odd")

    @app.event
    class Emitted:
        n: int

    with pytest.raises(ps.DeclarationError, match=r"no event with a ps.order\(\) is declared before this"):

        @app.transaction
        def early(e: Emitted) -> dict[str, int]:
            return {"now": ps.now()}

    @app.event
    class Tick:
        ts: int = ps.order()

    with pytest.raises(ps.DeclarationError, match="takes nothing"):

        @app.transaction
        def late(e: Tick) -> dict[str, int]:
            return {"now": ps.now(5)}  # type: ignore[call-arg]

    with pytest.raises(ps.DeclarationError, match="a check only looks at its record"):

        @app.table
        class Row:
            id: int = ps.key()

            @ps.check("old")
            def young(self) -> bool:
                return self.id < ps.now()

    with pytest.raises(ps.PenstockError, match="only inside a transaction"):
        ps.now()


def test_a_call_before_the_first_clock_has_none_and_one_behind_it_has_that() -> None:
    app = ps.App("calls")

    @app.table(ttl=10)
    class Seen:
        id: int = ps.key()
        times: int = 0

    @app.event
    class Tick:
        ts: int = ps.order()

    @app.event
    class Look:
        id: int

    @app.event
    class Note:
        id: int

    @app.transaction
    def tick(e: Tick) -> dict[str, int]:
        return {"now": ps.now()}

    @app.transaction
    def look(e: Look) -> dict[str, int]:
        return {"now": ps.now(), "times": Seen.get(e.id).times}

    @app.transaction
    def note(e: Note) -> dict[str, int]:
        Seen.get(e.id).times += 1
        return {"times": Seen[e.id].times}

    with app.open() as db, app.reference() as reference:
        found = []
        for one in (db, reference):
            rows = [one.call(Look(id=1)), one.call(Note(id=1)), one.call(Tick(ts=-(2**63)))]
            rows += [one.call(Look(id=1)), one.call(Note(id=2)), one.call(Tick()), one.call(Tick(ts=3))]
            rows += [one.call(Look(id=1)), one.call(Look(id=2)), one.call(Note(id=1)), one.call(Note(id=2))]
            found.append([*rows, *one.run([Tick(ts=12), Tick(ts=13)]).to_pylist(), one.call(Look(id=1))])
        assert found[0] == found[1]
        assert [row["reason"] for row in found[0][:4]] == ["no clock yet", None, None, None]
        assert [row["times"] for row in found[0] if row["times"] is not None] == [1, 1, 1, 1, 0, 2, 1, 0]


def test_what_a_group_causes_may_be_called_too() -> None:
    """A group is planned as one transaction; each of its members is also the first of a group of its own."""
    app = ps.App("groups")

    @app.table
    class Seen:
        id: int = ps.key()
        times: int = 0

    @app.event
    class Tick:
        ts: int = ps.order()
        id: int

    @app.event
    class Note:
        id: int

    @app.event
    class Last:
        id: int

    @app.transaction
    def tick(e: Tick) -> None:
        ps.emit(Note(id=e.id))

    @app.transaction(nested=True)
    def note(e: Note) -> dict[str, int]:
        Seen.get(e.id).times += 1
        ps.emit(Last(id=e.id + 1))
        return {"now": ps.now()}

    @app.transaction(nested=True)
    def last(e: Last) -> None:
        Seen.get(e.id).times += 10
        ps.require(Seen.get(e.id).times < 25, "enough")

    with app.open() as db, app.reference() as reference:
        for one in (Note(id=1), Last(id=1), Tick(ts=4, id=1), Note(id=2), Last(id=3), Tick(id=2)):
            assert db.call(one) == reference.call(one)
            assert db.table(Seen).to_pylist() == reference.table(Seen).to_pylist()
        out = db.run([Tick(ts=9, id=1), Tick(ts=8, id=5)])
        assert out.to_pylist() == reference.run([Tick(ts=9, id=1), Tick(ts=8, id=5)]).to_pylist()


def test_transactions_that_never_meet_see_the_clock_of_the_whole_batch() -> None:
    app = ps.App("two groups")

    @app.table
    class Left:
        key: int = ps.key()
        at: int = 0

    @app.table
    class Right:
        key: int = ps.key()
        at: int = 0

    @app.event
    class ToLeft:
        ts: int = ps.order()

    @app.event
    class ToRight:
        ts: int = ps.order()

    @app.transaction
    def left(e: ToLeft) -> None:
        Left.get(e.ts % 7).at = ps.now()

    @app.transaction
    def right(e: ToRight) -> None:
        Right.get(e.ts % 7).at = ps.now()

    check(app, batches=[[(ToLeft, ToRight)[ts % 3 > 0](ts=ts) for ts in range(200)]])


@pytest.mark.parametrize("policy", [Policy(threads=2), Policy.parse("tstream", 2), Policy.locking("lwm", threads=2)])
def test_the_clock_behind_an_event_that_runs_alone(policy: Policy) -> None:
    """Such an event cuts the batch into parts, and each part has the clock of its own events: for keys, too."""
    app = ps.App("cut by scans")

    @app.table
    class Minute:
        at: int = ps.key()
        passes: int = 0

    @app.event
    class Toll:
        ts: int = ps.order()

    @app.event
    class Count:
        ts: int = ps.order()

    @app.transaction
    def toll(e: Toll) -> dict[str, int]:
        Minute.get(ps.now() // 4).passes += 1
        return {"now": ps.now()}

    @app.transaction
    def count(e: Count) -> dict[str, int]:
        return {"now": ps.now(), "passes": sum(m.passes for m in Minute)}

    batches = [[(Count if ts % 7 == 3 else Toll)(ts=ts) for ts in some] for some in (range(40), [50, 20, 52, 45, 60])]
    check(app, batches=batches, policy=policy)
