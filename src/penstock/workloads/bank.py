"""The bank of `penstock demo`: accounts in decimals, deposits and transfers, named by strings.

A batch is made from (seed, number) alone. Deposits to known accounts always commit and transfers
conserve money, so what the bank must hold after any batch follows from the events, without an engine.
"""

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

import penstock as ps

ACCOUNTS = 200
OPENING = Decimal("100.00")


def app() -> "ps.App":
    """The bank of the README, with deposits."""
    bank = ps.App("bank")

    @bank.table
    class Account:
        id: str = ps.key()
        balance: ps.decimal(18, 2) = 0

        @ps.check("insufficient funds")
        def solvent(self):
            return self.balance >= 0

    @bank.event
    class Deposit:
        ts: int = ps.order()
        id: str = ps.id()
        account: str
        amount: ps.decimal(18, 2)

    @bank.event
    class Transfer:
        ts: int = ps.order()
        id: str = ps.id()
        src: str
        dst: str
        amount: ps.decimal(18, 2)

    @bank.transaction
    def deposit(e: Deposit):
        account = Account[e.account]
        account.balance += e.amount
        return {"left": account.balance}

    @bank.transaction
    def transfer(e: Transfer):
        src, dst = Account[e.src], Account[e.dst]
        if src.balance < e.amount:
            ps.abort("not enough")
        src.balance -= e.amount
        dst.balance += e.amount
        return {"left": src.balance}

    return bank


def names() -> list[str]:
    return [f"acc{i:03d}" for i in range(ACCOUNTS)]


def opening() -> pa.Table:
    money = pa.array([OPENING] * ACCOUNTS, pa.decimal128(18, 2))
    return pa.table({"id": names(), "balance": money})


def payments(seed: int, number: int, events: int) -> dict[str, pa.Table]:
    """Batch `number`: three transfers to one deposit; one in a hundred names an account that is not there."""
    rng = random.Random(f"{seed}/{number}")
    known = names()
    rows: dict[str, list[dict[str, Any]]] = {"Deposit": [], "Transfer": []}
    for ts in range(number * events, (number + 1) * events):
        common = {"ts": ts, "id": f"e{ts}"}
        src = "nobody" if rng.random() < 0.01 else rng.choice(known)
        if rng.random() < 0.25:
            rows["Deposit"].append(common | {"account": src, "amount": Decimal(rng.randint(1, 50_00)).scaleb(-2)})
        else:
            amount = Decimal(rng.randint(1, 200_00)).scaleb(-2)
            rows["Transfer"].append(common | {"src": src, "dst": rng.choice(known), "amount": amount})
    money = ("amount", pa.decimal128(18, 2))
    place = [("ts", pa.int64()), ("id", pa.string())]
    return {
        "Deposit": pa.Table.from_pylist(rows["Deposit"], pa.schema([*place, ("account", pa.string()), money])),
        "Transfer": pa.Table.from_pylist(
            rows["Transfer"], pa.schema([*place, ("src", pa.string()), ("dst", pa.string()), money])
        ),
    }
