"""Histories by the thousand: nothing acknowledged is lost, no answer is wrong, no refusal is without a cause.

A history that fails is made small and printed; `python -m simulation --trace --seed N` prints the whole of it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from simulation.driver import Driver
from simulation.history import Focus, run
from simulation.machine import Weather
from simulation.shrink import shrink
from simulation.sweep import sweep, told

pytestmark = pytest.mark.faults

# About 20 ms each, on one core.
HISTORIES, SHARES = 2400, 8
MANY, MANY_SHARES = 100_000, 50
# Which histories these are is fixed: a red run should speak of the change, not of the draw.
FIRST = 1


def check(first: int, count: int) -> None:
    found = sweep(range(first, first + count))
    print(found)
    if found.wrong:
        pytest.fail(told(shrink(found.wrong[0])), pytrace=False)
    # Fewer would mean that the hooks missed most of what there is.
    assert found.counts["crashes: power"] and found.counts["crashes: kill"] and found.counts["faults: EIO"]
    assert found.counts["answers judged"] > 10 * count


@pytest.mark.parametrize("share", range(SHARES))
def test_no_history_is_wrong(share: int) -> None:
    count = HISTORIES // SHARES
    check(FIRST + share * count, count)


@pytest.mark.long
@pytest.mark.parametrize("share", range(MANY_SHARES))
def test_no_history_of_many_is_wrong(share: int) -> None:
    count = MANY // MANY_SHARES
    check(FIRST + share * count, count)


def test_a_seed_is_the_same_history_in_every_process() -> None:
    command = "from simulation.test_simulation import fingerprint; print(fingerprint())"
    seen = {
        subprocess.run(
            [sys.executable, "-c", command],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    }
    assert seen == {f"{fingerprint()}\n"}


def fingerprint() -> str:
    """Of a few histories, every step."""
    stormy = Focus(Weather(kill=60, power=60, fault=40, slow=8), Driver, intruders=True)
    results = [run(seed, tracing=True) for seed in range(1, 21)]
    results += [run(seed, focus=stormy, tracing=True) for seed in range(1, 11)]
    steps = "\n".join(line for result in results for line in result.trace)
    pid = f"pid {os.getpid()} "
    return hashlib.sha256(steps.replace(pid, "").encode()).hexdigest()
