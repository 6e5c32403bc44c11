"""The stream of `penstock demo`: deposits and transfers, a millisecond apart, that arrive somewhat out of order.

    ts        0      1      2      3      4       when it happened, in milliseconds
    arrives   0.3    1.9    2.1    9.7    4.4     most within the watermark; one in 500 long after it

The stream in order of arrival is cut into batches, and each batch is one file for each type of event.
All of it follows from the seed, so what the bank must hold is known without an engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.workloads.bank import names

DEPOSITS = 0.25  # the share of deposits
UNKNOWN = 0.01  # the share of events that name an account that is not there
TOO_LATE = 0.002  # the share of events that arrive long after the watermark


@dataclass(frozen=True, slots=True)
class Payments:
    watermark: int  # milliseconds
    files: list[dict[str, pa.Table]]  # one a batch: event name -> its rows, in order of arrival
    too_late: pa.Array  # ids of those that were sent long after the watermark

    @property
    def events(self) -> int:
        return sum(table.num_rows for file in self.files for table in file.values())

    def table(self, event: str) -> pa.Table:
        return pa.concat_tables([file[event] for file in self.files])

    def write(self, directory: Path) -> dict[str, str]:
        """A directory for each type of event, as `penstock run --input` takes them."""
        for number, file in enumerate(self.files):
            for event, table in file.items():
                (directory / event).mkdir(parents=True, exist_ok=True)
                pq.write_table(table, directory / event / f"{number:06d}.parquet")
        return {event: str(directory / event) for event in self.files[0]}


def payments(seed: int, batches: int, events: int) -> Payments:
    rng = np.random.default_rng(seed)
    count, watermark = batches * events, max(events // 5, 1)
    delay = np.minimum(rng.exponential(watermark / 8, count), 0.9 * watermark)
    too_late = rng.random(count) < TOO_LATE
    delay[too_late] = rng.uniform(3, 6, int(too_late.sum())) * watermark
    ts = np.arange(count, dtype=np.int64)
    ids = pc.binary_join_element_wise("e", pa.array(ts).cast(pa.string()), "")
    known = pa.array([*names(), "nobody"])
    nobody = len(known) - 1
    src = np.where(rng.random(count) < UNKNOWN, nobody, rng.integers(0, nobody, count))
    dst = rng.integers(0, nobody, count)
    is_deposit = rng.random(count) < DEPOSITS
    cents = np.where(is_deposit, rng.integers(1, 50_00, count), rng.integers(1, 200_00, count))
    common = {"ts": pa.array(ts), "id": ids, "amount": _decimals(cents)}
    deposits = pa.table(common | {"account": known.take(pa.array(src))})
    transfers = pa.table(common | {"src": known.take(pa.array(src)), "dst": known.take(pa.array(dst))})
    files = []
    for places in np.split(np.argsort(ts + delay, kind="stable"), batches):
        mine = is_deposit[places]
        files.append({"Deposit": deposits.take(places[mine]), "Transfer": transfers.take(places[~mine])})
    return Payments(watermark, files, ids.filter(pa.array(too_late)))


def _decimals(cents: Any) -> pa.Array:
    """decimal(18, 2): 16 bytes each, the low half first; the high half of what is not negative is zero."""
    words = np.zeros((cents.size, 2), np.int64)
    words[:, 0] = cents
    return pa.Array.from_buffers(pa.decimal128(18, 2), cents.size, [None, pa.py_buffer(words)])
