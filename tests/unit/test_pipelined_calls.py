"""Many calls in a message, many messages under way: each is answered as a call at home, and no id runs twice."""

import datetime
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from test_calls import Give, Look, Move, bank, opened, reference, same_tables, until

import penstock as ps
from penstock import ConflictError, NotRetainedError, QueueFullError
from penstock import calls as queue
from penstock.execute.field_hashes import field_hashes
from penstock.serve.pipeline import Pipeline
from penstock.store.durable import DurableStore
from penstock.store.segment import CALLS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@contextmanager
def served(folder: Path, **options: Any) -> Iterator[tuple[Any, Pipeline]]:
    with opened(bank, folder, **options) as db:
        db.serve_calls()
        with Pipeline("bank", folder) as line:
            yield db, line


def rows_of(*events: Any) -> pa.Table:
    event = events[0].definition
    return pa.Table.from_pylist([one.values for one in events], schema=event.arrow())


def gives(*ids: str, amount: int = 1, who: str = "b") -> pa.Table:
    return rows_of(*(Give(id=id, who=who, amounts=[amount]) for id in ids))


def test_what_is_pipelined_is_answered_as_the_reference_does(folder: Path) -> None:
    rng = random.Random(8)
    law = reference(bank)
    with served(folder, snapshot_every=3) as (db, line):
        for _ in range(4):
            sent = []
            for _ in range(12):
                kind = rng.choice([Give, Look, Move])
                ids = [str(rng.randrange(60)) for _ in range(rng.choice([1, 3, 20]))]
                several = [event(kind, id, rng) for id in ids]
                sent.append((several, line.submit(kind.definition.name, rows_of(*several), strict=False)))
            told = [list(future.result(60).each(len(several))) for several, future in sent]
            for (several, _), outcomes in zip(sent, told, strict=True):
                if several[0].definition.name != "Look":
                    wanted = [law.call(one) for one in several]
                    assert [one | {"version": 0} for one in outcomes] == [one | {"version": 0} for one in wanted]
            same_tables(bank, db, law)
    with bank.open(folder) as db:
        same_tables(bank, db, law)


def event(kind: Any, id: str, rng: random.Random) -> Any:
    if kind is Look:
        return Look(who=rng.choice(["a", "b", "x"]))
    if kind is Give:
        return Give(id=id, who=rng.choice(["b", "c", None]), amounts=rng.choice([[], [1, 2], [5]]))
    ts = rng.choice([None, rng.randrange(50)])
    return Move(ts=ts, id=id, src="a", dst=rng.choice(["b", "c"]), amount=Decimal(rng.randrange(40)))


def test_what_waits_together_is_one_version(folder: Path) -> None:
    with served(folder) as (db, line):
        with db._gate.writing():
            first = line.submit("Give", gives("first"))
            until(lambda: bool(db._calls._queue) and db._calls._led)
            futures = [line.submit("Give", gives(f"{k}.a", f"{k}.b")) for k in range(50)]
            until(lambda: db._calls._rows == 101)
        assert {row["version"] for future in (first, *futures) for row in future.result(60).outcomes.to_pylist()} == {1}
        assert [f.result().outcomes.to_pylist()[1]["left"] for f in futures] == [2 * k + 3 for k in range(50)]
        many = gives(*(f"m{k}" for k in range(20_000)))
        reply = line.submit("Give", many).result(60)
        assert reply.outcomes.num_rows == 20_000
        assert reply.outcomes.column("left").to_pylist() == list(range(102, 20_102))
        assert db.version == 4  # so many at most are one version


def test_an_id_with_other_fields_is_refused_where_that_is_asked_for(folder: Path) -> None:
    with served(folder, retain=10) as (db, line):
        first = line.submit("Give", gives("g")).result(60).outcomes
        assert line.submit("Give", gives("g")).result(60).outcomes.equals(first)
        reply = line.submit("Give", gives("x", "g", "y", amount=2)).result(60)
        assert list(reply.refused) == [1] and reply.outcomes.num_rows == 2
        assert isinstance(reply.refused[1], ConflictError)
        told = str(reply.refused[1])
        assert "id 'g' of event 'Give' was called before, with other fields, and ran in version 1" in told
        assert line.submit("Give", gives("g", amount=2), strict=False).result(60).outcomes.equals(first)
        twins = pa.concat_tables([gives("t"), gives("t"), gives("t", amount=9)])
        reply = line.submit("Give", twins).result(60)
        assert reply.outcomes.to_pylist()[0] == reply.outcomes.to_pylist()[1] and list(reply.refused) == [2]
        with bank.connect(folder) as there:  # as it was: an id says what it is
            assert there.call(Give(id="g", who="a", amounts=[7])) == first.to_pylist()[0]
        assert db.version == 3
    with served(folder, retain=10) as (db, line):
        assert isinstance(line.submit("Give", gives("g", amount=2)).result(60).refused[0], ConflictError)
        assert line.submit("Give", gives("g")).result(60).outcomes.equals(first)


def test_calls_that_an_older_penstock_noted_are_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = DurableStore.prepare

    def as_before(*args: Any) -> Any:
        store, tables, events, outcomes, stream, request, notes, files, calls = args
        noted = [[row["event"], row["id"], row["row"]] for row in calls.to_pylist()]
        return prepare(store, tables, events, outcomes, stream, request, notes | {CALLS: noted}, files)

    with monkeypatch.context() as older, served(folder) as (_, line):
        older.setattr(DurableStore, "prepare", as_before)
        first = line.submit("Give", gives("g", "h")).result(60).outcomes
    with served(folder) as (_, line):
        assert line.submit("Give", gives("g", "h")).result(60).outcomes.equals(first)
        # Nobody knows its fields.
        assert line.submit("Give", gives("h", amount=5)).result(60).outcomes.to_pylist() == first.to_pylist()[1:]


def test_an_id_that_may_have_run_before_what_is_retained_is_refused(folder: Path) -> None:
    with served(folder, retain=3, snapshot_every=2, background=False) as (db, line):
        line.submit("Give", gives("g"), since=0).result(60)
        for k in range(4):
            line.submit("Give", gives(f"later {k}")).result(60)
        reply = line.submit("Give", gives("g", "new"), since=1).result(60)
        assert [type(one) for one in reply.refused.values()] == [NotRetainedError] * 2
        assert "called since version 1, and outcomes are retained behind version 2 only" in str(reply.refused[0])
        assert reply.refused[0].committed is None
        assert line.submit("Give", gives("later 3"), since=1).result(60).outcomes.num_rows == 1
        assert line.submit("Give", gives("new"), since=2).result(60).outcomes.num_rows == 1
        assert db.version == 6
        # Without it nobody can know: that is a new call, as at home.
        assert line.submit("Give", gives("g")).result(60).outcomes.to_pylist()[0]["version"] == 7


def test_an_id_that_runs_once_is_known_beyond_what_is_retained(folder: Path) -> None:
    app = ps.App("once")

    @app.table
    class Seen:
        id: str = ps.key()

    @app.event
    class Put:
        ts: int = ps.order()
        id: str = ps.id(unique=1000)

    @app.transaction
    def put(e: Put):
        Seen.insert(e.id)
        return {"at": e.ts}

    with app.open(folder, retain=3, calls=True) as db, Pipeline("once", folder) as line:
        db.run([Put(ts=1, id="streamed")])
        for k in range(6):
            line.submit("Put", rows_of(Put(id=f"p{k}"))).result(60)
        reply = line.submit("Put", rows_of(Put(id="p0"), Put(id="new"))).result(60)
        assert "ran in version 2, and not again" in str(reply.refused[0])
        assert (reply.refused[0].committed, reply.refused[0].version) == (True, 2)
        assert [row["status"] for row in reply.outcomes.to_pylist()] == ["committed"]
        (again,) = line.submit("Put", rows_of(Put(id="streamed")), strict=False).result(60).outcomes.to_pylist()
        assert (again["status"], again["version"]) == ("duplicate", 1)


def test_more_calls_than_may_wait_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "MOST_WAITING", 100)
    with served(folder) as (db, line):
        with db._gate.writing():
            taken = line.submit("Give", gives(*(f"g{k}" for k in range(90))))
            until(lambda: db._calls._rows == 90)
            refused = line.submit("Give", gives(*(f"h{k}" for k in range(11))))
            error = refused.exception(60)
            assert isinstance(error, QueueFullError) and error.committed is False
            assert "90 calls wait already, of which at most 100 may; call again" in str(error)
        assert taken.result(60).outcomes.num_rows == 90
        assert line.submit("Give", gives(*(f"h{k}" for k in range(11)))).result(60).outcomes.num_rows == 11


def test_who_does_not_wait_for_the_watermark_is_told_when_it_is_kept(folder: Path) -> None:
    def moved(ts: int | None, id: str, amount: int = 1) -> Any:
        return Move(ts=ts, id=id, src="a", dst="b", amount=Decimal(amount))

    with served(folder) as (db, line):
        db.run([moved(10, "s")], watermark=5)
        several = rows_of(moved(8, "c"), moved(None, "now"), moved(8, "c"), moved(9, "d"), moved(8, "c", 2))
        reply = line.submit("Move", several, waits=False).result(60)
        assert (reply.waiting, list(reply.refused)) == ((0, 2, 3), [4])
        assert [row["id"] for row in reply.outcomes.to_pylist()] == ["now"]
        assert db.held == 3
        assert line.submit("Move", rows_of(moved(8, "c")), waits=False).result(60).waiting == (0,)
        later = line.submit("Move", rows_of(moved(8, "c")))
        assert isinstance(line.submit("Move", rows_of(moved(8, "c", 3))).result(60).refused[0], ConflictError)
        with bank.connect(folder) as there:
            assert there.find("c") == [{"event": "Move", "outcome": None}]
            assert there.find("nobody") == []
            db.run([moved(20, "t")], watermark=5)
            ran = later.result(60).outcomes.to_pylist()[0]
            assert there.find("c") == there.find("c", "Move") == [{"event": "Move", "outcome": ran}]
            assert there.find("c", "Give") == []
    with served(folder) as (db, line):  # its fields are in the log, too
        assert isinstance(line.submit("Move", rows_of(moved(8, "c", 3))).result(60).refused[0], ConflictError)


def test_only_events_that_are_open_may_be_called(folder: Path) -> None:
    with bank.open(folder, calls=[Give, "Look"]), Pipeline("bank", folder) as line, bank.connect(folder) as there:
        assert line.submit("Give", gives("g")).result(60).outcomes.num_rows == 1
        with pytest.raises(ps.InputError, match=r"event 'Move' .* is not open to calls .* those that are: Give, Look"):
            there.call(Move(id="m", src="a", dst="b", amount=Decimal(1)))
        assert set(there.events()) == {"Give", "Look"}
        assert there.events()["Give"] == {
            "id": "id",
            "order": None,
            "fields": {"id": "str", "who": "str", "amounts": "list[int]"},
        }
    with pytest.raises(ps.InputError, match="no transaction takes an event 'Spare', so it cannot be called"):
        bank.open(folder, calls=["Spare"])


def test_fields_that_are_left_out_have_their_defaults(folder: Path) -> None:
    app = ps.App("defaults")

    @app.event
    class Put:
        id: int = ps.id()
        who: str
        amount: int = 5

    @app.transaction
    def put(e: Put):
        return {"amount": e.amount, "name": e.who}

    with app.open(folder, calls=True), Pipeline("defaults", folder) as line:
        told = line.submit("Put", pa.table({"id": [1, 2], "who": ["a", "b"]})).result(60).outcomes.to_pylist()
        assert [(row["amount"], row["name"]) for row in told] == [(5, "a"), (5, "b")]
        told = line.submit("Put", pa.table({"id": [3]})).result(60).outcomes.to_pylist()
        assert told[0]["reason"] == "null who"
        for wrong in (pa.table({"id": ["1"]}), pa.table({"id": [1], "what": [1]}), pa.table({"who": ["a"]})):
            with pytest.raises(ps.InputError, match=r"of other fields than it has|is null; every Put needs its id"):
                line.submit("Put", wrong).result(60)


def test_a_message_is_refused_whole_and_the_next_one_is_not(folder: Path) -> None:
    with served(folder) as (db, line):
        bad = rows_of(Give(id="g", who="b", amounts=[1]), Give(id=None, who="b", amounts=[1]))
        refused, taken = line.submit("Give", bad), line.submit("Give", gives("h"))
        assert isinstance(refused.exception(60), ps.InputError)
        assert taken.result(60).outcomes.num_rows == 1
        with pytest.raises(ps.InputError, match="'Nothing' is not an event of app 'bank'"):
            line.submit("Nothing", gives("i")).result(60)
        with (
            pytest.raises(ps.InputError, match="calls of app 'other' cannot"),
            Pipeline("other", folder) as other,
        ):
            other.submit("Give", gives("i")).result(60)
        assert db.version == 1


def test_many_calls_of_a_connection_go_in_one_message(folder: Path) -> None:
    with served(folder), bank.connect(folder) as there:
        events = [Give(id=str(k), who="b", amounts=[1]) for k in range(50)] + [Look(who="b")]
        events += [Move(id=f"m{k}", src="b", dst="a", amount=Decimal(1)) for k in range(5)]
        told = there.call_many(events)
        assert [one["transaction"] for one in told] == ["give"] * 50 + ["look"] + ["move"] * 5
        assert [one["left"] for one in told[:50]] == list(range(1, 51))
        assert there.call_many(events[:50]) == told[:50] and there.call_many([]) == []


def test_when_the_writer_goes_nobody_knows(folder: Path) -> None:
    db = opened(bank, folder)
    db.serve_calls()
    line = Pipeline("bank", folder)
    with db._gate.writing():
        pending = line.submit("Give", gives("g"))
        until(lambda: bool(db._calls._queue))
        line._connection.shutdown(2)  # as if it was killed
        error = pending.exception(60)
    assert isinstance(error, ps.StateError) and error.committed is None
    until(lambda: not line.is_open)
    with pytest.raises(ps.StateError) as told:
        line.submit("Give", gives("g"))
    assert told.value.committed is False
    line.close()
    until(lambda: db.version == 1)  # it had all come
    db.close()
    with suppress(ps.StateError), pytest.raises(ps.StateError, match="nobody serves calls"):
        Pipeline("bank", folder)
    assert not [one for one in threading.enumerate() if one.name.startswith("penstock")]


def test_a_database_that_is_closed_answers_what_still_waits(folder: Path) -> None:
    db = opened(bank, folder)
    db.serve_calls()
    with Pipeline("bank", folder) as line:
        db.run([Move(ts=10, id="s", src="a", dst="b", amount=Decimal(1))], watermark=5)
        held = line.submit("Move", rows_of(Move(ts=9, id="c", src="a", dst="b", amount=Decimal(1))))
        until(lambda: db.held == 2)
        db.close()
        error = held.exception(60)
        assert "was closed before the time of event 'Move'" in str(error) and error.committed is None
    assert not [one for one in threading.enumerate() if one.name.startswith("penstock")]


def test_what_stands_for_fields_does_not_change() -> None:
    """It is in the log: a number that differs in the next process would refuse every retry."""
    table = pa.table(
        {
            "id": ["a", "b", "ü" * 20],
            "n": pa.array([1, -1, None]),
            "f": [0.5, 1e300, None],
            "d": pa.array([Decimal("1.50"), Decimal("-2.00"), None], pa.decimal128(18, 2)),
            "t": pa.array([datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None, None], pa.timestamp("us", "UTC")),
            "day": pa.array([datetime.date(2026, 1, 1), None, None]),
            "is": [True, False, None],
            "l": [[1, 2], [], None],
            "w": pa.array([["x", None], ["xy"], None]),
        }
    )
    wanted = field_hashes(table)
    assert wanted.tolist() == GOLDEN
    for cut in (table.slice(1), pa.concat_tables([table.slice(0, 1), table.slice(1)]).combine_chunks().slice(1)):
        assert field_hashes(cut).tolist() == GOLDEN[1:]
    coded = table.set_column(0, "id", table.column("id").dictionary_encode())
    assert field_hashes(coded).tolist() == GOLDEN
    assert field_hashes(table.select(table.column_names[::-1])).tolist() == GOLDEN  # by name, not by place
    assert field_hashes(table.append_column("new", pa.nulls(3, pa.int64()))).tolist() == GOLDEN
    for name in table.column_names:
        rows = table.to_pylist()
        other = pa.Table.from_pylist([{**rows[0], name: rows[1][name]}], schema=table.schema)
        assert field_hashes(other)[0] != GOLDEN[0]
    given = field_hashes(table, {"n": np.array([True, False, True])}).tolist()
    assert given[0] == GOLDEN[0] and given[1] == field_hashes(table.drop_columns("n"))[1]


GOLDEN = [4252607465073623014, 7120804602235525020, 10790477790445705489]
