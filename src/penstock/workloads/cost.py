"""The cost of an operation: a udf that keeps a core busy, and how long one round of it takes here.

    account.balance += e.amount + spin(account.balance, e.rounds)      adds 0, after `rounds` rounds

`rounds` is a column of the event, so that one kernel serves every cost; `rounds_for(us)` fills it.
A round is one step of xorshift64. From a seed that is not 0 it never comes to 0, which no compiler knows:
what spin gives is always 0, and yet every round must be run to learn it.
"""

import time
from functools import lru_cache

import numpy as np

import penstock as ps

# Long enough (a few milliseconds) to outweigh the clock and the call, short enough to fall between interruptions.
TIMED_ROUNDS = 1_000_000
TRIES = 7


@ps.udf
def spin(x, rounds):
    state = np.uint64(x | 1)
    for _ in range(rounds):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
    return 1 if state == 0 else 0


def rounds_for(us: float) -> int:
    """Rounds that take this many microseconds on this machine."""
    return round(us * 1000 / ns_per_round()) if us else 0


@lru_cache(maxsize=1)
def ns_per_round() -> float:
    """Measured once a process. The best of several tries: whatever disturbs one only makes it slower."""
    run = spin.compiled
    run(1, 1)
    seconds = []
    for _ in range(TRIES):
        begun = time.perf_counter()
        run(1, TIMED_ROUNDS)
        seconds.append(time.perf_counter() - begun)
    return min(seconds) / TIMED_ROUNDS * 1e9
