"""The papers' workloads with every knob of MorphStream's table 5, for studies of how a batch is scheduled.

    StreamingLedger(theta=0.8, transfer_ratio=1.0).batches(seed=7)

The defaults are MorphStream's (for Online Bidding and bank transfers, TStream's and TSpoon's, as far as they go);
TSTREAM has the settings of TStream 6.2.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from penstock.workloads.common import Workload
from penstock.workloads.tuned.bank_transfers import BankTransfers
from penstock.workloads.tuned.grep_sum import GrepSum
from penstock.workloads.tuned.knobs import Knobs
from penstock.workloads.tuned.online_bidding import OnlineBidding
from penstock.workloads.tuned.streaming_ledger import StreamingLedger
from penstock.workloads.tuned.toll_processing import TollProcessing

TUNED: dict[str, type[Knobs]] = {
    one.name: one for one in (StreamingLedger, OnlineBidding, GrepSum, TollProcessing, BankTransfers)
}

# Its operations do no more than they must; nothing aborts by design. A fourth of the transactions cross four of the
# partitions, one to a core.
_SHARED: dict[str, Any] = {"theta": 0.6, "abort_ratio": 0.0, "cost_us": 0.0, "batch": 500}
_PARTS: dict[str, Any] = {"keys": 10_000, "partitions": 40, "multi_partition": 0.25, "span": 4}
TSTREAM: dict[str, Knobs] = {
    "gs": GrepSum(length=10, accesses=1, read_ratio=0.5, **_SHARED, **_PARTS),
    "sl": StreamingLedger(**_SHARED, **_PARTS),
    "ob": OnlineBidding(**_SHARED, **_PARTS),
    "tp": TollProcessing(**_SHARED | {"theta": 0.2, "keys": 100}),
}


def as_workload(knobs: Knobs) -> Workload:
    """The same as a bare workload, for those who run them all alike."""

    def tables(*, size: int, keys: str = "int") -> dict[str, Any]:
        return replace(knobs, keys=size).tables()

    def batch(events: int, *, first: int, size: int, theta: float, keys: str = "int") -> dict[str, Any]:
        return replace(knobs, batch=events, keys=size, theta=theta).make(np.random.default_rng((0, first)), first)

    return Workload(
        name=knobs.name,
        title=f"{knobs.title} with knobs",
        app=lambda keys="int": knobs.app(),
        tables=tables,
        batch=batch,
        size=knobs.keys,
        theta=knobs.theta,
    )


__all__ = [
    "TSTREAM",
    "TUNED",
    "BankTransfers",
    "GrepSum",
    "Knobs",
    "OnlineBidding",
    "StreamingLedger",
    "TollProcessing",
    "as_workload",
]
