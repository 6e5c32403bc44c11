"""SmallBank: six kinds of banking transactions over savings and checking accounts (Cahill and others; H-Store's mix).

    Balance          15 %   reads both accounts of a customer
    DepositChecking  15 %   adds to checking
    TransactSavings  15 %   adds to or takes from savings; aborts below zero
    Amalgamate       15 %   moves all of one customer's money to another's checking
    WriteCheck       15 %   takes from checking, with a penalty of 1 when both accounts hold too little
    SendPayment      25 %   moves between two checking accounts; aborts when there is not enough

Money is decimal(18, 2). A share of the payments (`abort_ratio`) is more than anyone has.
"""

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.workloads.common import Workload, decimals, draw, draw_other, key_column, key_type, split, spoil

SIZE = 100_000
THETA = 0.6
OPENING_CENTS = 10_000_00
TOO_MUCH_CENTS = 10**15
MIX = {
    "Balance": 15,
    "DepositChecking": 15,
    "TransactSavings": 15,
    "Amalgamate": 15,
    "WriteCheck": 15,
    "SendPayment": 25,
}


def app(keys: str = "int") -> "ps.App":
    Key = key_type(keys)
    bank = ps.App(f"smallbank_{keys}")
    Money = ps.decimal(18, 2)

    @bank.table
    class Savings:
        customer: Key = ps.key()
        balance: Money = 0

        @ps.check("savings below zero")
        def solvent(self):
            return self.balance >= 0

    @bank.table
    class Checking:
        customer: Key = ps.key()
        balance: Money = 0

    @bank.event
    class Balance:
        ts: int = ps.order()
        customer: Key

    @bank.event
    class DepositChecking:
        ts: int = ps.order()
        customer: Key
        amount: Money

    @bank.event
    class TransactSavings:
        ts: int = ps.order()
        customer: Key
        amount: Money

    @bank.event
    class Amalgamate:
        ts: int = ps.order()
        src: Key
        dst: Key

    @bank.event
    class WriteCheck:
        ts: int = ps.order()
        customer: Key
        amount: Money

    @bank.event
    class SendPayment:
        ts: int = ps.order()
        src: Key
        dst: Key
        amount: Money

    @bank.transaction
    def balance(e: Balance):
        return {"balance": Savings[e.customer].balance + Checking[e.customer].balance}

    @bank.transaction
    def deposit_checking(e: DepositChecking):
        ps.require(e.amount >= 0, "negative amount")
        checking = Checking[e.customer]
        checking.balance += e.amount
        return {"balance": checking.balance}

    @bank.transaction
    def transact_savings(e: TransactSavings):
        savings = Savings[e.customer]
        savings.balance += e.amount
        return {"balance": savings.balance}

    @bank.transaction
    def amalgamate(e: Amalgamate):
        savings, checking = Savings[e.src], Checking[e.src]
        total = savings.balance + checking.balance
        savings.balance = 0
        checking.balance = 0
        dst = Checking[e.dst]
        dst.balance += total
        return {"balance": dst.balance}

    @bank.transaction
    def write_check(e: WriteCheck):
        checking = Checking[e.customer]
        if Savings[e.customer].balance + checking.balance < e.amount:
            checking.balance -= e.amount + 1
        else:
            checking.balance -= e.amount
        return {"balance": checking.balance}

    @bank.transaction
    def send_payment(e: SendPayment):
        src, dst = Checking[e.src], Checking[e.dst]
        if src.balance < e.amount:
            ps.abort("not enough")
        src.balance -= e.amount
        dst.balance += e.amount
        return {"balance": src.balance}

    return bank


def tables(*, size: int = SIZE, keys: str = "int") -> dict[str, pa.Table]:
    customers = key_column(np.arange(size, dtype=np.int64), size, keys=keys, prefix="cust")
    rows = pa.table({"customer": customers, "balance": decimals(np.full(size, OPENING_CENTS, np.int64))})
    return {"Savings": rows, "Checking": rows}


def batch(
    events: int,
    *,
    seed: int = 0,
    first: int = 0,
    size: int = SIZE,
    theta: float = THETA,
    abort_ratio: float = 0.01,
    keys: str = "int",
) -> dict[str, pa.Table]:
    rng = np.random.default_rng((seed, first))
    out = {}
    for name, ts in split(rng, events, first, MIX).items():
        who = draw(rng, ts.size, size, theta)
        columns = {"ts": pa.array(ts)}
        pair = name in ("Amalgamate", "SendPayment")
        columns["src" if pair else "customer"] = key_column(who, size, keys=keys, prefix="cust")
        if pair:
            columns["dst"] = key_column(draw_other(rng, who, size, theta), size, keys=keys, prefix="cust")
        cents = rng.integers(1, 100_00, ts.size)
        if name == "TransactSavings":
            cents -= 50_00  # half of them take money out
        elif name == "SendPayment":
            cents = spoil(rng, cents, abort_ratio, TOO_MUCH_CENTS)
        if name not in ("Balance", "Amalgamate"):
            columns["amount"] = decimals(cents)
        out[name] = pa.table(columns)
    return out


WORKLOAD = Workload("smallbank", "SmallBank", app, tables, batch, SIZE, THETA, keys=("int", "str"))
