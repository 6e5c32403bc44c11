"""What all workloads share: a noun, skewed keys, and events interleaved in time.

    Workload(name, app, tables, batch)
        app(keys=...)                     -> penstock.App, declared as a user would
        tables(size=..., keys=...)        -> {"Account": Arrow table}, the initial rows
        batch(events, seed=..., first=…)  -> {"Deposit": Arrow table, ...}, one micro-batch

Rows and events are made without an engine, by name; `bind` puts the app's own objects in the
place of the names, which is what `db.load` and `db.run` take.

    rank     0      1      2     …      drawn by Zipf: rank r has weight 1 / (r + 1) ** theta
    place    817    12     40215 …      a fixed shuffle, so that hot records are not neighbours
    key      817 * 7919 + 13            sparse, so that no index can be a mere array

A batch depends on (seed, first) alone: the same pair gives the same batch, and batches can be
made in any order. The shuffle depends on the size alone, so hot records stay hot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.declare.objects import EventType, Table
from penstock.errors import InputError

if TYPE_CHECKING:
    from penstock.app import App

Ints = npt.NDArray[np.int64]
Arrow = Mapping[str, pa.Table]

# An odd step and an offset spread the keys out, as in the prototype of the hand-written loop.
KEY_STEP, KEY_OFFSET = 7919, 13


@dataclass(frozen=True, slots=True)
class Workload:
    """One job to measure: how it is declared, what it starts from, what arrives."""

    name: str
    title: str
    app: Callable[..., App]
    tables: Callable[..., dict[str, pa.Table]]
    batch: Callable[..., dict[str, pa.Table]]
    size: int  # records in the main table, unless told
    theta: float  # Zipf skew, unless told
    keys: tuple[str, ...] = field(default=("int",))  # the key types it can be declared with


def bind(app: App, named: Arrow) -> dict[Any, pa.Table]:
    """The same tables under the app's own objects instead of their names."""
    objects: dict[str, Any] = {d.name: Table(d) for d in app.program.tables}
    objects |= {d.name: EventType(d) for d in app.program.events}
    return {objects[name]: rows for name, rows in named.items()}


def key_type(keys: str) -> type:
    """The Python type that a key column is declared with."""
    if keys not in ("int", "str"):
        raise InputError(f"keys are 'int' or 'str', not {keys!r}")
    return int if keys == "int" else str


def int_keys(places: Ints) -> Ints:
    return places * KEY_STEP + KEY_OFFSET


def key_column(places: Ints, size: int, *, keys: str, prefix: str) -> pa.Array:
    """Places 0 … size - 1 as keys: 13, 7932, … or "acc0000000", "acc0000001", …"""
    if keys == "int":
        return pa.array(int_keys(places))
    return _names(prefix, size).take(pa.array(places))


@lru_cache(maxsize=8)
def _names(prefix: str, size: int) -> pa.Array:
    return pa.array([f"{prefix}{i:07d}" for i in range(size)])


@dataclass(frozen=True, slots=True)
class _Zipf:
    cumulated: npt.NDArray[np.float64]  # probabilities by rank, added up; the last is 1
    guide: npt.NDArray[np.int32]  # for each bin of [0, 1), the rank of its lower end: where the search begins
    place: Ints  # of each rank


@lru_cache(maxsize=32)
def _zipf(size: int, theta: float) -> _Zipf:
    cumulated = np.cumsum(np.arange(1, size + 1, dtype=np.float64) ** -theta)
    cumulated /= cumulated[-1]
    # Bins are a power of two, so that their ends are exact; with some for each rank, few bins hold more than one end.
    bins = 1 << (4 * size - 1).bit_length()
    guide = np.searchsorted(cumulated, np.arange(bins) / bins, side="right").astype(np.int32)
    return _Zipf(cumulated, guide, np.random.default_rng(size).permutation(size))


def draw(rng: np.random.Generator, shape: int | tuple[int, ...], size: int, theta: float) -> Ints:
    """Places of `size` records, skewed by theta; theta 0 is uniform."""
    if theta == 0:
        return rng.integers(0, size, shape)
    zipf, chance = _zipf(size, theta), rng.random(shape)
    drawn = chance.reshape(-1)
    rank = zipf.guide[(drawn * zipf.guide.size).astype(np.int64)]
    # Upwards from the guide, to the first rank whose cumulated probability is above what was drawn.
    low = np.flatnonzero(zipf.cumulated[rank] <= drawn)
    while low.size:
        rank[low] += 1
        low = low[zipf.cumulated[rank[low]] <= drawn[low]]
    return zipf.place[rank].reshape(chance.shape)


def draw_other(rng: np.random.Generator, places: Ints, size: int, theta: float) -> Ints:
    """As many places again, each another than its partner (where there is another)."""
    others = draw(rng, places.shape, size, theta)
    return np.where(others == places, (others + 1) % size, others)


def split(rng: np.random.Generator, events: int, first: int, weights: Mapping[str, float]) -> dict[str, Ints]:
    """The ts of each type's events: first, first + 1, … dealt out at random by weight, increasing in each."""
    names = list(weights)
    shares = np.array(list(weights.values()), dtype=np.float64)
    kind = rng.choice(len(names), size=events, p=shares / shares.sum())
    ts = np.arange(first, first + events, dtype=np.int64)
    return {name: ts[kind == k] for k, name in enumerate(names)}


def spoil(rng: np.random.Generator, values: Ints, ratio: float, bad: int) -> Ints:
    """A share of the values replaced by one that makes its transaction abort."""
    return np.where(rng.random(values.size) < ratio, bad, values)


def lists(values: Ints) -> pa.ListArray:
    """A list field from one row of numbers an event."""
    count, length = values.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(length)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.reshape(-1)))


def decimals(unscaled: Ints, precision: int = 18, scale: int = 2) -> pa.Array:
    """Whole cents as decimals: Arrow's 128-bit form is the int64 and its sign, spread out."""
    words = np.empty((unscaled.size, 2), np.int64)
    words[:, 0], words[:, 1] = unscaled, unscaled >> 63
    return pa.Array.from_buffers(pa.decimal128(precision, scale), unscaled.size, [None, pa.py_buffer(words)])
