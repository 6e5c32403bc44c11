"""The published workloads, declared as a user would declare them, with their generators.

    sl   Streaming Ledger      ob   Online Bidding      gs   Grep and Sum
    tp   Toll Processing       smallbank   SmallBank

`hand_written` holds the loop that the generated kernel of Streaming Ledger is compared with. `tuned` holds the same
jobs with a cost for every operation and the knobs of MorphStream's table 5, `dynamic` those that change as they run.
"""

from penstock.workloads import grep_sum, online_bidding, smallbank, streaming_ledger, toll_processing
from penstock.workloads.common import Workload, bind
from penstock.workloads.cost import ns_per_round, rounds_for, spin
from penstock.workloads.dynamic import PHASES, Grouped, Phase, Step, TwoGroups, four_phases, two_groups
from penstock.workloads.tuned import (
    TSTREAM,
    TUNED,
    BankTransfers,
    GrepSum,
    Knobs,
    OnlineBidding,
    StreamingLedger,
    TollProcessing,
    as_workload,
)

WORKLOADS: dict[str, Workload] = {
    module.WORKLOAD.name: module.WORKLOAD
    for module in (streaming_ledger, online_bidding, grep_sum, toll_processing, smallbank)
}

__all__ = [
    "PHASES",
    "TSTREAM",
    "TUNED",
    "WORKLOADS",
    "BankTransfers",
    "GrepSum",
    "Grouped",
    "Knobs",
    "OnlineBidding",
    "Phase",
    "Step",
    "StreamingLedger",
    "TollProcessing",
    "TwoGroups",
    "Workload",
    "as_workload",
    "bind",
    "four_phases",
    "ns_per_round",
    "rounds_for",
    "spin",
    "two_groups",
]
