"""Scans: loops over a table's records, sums and extremes of them, and the index that `where` reads."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.execute.codegen import generate
from penstock.schedule.policy import Policy
from penstock.state.hashing import ALIVE
from penstock.state.index import ColumnIndex
from penstock.testing import assert_same_outcomes, assert_same_tables, check

show = ps.App("show")


@show.table
class Contestant:
    id: int = ps.key()
    votes: int = 0
    rating: float = 0.0
    team: str = ps.index(default="none")


@show.table
class Board:
    name: str = ps.key()
    place: int = ps.key()
    contestant: int = 0


@show.event
class Vote:
    ts: int = ps.order()
    id: str = ps.id()
    contestant: int
    rating: float
    team: str


@show.event
class Counted:
    contestant: int


@show.event
class Left:
    contestant: int


@show.event
class Ask:
    ts: int = ps.order()
    k: int
    team: str


@show.event
class Leave:
    ts: int = ps.order()
    team: str
    how: int


@show.transaction
def vote(e: Vote):
    c = Contestant.get(e.contestant)
    c.votes += 1
    c.rating = e.rating
    c.team = e.team
    ps.require(e.rating != -1.0, "undone")
    ps.emit(Counted(contestant=e.contestant))


@show.transaction(nested=True)
def board(e: Counted):
    place = 1
    for c in Contestant.top(3, by="votes"):
        Board.get("top", place).contestant = c.id
        place += 1
    for c in Contestant.bottom(1, by="team"):
        Board.get("last", 1).contestant = c.id


@show.transaction
def ask(e: Ask):
    order = 0
    for c in Contestant.top(e.k, by="rating"):
        order = order * 10 + c.id
    return {
        "order": order,
        "of_team": sum(c.votes for c in Contestant.where(team=e.team)),
        "rated": sum((c.rating for c in Contestant if c.rating == c.rating), 0.0),
        "most": max(c.votes for c in Contestant.where(team=e.team)),
        "all": all(e.k != 0 and 10 // e.k > b.place for b in Board.between("top", 1, 2)),
    }


@show.transaction
def leave(e: Leave):
    """Records go, come and change while a scan goes through them."""
    seen = 0
    for c in Contestant.where(team=e.team):
        seen += 1
        if e.how == 1:
            ps.emit(Left(contestant=c.id))
        else:
            here = c.id
            del Contestant[here]
            if here + 100 not in Contestant:
                Contestant.insert(here + 100, votes=seen, team=e.team)
            if e.how == 3:
                seen += c.votes  # missing: c is gone
    return {"seen": seen}


def votes(count: int) -> list[Any]:
    teams = ("red", "blue", "é", "日本", "", "z")
    ratings = (0.5, -1.0, math.nan, 0.0, -0.0, 7.25, math.inf, 0.75)
    out: list[Any] = []
    for i in range(count):
        rating, team = ratings[i * 7 % 8], teams[i * 5 % 6]
        out.append(Vote(ts=i, id=str(i), contestant=i * i % 11 - 3, rating=rating, team=team))
        if i % 3 == 0:
            out.append(Ask(ts=i, k=(1, 0, -1, 4, 2**62, 2)[i // 3 % 6], team=teams[i % 6]))
        if i % 7 == 0:
            out.append(Leave(ts=i, team=teams[i // 7 % 6], how=i // 7 % 5))
    return out


def test_scans_equal_the_reference() -> None:
    given = votes(160)
    outcomes = check(show, batches=[given[:3], [], given[3:100], given[100:]])
    seen = pa.concat_tables(outcomes)
    reasons = set(seen["reason"].to_pylist())
    assert {"missing Contestant", "empty Contestant", "undone"} <= reasons
    assert {True, False, None} == set(seen["all"].to_pylist())


@pytest.mark.parametrize("log", ["changes", "input"])
def test_a_directory_with_scans_opens_again(log: str, tmp_path: Path) -> None:
    given, reference = votes(60), show.reference()
    for batch in (given[:30], given[30:60], given[60:]):
        with show.open(tmp_path / "show", log=log) as db:
            assert_same_outcomes(db.run(batch), reference.run(batch))
            for table in show.program.tables:
                assert_same_tables(db.table(table.name), reference.table(table.name), [c.name for c in table.keys])


simple = ps.App("simple")
END, START, DAY = date(2024, 3, 1), datetime(2024, 1, 1, tzinfo=UTC), timedelta(days=1)


@simple.table
class Item:
    warehouse: int = ps.key()
    name: str = ps.key()
    lot: date = ps.key()
    price: ps.decimal(9, 2) = ps.index()
    fresh: bool = ps.index(default=True)
    made: datetime = datetime(2024, 1, 1, tzinfo=UTC)


@simple.table
class Seen:
    key: int = ps.key()
    text: str = ps.index(default="")
    count: int = 0


@simple.event
class Look:
    ts: int = ps.order()
    warehouse: int
    low: str
    high: str
    since: date
    price: ps.decimal(9, 4)
    fresh: bool


@simple.event
class Fill:
    ts: int = ps.order()
    count: int


@simple.event
class Change:
    ts: int = ps.order()
    warehouse: int
    name: str
    lot: date
    price: ps.decimal(9, 2)
    fails: bool


@simple.transaction
def look(e: Look):
    names, count, last = 0, 0, ""
    for i in Item.between(e.warehouse, e.low, e.high):
        names += 1
        last = i.name
    for _ in Item.between(e.warehouse, "b", e.since, END):
        count += 1
    return {
        "names": names,
        "count": count,
        "last": last,
        "total": sum((i.price for i in Item.where(fresh=e.fresh)), Decimal("0.00")),
        "first": min(i.made for i in Item.between(0, e.warehouse) if i.fresh),
        "loose": sum(i.price for i in Item.bottom(3, by="lot")),
        "nested": max(sum(1 for j in Item if j.price > i.price) for i in Item.top(3, by="made")),
    }


@simple.transaction
def fill(e: Fill):
    for k in range(e.count):
        seen = Seen.get(-(k * 7919 % e.count))
        seen.count += k
        seen.text = "first"
        seen.text = "last"
    return {
        "firsts": sum(1 for s in Seen.where(text="first")),
        "lasts": sum(1 for s in Seen.where(text="last")),
        "count": sum(1 for s in Seen),
        "total": sum(s.count for s in Seen.between(-50, 0)),
    }


@simple.transaction
def change(e: Change):
    if (e.warehouse, e.name, e.lot) in Item:
        i = Item[e.warehouse, e.name, e.lot]
        i.price += e.price
        i.fresh = not i.fresh
    else:
        days = e.warehouse + 1
        Item.insert(e.warehouse, e.name, e.lot, price=e.price, made=START + days * DAY)
    n = sum(1 for i in Item.where(price=e.price))
    ps.require(not e.fails, "fails")
    return {"n": n}


def changes(count: int) -> list[Any]:
    out: list[Any] = []
    for i in range(count):
        name, lot = ("b", "a", "é", "bb")[i * 3 % 4], date(2024, 2, 1) + timedelta(days=i * 5 % 3)
        price = Decimal(i * 7 % 5) / 4
        out.append(Change(ts=i, warehouse=i % 3, name=name, lot=lot, price=price, fails=i % 4 == 1))
        if i % 5 == 2:
            out.append(
                Look(ts=i, warehouse=i % 4 - 1, low="a", high="bé", since=lot, price=price, fresh=i % 2 == 0),
            )
    return out


def test_keys_of_several_columns_and_every_type_equal_the_reference() -> None:
    outcomes = check(simple, batches=[changes(80), [Fill(ts=100, count=3000), *changes(10)]])
    assert {"fails", "empty Item"} <= set(outcomes[0]["reason"].to_pylist())


def test_a_scan_of_many_records_finds_room(tmp_path: Path) -> None:
    count = 40_000
    with simple.open() as db:
        out = db.run([Fill(ts=1, count=count), Fill(ts=2, count=3)])
        assert out["status"].to_pylist() == ["committed"] * 2
        assert out["count"].to_pylist() == out["lasts"].to_pylist() == [count] * 2
        assert out["firsts"].to_pylist() == [0, 0]
        assert db.sql("select sum(count) from Seen where key between -50 and 0").to_pydict() == {
            "sum(count)": [Decimal(out["total"][1].as_py())]
        }


@pytest.mark.parametrize(
    "policy",
    [
        Policy.serial(),
        pytest.param(Policy(threads=2), marks=pytest.mark.long),
        pytest.param(Policy.tstream(2), marks=pytest.mark.long),
        pytest.param(Policy.locking("lal", 2), marks=pytest.mark.long),
    ],
)
def test_a_scan_runs_alone_and_sees_what_threads_wrote(policy: Policy) -> None:
    check(mixed, batches=[mix(40), mix(40)], policy=policy)


mixed = ps.App("mixed")


@mixed.table
class Card:
    id: int = ps.key()
    owner: int = ps.index(default=0)
    spent: int = 0


@mixed.event
class Pay:
    ts: int = ps.order()
    card: int
    amount: int


@mixed.event
class Sum:
    ts: int = ps.order()
    owner: int


@mixed.transaction
def pay(e: Pay):
    card = Card.get(e.card)
    card.spent += e.amount
    card.owner = e.card % 3 + e.amount % 2
    ps.require(e.amount != 5, "five")
    return {"spent": card.spent}


@mixed.transaction
def total(e: Sum):
    return {"spent": sum(c.spent for c in Card.where(owner=e.owner))}


def mix(count: int) -> list[Any]:
    pays = [Pay(ts=i, card=i * i % 13, amount=i % 7) for i in range(count)]
    return pays + [Sum(ts=i, owner=i % 4) for i in range(0, count, 9)]


def test_the_plan_the_batch_and_why_say_that_it_scans() -> None:
    assert "scan Card[*] (serial)" in mixed.explain()
    with mixed.open() as db:
        text = db.explain(mix(4), policy=Policy(threads=2))
        assert "alone, since it has a scan of Card: Sum(" in text
        db.run(mix(4), policy=Policy.adaptive(2))
        assert db.last_batch is not None
        assert db.last_batch.why == "1 of 5 events have a scan of Card, and must run alone"


def test_an_index_that_nobody_asks_costs_nothing() -> None:
    source, layout = generate(indexed(ps.index(default=0)).plan)
    assert (source, layout) == generate(indexed(0).plan)


def test_an_index_that_threads_pass_by_again_and_again_stays_small() -> None:
    index, column, flags = ColumnIndex(), np.arange(4), np.full(4, ALIVE, np.uint8)
    index.build(column, flags, 4)
    room = index.posts.size
    for _ in range(12):  # as in one batch under a graph, before each event that asks the index
        index.forget()
        index.build(column, flags, 4)
    assert index.posts.size == room
    for _ in range(3):  # one event that fills it runs again with more room each time
        index.build(column, flags, 4)
    assert index.posts.size > 4 * room


def indexed(owner: Any) -> ps.App:
    app = ps.App("indexed")

    @app.table
    class Thing:
        id: int = ps.key()
        by: int = owner

    @app.event
    class Put:
        ts: int = ps.order()
        id: int

    @app.transaction
    def put(e: Put) -> None:
        Thing.get(e.id).by += 1

    return app


def test_an_old_directory_takes_an_index(tmp_path: Path) -> None:
    with indexed(0).open(tmp_path / "things") as db:
        db.load("Thing", [{"id": 1, "by": 5}, {"id": 2}])
    with indexed(ps.index(default=0)).open(tmp_path / "things") as db:
        assert db.table("Thing").num_rows == 2


def test_a_table_is_looped_over_in_a_transaction_only() -> None:
    with pytest.raises(ps.PenstockError, match="only inside a transaction"):
        list(Contestant.top(1, by="votes"))
    with pytest.raises(ps.PenstockError, match=r"db\.table\(Contestant\)"):
        sorted(Contestant)  # type: ignore[type-var]


def test_loaded_records_and_those_of_a_new_pool_of_strings_are_found() -> None:
    with show.open() as db:
        db.load(Contestant, [{"id": k, "team": "a" if k % 2 else "b", "votes": k} for k in range(6)])
        ask_a, ask_b = Ask(ts=1, k=1, team="a"), Ask(ts=2, k=1, team="b")
        assert db.run([ask_a, ask_b])["of_team"].to_pylist() == [9, 6]
        db.load(Contestant, [{"id": 7, "team": "a", "votes": 100}])
        db._engine.tables.compact()
        assert db.run([ask_a, ask_b])["of_team"].to_pylist() == [109, 6]
