"""Grep and Sum with knobs: add records up, or write sums of records (MorphStream 6.1 and 6.4, TStream 6.1.1).

    Read   (keys)                       returns the sum of `length` records
    Write  (keys, values, sources)      each of `length` records becomes itself + its value + the sum of the sources

A write reads `accesses` records: its own and the accesses - 1 sources, which the writes of one transaction share.
A share of the writes (`multi_access`) has sources, the rest has none. Where `cyclic` is off, a source's place is below
the places that are written, so that no two chains of records wait for each other.

A write aborts when a sum is below zero. All aborts fall to the writes, so abort_ratio is at most 1 - read_ratio.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.workloads.common import Ints, int_keys, lists, split
from penstock.workloads.cost import spin
from penstock.workloads.tuned.knobs import TOO_MUCH, Knobs, ragged

MODULUS = 1_000_003  # keeps sums of sums from growing without end


@dataclass(frozen=True, kw_only=True)
class GrepSum(Knobs):
    name: ClassVar[str] = "gs"
    title: ClassVar[str] = "Grep and Sum"

    length: int = 1
    accesses: int = 2
    multi_access: float = 1.0
    read_ratio: float = 0.0
    cyclic: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for ratio in ("multi_access", "read_ratio"):
            self.need(ratio, 0 <= getattr(self, ratio) <= 1, "from 0 to 1")
        for count in ("length", "accesses"):
            self.need(count, getattr(self, count) >= 1, "at least 1")
        writes = 1 - self.read_ratio
        self.need("abort_ratio", self.abort_ratio <= writes, f"at most the share of writes, {writes:g}")

    def app(self) -> ps.App:
        return app()

    def tables(self) -> dict[str, pa.Table]:
        ids = int_keys(np.arange(self.keys, dtype=np.int64))
        values = np.random.default_rng(self.keys).integers(0, 1000, self.keys)
        return {"Record": pa.table({"id": ids, "value": values})}

    def make(self, rng: np.random.Generator, first: int) -> dict[str, pa.Table]:
        ts = split(rng, self.batch, first, {"Read": self.read_ratio, "Write": 1 - self.read_ratio})
        return {"Read": self._reads(rng, ts["Read"]), "Write": self._writes(rng, ts["Write"])}

    def _reads(self, rng: np.random.Generator, ts: Ints) -> pa.Table:
        keys = int_keys(self.draw(rng, ts.size, self.length))
        return pa.table({"ts": ts, "rounds": self.rounds(rng, ts.size), "keys": lists(keys)})

    def _writes(self, rng: np.random.Generator, ts: Ints) -> pa.Table:
        sources = self.accesses - 1
        places = self.draw(rng, ts.size, sources + self.length)
        if not self.cyclic:
            places = np.sort(places, axis=1)
        keys = int_keys(places)
        values = rng.integers(0, 1000, (ts.size, self.length))
        # It is the last write that aborts, so that the others are undone.
        values[rng.random(ts.size) * (1 - self.read_ratio) < self.abort_ratio, -1] = -TOO_MUCH
        return pa.table(
            {
                "ts": ts,
                "rounds": self.rounds(rng, ts.size),
                "keys": lists(keys[:, sources:]),
                "values": lists(values),
                "sources": ragged(keys[:, :sources], rng.random(ts.size) < self.multi_access),
            }
        )


def app() -> ps.App:
    grep_sum = ps.App("tuned_grep_sum")

    @grep_sum.table
    class Record:
        id: int = ps.key()
        value: int = 0

    @grep_sum.event
    class Read:
        ts: int = ps.order()
        rounds: int
        keys: list[int]

    @grep_sum.event
    class Write:
        ts: int = ps.order()
        rounds: int
        keys: list[int]
        values: list[int]
        sources: list[int]

    @grep_sum.transaction
    def read(e: Read):
        total = 0
        for key in e.keys:
            value = Record[key].value
            total += value + spin(value, e.rounds)
        return {"sum": total}

    @grep_sum.transaction
    def write(e: Write):
        for key, value in zip(e.keys, e.values):
            record = Record[key]
            total = record.value + value + spin(record.value, e.rounds)
            for source in e.sources:
                total += Record[source].value
            ps.require(total >= 0, "negative")
            record.value = total % MODULUS

    return grep_sum
