"""Bank transfers with knobs: TSpoon's default scenario (TSpoon 4 and 5).

    Transfer  (src, dst, amount)    src -= amount, dst += amount; no balance may be below zero

The integrity constraint is the table's check. Accounts are drawn uniformly, nothing aborts and a transfer costs
nothing beyond itself, unless asked for: TSpoon varies the number of accounts (5.5.3), the cost (5.5.4) and the share
that aborts (5.5.5).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.workloads.common import int_keys
from penstock.workloads.cost import spin
from penstock.workloads.tuned.knobs import OPENING, TOO_MUCH, Knobs, apart


@dataclass(frozen=True, kw_only=True)
class BankTransfers(Knobs):
    name: ClassVar[str] = "transfers"
    title: ClassVar[str] = "Bank transfers"

    theta: float = 0.0
    abort_ratio: float = 0.0
    cost_us: float = 0.0

    def app(self) -> ps.App:
        return app()

    def tables(self) -> dict[str, pa.Table]:
        ids = int_keys(np.arange(self.keys, dtype=np.int64))
        return {"Account": pa.table({"id": ids, "balance": np.full(self.keys, OPENING, np.int64)})}

    def make(self, rng: np.random.Generator, first: int) -> dict[str, pa.Table]:
        keys = int_keys(apart(self.draw(rng, self.batch, 2), self.keys, self.partitions))
        amounts = rng.integers(1, 101, self.batch)
        amounts[rng.random(self.batch) < self.abort_ratio] = TOO_MUCH
        return {
            "Transfer": pa.table(
                {
                    "ts": np.arange(first, first + self.batch, dtype=np.int64),
                    "rounds": self.rounds(rng, self.batch),
                    "src": np.ascontiguousarray(keys[:, 0]),
                    "dst": np.ascontiguousarray(keys[:, 1]),
                    "amount": amounts,
                }
            )
        }


def app() -> ps.App:
    bank = ps.App("tuned_bank_transfers")

    @bank.table
    class Account:
        id: int = ps.key()
        balance: int = 0

        @ps.check("insufficient funds")
        def solvent(self):
            return self.balance >= 0

    @bank.event
    class Transfer:
        ts: int = ps.order()
        rounds: int
        src: int
        dst: int
        amount: int

    @bank.transaction
    def transfer(e: Transfer):
        src, dst = Account[e.src], Account[e.dst]
        src.balance -= e.amount + spin(src.balance, e.rounds)
        dst.balance += e.amount + spin(dst.balance, e.rounds)
        return {"left": src.balance}

    return bank
