"""One large table of accounts, and deposits to any of them: what `penstock bench --records` measures.

Deposits are all alike, so that what the table holds after any version follows from its number.
"""

from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps

# Odd, so that no two accounts have the same key.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def app(*, string_keys: bool) -> "ps.App":
    key = str if string_keys else int
    bank = ps.App("large")

    @bank.table
    class Account:
        id: key = ps.key()
        balance: int = 0
        visits: int = 0

    @bank.event
    class Deposit:
        ts: int = ps.order()
        account: key
        amount: int

    @bank.transaction
    def deposit(e: Deposit):
        account = Account[e.account]
        account.balance += e.amount
        account.visits += 1

    return bank


def keys(numbers: Any, *, string_keys: bool) -> pa.Array:
    """Of these accounts: ints that lie anywhere, or 16 characters each."""
    spread = numbers.astype(np.uint64) * _SPREAD
    if not string_keys:
        return pa.array(spread.view(np.int64))
    shifts = np.arange(60, -4, -4, dtype=np.uint64)
    text = _DIGITS[((spread[:, None] >> shifts) & np.uint64(15)).astype(np.intp)]
    offsets = np.arange(numbers.size + 1, dtype=np.int32) * 16
    return pa.Array.from_buffers(pa.string(), numbers.size, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def accounts(first: int, stop: int, *, string_keys: bool) -> pa.Table:
    """Rows to load."""
    nothing = np.zeros(stop - first, np.int64)
    ids = keys(np.arange(first, stop), string_keys=string_keys)
    return pa.table({"id": ids, "balance": nothing, "visits": nothing})


def deposits(number: int, events: int, records: int, *, string_keys: bool) -> pa.Table:
    """Batch `number`, of 1 each."""
    ts = np.arange(number * events, (number + 1) * events)
    to = np.random.default_rng(number).integers(0, records, events)
    return pa.table(
        {"ts": ts, "account": keys(to, string_keys=string_keys), "amount": np.ones(events, np.int64)},
    )
