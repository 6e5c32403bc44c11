"""Streaming Ledger with knobs: money and assets move between accounts (MorphStream 6.1, TStream 6.1.1).

    Deposit   account += amount                asset += quantity                 length records
    Transfer  src -= amount, dst += amount     the same with two assets          2 * length records
              if src has enough                                                  dst's write reads src too

`length` 2 is the papers': one (account, asset) a deposit, two of each a transfer. More repeats that for lists of them.
`accesses` 2 is the papers': what src has decides what dst gets. Each one more is a guarantor, an account that must
have as much as src.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.workloads.common import Ints, int_keys, lists, split
from penstock.workloads.cost import spin
from penstock.workloads.tuned.knobs import OPENING, TOO_MUCH, Knobs, apart

PLURALS = {"quantity": "quantities"}


@dataclass(frozen=True, kw_only=True)
class StreamingLedger(Knobs):
    name: ClassVar[str] = "sl"
    title: ClassVar[str] = "Streaming Ledger"

    transfer_ratio: float = 0.5
    length: int = 2
    accesses: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.need("transfer_ratio", 0 <= self.transfer_ratio <= 1, "from 0 to 1")
        self.need("length", self.length >= 2 and self.length % 2 == 0, "an even number")
        self.need("accesses", self.accesses >= 2, "at least 2")

    @property
    def plain(self) -> bool:
        """As in the papers, without lists."""
        return self.length == 2 and self.accesses == 2

    def app(self) -> ps.App:
        return plain_app() if self.plain else list_app()

    def tables(self) -> dict[str, pa.Table]:
        ids = int_keys(np.arange(self.keys, dtype=np.int64))
        opening = np.full(self.keys, OPENING, np.int64)
        return {
            "Account": pa.table({"id": ids, "balance": opening}),
            "Asset": pa.table({"id": ids, "quantity": opening}),
        }

    def make(self, rng: np.random.Generator, first: int) -> dict[str, pa.Table]:
        ts = split(rng, self.batch, first, {"Deposit": 1 - self.transfer_ratio, "Transfer": self.transfer_ratio})
        return {"Deposit": self._deposits(rng, ts["Deposit"]), "Transfer": self._transfers(rng, ts["Transfer"])}

    def _deposits(self, rng: np.random.Generator, ts: Ints) -> pa.Table:
        keys = int_keys(self.draw(rng, ts.size, self.length))
        columns = {"account": keys[:, 0::2], "asset": keys[:, 1::2]} | self._amounts(rng, ts.size, -TOO_MUCH)
        return self._table(ts, columns, self.rounds(rng, ts.size))

    def _transfers(self, rng: np.random.Generator, ts: Ints) -> pa.Table:
        guarantors = self.accesses - 2
        places = self.draw(rng, ts.size, 2 * self.length + guarantors)
        keys = int_keys(apart(places[:, guarantors:], self.keys, self.partitions))
        columns = {name: keys[:, i::4] for i, name in enumerate(("src", "dst", "src_asset", "dst_asset"))}
        table = self._table(ts, columns | self._amounts(rng, ts.size, TOO_MUCH), self.rounds(rng, ts.size))
        if self.plain:
            return table
        return table.append_column("guarantors", lists(int_keys(places[:, :guarantors])))

    def _amounts(self, rng: np.random.Generator, count: int, bad: int) -> dict[str, Ints]:
        """Amount and quantity of each move. It is the last move that aborts, so that the others are undone."""
        moves = self.length // 2
        amounts = rng.integers(1, 101, (count, moves))
        amounts[rng.random(count) < self.abort_ratio, -1] = bad
        return {"amount": amounts, "quantity": rng.integers(1, 101, (count, moves))}

    def _table(self, ts: Ints, columns: dict[str, Ints], rounds: Ints) -> pa.Table:
        one = {name: pa.array(np.ascontiguousarray(values[:, 0])) for name, values in columns.items()}
        many = {PLURALS.get(name, f"{name}s"): lists(values) for name, values in columns.items()}
        return pa.table({"ts": ts, "rounds": rounds} | (one if self.plain else many))


def plain_app() -> ps.App:
    ledger = ps.App("tuned_streaming_ledger")

    @ledger.table
    class Account:
        id: int = ps.key()
        balance: int = 0

    @ledger.table
    class Asset:
        id: int = ps.key()
        quantity: int = 0

    @ledger.event
    class Deposit:
        ts: int = ps.order()
        rounds: int
        account: int
        asset: int
        amount: int
        quantity: int

    @ledger.event
    class Transfer:
        ts: int = ps.order()
        rounds: int
        src: int
        dst: int
        src_asset: int
        dst_asset: int
        amount: int
        quantity: int

    @ledger.transaction
    def deposit(e: Deposit):
        account, asset = Account[e.account], Asset[e.asset]
        money = account.balance + e.amount + spin(account.balance, e.rounds)
        if money < 0:
            ps.abort("not enough money")
        account.balance = money
        asset.quantity += e.quantity + spin(asset.quantity, e.rounds)
        return {"balance": account.balance}

    @ledger.transaction
    def transfer(e: Transfer):
        src, dst = Account[e.src], Account[e.dst]
        src_asset, dst_asset = Asset[e.src_asset], Asset[e.dst_asset]
        money = src.balance + spin(src.balance, e.rounds)
        if money < e.amount:
            ps.abort("not enough money")
        assets = src_asset.quantity + spin(src_asset.quantity, e.rounds)
        if assets < e.quantity:
            ps.abort("not enough assets")
        src.balance = money - e.amount
        src_asset.quantity = assets - e.quantity
        dst.balance += e.amount + spin(dst.balance, e.rounds)
        dst_asset.quantity += e.quantity + spin(dst_asset.quantity, e.rounds)
        return {"balance": src.balance}

    return ledger


def list_app() -> ps.App:
    ledger = ps.App("tuned_streaming_ledger_lists")

    @ledger.table
    class Account:
        id: int = ps.key()
        balance: int = 0

    @ledger.table
    class Asset:
        id: int = ps.key()
        quantity: int = 0

    @ledger.event
    class Deposit:
        ts: int = ps.order()
        rounds: int
        accounts: list[int]
        assets: list[int]
        amounts: list[int]
        quantities: list[int]

    @ledger.event
    class Transfer:
        ts: int = ps.order()
        rounds: int
        srcs: list[int]
        dsts: list[int]
        src_assets: list[int]
        dst_assets: list[int]
        amounts: list[int]
        quantities: list[int]
        guarantors: list[int]

    @ledger.transaction
    def deposit(e: Deposit):
        for to, what, amount, quantity in zip(e.accounts, e.assets, e.amounts, e.quantities):
            account, asset = Account[to], Asset[what]
            money = account.balance + amount + spin(account.balance, e.rounds)
            if money < 0:
                ps.abort("not enough money")
            account.balance = money
            asset.quantity += quantity + spin(asset.quantity, e.rounds)

    @ledger.transaction
    def transfer(e: Transfer):
        for a, b, x, y, amount, quantity in zip(e.srcs, e.dsts, e.src_assets, e.dst_assets, e.amounts, e.quantities):
            src, dst, src_asset, dst_asset = Account[a], Account[b], Asset[x], Asset[y]
            money = src.balance + spin(src.balance, e.rounds)
            if money < amount:
                ps.abort("not enough money")
            for guarantor in e.guarantors:
                ps.require(Account[guarantor].balance >= amount, "not guaranteed")
            assets = src_asset.quantity + spin(src_asset.quantity, e.rounds)
            if assets < quantity:
                ps.abort("not enough assets")
            src.balance = money - amount
            src_asset.quantity = assets - quantity
            dst.balance += amount + spin(dst.balance, e.rounds)
            dst_asset.quantity += quantity + spin(dst_asset.quantity, e.rounds)

    return ledger
