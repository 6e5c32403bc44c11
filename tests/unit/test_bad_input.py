"""Input that cannot be taken is an InputError that names it, and nothing of it is applied; an abort stays alone.

Everything runs on the engine and on the reference: the law holds for refusals too.
"""

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

bank = ps.App("bank")
shop = ps.App("shop")


@bank.table
class Account:
    id: str = ps.key()
    balance: ps.decimal(18, 2) = 0
    owner: str = ""


@bank.table
class Visit:
    day: dt.date = ps.key()
    place: int = ps.key()
    count: int


@bank.event
class Deposit:
    ts: int = ps.order()
    id: str = ps.id()
    account: str
    amount: ps.decimal(18, 2)
    parts: list[int]


@bank.event
class Unused:
    ts: int = ps.order()


@bank.transaction
def deposit(e: Deposit):
    account = Account.get(e.account)
    account.balance += e.amount
    total = 0
    for part in e.parts:
        total += 100 // part
    return {"left": account.balance, "total": total, "big": 9223372036854775800 + len(e.parts)}


@shop.event
class Sale:
    ts: int = ps.order()
    n: int


@shop.table
class Till:
    id: int = ps.key()


@shop.transaction
def sale(e: Sale):
    return {"n": e.n}


@pytest.fixture(params=["engine", "reference"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with bank.open() if request.param == "engine" else bank.reference() as opened:
        opened.load(Account, [{"id": "a", "balance": 10}])
        opened.run([one(1)])
        yield opened


def one(ts: int, **given: Any) -> Any:
    values = {"ts": ts, "id": f"t{ts}", "account": "a", "amount": Decimal("1.00"), "parts": [1]} | given
    return Deposit(**values)


def table(**columns: Any) -> pa.Table:
    """Two good rows, but for these columns; None leaves one out."""
    good = {
        "ts": pa.array([2, 3]),
        "id": pa.array(["t2", "t3"]),
        "account": pa.array(["a", "b"]),
        "amount": pa.array([Decimal("1.00"), Decimal("2.00")], pa.decimal128(18, 2)),
        "parts": pa.array([[1], []], pa.list_(pa.int64())),
    }
    return pa.table({k: v for k, v in (good | columns).items() if v is not None})


def unchanged(db: Any) -> None:
    assert db.version == 1
    assert db.table(Account).to_pylist() == [{"id": "a", "balance": Decimal("11.00"), "owner": ""}]
    assert db.table(Visit).num_rows == 0
    (outcome,) = db.run([one(9)]).to_pylist()
    assert (outcome["status"], outcome["version"], outcome["left"]) == ("committed", 2, Decimal("12.00"))


BATCHES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "a missing column": ({Deposit: table(amount=None)}, ("'Deposit'", "'amount'", "missing")),
    "a float for a decimal": ({Deposit: table(amount=pa.array([1.5, 2.5]))}, ("'Deposit'", "'amount'")),
    "a str for an int": ({Deposit: table(ts=pa.array(["2", "3"]))}, ("'Deposit'", "'ts'")),
    "an int for a str": ({Deposit: table(account=pa.array([1, 2]))}, ("'Deposit'", "'account'")),
    "an int for a list": ({Deposit: table(parts=pa.array([1, 2]))}, ("'Deposit'", "'parts'")),
    "a list of str": ({Deposit: table(parts=pa.array([["a"], []]))}, ("'Deposit'", "'parts'")),
    "too many digits": (
        {Deposit: table(amount=pa.array([Decimal("1.00"), Decimal("1.005")], pa.decimal128(18, 3)))},
        ("'amount'",),
    ),
    "a null ts": ({Deposit: table(ts=pa.array([2, None]))}, ("'Deposit'", "'ts'", "row 1", "null")),
    "a null id": ({Deposit: table(id=pa.array(["t2", None]))}, ("'Deposit'", "'id'", "row 1", "null")),
    "a null id of an event": ([one(2), one(3, id=None)], ("event 1", "'id'", "null")),
    "a wrong type in an event": ([one(2), one(3, account=7)], ("event 1", "'account'")),
    "a float in an event": ([one(2, amount=1.5)], ("event 0", "'amount'")),
    "an int that does not fit": ([one(2**63)], ("event 0", "'ts'")),
    "a decimal that does not fit": ([one(2, amount=Decimal(10) ** 17)], ("event 0", "'amount'")),
    "a null within a batch of good ones": ([one(2), one(3), one(4, id=None), one(5)], ("event 2", "'id'")),
    "an unknown event": ({"Withdrawal": table()}, ("'Withdrawal'", "'bank'", "Deposit")),
    "an event of another app": ([Sale(ts=1, n=1)], ("'Sale'", "'bank'")),
    "a table for an event of another app": ({Sale: pa.table({"ts": [1], "n": [1]})}, ("'Sale'", "'bank'")),
    "an event without a transaction": ([Unused(ts=1)], ("'Unused'", "no transaction")),
    "one event, not a list": (one(2), ("list of events",)),
    "a table, not a dict": (table(), ("dict of tables",)),
    "a dict, not an event": ([{"ts": 1}], ("event 0", "not an event")),
    "None": (None, ("list of events",)),
    "an unknown field in rows": ({Deposit: [{"ts": 2, "id": "x", "nothing": 1}]}, ("'Deposit'", "'nothing'")),
}

LOADS: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "an existing key": (Account, [{"id": "b"}, {"id": "a"}], ("'Account'", "'a'", "already")),
    "a key twice": (Account, [{"id": "b"}, {"id": "c"}, {"id": "b"}], ("'Account'", "0 and 2", "'b'")),
    "a composite key twice": (
        Visit,
        [{"day": dt.date(2020, 1, 1), "place": 1, "count": 1}] * 2,
        ("'Visit'", "0 and 1", "same key"),
    ),
    "a null key": (Account, [{"id": "b"}, {"id": None}], ("'Account'", "'id'", "row 1", "null")),
    "a null key in Arrow": (Account, pa.table({"id": pa.array(["b", None])}), ("'Account'", "'id'", "row 1", "null")),
    "a null value": (Account, [{"id": "b", "balance": None}], ("'Account'", "'balance'", "row 0", "null", "default")),
    "a missing key": (Account, [{"balance": 1}], ("'Account'", "'id'", "missing")),
    "a missing required column": (Visit, [{"day": dt.date(2020, 1, 1), "place": 1}], ("'Visit'", "'count'", "missing")),
    "an unknown column": (Account, [{"id": "b", "nothing": 1}], ("'Account'", "'nothing'", "balance")),
    "an unknown column in Arrow": (Account, pa.table({"id": ["b"], "nothing": [1]}), ("'Account'", "'nothing'")),
    "a wrong type": (Account, [{"id": "b", "balance": 1.5}], ("'Account'", "'balance'", "row 0")),
    "a wrong type in Arrow": (Account, pa.table({"id": [1]}), ("'Account'", "'id'")),
    "not rows": (Account, 3, ("'Account'", "list of dicts")),
    "an unknown table": ("Nothing", [{"id": "b"}], ("'bank'", "'Nothing'")),
    "a table of another app": (Till, [{"id": 1}], ("'bank'", "Till")),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batch(db: Any, name: str) -> None:
    batch, words = BATCHES[name]
    with pytest.raises(ps.InputError) as caught:
        db.run(batch)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    unchanged(db)


@pytest.mark.parametrize("name", BATCHES)
def test_batch_with_an_id_can_be_sent_again(db: Any, name: str) -> None:
    with pytest.raises(ps.InputError):
        db.run(BATCHES[name][0], id=5)
    (outcome,) = db.run([one(9)], id=5).to_pylist()
    assert outcome["status"] == "committed"


@pytest.mark.parametrize("name", LOADS)
def test_load(db: Any, name: str) -> None:
    target, rows, words = LOADS[name]
    with pytest.raises(ps.InputError) as caught:
        db.load(target, rows)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    unchanged(db)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ts": 1, "nothing": 1}, ("'Deposit'", "'nothing'", "amount")),
    ],
)
def test_making_an_event(given: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ps.InputError) as caught:
        Deposit(**given)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("given", [{"id": "x"}, {"id": "x", "ts": None}], ids=["left out", "None"])
def test_an_event_without_its_ts_is_no_part_of_a_batch(db: Any, given: dict[str, Any]) -> None:
    with pytest.raises(ps.InputError, match=r"event 0 \(Deposit\), field 'ts': is null; every Deposit needs its ts"):
        db.run([Deposit(**given)])
    unchanged(db)


def test_reading_an_unknown_table(db: Any) -> None:
    with pytest.raises(ps.InputError, match="Nothing"):
        db.table("Nothing")


def test_a_transaction_that_fails_aborts_alone(db: Any) -> None:
    batch = [
        one(2),
        one(3, parts=[1, 0]),  # divides by zero, after the balance was written
        one(4, amount=Decimal("9999999999999999.99"), account="new"),
        one(5, amount=Decimal("9999999999999999.99"), account="new"),  # the second one overflows
        one(6, amount=None),
        one(7, parts=None),
        one(8, parts=[1, None]),
        one(9, parts=[1] * 8),  # the last sum overflows
        one(10, account="other"),
    ]
    outcomes = db.run(batch).to_pylist()
    assert [(o["ts"], o["status"], o["reason"]) for o in outcomes] == [
        (2, "committed", None),
        (3, "aborted", "division by zero"),
        (4, "committed", None),
        (5, "aborted", "overflow"),
        (6, "aborted", "null amount"),
        (7, "aborted", "null parts"),
        (8, "aborted", "null parts"),
        (9, "aborted", "overflow"),
        (10, "committed", None),
    ]
    assert all(o["left"] is None and o["total"] is None for o in outcomes if o["status"] == "aborted")
    left = {r["id"]: r["balance"] for r in db.table(Account).to_pylist()}
    assert left == {"a": Decimal("12.00"), "new": Decimal("9999999999999999.99"), "other": Decimal("1.00")}


def test_a_batch_of_aborts_is_a_version(db: Any) -> None:
    outcomes = db.run([one(2, amount=None)]).to_pylist()
    assert (outcomes[0]["status"], outcomes[0]["version"], db.version) == ("aborted", 2, 2)


@pytest.mark.parametrize("batch", [[], {}, {Deposit: table().slice(0, 0)}], ids=["list", "dict", "table"])
def test_an_empty_batch_is_a_version_without_outcomes(db: Any, batch: Any) -> None:
    outcomes = db.run(batch)
    assert outcomes.num_rows == 0 and db.version == 2
    assert outcomes.column_names[:6] == ["transaction", "ts", "id", "status", "reason", "version"]


def test_an_empty_load_changes_nothing(db: Any) -> None:
    db.load(Account, [])
    db.load(Account, pa.table({"id": pa.array([], pa.string())}))
    unchanged(db)
