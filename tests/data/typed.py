"""What type checkers are to know of an app. A line marked `refused` is an error to each of them; no other line is.

It is read by them and never run (test_types.py).
"""

import datetime as dt
import enum
from decimal import Decimal
from typing import assert_type

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock as ps

bank = ps.App("bank")


class Status(enum.Enum):
    OPEN = "open"
    SHUT = "shut"


@bank.table
class Account:
    id: str = ps.key()
    balance: Decimal = ps.decimal(18, 2, default=0)
    since: dt.date = dt.date(2000, 1, 1)

    @ps.check("insufficient funds")
    def solvent(self) -> bool:
        assert_type(self.balance, Decimal)
        return self.balance >= 0

    @ps.function
    def free(self, held: Decimal) -> Decimal:
        return self.balance - held


@bank.table
class Stock:
    warehouse: int = ps.key()
    item: str = ps.key()
    quantity: int = 0
    shelf: int = ps.index()


@bank.event
class Transfer:
    ts: int = ps.order()
    id: str = ps.id()
    src: str
    dst: str
    amount: Decimal = ps.decimal(18, 2)
    tags: list[str]


@bank.table
class Case:
    id: int = ps.key()
    status: Status = Status.OPEN
    note: str | None = None
    fine: Decimal | None = ps.decimal(18, 2)
    owner: str | None = ps.index()


@bank.event
class Note:
    ts: int = ps.order()
    case: int
    text: str | None
    fine: Decimal | None = ps.decimal(18, 2, default=None)
    kind: str = "card"
    status: Status = Status.OPEN


@bank.window(time=600, slide=60)
class Spend:
    account: str = ps.key()
    amount: Decimal = ps.decimal(18, 2)


@bank.window(rows=3)
class Recent:
    amount: Decimal = ps.decimal(18, 2)


@ps.function
def priced(amount: Decimal, rate: Decimal = Decimal("0.05")) -> Decimal:
    return amount * rate


@ps.udf
def fee(quantity: int) -> float:
    return 0.5 * quantity


@bank.transaction
def transfer(e: Transfer) -> dict[str, Decimal]:
    src = Account[e.src]  # one name, one record: mypy would take it for a type
    src.balance -= e.amount
    Account.get(e.dst).balance += e.amount
    return {"left": src.balance}


def records(e: Transfer) -> None:
    account = Account[e.src]
    assert_type(account.balance, Decimal)
    assert_type(account.since, dt.date)
    assert_type(Account.get("a").balance, Decimal)
    assert_type(Account.insert("a", balance=5).id, str)
    assert_type("a" in Account, bool)
    del Account["a"]
    stock = Stock[3, "pen"]
    assert_type(stock.quantity, int)
    del Stock[3, "pen"]
    account.balance = "much"  # refused
    account.balanse  # refused
    account.balanse += 1  # refused
    Account[1.5]  # refused
    Account[None]  # refused
    Account(id="a")  # refused
    Account.update("a")  # refused


def scans(e: Transfer) -> None:
    for account in Account:
        assert_type(account.balance, Decimal)
    for account in Account.top(3, by="balance"):
        assert_type(account.since, dt.date)
        account.balance += 1
        account.balanse  # refused
    for stock in Stock.where(shelf=3):
        assert_type(stock.quantity, int)
        del Stock[stock.warehouse, stock.item]
    assert_type([s.item for s in Stock.between(3, "a", "b")], list[str])
    assert_type(sum(s.quantity for s in Stock.bottom(2, by="quantity")), int)
    assert_type(max(a.balance for a in Account), Decimal)
    Account.top(3)  # refused
    Account.top("3", by="balance")  # refused
    Account.between(None, "b")  # refused
    Stock.where(shelf=[])  # refused


def events(e: Transfer) -> None:
    assert_type(e.amount, Decimal)
    assert_type(e.ts, int)
    assert_type(e.tags, list[str])
    made = Transfer(ts=1, id="t", src="a", dst="b", amount=Decimal(4), tags=[])
    assert_type(made, Transfer)
    Transfer(ts=1, id="t", src="a", dst="b", tags=[])  # refused
    Transfer(ts="1", id="t", src="a", dst="b", amount=Decimal(4), tags=[])  # refused
    Transfer(ts=1, id="t", src="a", dst="b", amount=Decimal(4), tags=[], more=1)  # refused
    Transfer(1, "t", "a", "b", Decimal(4), [])  # refused
    e.amount = Decimal(3)  # refused
    e.amuont  # refused


def nothing(e: Note) -> None:
    case = Case.get(e.case)
    assert_type(case.note, str | None)
    assert_type(case.fine, Decimal | None)
    case.note = e.text
    case.note = None
    case.fine = e.fine
    assert_type(e.text or "none", str)
    if case.fine is not None:
        assert_type(case.fine, Decimal)
    case.fine += 1  # refused
    e.text + "a"  # refused
    Case.insert(1, note=None, fine=None, status=Status.SHUT)
    for one in Case.where(owner=None):
        assert_type(one.status, Status)
    case.status = Status.SHUT
    case.status = "shut"  # refused
    Note(ts=1, case=1, text=None)
    Note(ts=1, case=1, text="a", fine=None, kind="cash", status=Status.SHUT)
    Note(ts=1, case=1)  # refused
    Note(ts=1, case=1, text=None, status="shut")  # refused


def windows(e: Transfer) -> None:
    spend = Spend[e.src]
    spend.add(amount=e.amount)
    assert_type(len(spend), int)
    assert_type(spend.amount.count(), int)
    for row in spend:
        assert_type(row.amount, Decimal)
        row.amuont  # refused
    assert_type(spend.amount.count() + 1, int)
    spend.amount.median()  # refused
    spend.add(5)  # refused
    Spend[1.5]  # refused
    bank.window(rows="3")  # refused
    Recent.add(amount=e.amount)
    assert_type(len(Recent), int)
    assert_type(Recent.amount.count(), int)
    for recent in Recent:
        assert_type(recent.amount, Decimal)
    Recent.add(5)  # refused


@bank.trigger
def entering(w: Recent) -> None:
    assert_type(len(w.entered), int)
    assert_type(w.expired.amount.count(), int)
    for _ in w.entered:
        w.add(amount=Decimal(1))
    w.add(5)  # refused


def functions(e: Transfer) -> None:
    assert_type(transfer(e), dict[str, Decimal])
    assert_type(fee(3), float)
    assert_type(priced(e.amount), Decimal)
    priced("3")  # refused
    priced(e.amount, least=3)  # refused
    assert_type(Account[e.src].free(Decimal(1)), Decimal)
    Account[e.src].free("1")  # refused
    transfer(3)  # refused
    fee("3")  # refused
    ps.decimal(18, 2, default="0")  # refused
    ps.nothing  # refused


def databases(e: Transfer, given: pa.Table) -> None:
    with bank.open("state") as db:
        db.load(Account, [{"id": "a", "balance": 10}, {"id": "b"}])
        db.load(Account, given)
        assert_type(db.run([e, e]), pa.Table)
        assert_type(db.run({Transfer: given}, ps.Policy.serial()), pa.Table)
        assert_type(db.table(Account), pa.Table)
        assert_type(db.sql("select 1"), pa.Table)
        assert_type(db.history(Stock, 3, "pen"), pa.Table)
        db.load(Transfer, [])  # refused
        db.load(Account, 5)  # refused
        db.run(5)  # refused
        db.run([e], policy="serial")  # refused
    bank.open("state", log="everything")  # refused


def streams(spark: SparkSession, frame: DataFrame) -> None:
    source = ps.parquet("in/", files_per_batch=1)
    ps.register(spark)
    assert_type(bank.start({Transfer: source}, state="state", outcomes="out"), StreamingQuery)
    assert_type(bank.start({Transfer: frame}, state="state", outcomes=lambda frame, batch: None), StreamingQuery)
    assert_type(bank.apply({Transfer: frame}, state="state"), DataFrame)
    bank.load(Account, frame, state="state")
    bank.start({Transfer: "in/"}, state="state", outcomes="out")  # refused
    ps.parquet(5)  # refused


class Wrong:
    count: int = ps.decimal(18, 2)  # refused
