"""An open database: reports, replays, readers beside a writer, versions, reopening, growth."""

import datetime as dt
import enum
import os
import platform
import resource
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock import database as engine
from penstock.errors import StateError
from penstock.execute import modules
from penstock.state import tables as tables_module
from penstock.testing import assert_same_outcomes, assert_same_tables

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: ps.decimal(18, 2) = 0
    owner: str = "nobody"


@bank.table
class Note:
    account: str = ps.key()
    number: int = ps.key()
    text: str
    day: dt.date = dt.date(2020, 1, 1)
    at: dt.datetime = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


@bank.event
class Transfer:
    ts: int = ps.order()
    id: str = ps.id()
    src: str
    dst: str
    amount: ps.decimal(18, 2)


@bank.event
class Open:
    ts: int = ps.order()
    ids: list[str]
    owner: str


@bank.event
class Close:
    ts: int = ps.order()
    ids: list[str]


@bank.event
class Write:
    ts: int = ps.order()
    account: str
    number: int
    text: str


@bank.transaction
def transfer(e: Transfer):
    src, dst = Account[e.src], Account[e.dst]
    ps.require(src.balance >= e.amount, "not enough")
    src.balance -= e.amount
    dst.balance += e.amount
    return {"left": src.balance}


@bank.transaction
def open_accounts(e: Open):
    for id in e.ids:
        Account.insert(id, owner=e.owner)


@bank.transaction
def close_accounts(e: Close):
    for id in e.ids:
        del Account[id]


@bank.transaction
def write(e: Write):
    if (e.account, e.number) in Note:
        Note[e.account, e.number].text = e.text
    else:
        Note.insert(e.account, e.number, text=e.text)
    return {"owner": Account[e.account].owner}


ACCOUNTS = [{"id": f"a{i}", "balance": 100} for i in range(20)]


def transfers(first: int, count: int = 10) -> list[Any]:
    return [
        Transfer(ts=ts, id=f"t{ts}", src=f"a{ts % 20}", dst=f"a{ts * 7 % 20}", amount=Decimal(ts % 60))
        for ts in range(first, first + count)
    ]


@pytest.fixture
def db() -> Iterator[Any]:
    with bank.open() as opened:
        opened.load(Account, ACCOUNTS)
        yield opened


def contents(db: Any, version: int | None = None) -> dict[str, list[Any]]:
    """Both tables, by key."""
    return {
        name: sorted(db.table(name, version=version).to_pylist(), key=lambda r: tuple(r.values())[:2])
        for name in ("Account", "Note")
    }


def crash(db: Any) -> None:
    """Let go of the directory as a process that dies does: nothing is written, the lock is freed."""
    db._store._journal.close()


# -- the report ---------------------------------------------------------------------------------


def test_the_last_batch_says_what_it_was(db: Any) -> None:
    assert db.last_batch is None
    db.run(
        [
            Transfer(ts=1, id="a", src="a0", dst="a1", amount=5),
            Transfer(ts=2, id="b", src="a0", dst="a2", amount=500),
            Transfer(ts=3, id="c", src="a0", dst="a3", amount=600),
            Transfer(ts=4, id="d", src="zz", dst="a3", amount=1),
        ]
    )
    report = db.last_batch
    assert (report.version, report.events, report.committed, report.changes) == (1, 4, 1, 2)
    assert report.aborted == {"not enough": 2, "missing Account": 1}
    assert report.policy == "serial" and report.why
    assert set(report.seconds) == {"intake", "order", "encode", "execute", "publish", "commit"}
    assert all(s >= 0 for s in report.seconds.values())
    assert "4 events, 1 committed" in str(report) and "not enough: 2" in str(report)
    db.run(transfers(5), policy=ps.Policy.serial())
    assert (db.last_batch.policy, db.last_batch.version) == ("serial", 2)


def test_a_refused_batch_leaves_the_last_report(db: Any) -> None:
    db.run(transfers(1))
    before = db.last_batch
    with pytest.raises(ps.InputError):
        db.run([object()])
    assert db.last_batch is before


# -- batches sent again -------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "durable"])
def test_a_batch_sent_again_changes_nothing(tmp_path: Path, durable: bool) -> None:
    with bank.open(tmp_path / "state" if durable else None) as db:
        db.load(Account, ACCOUNTS)
        first = db.run(transfers(1), id=7)
        second = db.run(transfers(11), id=8)
        before, version = contents(db), db.version
        assert_same_outcomes(db.run(transfers(1), id=7), first)
        assert_same_outcomes(db.run([], id=8), second)  # the id says which batch it is, not its events
        assert (contents(db), db.version) == (before, version)
        assert db.run(transfers(21), id=9)["version"][0].as_py() == 3


def test_memory_does_not_run_a_batch_again_that_it_has_forgotten() -> None:
    with bank.open() as db:
        db.load(Account, ACCOUNTS)
        for k in range(101):
            db.run(transfers(1 + k)[:1], id=k)
        before, version = contents(db), db.version
        for id in (0, -7):
            with pytest.raises(StateError, match=f"batch {id} is not retained any more.* ids must increase"):
                db.run(transfers(1)[:1], id=id)
        assert db.run([], id=1)["version"].to_pylist() == [2]
        assert (contents(db), db.version) == (before, version)
        assert db.run(transfers(200)[:1], id=200)["version"].to_pylist() == [version + 1]


def test_a_batch_sent_again_after_reopening(tmp_path: Path) -> None:
    with bank.open(tmp_path) as db:
        db.load(Account, ACCOUNTS)
        first = db.run(transfers(1), id=1)
    with bank.open(tmp_path) as db:
        assert_same_outcomes(db.run(transfers(1), id=1), first)
        assert db.version == 1


def test_the_reference_replays_too() -> None:
    reference = bank.reference()
    reference.load(Account, ACCOUNTS)
    first = reference.run(transfers(1), id=1)
    assert_same_outcomes(reference.run(transfers(1), id=1), first)
    assert reference.version == 1


# -- readers beside a writer --------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "durable"])
def test_readers_see_whole_batches_and_are_not_starved(tmp_path: Path, durable: bool) -> None:
    """The writer goes on until both have read often enough: whoever had to wait for it to stop would wait forever."""
    stop = threading.Event()
    failures: list[BaseException] = []

    with bank.open(tmp_path / "state" if durable else None, background=False) as db:
        db.load(Account, ACCOUNTS)

        def by_table() -> Any:
            return sum(db.table(Account)["balance"].to_pylist())

        def by_sql() -> Any:
            return db.sql("select sum(balance) as total from account")["total"][0].as_py()

        seen: dict[Any, list[int]] = {by_table: [], by_sql: []}  # the versions that it read

        def reading(read: Any) -> None:
            try:
                while not stop.is_set():
                    total, version = read(), db.version
                    seen[read].append(version)
                    assert total == 2000, f"{total} at version {version}"
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=reading, args=(read,)) for read in seen]
        for thread in threads:
            thread.start()
        ts, hangs = 1, time.monotonic() + 120
        while not failures and not all(len(read) >= 10 and len(set(read)) > 3 for read in seen.values()):
            assert time.monotonic() < hangs, f"readers wait for the writer: {seen}"
            db.run(transfers(ts, 200))
            ts += 200
        stop.set()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive(), "a reader hangs"
    assert not failures, failures


def test_a_view_stays_as_it_was(db: Any) -> None:
    before = db.table(Account)
    rows = before.to_pylist()
    db.run(transfers(1, 50))
    db.run([Close(ts=60, ids=["a0"])])
    assert before.to_pylist() == rows
    assert db.table(Account).num_rows == 19


# -- queries ------------------------------------------------------------------------------------


def test_types_come_through_sql_as_themselves(db: Any) -> None:
    db.run([Write(ts=1, account="a1", number=2, text="Größe 日本 🎉")])
    found = db.sql('select a.id, balance, text, day, "at" from note join account a on a.id = note.account')
    assert found.to_pylist() == [
        {
            "id": "a1",
            "balance": Decimal("100.00"),
            "text": "Größe 日本 🎉",
            "day": dt.date(2020, 1, 1),
            "at": dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
        }
    ]
    assert found.schema.field("balance").type == pa.decimal128(18, 2)
    assert found.schema.field("day").type == pa.date32()
    assert found.schema.field("at").type.tz is not None
    assert db.sql("select count(*) as n from Account where balance > 99.5")["n"].to_pylist() == [20]


# -- versions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("log", ["changes", "input"])
def test_older_versions_can_be_read(tmp_path: Path, log: str) -> None:
    with bank.open(tmp_path, log=log, snapshot_every=3, background=False) as db:
        db.load(Account, ACCOUNTS)
        seen = [contents(db)]
        for k in range(7):
            db.run([*transfers(1 + 10 * k), Open(ts=1000, ids=[f"new{k}"], owner="x")])
            seen.append(contents(db))
        for version, expected in enumerate(seen):
            found = db.table(Account, version=version).to_pylist()
            # Version 0 is what there was before the first batch; whether loads belong to it is not promised.
            if version:
                assert sorted(found, key=lambda r: r["id"]) == expected["Account"]
        total = db.sql("select sum(balance) as s from account", version=3)["s"][0].as_py()
        assert total == 2000
        for absent in (8, 100, -1):
            with pytest.raises(StateError, match=str(absent)):
                db.table(Account, version=absent)


def test_versions_beyond_retain_are_gone(tmp_path: Path) -> None:
    with bank.open(tmp_path, retain=2, snapshot_every=2, background=False) as db:
        db.load(Account, ACCOUNTS)
        for k in range(12):
            db.run(transfers(1 + 10 * k))
        with pytest.raises(StateError, match="version 1"):
            db.table(Account, version=1)
        db.table(Account, version=11)
        assert db.table(Account, version=12).num_rows == 20


def test_memory_keeps_no_older_version(db: Any) -> None:
    db.run(transfers(1))
    db.run(transfers(11))
    assert db.table(Account, version=2).num_rows == 20
    with pytest.raises(StateError, match="memory"):
        db.table(Account, version=1)
    with pytest.raises(StateError, match="memory"):
        db.history(Account, "a1")


# -- reopening ----------------------------------------------------------------------------------


@pytest.mark.parametrize("snapshot_every", [1, 3, 100])
@pytest.mark.parametrize("log", ["changes", "input"])
@pytest.mark.parametrize("end", ["close", "crash"])
def test_reopening_finds_the_same_tables(tmp_path: Path, log: str, snapshot_every: int, end: str) -> None:
    options = {"log": log, "snapshot_every": snapshot_every, "background": False}
    db = bank.open(tmp_path, **options)
    db.load(Account, ACCOUNTS)
    for k in range(5):
        db.run([*transfers(1 + 10 * k), Write(ts=500, account="a1", number=k, text=f"text {k}")])
    db.run([Close(ts=900, ids=["a3", "a4"]), Open(ts=901, ids=["a4", "é"], owner="née")])
    before, version = contents(db), db.version
    db.close() if end == "close" else crash(db)
    with bank.open(tmp_path, **options) as db:
        assert (contents(db), db.version) == (before, version)
        assert db.recovered.version == version
        out = db.run(transfers(1000))
        assert out["version"].to_pylist() == [version + 1] * 10
        after = contents(db)
    with bank.open(tmp_path, **options) as db:
        assert (contents(db), db.version) == (after, version + 1)


# -- batches that are run before they are asked for -------------------------------------------------


def ask(db: Any, k: int, watermark: int | None = None) -> pa.Table:
    return db.run(transfers(10 * k), id=k, source="s", offsets=str(k), watermark=watermark)


def expect(db: Any, k: int, what: int, watermark: int | None = None) -> None:
    """Run batch `what` ahead, under the number k."""
    db.run_ahead(transfers(10 * what), id=k, source="s", offsets=str(what), watermark=watermark)


@pytest.mark.parametrize("watermark", [None, 5])
def test_a_batch_run_ahead_is_the_batch(tmp_path: Path, watermark: int | None) -> None:
    """As expected, not as expected, or not expected: it makes no difference."""
    plain, ahead = bank.open(tmp_path / "plain"), bank.open(tmp_path / "ahead", snapshot_every=3)
    for db in (plain, ahead):
        db.load(Account, ACCOUNTS)
    for k in range(12):
        if k % 4 < 3:
            expect(ahead, k, k if k % 4 < 2 else k + 1, watermark)
        assert_same_outcomes(ask(ahead, k, watermark), ask(plain, k, watermark))
        assert ahead.held == plain.held
        assert contents(ahead) == contents(plain)
    expect(ahead, 12, 12, watermark)
    ahead.close()  # it was never asked for
    with bank.open(tmp_path / "ahead") as again:
        assert contents(again) == contents(plain)
        assert again.held == plain.held
    plain.close()


def test_what_runs_ahead_has_not_happened(tmp_path: Path) -> None:
    with bank.open(tmp_path / "it") as db:
        db.load(Account, ACCOUNTS)
        ask(db, 0)
        before = contents(db)
        heard: list[Any] = []
        ps.observe.subscribe(heard.append)
        try:
            expect(db, 1, 1)
            assert (db.version, db.last_batch.version, db.stored(1), heard) == (1, 1, None, [])
            assert contents(db) == before
            db._view = None  # nor if the view has to be made
            assert contents(db) == before
            ask(db, 1)
            assert [report.version for report in heard] == [2]
            assert contents(db) != before
        finally:
            ps.observe.unsubscribe(heard.append)


def test_the_newest_version_is_read_though_it_is_pruned_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a batch that ran ahead, the newest version is read from the disk: a writer may outrun that."""
    with bank.open(tmp_path / "it", retain=1, snapshot_every=1) as db:
        db.load(Account, ACCOUNTS)
        ask(db, 0)
        tables_at = db._store.tables_at
        asked: list[int] = []

        def outrun(version: int) -> Any:
            if not asked:
                for k in range(1, 6):
                    ask(db, k)
                    if db._store._journal._thread is not None:
                        db._store._journal._thread.join()
                expect(db, 6, 6)
            asked.append(version)
            return tables_at(version)

        monkeypatch.setattr(db._store, "tables_at", outrun)
        expect(db, 1, 1)
        db._view = None
        assert db.view().version == 6
        assert asked == [1, 6]
        with pytest.raises(StateError, match=r"version 1 .* is not retained any more"):
            db.view(1)


def test_a_load_and_an_explanation_take_no_notice_of_what_ran_ahead(tmp_path: Path) -> None:
    with bank.open(tmp_path / "it") as db, bank.open() as other:
        for one in (db, other):
            one.load(Account, ACCOUNTS)
        expect(db, 0, 0)
        assert db.explain(transfers(0), ps.Policy()) == other.explain(transfers(0), ps.Policy())
        expect(db, 0, 0)
        for one in (db, other):
            one.load(Account, [{"id": "new"}])
        assert contents(db) == contents(other)
        assert_same_outcomes(ask(db, 0), ask(other, 0))


def test_without_offsets_the_batch_that_is_given_is_the_one_that_runs(tmp_path: Path) -> None:
    with bank.open(tmp_path / "it") as db, bank.open() as other:
        for one in (db, other):
            one.load(Account, ACCOUNTS)
        db.run_ahead(transfers(50), id=0, source="s")
        assert_same_outcomes(db.run(transfers(10), id=0, source="s"), other.run(transfers(10), id=0))
        assert contents(db) == contents(other)


def test_a_batch_that_cannot_come_next_does_not_run_ahead(tmp_path: Path) -> None:
    """It is passed over, or refused, and the database goes on."""
    with bank.open(tmp_path / "it") as db, bank.open() as other:
        for one in (db, other):
            one.load(Account, ACCOUNTS)
            ask(one, 0)
        expect(db, 0, 0)  # committed already
        for id, source, offsets, why in ((0, "s", "9", "anew"), (1, "t", "1", "query t"), (5, "s", "5", "waits")):
            with pytest.raises(StateError, match=why):
                db.run_ahead(transfers(90), id=id, source=source, offsets=offsets)
        assert_same_outcomes(ask(db, 1), ask(other, 1))
        assert contents(db) == contents(other)


@pytest.mark.parametrize("log", ["input", None])
def test_only_a_log_of_changes_runs_ahead(tmp_path: Path, log: str | None) -> None:
    with bank.open(tmp_path / "it", log=log) if log else bank.open() as db:
        db.load(Account, ACCOUNTS)
        before = contents(db)
        expect(db, 0, 0)
        db.load(Account, [{"id": "new"}])  # a database in memory could not go back
        assert contents(db)["Account"][:20] == before["Account"]


def test_the_log_may_change_between_openings(tmp_path: Path) -> None:
    for k, log in enumerate(["changes", "input", "changes", "input"]):
        with bank.open(tmp_path, log=log) as db:
            if k == 0:
                db.load(Account, ACCOUNTS)
            db.run(transfers(1 + 10 * k))
            seen = contents(db)
    with bank.open(tmp_path) as db:
        assert contents(db) == seen and db.version == 4


def counter(step: int) -> tuple[Any, Any]:
    """An app that counts in steps; another step is another transaction."""
    app = ps.App("counter")

    @app.table
    class Total:
        id: int = ps.key()
        n: int = 0

    @app.event
    class Tick:
        ts: int = ps.order()

    @app.transaction
    def tick(e: Tick):
        Total.get(1).n += step

    return app, Tick


def test_a_log_of_inputs_wants_its_own_transactions_back_after_a_crash(tmp_path: Path) -> None:
    app, Tick = counter(1)
    db = app.open(tmp_path, log="input")
    db.run([Tick(ts=1)])
    crash(db)
    changed, Tick2 = counter(2)
    with pytest.raises(StateError) as caught:
        changed.open(tmp_path, log="input")
    for word in ("counter", "batch 1", "input", "close"):
        assert word in str(caught.value)
    # What the message says to do helps; and the refusal has let go of the directory.
    app.open(tmp_path, log="input").close()
    with changed.open(tmp_path, log="input") as db:
        db.run([Tick2(ts=2)])
        assert db.table("Total").to_pylist() == [{"id": 1, "n": 3}]


@pytest.mark.parametrize("log", ["changes", "input"])
def test_changed_transactions_open_after_a_clean_close(tmp_path: Path, log: str) -> None:
    app, Tick = counter(1)
    with app.open(tmp_path, log=log) as db:
        db.run([Tick(ts=1)])
    changed, Tick2 = counter(10)
    with changed.open(tmp_path, log=log) as db:
        db.run([Tick2(ts=2)])
        assert db.table("Total").to_pylist() == [{"id": 1, "n": 11}]


def test_a_log_of_changes_opens_with_changed_transactions_after_a_crash(tmp_path: Path) -> None:
    app, Tick = counter(1)
    db = app.open(tmp_path)
    db.run([Tick(ts=1)])
    crash(db)
    changed, _ = counter(2)
    with changed.open(tmp_path) as db:
        assert db.table("Total").to_pylist() == [{"id": 1, "n": 1}]


def test_another_app_or_other_tables_are_refused(tmp_path: Path) -> None:
    bank.open(tmp_path).close()
    app, _ = counter(1)
    with pytest.raises(StateError, match="bank"):
        app.open(tmp_path)


def test_a_second_opening_is_refused(tmp_path: Path) -> None:
    with bank.open(tmp_path) as db:
        with pytest.raises(StateError):
            bank.open(tmp_path)
        db.load(Account, ACCOUNTS)
        db.run(transfers(1))
    with bank.open(tmp_path) as db:
        assert db.version == 1


def test_a_closed_database_refuses(tmp_path: Path) -> None:
    for path in (None, tmp_path):
        db = bank.open(path)
        db.load(Account, ACCOUNTS)
        kept = db.table(Account)
        db.close()
        db.close()
        for call in (
            lambda db=db: db.run([]),
            lambda db=db: db.load(Account, []),
            lambda db=db: db.table(Account),
            lambda db=db: db.sql("select 1"),
            lambda db=db: db.run([], id=1),
        ):
            with pytest.raises(StateError, match="closed"):
                call()
        assert kept.num_rows == 20


def test_an_unknown_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="sideways"):
        bank.open(tmp_path, log="sideways")
    bank.open(tmp_path).close()


# -- history ------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", ["changes", "input"])
def test_the_history_of_a_record(tmp_path: Path, log: str) -> None:
    with bank.open(tmp_path, log=log, background=False) as db:
        db.load(Account, ACCOUNTS)
        db.run([Transfer(ts=1, id="x", src="a0", dst="a1", amount=5)])
        db.run([Transfer(ts=2, id="x", src="a2", dst="a3", amount=5)])
        db.run([Close(ts=3, ids=["a1"])])
        db.run([Open(ts=4, ids=["a1"], owner="again")])
        rows = [(r["version"], r["change"], r["balance"], r["owner"]) for r in db.history(Account, "a1").to_pylist()]
        assert rows == [
            (0, "loaded", Decimal("100.00"), "nobody"),
            (1, "written", Decimal("105.00"), "nobody"),
            (3, "deleted", None, None),
            (4, "written", Decimal("0.00"), "again"),
        ]
        assert db.history(Account, "nobody there").num_rows == 0
        with pytest.raises(ps.InputError, match="account, number"):
            db.history(Note, "a1")


# -- growth -------------------------------------------------------------------------------------


def ids(first: int, count: int) -> list[str]:
    return [f"new{i}" for i in range(first, first + count)]


@pytest.mark.parametrize("shape", ["one loop", "many events", "both"])
def test_a_batch_may_insert_more_than_there_is_room_for(shape: str) -> None:
    batch = {
        "one loop": [Open(ts=1, ids=ids(0, 5000), owner="x")],
        "many events": [Open(ts=i, ids=ids(i, 1), owner="x") for i in range(3000)],
        "both": [Open(ts=i, ids=ids(i * 700, 700), owner="x") for i in range(6)],
    }[shape]
    # One that aborts only after it has made the table grow leaves nothing behind.
    batch.append(Open(ts=9999, ids=[*ids(10_000, 9000), "a0"], owner="x"))
    with bank.open() as db, bank.reference() as reference:
        for side in (db, reference):
            side.load(Account, ACCOUNTS)
        assert_same_outcomes(db.run(batch), reference.run(batch))
        assert_same_tables(db.table(Account), reference.table(Account), ["id"])
        assert_same_outcomes(db.run(transfers(1)), reference.run(transfers(1)))


def test_deleted_slots_are_used_again(db: Any) -> None:
    state = db._engine.tables["Account"]
    for k in range(30):
        some = ids(400 * k, 400)
        db.run([Open(ts=1, ids=some, owner="x")])
        db.run([Close(ts=2, ids=some)])
    assert len(state) == 20 and state.capacity == 1024
    assert sum(db.table(Account)["balance"].to_pylist()) == 2000


def test_slots_deleted_and_used_within_one_batch(db: Any) -> None:
    state = db._engine.tables["Account"]
    for k in range(10):
        some = ids(100 * k, 100)
        db.run([e for i in range(2) for e in (Open(ts=2 * i, ids=some, owner="x"), Close(ts=2 * i + 1, ids=some))])
        assert db.last_batch.committed == 4
    assert len(state) == 20 and state.capacity == 1024


def test_strings_that_nobody_holds_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module, "_COMPACT_ABOVE", 64)
    with bank.open() as db, bank.reference() as reference:
        for side in (db, reference):
            side.load(Account, ACCOUNTS)
        for k in range(25):
            batch = [
                *transfers(1000 * k),
                *(Transfer(ts=1000 * k + 50, id=f"x{i}", src=f"missed{k}-{i}", dst="a0", amount=1) for i in range(30)),
                *(Write(ts=1000 * k + 60, account=f"a{i}", number=i, text=f"text {k} {i}") for i in range(20)),
                Open(ts=1000 * k + 70, ids=[f"short{k}", f"long{k}"], owner=f"owner {k}"),
                Close(ts=1000 * k + 80, ids=[f"short{k}"]),
            ]
            assert_same_outcomes(db.run(batch), reference.run(batch))
            assert_same_tables(db.table(Account), reference.table(Account), ["id"])
            assert_same_tables(db.table(Note), reference.table(Note), ["account", "number"])
        # 25 batches met some 1800 texts; about 120 are held.
        assert db._engine.tables.strings.count < 700


def test_strings_are_forgotten_in_a_durable_database_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module, "_COMPACT_ABOVE", 64)
    for log in ("changes", "input"):
        path = tmp_path / log
        db = bank.open(path, log=log, snapshot_every=4, background=False)
        db.load(Account, ACCOUNTS)
        for k in range(10):
            db.run([Write(ts=i, account=f"a{i}", number=k % 3, text=f"text {k} {i}") for i in range(20)])
        before = contents(db)
        crash(db)
        with bank.open(path, log=log) as db:
            assert contents(db) == before
            assert contents(db, version=9) != before


# -- the cache of compiled kernels --------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_a_kernel_is_being_loaded_leaves_the_child_able_to_load() -> None:
    """Another thread may be compiling in the background; the child has its lock, but not the thread."""
    with modules._loading:
        child = os.fork()
        if child == 0:
            try:
                bank.open().close()
                os._exit(0)
            finally:
                os._exit(1)
        deadline = time.monotonic() + 60
        while (done := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        if done[0] == 0:
            os.kill(child, 9)
            os.waitpid(child, 0)
    assert done[0] == child and os.waitstatus_to_exitcode(done[1]) == 0


@pytest.mark.parametrize("kind", ["a file", "read-only", "below a file"])
def test_a_cache_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    if kind == "read-only" and os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    cache = tmp_path / "cache"
    if kind == "read-only":
        cache.mkdir()
        cache.chmod(stat.S_IRUSR | stat.S_IXUSR)
    else:
        cache.write_text("")
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(cache / "deeper" if kind == "below a file" else cache))
    # A step of its own, so that this process has not compiled it yet.
    app, Tick = counter({"a file": 101, "read-only": 102, "below a file": 103}[kind])
    with app.open() as db:
        assert db.run([Tick(ts=1)])["status"].to_pylist() == ["committed"]


# -- names and constants of the user's ----------------------------------------------------------


class Level(str, enum.Enum):  # noqa: UP042 - a StrEnum prints otherwise
    GOLD = "gold"


@ps.udf
def unsigned(x):
    return np.uint64(x)


def names() -> tuple[Any, Any]:
    app = ps.App("names")

    @app.event
    class Odd:
        ts: int = ps.order()
        amount: int
        amount_ok: bool
        lines: list[int]
        lines_at: int

    @app.transaction
    def odd(e: Odd):
        return {"a": e.amount, "b": e.amount_ok, "c": len(e.lines), "d": e.lines_at}

    return app, Odd(ts=1, amount=2, amount_ok=True, lines=[1], lines_at=3)


def enumerations() -> tuple[Any, Any]:
    app = ps.App("enumerations")

    @app.event
    class Rank:
        ts: int = ps.order()
        level: str

    @app.transaction
    def rank(e: Rank):
        return {"golden": e.level == Level.GOLD, "best": Level.GOLD}

    return app, Rank(ts=1, level="gold")


def unsigned_numbers() -> tuple[Any, Any]:
    app = ps.App("unsigned_numbers")

    @app.event
    class Number:
        ts: int = ps.order()
        n: int

    @app.transaction
    def number(e: Number):
        return {"n": unsigned(e.n)}

    return app, Number(ts=1, n=-3)


def test_an_unsigned_result_of_a_udf_is_refused() -> None:
    with pytest.raises(ps.DeclarationError, match="uint64"):
        unsigned_numbers()


@pytest.mark.parametrize("make", [names, enumerations])
def test_unusual_names_and_constants_mean_the_same_on_both_sides(make: Any) -> None:
    app, event = make()
    assert_same_outcomes(app.open().run([event]), app.reference().run([event]))


FREED = """
import resource, sys
import numpy as np
from penstock.execute.memory import keep_what_is_freed
if sys.argv[1] == "kept":
    keep_what_is_freed()
for _ in range(5):  # batches
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(50_000) for _ in range(20)]
    del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has to be told")
@pytest.mark.parametrize("kept", [True, False])
def test_a_batch_finds_the_memory_that_the_one_before_it_freed(kept: bool) -> None:
    """Or it is given back, and touched anew page by page: some 2,000 of them here."""
    words = [sys.executable, "-c", FREED, "kept" if kept else "freed"]
    faults = int(subprocess.run(words, capture_output=True, check=True, text=True).stdout)
    pages = 20 * 400_000 // resource.getpagesize()
    assert faults < 0.1 * pages if kept else faults > 0.5 * pages


def test_a_database_asks_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(engine, "keep_what_is_freed", lambda: asked.append(True))
    with bank.open():
        assert asked


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "durable"])
def test_the_newest_batch_id_is_told(tmp_path: Path, durable: bool) -> None:
    with bank.open(tmp_path / "state" if durable else None) as db:
        assert db.last_id is None
        db.load(Account, ACCOUNTS)
        db.run(transfers(1, 2), id=7)
        db.run(transfers(3, 2))
        assert db.last_id == 7
