"""The events, the app, and what must come out.

A Streaming Ledger with one table. Half of the events are deposits (one record), half are transfers (two
records, aborted where the source has not enough); one transfer in a hundred asks for more than anyone has.

    ts    kind   src     dst     amount
    0     0      7932    7932    17        deposit: src is not used
    1     1      13      7932    64        transfer

The stream is one sequence: event ts = i is the same whatever the batch size is, so a slow peer that takes
fewer events takes the first ones that the fast peers take.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock.workloads.common import KEY_OFFSET, KEY_STEP, draw, draw_other, int_keys, spoil

ACCOUNTS = 100_000
THETA = 0.6
OPENING = 10_000
TOO_MUCH = 10**12
ABORTS = 0.01
BLOCK = 10_000  # events are made in blocks, each from (seed, number) alone
DEPOSIT, TRANSFER = 0, 1
COLUMNS = ("ts", "kind", "src", "dst", "amount")
SCHEMA = "ts long, kind long, src long, dst long, amount long"


def app() -> ps.App:
    """The job, as a user of Penstock declares it."""
    ledger = ps.App("ledger")

    @ledger.table
    class Account:
        id: int = ps.key()
        balance: int = 0

    @ledger.event
    class Payment:
        ts: int = ps.order()
        kind: int
        src: int
        dst: int
        amount: int

    @ledger.transaction
    def pay(e: Payment):
        dst = Account[e.dst]
        if e.kind == 1:
            src = Account[e.src]
            if src.balance < e.amount:
                ps.abort("not enough")
            src.balance -= e.amount
        dst.balance += e.amount
        return {"balance": dst.balance}

    return ledger


@dataclass(frozen=True)
class Stream:
    """The endless sequence of events; a part of it is named by where it begins and how long it is."""

    accounts: int = ACCOUNTS
    theta: float = THETA
    seed: int = 0

    def opening(self) -> pa.Table:
        keys = int_keys(np.arange(self.accounts, dtype=np.int64))
        return pa.table({"id": keys, "balance": np.full(self.accounts, OPENING, np.int64)})

    def events(self, first: int, count: int) -> pa.Table:
        """Events first … first + count - 1, in order of ts."""
        if count == 0:
            return self._block(0).slice(0, 0)
        blocks = [self._block(b) for b in range(first // BLOCK, (first + count - 1) // BLOCK + 1)]
        return pa.concat_tables(blocks).slice(first % BLOCK, count).combine_chunks()

    def _block(self, number: int) -> pa.Table:
        rng = np.random.default_rng((self.seed, number))
        kind = rng.integers(0, 2, BLOCK)
        dst = draw(rng, BLOCK, self.accounts, self.theta)
        src = np.where(kind == TRANSFER, draw_other(rng, dst, self.accounts, self.theta), dst)
        amount = rng.integers(1, 101, BLOCK)
        amount = np.where(kind == TRANSFER, spoil(rng, amount, ABORTS, TOO_MUCH), amount)
        ts = np.arange(number * BLOCK, (number + 1) * BLOCK, dtype=np.int64)
        return pa.table({"ts": ts, "kind": kind, "src": int_keys(src), "dst": int_keys(dst), "amount": amount})

    def write(self, path: Path, batch: int, batches: int) -> Path:
        """One file a batch; names and times of change in order of ts. Several row groups, so that Spark can split."""
        path.mkdir(parents=True)
        for i in range(batches):
            table = self.events(i * batch, batch)
            pq.write_table(table, path / f"batch-{i:05d}.parquet", row_group_size=max(batch // 4, 1000))
        return path


@dataclass(frozen=True)
class Result:
    """What a peer left behind: a balance for each account, and for each event whether it was done and what it left."""

    balances: np.ndarray  # by place of the account
    ts: np.ndarray
    committed: np.ndarray
    left: np.ndarray  # the balance of dst after the event; 0 where aborted


def places(keys: np.ndarray) -> np.ndarray:
    """The place 0, 1, … of each account."""
    return (keys - KEY_OFFSET) // KEY_STEP


def by_place(keys: pa.Array, balances: pa.Array, accounts: int) -> np.ndarray:
    out = np.full(accounts, OPENING, np.int64)
    out[places(np.asarray(keys))] = np.asarray(balances)
    return out


def plainly(stream: Stream, events: pa.Table) -> Result:
    """One event after the other in plain Python: the witness that knows no engine."""
    balance = [OPENING] * stream.accounts
    src, dst = places(events["src"].to_numpy()).tolist(), places(events["dst"].to_numpy()).tolist()
    done, left = [], []
    for kind, s, d, amount in zip(events["kind"].to_pylist(), src, dst, events["amount"].to_pylist(), strict=True):
        good = kind == DEPOSIT or balance[s] >= amount
        if good:
            if kind == TRANSFER:
                balance[s] -= amount
            balance[d] += amount
        done.append(good)
        left.append(balance[d] if good else 0)
    return Result(np.array(balance), events["ts"].to_numpy(), np.array(done, bool), np.array(left, np.int64))


def by_penstock(stream: Stream, events: pa.Table, batch: int) -> Result:
    """The same events through Penstock in memory: what every peer is compared with."""
    ledger = app()
    with ledger.open() as db:
        db.load("Account", stream.opening())
        outs = [db.run({"Payment": events.slice(i, batch)}) for i in range(0, events.num_rows, batch)]
        table = db.table("Account")
    out = pa.concat_tables([o.select(["ts", "status", "balance"]) for o in outs])
    return result_of(out, by_place(table["id"], table["balance"], stream.accounts))


def result_of(outcomes: pa.Table, balances: np.ndarray) -> Result:
    """From outcomes with (ts, status, balance), in any order."""
    outcomes = outcomes.sort_by("ts")
    status = outcomes["status"].cast(pa.string())
    committed = np.asarray(pa.compute.equal(status, "committed"))
    return Result(balances, outcomes["ts"].to_numpy(), committed, outcomes["balance"].fill_null(0).to_numpy())


def difference(wanted: Result, found: Result) -> str | None:
    """The first thing in which two results differ, in words; None where they are the same."""
    if not np.array_equal(wanted.ts, found.ts):
        return f"outcomes of {found.ts.size} events, not of the {wanted.ts.size} there were"
    for name in ("committed", "left"):
        wrong = np.flatnonzero(getattr(wanted, name) != getattr(found, name))
        if wrong.size:
            i = wrong[0]
            return (
                f"{wrong.size} outcomes differ in '{name}': "
                f"event {wanted.ts[i]} has {getattr(found, name)[i]}, not {getattr(wanted, name)[i]}"
            )
    wrong = np.flatnonzero(wanted.balances != found.balances)
    if wrong.size:
        i = wrong[0]
        return f"{wrong.size} balances differ: account {i} has {found.balances[i]}, not {wanted.balances[i]}"
    return None
