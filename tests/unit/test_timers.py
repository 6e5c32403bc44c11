"""Timers: events that are emitted with at=, and run when the clock gets there; and the clock set by hand."""

import datetime
import shutil
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.plan import flow
from penstock.testing import check

UTC = datetime.UTC
hall = ps.App("hall")


@hall.table
class Seat:
    id: str = ps.key()
    booking: str = ""
    paid: bool = False


@hall.event
class Book:
    ts: int = ps.order()
    id: str = ps.id()
    seat: str


@hall.event
class Pay:
    ts: int = ps.order()
    id: str = ps.id()
    seat: str
    booking: str


@hall.event
class Expire:
    seat: str
    booking: str


@hall.transaction
def book(e: Book):
    seat = Seat[e.seat]
    ps.require(seat.booking == "", "taken")
    seat.booking = e.id
    ps.emit(Expire(seat=e.seat, booking=e.id), at=e.ts + 900)


@hall.transaction
def pay(e: Pay):
    ps.require(Seat[e.seat].booking == e.booking, "not held")
    Seat[e.seat].paid = True


@hall.transaction
def expire(e: Expire):
    seat = Seat[e.seat]
    if seat.booking == e.booking and not seat.paid:
        seat.booking = ""


EVENING = [
    Book(ts=0, id="b1", seat="A"),
    Book(ts=899, id="b2", seat="A"),
    Book(ts=900, id="b3", seat="A"),
    Pay(ts=950, id="p", seat="A", booking="b3"),
    Book(ts=2000, id="b4", seat="A"),
]


def brief(out: Any) -> list[tuple[Any, ...]]:
    return [(r["transaction"], r["ts"], r["id"], r["status"]) for r in out.to_pylist()]


def test_a_timer_runs_before_the_first_event_at_its_time_with_the_id_of_who_set_it() -> None:
    [out] = check(hall, load={Seat: [{"id": "A"}]}, batches=[EVENING])
    assert brief(out) == [
        ("book", 0, "b1", "committed"),
        ("book", 899, "b2", "aborted"),
        ("expire", 900, "b1", "committed"),
        ("book", 900, "b3", "committed"),
        ("pay", 950, "p", "committed"),
        ("expire", 1800, "b3", "committed"),
        ("book", 2000, "b4", "aborted"),
    ]
    assert out.column("step").to_pylist() == [0] * 7


@pytest.mark.parametrize("log", ["changes", "input"])
@pytest.mark.parametrize("cut", range(6))
def test_it_does_not_matter_how_the_stream_is_cut(log: str, cut: int, tmp_path: Path) -> None:
    whole = check(hall, load={Seat: [{"id": "A"}]}, batches=[EVENING])[0].drop_columns("version").to_pylist()
    with hall.open(tmp_path / "state", log=log) as db:
        db.load(Seat, [{"id": "A"}])
        rows = db.run(EVENING[:cut]).to_pylist()
    with hall.open(tmp_path / "state", log=log) as db:
        rows += db.run(EVENING[cut:]).to_pylist()
        assert [{k: v for k, v in row.items() if k != "version"} for row in rows] == whole
        assert (db.table(Seat).to_pylist(), db.pending(Expire).num_rows) == (
            [{"id": "A", "booking": "b3", "paid": True}],
            0,
        )


@pytest.mark.parametrize("log", ["changes", "input"])
def test_what_waits_is_seen_outlives_the_process_and_runs_when_the_clock_is_set(log: str, tmp_path: Path) -> None:
    seats = [{"id": name} for name in "ABC"]
    with hall.open(tmp_path / "state", log=log, snapshot_every=2) as db:
        db.load(Seat, seats)
        db.run([Book(ts=ts, id=id, seat=seat) for ts, id, seat in [(5, "x", "A"), (5, "y", "B"), (3, "z", "C")]])
        waiting = [
            {"at": 903, "id": "z", "seat": "C", "booking": "z"},
            {"at": 905, "id": "x", "seat": "A", "booking": "x"},
            {"at": 905, "id": "y", "seat": "B", "booking": "y"},
        ]
        assert db.pending(Expire).to_pylist() == waiting
        assert db.sql("show tables").num_rows == 1 and list(db.view().tables) == ["Seat"]
        assert db.last_batch is not None and db.last_batch.changes == 3
    with hall.open(tmp_path / "state", log=log, snapshot_every=2) as db:
        assert db.pending("Expire").to_pylist() == waiting
        assert brief(db.advance(904)) == [("expire", 903, "z", "committed")]
        assert (db.version, db.advance(904).num_rows, db.advance(-1).num_rows, db.version) == (2, 0, 0, 2)
    with hall.open(tmp_path / "state", log=log, snapshot_every=2) as db:
        assert db.pending(Expire).to_pylist() == waiting[1:]
        # By hand the clock was set to 904, so that this comes too late where lateness is judged.
        assert brief(db.run([Book(ts=904, id="w", seat="C")], watermark=0)) == [("book", 904, "w", "late")]
        assert brief(db.advance(10**6)) == [("expire", 905, "x", "committed"), ("expire", 905, "y", "committed")]
        assert db.view(1).tables["Seat"].num_rows == 3
        assert db.outcomes(4).num_rows == 2
    with hall.open(tmp_path / "state") as db:
        assert (db.pending(Expire).num_rows, db.table(Seat).column("booking").to_pylist()) == (0, ["", "", ""])
        assert db.advance(10**6).num_rows == 0


def test_what_a_watermark_holds_runs_between_timers() -> None:
    both = [db := hall.open(), hall.reference()]
    for one in both:
        one.load(Seat, [{"id": "A"}])
        one.run(EVENING, watermark=1500)  # up to 500
    assert db.held == 4
    out = [one.advance(1000) for one in both]
    assert brief(out[0]) == brief(out[1])
    assert [row[:2] for row in brief(out[0])] == [("book", 899), ("expire", 900), ("book", 900), ("pay", 950)]
    assert db.held == 1
    assert [row[:2] for row in brief(db.run([], flush=True))] == [("expire", 1800), ("book", 2000)]
    db.close()


# -- times ------------------------------------------------------------------------------------

beats = ps.App("beats")


@beats.table
class Count:
    name: str = ps.key()
    n: int = 0


@beats.event
class Start:
    ts: datetime.datetime = ps.order()
    name: str
    after: datetime.timedelta
    fails: bool


@beats.event
class Beat:
    name: str
    every: datetime.timedelta


@beats.event
class Tick:  # nested where it is emitted; as a timer it is a round
    name: str


@beats.event
class Told:
    name: str
    n: int


@beats.transaction
def start(e: Start):
    Count.get(e.name).n += 100
    ps.emit(Beat(name=e.name, every=e.after), at=e.ts + e.after)
    ps.emit(Tick(name=e.name), at=ps.now())
    ps.emit(Tick(name=e.name))
    ps.require(not e.fails, "fails")


@beats.transaction
def beat(e: Beat):
    count = Count.get(e.name)
    count.n += 1
    ps.emit(Told(name=e.name, n=count.n))
    ps.emit(Beat(name=e.name, every=e.every), at=ps.now() + e.every)


@beats.transaction(nested=True)
def tick(e: Tick):
    Count.get(e.name).n += 10
    ps.require(e.name != "bad", "bad")


NOON = datetime.datetime(2024, 2, 29, 12, tzinfo=UTC)
MINUTE, MOMENT = datetime.timedelta(minutes=1), datetime.timedelta(microseconds=1)


def later(n: int, **more: Any) -> Any:
    return Start(ts=NOON + n * MINUTE, **{"name": "a", "after": MINUTE, "fails": False, **more})


def test_a_time_that_is_not_after_now_is_the_next_tick_and_a_heartbeat_goes_on() -> None:
    out, _ = check(beats, batches=[[later(0), later(2, name="b", after=5 * MINUTE)], [later(3, after=-3000 * MINUTE)]])
    rows = [(r["transaction"], r["ts"] - NOON, r["step"]) for r in out.to_pylist()]
    assert rows == [
        ("start", 0 * MINUTE, 0),
        ("tick", 0 * MINUTE, 1),
        ("tick", MOMENT, 0),
        ("beat", MINUTE, 0),
        ("beat", 2 * MINUTE, 0),  # set on the way, and due now
        ("start", 2 * MINUTE, 0),
        ("tick", 2 * MINUTE, 1),
    ]


def test_what_aborts_sets_no_timer_and_a_timer_that_aborts_has_run() -> None:
    with beats.open() as db:
        db.run([later(0, fails=True), later(0, name="bad"), later(0, name="c")])
        assert db.pending(Beat).column("name").to_pylist() == ["c"]
        assert db.pending(Tick).column("name").to_pylist() == ["c"]
        out = db.advance(NOON + 3 * MINUTE)
        assert [(r["transaction"], r["status"]) for r in out.to_pylist()] == [("tick", "committed")] + [
            ("beat", "committed")
        ] * 3
        assert [(r["ts"] - NOON, r["n"]) for r in db.emitted(Told).to_pylist()] == [
            (1 * MINUTE, 121),
            (2 * MINUTE, 122),
            (3 * MINUTE, 123),
        ]
        assert db.pending(Beat).to_pylist() == [{"at": NOON + 4 * MINUTE, "name": "c", "every": MINUTE}]


def test_a_heartbeat_and_an_event_far_in_the_future_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    # It is a million timers on the way to one event; a program has the number that its kernel was made for.
    monkeypatch.setattr(flow, "MOST_EMITS", 9)
    app = ps.App("pulse")

    @app.event
    class Go:
        ts: int = ps.order()

    @app.event
    class Pulse:
        pass

    @app.transaction
    def go(e: Go):
        ps.emit(Pulse(), at=e.ts + 1)

    @app.transaction
    def pulse(e: Pulse):
        ps.emit(Pulse(), at=ps.now() + 1)

    first, second = check(app, batches=[[Go(ts=0), Go(ts=5)], [Go(ts=10**15), Go(ts=10**15 + 4)]])
    assert first.column("ts").to_pylist() == [0, 1, 2, 3, 4, 5, 5]
    found = [(r["transaction"], r["ts"], r["reason"]) for r in second.to_pylist()]
    # Two had been set before, and nine are set on the way: who would set one more is aborted.
    beats_at = [("pulse", ts, None) for ts in (6, 6, 7, 7, 8, 8, 9, 9, 10)]
    ended = [("pulse", ts, "too many events") for ts in (10, 11)]
    assert found[:12] == [*beats_at, *ended, ("go", 10**15, None)]
    assert [row[1] - 10**15 for row in found[12:]] == [1, 2, 3, 4, 4]


def test_at_the_end_of_time_there_is_no_later() -> None:
    last = datetime.datetime.max.replace(tzinfo=UTC)
    at_the_end = Start(ts=last, name="a", after=-MINUTE, fails=False)
    [out] = check(beats, batches=[[at_the_end, Start(ts=last, name="b", after=MINUTE, fails=False)]])
    assert out.column("reason").to_pylist() == ["overflow", "overflow"]


def test_many_timers_in_one_batch() -> None:
    """More than anything has room for at first."""
    events = [later(n, name=f"{n % 700}", after=(n + 1) * MINUTE) for n in range(3000)]
    with beats.open() as db:
        db.run(events)
        waiting = db.pending(Beat)
        assert waiting.column("at").to_pylist() == sorted(waiting.column("at").to_pylist())
        total = sum(db.table(Count).column("n").to_pylist())
        beaten = db.emitted(Told).num_rows
    assert total == 3000 * 120 - 10 + beaten  # the last one's second tick still waits
    assert waiting.num_rows == 3000  # every heartbeat goes on


# -- across changes of the app and of the log --------------------------------------------------


def test_numbers_are_the_same_in_every_replay(tmp_path: Path) -> None:
    """A log of changes names timers by their numbers, also behind a log of inputs that is run again."""
    reference = beats.reference()
    for k, log in enumerate(["input", "input", "changes", "input", "changes"]):
        batch = [later(k, name=f"{k}"), later(k, fails=True), later(k, name=f"{k}b", after=3 * MINUTE)]
        with beats.open(tmp_path / f"{k}", log=log, snapshot_every=50, background=False) as db:
            wanted = reference.run(batch)
            assert db.run(batch).to_pylist() == wanted.to_pylist()
            assert db.pending(Beat).to_pylist() == reference.pending(Beat).to_pylist()
            # As a killed process leaves it: closing would make a snapshot.
            shutil.copytree(tmp_path / f"{k}", tmp_path / f"{k + 1}")
    with beats.open(tmp_path / "5") as db:
        assert db.advance(NOON + 9 * MINUTE).to_pylist() == reference.advance(NOON + 9 * MINUTE).to_pylist()
        assert db.pending(Beat).to_pylist() == reference.pending(Beat).to_pylist()


def test_a_batch_that_ran_ahead_is_forgotten_with_its_timers(tmp_path: Path) -> None:
    with hall.open(tmp_path / "state", background=False) as db:
        db.load(Seat, [{"id": "A"}, {"id": "B"}])
        first, second = [Book(ts=1, id="b1", seat="A")], [Book(ts=902, id="b2", seat="B")]
        db.run(first, id=0, source="s", offsets="0")
        db.run_ahead(second, id=1, source="s", offsets="1")
        assert db.pending(Expire).column("id").to_pylist() == ["b1"]
        assert not db.is_due(950)  # a batch comes
        assert brief(db.advance(901)) == [("expire", 901, "b1", "committed")]
        assert (db.pending(Expire).num_rows, db.is_due(902)) == (0, False)
        assert [db.is_between(version) for version in (1, 2)] == [False, True]
        assert brief(db.run(second, id=1, source="s", offsets="1")) == [("book", 902, "b2", "committed")]
        db.run_ahead([Book(ts=903, id="b3", seat="A")], id=2, source="s", offsets="2")
        db.run([Book(ts=903, id="b3", seat="A")], id=2, source="s", offsets="2")
        assert db.pending(Expire).column("id").to_pylist() == ["b2", "b3"]
        assert (db.is_due(1801), db.is_due(1802), db.is_between(4)) == (False, True, False)


def _without(fields: str) -> ps.App:
    """The hall, whose seats are held for ever, or which another timer frees."""
    app = ps.App("hall")

    @app.table
    class Seat:
        id: str = ps.key()
        booking: str = ""
        paid: bool = False

    @app.event
    class Book:
        ts: int = ps.order()
        id: str = ps.id()
        seat: str

    if fields == "none":

        @app.transaction
        def book(e: Book):
            Seat[e.seat].booking = e.id

    else:

        @app.event
        class Expire:
            seat: str

        @app.transaction
        def book(e: Book):
            ps.emit(Expire(seat=e.seat), at=e.ts + 900)

        @app.transaction
        def expire(e: Expire):
            Seat[e.seat].booking = ""

    return app


@pytest.mark.parametrize("kept", ["log", "snapshot"])
def test_timers_that_nobody_would_run_are_refused_until_they_have_run(kept: str, tmp_path: Path) -> None:
    with hall.open(tmp_path / "state", snapshot_every=1 if kept == "snapshot" else 50, background=False) as db:
        db.load(Seat, [{"id": "A"}, {"id": "B"}])
        db.run([Book(ts=1, id="b1", seat="A"), Book(ts=2, id="b2", seat="B")])
    with pytest.raises(
        ps.StateError,
        match=r"holds 2 timer\(s\) 'Expire' that have not run, and app 'hall' does not.* let them run \(db.advance"
        r": it sets the clock, so they run before their time, and .* is late from then on\)",
    ):
        _without("none").open(tmp_path / "state")
    with hall.open(tmp_path / "state", background=False) as db:
        db.advance(5000)
    with _without("none").open(tmp_path / "state") as db:
        assert db.table("Seat").column("booking").to_pylist() == ["", ""]


@pytest.mark.parametrize("kept", ["log", "snapshot"])
def test_timers_outlive_a_field_of_their_event(kept: str, tmp_path: Path) -> None:
    with hall.open(tmp_path / "state", snapshot_every=1 if kept == "snapshot" else 50, background=False) as db:
        db.load(Seat, [{"id": "A"}, {"id": "B"}])
        db.run([Book(ts=1, id="b1", seat="A"), Book(ts=2, id="b2", seat="B")])
        before = db.version
    for _ in range(2):  # once it is changed, and then read back
        with _without("fewer").open(tmp_path / "state", background=False) as db:
            assert db.version == before + 1
            assert db.pending("Expire").to_pylist() == [
                {"at": 901, "id": "b1", "seat": "A"},
                {"at": 902, "id": "b2", "seat": "B"},
            ]
    with _without("fewer").open(tmp_path / "state") as db:
        db.advance(901)
        assert db.table("Seat").sort_by("id").column("booking").to_pylist() == ["", "b2"]
        assert db.pending("Expire").column("seat").to_pylist() == ["B"]
    with _without("fewer").open(tmp_path / "state") as db:
        assert db.pending("Expire").column("seat").to_pylist() == ["B"]
        db.advance(902)
        assert db.table("Seat").column("booking").to_pylist() == ["", ""]


def test_an_app_without_timers_has_a_clock_to_set() -> None:
    app = ps.App("plain")

    @app.event
    class Note:
        ts: int = ps.order()

    @app.transaction
    def note(e: Note):
        return {"now": ps.now()}

    with app.open() as db:
        assert db.advance(7).num_rows == 0
        assert (db.version, db.run([Note(ts=3)]).column("now").to_pylist()) == (1, [7])
        db.run([Note(ts=8), Note(ts=20)], watermark=10)
        assert (db.held, db.advance(19).num_rows, db.held) == (1, 0, 1)
        assert db.advance(20).column("now").to_pylist() == [20]


# -- what is refused --------------------------------------------------------------------------


def test_what_is_no_time_is_refused() -> None:
    with hall.open() as db, beats.open() as times:
        for one, t, words in [
            (db, "soon", "whose ts is int"),
            (db, 2**63, "whose ts is int"),
            (db, None, "None is no time"),
            (db, True, "whose ts is int"),
            (times, 5, "whose ts is datetime"),
        ]:
            with pytest.raises(ps.InputError, match=words):
                one.advance(t)
        with pytest.raises(ps.InputError, match="has no timers 'Book'; the events that it emits with at= are Expire"):
            db.pending(Book)
        assert times.advance(NOON.replace(tzinfo=None)).num_rows == 0  # without a zone it is UTC
        assert times.version == 1


def test_declarations_that_have_no_sense_are_refused_with_words() -> None:
    app = ps.App("odd")

    @app.event
    class Later:
        n: int

    with pytest.raises(
        ps.DeclarationError, match=r"at= is of the type of ts, and no event with a ps.order\(\) is declared"
    ):

        @app.transaction
        def unordered(e: Later):
            ps.emit(Later(n=1), at=5)

    @app.event
    class Now:
        ts: int = ps.order()
        at: datetime.datetime

    with pytest.raises(ps.DeclarationError, match="at= is of the type of ts, which is int in this app, not datetime"):

        @app.transaction
        def typed(e: Now):
            ps.emit(Later(n=1), at=e.at)

    with pytest.raises(ps.DeclarationError, match="at=None is no time"):

        @app.transaction
        def nothing(e: Now):
            ps.emit(Later(n=1), at=None)

    with pytest.raises(ps.DeclarationError, match=r"ps\.emit takes an event that is made there"):

        @app.transaction
        def wrong(e: Now):
            ps.emit(Later(n=1), when=5)  # type: ignore[call-arg]

    @app.transaction
    def now(e: Now):
        ps.emit(Later(n=1), at=e.ts + 5)

    with pytest.raises(ps.DeclarationError, match=r"emits 'Later' with at=, but no transaction takes it; declare one"):
        app.open()

    @app.transaction
    def later_(e: Later):
        ps.emit(Later(n=e.n + 1), at=ps.now() + 5)  # a cycle through time

    assert "emit Later(%" in app.explain() and app.program.flow.timed == ("Later",)


def test_a_field_that_pending_has_already_is_refused() -> None:
    app = ps.App("columns")

    @app.event
    class Now:
        ts: int = ps.order()

    @app.event
    class Later:
        at: int

    @app.transaction
    def now(e: Now):
        ps.emit(Later(at=1), at=e.ts)

    @app.transaction
    def later_(e: Later):
        pass

    with pytest.raises(
        ps.DeclarationError, match=r"db.pending\(Later\) has a column 'at' already; give the field another"
    ):
        app.open()
