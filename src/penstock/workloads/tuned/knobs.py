"""Knobs: what all tuned workloads let one turn, and how records are drawn from it.

    keys            records of each table                  theta    Zipf skew of the records drawn
    abort_ratio     share of all transactions that abort   batch    events in a batch
    cost_us         of one operation, in microseconds      cost_spread   0.5: each event's cost is within 50 % of it
    partitions      the tables are cut into                multi_partition   share of transactions that cross them
    span            partitions that such a one touches

    place    0   1   2   3   4   5   6   7   …         with 4 partitions
    part     0   1   2   3   0   1   2   3             place % partitions, so key % partitions tells them apart as well

With one partition a record is drawn by Zipf from all of them. With more, a transaction has a home, all homes alike
likely; its j-th record is drawn by Zipf from part home (+ j % span, if it crosses). Each part then has a hot record.

An operation's cost comes before what may abort it, so that an aborted transaction has cost something too.

Batch i depends on (knobs, seed, i) alone. Only the column `rounds` also depends on the machine, and nothing that a
transaction does depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import InputError
from penstock.workloads.common import Ints, draw
from penstock.workloads.cost import rounds_for

if TYPE_CHECKING:
    from penstock.app import App

OPENING = 10**9  # of money, assets and stock: with amounts up to 100, none runs out, and only what is meant to aborts
TOO_MUCH = 10**15  # what no record ever holds


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """The knobs that every workload has; a workload adds its own, and says how its batch is made."""

    name: ClassVar[str]
    title: ClassVar[str]

    keys: int = 100_000
    theta: float = 0.2
    abort_ratio: float = 0.01
    cost_us: float = 10.0
    cost_spread: float = 0.0
    batch: int = 10_240
    partitions: int = 1
    multi_partition: float = 0.0
    span: int = 4

    def __post_init__(self) -> None:
        for ratio in ("abort_ratio", "cost_spread", "multi_partition"):
            self.need(ratio, 0 <= getattr(self, ratio) <= 1, "from 0 to 1")
        for ratio in ("theta", "cost_us"):
            self.need(ratio, getattr(self, ratio) >= 0, "at least 0")
        for count in ("keys", "batch", "partitions"):
            self.need(count, getattr(self, count) >= 1, "at least 1")
        self.need("partitions", self.partitions <= self.keys, f"at most the keys, {self.keys}")
        self.need("span", self.span >= 2, "at least 2")

    def need(self, knob: str, holds: bool, what: str) -> None:
        if not holds:
            raise InputError(f"{self.title}: {knob} is {what}, not {getattr(self, knob)}")

    def app(self) -> App:
        """The app, declared as a user would; it does not depend on the costs, ratios and sizes."""
        raise NotImplementedError

    def tables(self) -> dict[str, pa.Table]:
        """The first rows, by name of the table."""
        raise NotImplementedError

    def make(self, rng: np.random.Generator, first: int) -> dict[str, pa.Table]:
        """One batch, by name of the event, whose ts are first, first + 1, …"""
        raise NotImplementedError

    def events(self, number: int = 0, *, seed: int = 0) -> dict[str, pa.Table]:
        """Batch `number`: its ts go from number * batch."""
        return self.make(np.random.default_rng((seed, number)), number * self.batch)

    def batches(self, seed: int = 0, count: int | None = None) -> Iterator[dict[str, pa.Table]]:
        """Batch 0, 1, …: `count` of them, or without end."""
        number = 0
        while count is None or number < count:
            yield self.events(number, seed=seed)
            number += 1

    def draw(self, rng: np.random.Generator, count: int, width: int) -> Ints:
        """Places of `width` records for each of `count` transactions."""
        if self.partitions == 1:
            return draw(rng, (count, width), self.keys, self.theta)
        home = rng.integers(0, self.partitions, (count, 1))
        crosses = rng.random((count, 1)) < self.multi_partition
        part = (home + np.where(crosses, np.arange(width) % self.span, 0)) % self.partitions
        return draw(rng, (count, width), self.keys // self.partitions, self.theta) * self.partitions + part

    def rounds(self, rng: np.random.Generator, count: int) -> Ints:
        """The cost of one operation of each event, in rounds of `spin`."""
        mean = rounds_for(self.cost_us)
        if self.cost_spread == 0:
            return np.full(count, mean, np.int64)
        return np.round(mean * rng.uniform(1 - self.cost_spread, 1 + self.cost_spread, count)).astype(np.int64)


def apart(places: Ints, keys: int, partitions: int) -> Ints:
    """Columns 0 and 1, 2 and 3, … made to differ: by the next record of the part, or of the next part if it has one."""
    even, odd = places[:, 0::2], places[:, 1::2]
    each = keys // partitions
    others = (odd + (partitions if each > 1 else 1)) % (each * partitions)
    out = places.copy()
    out[:, 1::2] = np.where(even == odd, others, odd)
    return out


def ragged(values: Ints, has: np.ndarray) -> pa.ListArray:
    """A list field from one row of numbers an event; those that have not get an empty list."""
    lengths = np.where(has, values.shape[1], 0)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[has].reshape(-1)))
