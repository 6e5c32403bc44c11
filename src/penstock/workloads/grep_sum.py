"""Grep and Sum: read ten records and add them up, or write ten records (TStream 6.1.1).

    Read   (keys)            returns the sum of 10 records
    Write  (keys, values)    sets 10 records

Half and half. A share of the writes (`abort_ratio`) carries a negative last value and aborts
after nine writes, all of which are undone.
"""

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.workloads.common import Workload, draw, int_keys, lists, split, spoil

SIZE = 10_000
THETA = 0.6
LENGTH = 10  # records in one transaction


def app(keys: str = "int") -> "ps.App":
    grep_sum = ps.App("grep_sum")

    @grep_sum.table
    class Record:
        id: int = ps.key()
        value: int = 0

    @grep_sum.event
    class Read:
        ts: int = ps.order()
        keys: list[int]

    @grep_sum.event
    class Write:
        ts: int = ps.order()
        keys: list[int]
        values: list[int]

    @grep_sum.transaction
    def read(e: Read):
        total = 0
        for key in e.keys:
            total += Record[key].value
        return {"sum": total}

    @grep_sum.transaction
    def write(e: Write):
        for key, value in zip(e.keys, e.values):
            ps.require(value >= 0, "negative")
            Record[key].value = value

    return grep_sum


def tables(*, size: int = SIZE, keys: str = "int") -> dict[str, pa.Table]:
    ids = int_keys(np.arange(size, dtype=np.int64))
    return {"Record": pa.table({"id": ids, "value": np.random.default_rng(size).integers(0, 1000, size)})}


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
    ts = split(rng, events, first, {"Read": 0.5, "Write": 0.5})
    reads, writes = ts["Read"].size, ts["Write"].size

    def records(count):
        return lists(int_keys(draw(rng, (count, LENGTH), size, theta)))

    values = rng.integers(0, 1000, (writes, LENGTH))
    values[:, -1] = spoil(rng, values[:, -1], abort_ratio, -1)
    return {
        "Read": pa.table({"ts": ts["Read"], "keys": records(reads)}),
        "Write": pa.table({"ts": ts["Write"], "keys": records(writes), "values": lists(values)}),
    }


WORKLOAD = Workload("gs", "Grep and Sum", app, tables, batch, SIZE, THETA)
