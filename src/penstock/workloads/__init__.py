"""The published workloads, declared as a user would declare them, with their generators.

    sl   Streaming Ledger      ob   Online Bidding      gs   Grep and Sum
    tp   Toll Processing       smallbank   SmallBank

`hand_written` holds the loop that the generated kernel of Streaming Ledger is compared with.
"""

from penstock.workloads import grep_sum, online_bidding, smallbank, streaming_ledger, toll_processing
from penstock.workloads.common import Workload, bind

WORKLOADS: dict[str, Workload] = {
    module.WORKLOAD.name: module.WORKLOAD
    for module in (streaming_ledger, online_bidding, grep_sum, toll_processing, smallbank)
}

__all__ = ["WORKLOADS", "Workload", "bind"]
