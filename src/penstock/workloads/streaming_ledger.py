"""Streaming Ledger: money and assets move between accounts (TStream 6.1.1, MorphStream figure 1).

    Deposit   (account, asset, amount, quantity)                  adds to 2 records
    Transfer  (src, dst, src_asset, dst_asset, amount, quantity)  moves between 2 + 2 records

Half and half. A transfer aborts when the account or the asset has not enough; a share of the
transfers (`abort_ratio`) asks for more than any account can hold. Money and assets are whole
numbers, and transfers conserve both: their sums grow by the deposits alone.
"""

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.workloads.common import Workload, draw, draw_other, key_column, key_type, split, spoil

SIZE = 100_000
THETA = 0.6
OPENING = 10_000  # of money and of assets; amounts are up to 100, so that few transfers starve
TOO_MUCH = 10**12


def app(keys: str = "int") -> "ps.App":
    Key = key_type(keys)
    ledger = ps.App(f"streaming_ledger_{keys}")

    @ledger.table
    class Account:
        id: Key = ps.key()
        balance: int = 0

    @ledger.table
    class Asset:
        id: Key = ps.key()
        quantity: int = 0

    @ledger.event
    class Deposit:
        ts: int = ps.order()
        account: Key
        asset: Key
        amount: int
        quantity: int

    @ledger.event
    class Transfer:
        ts: int = ps.order()
        src: Key
        dst: Key
        src_asset: Key
        dst_asset: Key
        amount: int
        quantity: int

    @ledger.transaction
    def deposit(e: Deposit):
        account, asset = Account[e.account], Asset[e.asset]
        account.balance += e.amount
        asset.quantity += e.quantity
        return {"balance": account.balance}

    @ledger.transaction
    def transfer(e: Transfer):
        src, dst = Account[e.src], Account[e.dst]
        src_asset, dst_asset = Asset[e.src_asset], Asset[e.dst_asset]
        if src.balance < e.amount:
            ps.abort("not enough money")
        if src_asset.quantity < e.quantity:
            ps.abort("not enough assets")
        src.balance -= e.amount
        dst.balance += e.amount
        src_asset.quantity -= e.quantity
        dst_asset.quantity += e.quantity
        return {"balance": src.balance}

    return ledger


def tables(*, size: int = SIZE, keys: str = "int") -> dict[str, pa.Table]:
    places = np.arange(size, dtype=np.int64)
    opening = pa.array(np.full(size, OPENING, np.int64))
    return {
        "Account": pa.table({"id": key_column(places, size, keys=keys, prefix="acc"), "balance": opening}),
        "Asset": pa.table({"id": key_column(places, size, keys=keys, prefix="ast"), "quantity": opening}),
    }


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
    ts = split(rng, events, first, {"Deposit": 0.5, "Transfer": 0.5})

    def accounts(places):
        return key_column(places, size, keys=keys, prefix="acc")

    def assets(places):
        return key_column(places, size, keys=keys, prefix="ast")

    def amounts(count):
        return rng.integers(1, 101, count)

    n, m = ts["Deposit"].size, ts["Transfer"].size
    src, src_asset = draw(rng, m, size, theta), draw(rng, m, size, theta)
    return {
        "Deposit": pa.table(
            {
                "ts": ts["Deposit"],
                "account": accounts(draw(rng, n, size, theta)),
                "asset": assets(draw(rng, n, size, theta)),
                "amount": amounts(n),
                "quantity": amounts(n),
            }
        ),
        "Transfer": pa.table(
            {
                "ts": ts["Transfer"],
                "src": accounts(src),
                "dst": accounts(draw_other(rng, src, size, theta)),
                "src_asset": assets(src_asset),
                "dst_asset": assets(draw_other(rng, src_asset, size, theta)),
                "amount": spoil(rng, amounts(m), abort_ratio, TOO_MUCH),
                "quantity": amounts(m),
            }
        ),
    }


WORKLOAD = Workload("sl", "Streaming Ledger", app, tables, batch, SIZE, THETA, keys=("int", "str"))
