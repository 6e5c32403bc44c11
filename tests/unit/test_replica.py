"""A reader beside its writer: every answer is a version that was committed."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: ps.decimal(18, 2) = 0


@bank.table
class Stock:
    w: int = ps.key()
    item: str = ps.key()
    n: int | None = None


@bank.event
class Transfer:
    ts: int = ps.order()
    src: str
    dst: str
    amount: ps.decimal(18, 2)


@bank.event
class Close:
    ts: int = ps.order()
    account: str


@bank.transaction
def transfer(e: Transfer):
    src, dst = Account[e.src], Account.get(e.dst)
    if src.balance < e.amount:
        ps.abort("not enough")
    src.balance -= e.amount
    dst.balance += e.amount


@bank.transaction
def close(e: Close):
    del Account[e.account]


LOADED = [{"id": "a", "balance": 100}, {"id": "b", "balance": 50}]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    with bank.open(tmp_path / "state", retain=3, snapshot_every=2, background=False) as db:
        db.load(Account, LOADED)
        yield db


@pytest.fixture
def reader(db: Any, tmp_path: Path) -> Iterator[ps.Reader]:
    with ps.reader(tmp_path / "state") as reader:
        yield reader


def move(db: Any, src: str, dst: str, amount: int) -> int:
    db.run([Transfer(ts=db.version + 1, src=src, dst=dst, amount=amount)])
    return int(db.version)


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=str)


def account(id_: str, balance: int) -> dict[str, Any]:
    return {"id": id_, "balance": Decimal(balance).quantize(Decimal("0.01"))}


def test_it_follows_the_writer(db: Any, reader: ps.Reader) -> None:
    assert (reader.version, reader.app, reader.get("Account", "a")) == (0, "bank", account("a", 100))
    assert reader.get(Account, "nobody") is None
    for _ in range(7):  # past snapshots and pruning
        version = move(db, "a", "c", 10)
        assert reader.get("Account", "a", at_least=version) == account("a", 100 - 10 * version)
        assert reader.version == version
        assert rows(reader.table("Account")) == rows(db.table(Account))
        assert reader.sql("select sum(balance) s from account").to_pylist() == [{"s": 150}]
    assert reader.get_many("Account", ["c", "x", "a", "c"]) == [
        account("c", 70),
        None,
        account("a", 30),
        account("c", 70),
    ]


def test_a_cut_stays(db: Any, reader: ps.Reader) -> None:
    with reader.cut() as first:
        move(db, "a", "c", 10)
        reader.wait(1)
        with reader.cut() as second:
            db.run([Close(ts=2, account="a"), Transfer(ts=3, src="b", dst="d", amount=1)])
            reader.wait(2)
            assert (first.version, second.version) == (0, 1)
            ids = ["d", "c", "b", "a"]
            assert first.get_many("Account", ids) == [None, None, account("b", 50), account("a", 100)]
            assert second.get_many("Account", ids) == [None, account("c", 10), account("b", 50), account("a", 90)]
            assert reader.get_many("Account", ids) == [account("d", 1), account("c", 10), account("b", 49), None]
            assert rows(second.table("Account")) == [account("a", 90), account("b", 50), account("c", 10)]
        assert rows(first.table("Account")) == [account("a", 100), account("b", 50)]
        assert first.get("Account", "c") is None
        assert first.sql("select count(*) n from account").to_pylist() == [{"n": 2}]
    with pytest.raises(ps.StateError, match="the cut of version 0 is closed"):
        first.get("Account", "a")


def test_keys_of_several_columns_and_nulls(db: Any, reader: ps.Reader) -> None:
    db.load(Stock, [{"w": 1, "item": "x"}, {"w": 1, "item": "y", "n": 3}])
    move(db, "a", "b", 1)
    assert reader.get("Stock", (1, "x"), at_least=1) == {"w": 1, "item": "x", "n": None}
    found, there = reader.get_arrow("Stock", pa.table({"item": ["y", "z"], "w": [1, 1]}))
    assert (found.to_pylist(), list(there)) == ([{"w": 1, "item": "y", "n": 3}], [True, False])
    with pytest.raises(ps.InputError, match=r"has the key \(w, item\); got 1 part"):
        reader.get("Stock", 1)


def test_what_cannot_be_asked(db: Any, reader: ps.Reader) -> None:
    with pytest.raises(ps.InputError, match="has no table 'Nothing'"):
        reader.get("Nothing", 1)
    with pytest.raises(ps.InputError, match="needs str, got 7"):
        reader.get("Account", 7)
    with pytest.raises(ps.NotYetError, match="version 1 has not come within"):
        reader.get("Account", "a", at_least=1, timeout=0.01)
    with pytest.raises(ps.FutureVersionError, match="has no version 1 yet"):
        reader.cut(version=1)
    for _ in range(7):
        move(db, "a", "b", 1)
    with pytest.raises(ps.NotRetainedError):
        reader.table("Account", version=1, at_least=None)
    assert rows(reader.table("Account", version=6)) == [account("a", 94), account("b", 56)]
    reader.close()
    with pytest.raises(ps.StateError, match="is closed"):
        reader.get("Account", "a")


def test_the_feed_gives_each_version_once(db: Any, reader: ps.Reader) -> None:
    changes = reader.follow(after=0)
    move(db, "a", "c", 10)
    move(db, "b", "c", 1000)  # aborts: nothing changes
    db.run([Close(ts=3, account="c")])
    found = [next(changes) for _ in range(3)]
    assert [version for version, _ in found] == [0, 1, 3]
    tables = [tables["Account"].to_pylist() for _, tables in found]
    assert tables[0] == [{"change": "loaded", **account(row["id"], row["balance"])} for row in LOADED]
    assert sorted(tables[1], key=str) == [
        {"change": "written", **account("a", 90)},
        {"change": "written", **account("c", 10)},
    ]
    assert tables[2] == [{"change": "deleted", "id": "c", "balance": None}]


def test_the_history_of_a_record(db: Any, reader: ps.Reader) -> None:
    reader.wait(move(db, "a", "c", 10))
    assert reader.history("Account", "a").select(["version", "change"]).to_pylist() == [
        {"version": 0, "change": "loaded"},
        {"version": 1, "change": "written"},
    ]


def test_an_app_opens_its_own_directory_alone(db: Any, tmp_path: Path) -> None:
    with bank.open(tmp_path / "state", read_only=True) as reader:
        assert reader.get(Account, "a") == account("a", 100)
    with pytest.raises(ps.StateError, match="is of app 'bank', and this is app 'other'"):
        ps.App("other").open(tmp_path / "state", read_only=True)
    with pytest.raises(ps.StateError, match="there is no directory"):
        ps.reader(tmp_path / "nowhere")


def test_lag_says_whether_anyone_writes(tmp_path: Path) -> None:
    with bank.open(tmp_path / "state") as db:
        move_away = move
        db.load(Account, LOADED)
        move_away(db, "a", "b", 1)
        with ps.reader(tmp_path / "state") as reader:
            assert (reader.lag().newest, reader.lag().writer_is_there) == (1, True)
            db.close()
            assert reader.lag().writer_is_there is False
            assert reader.lag().committed_at is not None


def test_batches_that_were_logged_as_their_input_need_the_app(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with bank.open(path, log="input", retain=20, snapshot_every=2, background=False) as db:
        db.load(Account, LOADED)
        move(db, "a", "c", 10)
        with pytest.raises(ps.StateError, match=r"open it with the app: app.open\(path, read_only=True\)"):
            ps.reader(path)
        with bank.open(path, read_only=True) as reader:
            changes = reader.follow(after=0)
            for _ in range(4):
                version = move(db, "a", "c", 10)
                assert reader.get("Account", "a", at_least=version) == account("a", 100 - 10 * version)
                assert rows(reader.table(Account)) == rows(db.table(Account))
            with reader.cut() as cut:
                reader.wait(move(db, "b", "d", 1))
                assert cut.get("Account", "b") == account("b", 50)
            assert rows(reader.table(Account, version=3)) == [account("a", 70), account("b", 50), account("c", 30)]
            assert reader.history("Account", "c").column("version").to_pylist() == [1, 2, 3, 4, 5]
            found = [next(changes) for _ in range(7)]
            assert [version for version, _ in found] == [0, 1, 2, 3, 4, 5, 6]
            assert rows(found[-1][1]["Account"])[-1] == {"change": "written", **account("d", 1)}


def test_a_writer_may_change_how_it_logs(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with bank.open(path) as db:
        db.load(Account, LOADED)
        move(db, "a", "c", 10)
    with ps.reader(path) as without, bank.open(path, read_only=True) as reader:
        changes = reader.follow(after=1)
        with bank.open(path, log="input") as db:
            move(db, "a", "c", 10)
            assert reader.get("Account", "c", at_least=2) == account("c", 20)
            with pytest.raises(ps.StateError, match="was logged as its input"):
                without.wait(2)
            with pytest.raises(ps.StateError, match="was logged as its input"):
                without.get("Account", "c")
            assert next(changes)[0] == 2
        # Closing it has made a snapshot, from which both go on.
        with bank.open(path) as db:
            move(db, "a", "c", 10)
            assert reader.get("Account", "c", at_least=3) == account("c", 30)
            assert next(changes)[0] == 3
