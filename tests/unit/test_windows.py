"""Windows and their triggers: what is seen, by hand; what is refused."""

import datetime
import random
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import App, DeclarationError, InputError, Policy, StateError
from penstock.testing import check

hand = ps.App("hand")


@hand.table
class Note:
    name: str = ps.key()
    entered: int = 0
    expired: int = 0


@hand.event
class Put:
    ts: int = ps.order()
    id: int = ps.id()
    n: int
    fails: bool


@hand.window(rows=3)
class Three:
    n: int


@hand.window(rows=4, slide=2)
class Four:
    n: int


@hand.window(rows=2, slide=2)
class Two:
    n: int


@hand.window(rows=1)
class One:
    n: int


@hand.window(time=10)
class Ten:
    n: int


@hand.window(time=10, slide=5)
class Hop:
    n: int


@hand.window(time=5, slide=5)
class Five:
    n: int


@hand.trigger
def first(w: Five) -> None:
    note = Note.get("first")
    note.entered = w.entered.n.sum()
    note.expired = w.expired.n.sum()


@hand.trigger
def second(w: Five) -> None:
    Note.get("second").entered = Note["first"].entered + len(w)


@hand.transaction
def put(e: Put):
    if e.n != 0:
        Three.add(n=e.n)
        Four.add(n=e.n)
        Two.add(n=e.n)
        One.add(n=e.n)
        Ten.add(n=e.n)
        Hop.add(n=e.n)
        Five.add(n=e.n)
    ps.require(not e.fails, "fails")
    if e.n == 0:
        ps.require(Ten.n.max() > 0, "none")
    return {
        "three": Three.n.sum(),
        "four": Four.n.sum(),
        "two": Two.n.sum(),
        "one": One.n.sum(),
        "ten": Ten.n.sum(),
        "hop": Hop.n.sum(),
        "five": Five.n.sum(),
        "many": len(Ten),
    }


# A row adds a bit, so that a sum says which rows are seen.
TIMES = (0, 1, 4, 5, 9, 10, 12, 20)
SEEN = {
    "three": [1, 3, 7, 14, 28, 56, 112, 224],
    "four": [0, 3, 3, 15, 15, 60, 60, 240],
    "two": [0, 3, 3, 12, 12, 48, 48, 192],
    "one": [1, 2, 4, 8, 16, 32, 64, 128],
    "ten": [1, 3, 7, 15, 31, 62, 124, 192],
    "hop": [1, 1, 1, 15, 15, 62, 62, 192],
    "five": [1, 1, 1, 14, 14, 48, 48, 128],
}


def puts(*, failing: bool = False) -> list[Any]:
    out = [Put(ts=ts, id=2 * k, n=1 << k, fails=False) for k, ts in enumerate(TIMES)]
    return out + [Put(ts=ts, id=2 * k + 1, n=1 << 40, fails=True) for k, ts in enumerate(TIMES) if failing]


@pytest.mark.parametrize("cut", [1, 8])
def test_what_is_seen_follows_rows_and_clock_however_the_input_is_cut(cut: int) -> None:
    batches = [puts()[at : at + cut] for at in range(0, 8, cut)]
    rows = [row for out in check(hand, batches=batches) for row in out.to_pylist()]
    assert {name: [row[name] for row in rows] for name in SEEN} == SEEN


def test_an_abort_takes_its_rows_back() -> None:
    (out,) = check(hand, batches=[puts(failing=True)])
    rows = [row for row in out.to_pylist() if row["status"] == "committed"]
    assert len(rows) == 8 and {name: [row[name] for row in rows] for name in SEEN} == SEEN


def test_what_is_seen_expires_with_the_clock_alone() -> None:
    out = check(hand, batches=[puts(), [Put(ts=31, id=0, n=0, fails=False), Put(ts=27, id=1, n=0, fails=False)]])[1]
    assert out.column("reason").to_pylist() == [None, "empty Ten"]
    assert [out[name][0].as_py() for name in SEEN] == [224, 240, 192, 128, 128, 128, 0]


def test_an_event_out_of_order_counts_as_now() -> None:
    out = check(hand, batches=[puts(), [Put(ts=3, id=0, n=1 << 8, fails=False)]])[1]
    assert [out[name][0].as_py() for name in ("ten", "hop", "five", "many")] == [448, 448, 384, 3]


def test_a_trigger_sees_what_entered_and_what_expired_and_the_window_as_it_is() -> None:
    with hand.open() as db:
        for event, first, second in zip(puts(), FIRST, SECOND, strict=True):
            db.run([event])
            notes = {row["name"]: row for row in db.table(Note).to_pylist()}
            assert (notes["first"]["entered"], notes["first"]["expired"]) == first
            assert notes["second"]["entered"] == second


# Of window Five: at 5 the rows at 1 to 5 enter, and that of 0 expires; at 20 the row at 12 enters and expires at once.
FIRST = [(1, 0), (1, 0), (1, 0), (14, 1), (14, 1), (48, 14), (48, 14), (192, 112)]
SECOND = [2, 2, 2, 17, 17, 50, 50, 193]


def test_many_rows_and_many_keys_make_the_pool_grow() -> None:
    app = ps.App("pool")

    @app.event
    class Put:
        ts: int = ps.order()
        key: str
        fails: bool

    @app.window(time=1000)
    class Kept:
        key: str = ps.key()
        at: int
        half: float

    @app.transaction
    def put(e: Put) -> dict[str, Any]:
        kept = Kept[e.key]
        kept.add(at=e.ts, half=e.ts / 2)
        ps.require(not e.fails, "fails")
        return {"sum": kept.at.sum(), "half": kept.half.sum(), "first": kept.at.min(), "many": len(kept)}

    rng = random.Random(3)
    batches = [
        [Put(ts=at, key=str(min(int(rng.expovariate(0.2)), at % 50)), fails=at % 7 == 0) for at in range(k, k + 1500)]
        for k in (0, 1500)
    ]
    rows = check(app, batches=batches)[1].to_pylist()
    assert max(row["many"] or 0 for row in rows) > 100


def test_one_transaction_adds_more_rows_than_there_is_room_for() -> None:
    """What it makes the rings grow to is undone as often as there is no room, and so does not say how much it needs."""
    app = ps.App("flood")

    @app.event
    class Put:
        ts: int = ps.order()
        many: int
        fails: bool

    @app.window(rows=100_000)
    class Last:
        n: int

    @app.window(time=10)
    class Kept:
        key: int = ps.key()
        n: int

    @app.transaction
    def put(e: Put) -> dict[str, int]:
        for n in range(e.many):
            Last.add(n=n)
            Kept[n % 7].add(n=n)
        ps.require(not e.fails, "fails")
        return {"last": len(Last), "sum": Kept[3].n.sum()}

    given = [(0, 600, True), (1, 600, False), (1, 9000, True), (2, 0, False), (30, 40_000, False), (40, 1, False)]
    with app.open() as db:
        rows = db.run([Put(ts=ts, many=many, fails=fails) for ts, many, fails in given]).to_pylist()
    sums = [sum(range(3, many, 7)) for many in (600, 40_000)]
    assert [(r["last"], r["sum"]) for r in rows] == [
        (None, None), (600, sums[0]), (None, None), (600, sums[0]), (40_600, sums[1]), (40_601, 0)
    ]  # fmt: skip


def test_a_window_of_datetimes_is_of_a_timedelta_and_sums_are_exact() -> None:
    app = ps.App("exact")

    @app.event
    class Put:
        at: datetime.datetime = ps.order()
        n: int

    @app.window(time=datetime.timedelta(minutes=10), slide=datetime.timedelta(minutes=5))
    class Kept:
        n: int

    @app.transaction
    def put(e: Put) -> dict[str, Any]:
        Kept.add(n=e.n)
        return {"sum": Kept.n.sum(), "many": len(Kept)}

    start = datetime.datetime(1969, 12, 31, 23, 55, tzinfo=datetime.UTC)
    large = 2**63 - 1
    ones = [(0, large), (1, large), (2, -large), (5, 0), (6, 1), (10, 0)]
    given = [*ones, (11, large), (12, large), (15, 0), (20, -large)]
    batch = [Put(at=start + datetime.timedelta(minutes=minutes), n=n) for minutes, n in given]
    rows = check(app, batches=[batch])[0].to_pylist()
    # At 5 and at 20 the sum of two is beyond int64 on the way, and what is asked for is not.
    assert [row["sum"] for row in rows] == [large, large, large, large, large, 1, 1, 1, None, large]
    assert [row["reason"] for row in rows] == [None] * 8 + ["overflow", None]


def test_in_a_flow_a_group_takes_back_what_its_members_added() -> None:
    app = ps.App("flow")

    @app.table
    class Trend:
        key: int = ps.key()
        count: int = 0

    @app.event
    class Vote:
        ts: int = ps.order()
        key: int
        fails: bool

    @app.event
    class Counted:
        key: int

    @app.event
    class Judged:
        fails: bool

    @app.event
    class Slid:
        key: int
        many: int

    @app.window(rows=4, slide=2)
    class Recent:
        key: int

    @app.transaction
    def vote(e: Vote) -> None:
        ps.emit(Counted(key=e.key))
        ps.emit(Counted(key=e.key + 1))
        ps.emit(Judged(fails=e.fails))

    @app.transaction(nested=True)
    def count(e: Counted) -> dict[str, int]:
        Recent.add(key=e.key)
        return {"seen": Recent.key.sum()}

    @app.transaction(nested=True)
    def judge(e: Judged) -> None:
        ps.require(not e.fails, "fails")

    @app.trigger
    def trending(w: Recent) -> None:
        for row in w.entered:
            Trend.get(row.key).count += 1
        for row in w.expired:
            Trend.get(row.key).count -= 1
            if Trend[row.key].count == 0:
                ps.emit(Slid(key=row.key, many=len(w)))

    rng = random.Random(5)
    batch = [Vote(ts=ts, key=rng.randrange(4), fails=rng.random() < 0.3) for ts in range(60)]
    check(app, batches=[batch[:31], batch[31:]])
    with app.open() as db:
        rows = db.run(batch, policy=Policy(threads=2)).to_pylist()
        assert sum(row["count"] for row in db.table(Trend).to_pylist()) == 4
        assert db.emitted(Slid).num_rows > 0 and "use windows" in db.last_batch.why
        assert {row["reason"] for row in rows} == {None, "fails"}


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "give rows=100 or time=600"),
        ({"rows": 3, "time": 10}, "give rows=100 or time=600"),
        ({"rows": 0}, "rows=0"),
        ({"rows": True}, "rows=True"),
        ({"rows": 3, "slide": 4}, "further than its size"),
        ({"rows": 3, "slide": 0}, "slide=0"),
        ({"time": 0}, "time=0"),
        ({"time": -1}, "time=-1"),
        ({"time": 2.5}, "time=2.5"),
        ({"time": 10, "slide": 11}, "further than its size"),
        ({"time": 10, "slide": datetime.timedelta(seconds=1)}, "the same unit"),
        ({"time": datetime.timedelta(0)}, "above 0"),
        ({"time": datetime.timedelta(1)}, "ts is int; give an int"),
    ],
)
def test_a_size_that_is_none_is_refused(given: dict[str, Any], what: str) -> None:
    app = ps.App("sizes")

    @app.event
    class Put:
        ts: int = ps.order()

    with pytest.raises(DeclarationError, match=what):

        @app.window(**given)
        class Kept:
            n: int


def test_a_span_is_held_against_the_order_that_is_declared_behind_it() -> None:
    app = ps.App("order")

    @app.window(time=10)
    class Kept:
        n: int

    with pytest.raises(DeclarationError, match="window 'Kept' has time=10, but ts is datetime; give a timedelta"):

        @app.event
        class Put:
            ts: datetime.datetime = ps.order()


def test_columns_have_no_default_no_check_and_no_name_of_a_window() -> None:
    app = ps.App("columns")
    with pytest.raises(DeclarationError, match="has no default"):

        @app.window(rows=1)
        class A:
            n: int = 0

    with pytest.raises(DeclarationError, match="'entered' is what every window has"):

        @app.window(rows=1)
        class B:
            entered: int

    with pytest.raises(DeclarationError, match="a window has columns only"):

        @app.window(rows=1)
        class C:
            n: int

            def more(self):
                return 1


def _app() -> tuple[Any, Any, Any, Any]:
    app = ps.App("refusals")

    @app.event
    class Put:
        ts: int = ps.order()
        key: int
        name: str
        xs: list[int]

    @app.window(rows=2)
    class Kept:
        key: int = ps.key()
        n: int
        name: str
        up: bool

    @app.window(rows=2)
    class Other:
        n: int

    return app, Put, Kept, Other


def _refused(what: str, function: Any, app: Any) -> None:
    with pytest.raises(DeclarationError, match=what):
        app.transaction(function)
    assert not app.program.transactions


def test_what_a_body_cannot_do_with_a_window_is_refused_with_words() -> None:
    app, Put, Kept, Other = _app()

    def keyless(e: Put):
        Kept.add(n=1, name="", up=True)

    def keyed(e: Put):
        Other[e.key].add(n=1)

    def short(e: Put):
        Kept[e.key].add(n=1, up=True)

    def unknown(e: Put):
        Other.add(n=1, m=2)

    def placed(e: Put):
        Other.add(1)

    def typed(e: Put):
        Other.add(n=e.name)

    def summed(e: Put):
        return {"x": Kept[e.key].name.sum()}

    def ordered(e: Put):
        return {"x": Kept[e.key].up.max()}

    def of_key(e: Put):
        return {"x": Kept[e.key].key.max()}

    def median(e: Put):
        return {"x": Other.n.median()}

    def bare(e: Put):
        return {"x": Other.n}

    def whole(e: Put):
        return {"x": Other}

    def entered(e: Put):
        return {"x": len(Other.entered)}

    def looping(e: Put):
        for row in Other:
            Other.add(n=row.n)

    def changing(e: Put):
        for row in Other:
            row.n = 3

    def either(e: Put):
        w = Kept[1] if e.key else Kept[2]
        w.add(n=1, name="", up=True)

    def used(e: Put):
        x = Other.add(n=1)  # noqa: F841

    def where(e: Put):
        for row in Kept[e.key].where(n=1):
            Other.add(n=row.n)

    def top(e: Put):
        x = Other.top(1, by="n")  # noqa: F841

    for function, what in (
        (keyless, r"one window a key; name it: Kept\[key\]"),
        (keyed, "has no key"),
        (short, "Kept.add needs 'name'"),
        (unknown, "no column 'm'; it has n"),
        (placed, "by name: Other.add"),
        (typed, "column 'n' is int; it cannot take str"),
        (summed, "takes int, float or decimal, and 'name' is str"),
        (ordered, "bools have no order"),
        (of_key, "'key' is a key of window 'Kept'"),
        (median, "no method 'median'; use sum, mean, min, max, count"),
        (bare, "'n' of window 'Other' is of many rows"),
        (whole, "window 'Other' is not a value"),
        (entered, "only a trigger of window 'Other' knows"),
        (looping, "add behind the loop"),
        (changing, "are only read"),
        (either, "cannot be chosen by a condition"),
        (used, "add is a statement of its own"),
        (where, "window 'Kept' has no 'where'; loop over the window, with an if in the loop"),
        (top, "no method 'top'; use add, .* or a loop over its rows"),
    ):
        _refused(what, function, app)


def test_a_window_says_how_large_it_is() -> None:
    app = App("app")
    with pytest.raises(DeclarationError, match=r"window 'Last': say how large it is: @app.window\(rows=100\)"):

        @app.window
        class Last:
            n: int


def test_a_window_is_no_table_to_be_read() -> None:
    app, _, Kept, _ = _app()
    with (
        app.open() as db,
        pytest.raises(InputError, match=r"<window Kept> is no table, .* keep what others need in a table"),
    ):
        db.table(Kept)


def test_a_window_has_one_owner() -> None:
    app, Put, Kept, Other = _app()

    @app.event
    class Get:
        ts: int = ps.order()

    @app.transaction
    def put(e: Put):
        Other.add(n=1)

    with pytest.raises(DeclarationError, match=r"'get' .* names window 'Other', which belongs to transaction 'put'"):

        @app.transaction
        def get(e: Get):
            return {"n": len(Other)}

    @app.transaction
    def late(e: Get):
        Kept[1].add(n=1, name="", up=True)

    with pytest.raises(DeclarationError, match="names window 'Other'"):

        @app.trigger
        def through(w: Kept):
            Other.add(n=2)


def test_a_trigger_does_not_add_to_the_window_that_runs_it() -> None:
    app, Put, Kept, Other = _app()
    with pytest.raises(DeclarationError, match="cannot add there"):

        @app.trigger
        def itself(w: Other):
            Other.add(n=1)

    @app.trigger
    def there(w: Other):
        Kept[1].add(n=1, name="", up=True)

    with pytest.raises(DeclarationError, match="cannot add there"):

        @app.trigger
        def back(w: Kept):
            Other.add(n=1)

    with pytest.raises(DeclarationError, match="a trigger returns nothing"):

        @app.trigger
        def returning(w: Other):
            return {"n": 1}

    with pytest.raises(DeclarationError, match="is not a window of app"):

        @app.trigger
        def of_event(w: Put):
            pass

    assert [t.name for t in app.program.triggers] == ["there"]


def test_triggers_in_a_loop_that_is_lowered_twice_count_once() -> None:
    app = ps.App("twice")

    @app.event
    class Put:
        ts: int = ps.order()
        amounts: list[ps.decimal(18, 2)]

    @app.table
    class Seen:
        id: int = ps.key()
        times: int = 0

    @app.window(rows=5)
    class Outer:
        n: int

    @app.window(rows=5)
    class Inner:
        n: int

    @app.trigger
    def outer(w: Outer):
        Inner.add(n=1)
        Inner.add(n=2)
        Inner.add(n=3)
        Inner.add(n=4)

    @app.trigger
    def inner(w: Inner):
        Seen[0].times += 1

    @app.transaction
    def put(e: Put):
        total = 0  # an int, until the loop is known to add decimals to it
        for amount in e.amounts:
            total += amount
            Outer.add(n=1)
            Outer.add(n=2)
            Outer.add(n=3)
            Outer.add(n=4)
        return {"total": total}

    assert len(app.plan.transactions) == 1


def test_triggers_that_double_with_every_window_are_refused_before_they_are_compiled() -> None:
    app = ps.App("cascade")

    @app.event
    class Put:
        ts: int = ps.order()

    levels: list[Any] = []
    for level in range(7):

        class Row:
            n: int

        Row.__name__ = f"Level{level}"
        levels.append(app.window(rows=5)(Row))
    L0, L1, L2, L3, L4, L5, L6 = levels

    @app.trigger
    def t0(w: L0):
        L1.add(n=1)
        L1.add(n=2)

    @app.trigger
    def t1(w: L1):
        L2.add(n=1)
        L2.add(n=2)

    @app.trigger
    def t2(w: L2):
        L3.add(n=1)
        L3.add(n=2)

    @app.trigger
    def t3(w: L3):
        L4.add(n=1)
        L4.add(n=2)

    @app.trigger
    def t4(w: L4):
        L5.add(n=1)
        L5.add(n=2)

    @app.trigger
    def t5(w: L5):
        L6.add(n=1)

    with pytest.raises(DeclarationError, match="here more than 32 would be part of one transaction; add in fewer"):

        @app.transaction
        def put(e: Put):
            L0.add(n=1)


def test_another_size_on_an_old_directory_is_refused(tmp_path: Path) -> None:
    def of(name: str, **size: Any) -> Any:
        app = ps.App("sizes")

        @app.event
        class Put:
            ts: int = ps.order()

        if size:

            @app.window(**size)
            class Kept:
                n: int

        app.reference()
        return app

    of("new", rows=2).open(tmp_path / "state").close()
    for size, what in (
        ({"rows": 3}, "window 'Kept': rows is 2 in it, and declared as 3; what a window shows cannot change"),
        ({"rows": 2, "slide": 2}, "window 'Kept': slide is none in it, and declared as 2"),
        ({"time": 3}, "window 'Kept': rows is 2 in it, and declared as none"),
        ({}, r"window 'Kept' is in it, and not declared any more; .*app.migrate\(path, drop_tables=\[\"Kept\"\]\)"),
    ):
        other = of("other", **size)
        with pytest.raises(StateError, match=what):
            other.open(tmp_path / "state")
