"""A small batch's graph and schedule, as golden text. PENSTOCK_UPDATE_GOLDEN=1 writes it anew."""

import os
from pathlib import Path

import pytest

import penstock as ps

GOLDEN = Path(__file__).with_name("batches")

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: int = 0


@bank.event
class Deposit:
    ts: int = ps.order()
    account: str
    amount: int


@bank.event
class Transfer:
    ts: int = ps.order()
    src: str
    dst: str
    amount: int


@bank.transaction
def deposit(e: Deposit):
    Account.get(e.account).balance += e.amount


@bank.transaction
def transfer(e: Transfer):
    src, dst = Account[e.src], Account[e.dst]
    ps.require(src.balance >= e.amount, "not enough")
    src.balance -= e.amount
    dst.balance += e.amount


BATCH = [
    Transfer(ts=1, src="ann", dst="bob", amount=10),
    Deposit(ts=2, account="cleo", amount=5),
    Transfer(ts=3, src="bob", dst="cleo", amount=3),
    Transfer(ts=4, src="dan", dst="dan", amount=1),
    Deposit(ts=5, account="ann", amount=7),
]


@pytest.mark.parametrize(
    "policy",
    [
        "bfs/transaction/eager",
        "dfs/transaction/eager",
        "ready/operation/eager",
        "bfs/operation/lazy",
        "ready/chain/lazy",
    ],
)
def test_the_schedule_of_a_batch(policy: str) -> None:
    with bank.open() as db:
        db.load(Account, [{"id": name, "balance": 100} for name in ("ann", "bob", "dan")])
        before = db.table(Account)
        text = db.explain(BATCH, ps.Policy.parse(policy, threads=2))
        assert db.table(Account).equals(before)
        assert db.version == 0
        file = GOLDEN / f"{policy.replace('/', '-')}.txt"
        if os.environ.get("PENSTOCK_UPDATE_GOLDEN"):
            file.write_text(text)
        assert text == file.read_text()
        outcomes = db.run(BATCH, policy=ps.Policy.parse(policy, threads=2))
        assert outcomes["status"].to_pylist() == ["committed"] * 5
