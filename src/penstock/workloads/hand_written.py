"""The hand-written loop for Streaming Ledger: the yardstick of the generated kernel.

    Merged(kind, pos, deposit, transfer)     one batch in ts order, as the loop takes it
        kind[i]  0 deposit, 1 transfer       i-th event in ts order
        pos[i]   row in that type's columns
    Ledger(accounts, assets)                 two hash indices, two columns of numbers
    run(ledger, merged, status, balance)     -> events committed

It does the same job as `streaming_ledger` with int keys: a hash lookup for every record, a missing
record or a shortage aborts, status and new balance are written for every event in ts order. What
an expert leaves out who knows the data, it leaves out: overflow is not checked (amounts are small),
an abort needs no undo (all conditions come before the first write), and columns are read where
Arrow has them. One cache line serves a lookup: key and row lie side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

COMMITTED, NO_MONEY, NO_ASSETS, MISSING_ACCOUNT, MISSING_ASSET = 0, 1, 2, 3, 4
REASONS = (None, "not enough money", "not enough assets", "missing Account", "missing Asset")

DEPOSIT, TRANSFER = 0, 1
EMPTY = -1  # no generated key is negative


@dataclass(frozen=True, slots=True)
class Ledger:
    """State: index slots are (key, row) pairs; a column's row is the record's."""

    account_slots: Ints
    balance: Ints
    asset_slots: Ints
    quantity: Ints


@dataclass(frozen=True, slots=True)
class Merged:
    """One batch; the columns of each type are in the order of the type's fields, ts left out."""

    kind: npt.NDArray[np.uint8]
    pos: npt.NDArray[np.int32]
    deposit: tuple[Ints, ...]
    transfer: tuple[Ints, ...]


def ledger(tables: Mapping[str, pa.Table]) -> Ledger:
    account, asset = tables["Account"], tables["Asset"]
    return Ledger(
        _index(_column(account, "id")),
        _column(account, "balance").copy(),
        _index(_column(asset, "id")),
        _column(asset, "quantity").copy(),
    )


def merge(batch: Mapping[str, pa.Table]) -> Merged:
    deposit, transfer = batch["Deposit"], batch["Transfer"]
    ts = np.concatenate([_column(deposit, "ts"), _column(transfer, "ts")])
    order = np.argsort(ts, kind="stable")
    kind = (order >= deposit.num_rows).astype(np.uint8)
    pos = np.where(kind == TRANSFER, order - deposit.num_rows, order).astype(np.int32)
    return Merged(
        kind,
        pos,
        tuple(_column(deposit, c) for c in deposit.column_names if c != "ts"),
        tuple(_column(transfer, c) for c in transfer.column_names if c != "ts"),
    )


def run(state: Ledger, batch: Merged, status: npt.NDArray[np.uint8], balance: Ints) -> int:
    """Apply one batch; status and balance get an entry an event, in ts order."""
    return int(
        _loop(
            state.account_slots,
            state.balance,
            state.asset_slots,
            state.quantity,
            batch.kind,
            batch.pos,
            *batch.deposit,
            *batch.transfer,
            status,
            balance,
        )
    )


def _column(table: pa.Table, name: str) -> Any:
    return table[name].combine_chunks().to_numpy()


def _index(keys: Ints) -> Ints:
    """At most half full, as most hash tables are kept."""
    capacity = 1 << max(4, (2 * keys.size - 1).bit_length())
    slots = np.full(2 * capacity, EMPTY, np.int64)
    _build(slots, keys)
    return slots


@nb.njit(nogil=True, inline="always")
def _slot(key, mask):
    h = np.uint64(key)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    return h & mask


@nb.njit(nogil=True)
def _build(slots, keys):
    mask = np.uint64(slots.size // 2 - 1)
    for row in range(keys.size):
        h = _slot(keys[row], mask)
        while slots[2 * h] != EMPTY:
            h = (h + np.uint64(1)) & mask
        slots[2 * h] = keys[row]
        slots[2 * h + 1] = row


@nb.njit(nogil=True, inline="always")
def _find(slots, key):
    """The key's row, or -1."""
    mask = np.uint64(slots.size // 2 - 1)
    h = _slot(key, mask)
    while slots[2 * h] != key:
        if slots[2 * h] == EMPTY:
            return np.int64(-1)
        h = (h + np.uint64(1)) & mask
    return slots[2 * h + 1]


@nb.njit(nogil=True)
def _loop(
    accounts, balances, assets, quantities, kind, pos,
    d_account, d_asset, d_amount, d_quantity,
    t_src, t_dst, t_src_asset, t_dst_asset, t_amount, t_quantity,
    status, left,
):  # fmt: skip
    committed = 0
    for i in range(kind.size):
        p = pos[i]
        code = COMMITTED
        if kind[i] == DEPOSIT:
            a, s = _find(accounts, d_account[p]), _find(assets, d_asset[p])
            if a < 0:
                code = MISSING_ACCOUNT
            elif s < 0:
                code = MISSING_ASSET
            else:
                balances[a] += d_amount[p]
                quantities[s] += d_quantity[p]
        else:
            a, b = _find(accounts, t_src[p]), _find(accounts, t_dst[p])
            s, t = _find(assets, t_src_asset[p]), _find(assets, t_dst_asset[p])
            if a < 0 or b < 0:
                code = MISSING_ACCOUNT
            elif s < 0 or t < 0:
                code = MISSING_ASSET
            elif balances[a] < t_amount[p]:
                code = NO_MONEY
            elif quantities[s] < t_quantity[p]:
                code = NO_ASSETS
            else:
                balances[a] -= t_amount[p]
                balances[b] += t_amount[p]
                quantities[s] -= t_quantity[p]
                quantities[t] += t_quantity[p]
        status[i] = code
        if code == COMMITTED:
            left[i] = balances[a]
            committed += 1
        else:
            left[i] = 0
    return committed
