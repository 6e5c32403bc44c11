"""Many histories, counted: `PYTHONPATH=src:tests python -m simulation --histories 10000 --seed 1`, or `make simulate`.

The first that is wrong is made small and printed step by step: who did what to which file, and when.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from simulation.history import Result, run
from simulation.shrink import shrink
from simulation.sweep import sweep, told


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first; the others follow it")
    parser.add_argument("--trace", action="store_true", help="print every step of the history with --seed")
    parser.add_argument("--shrink", action="store_true", help="make the history with --seed small, and print it")
    parser.add_argument("--go-on", action="store_true", help="count all that are wrong, and name their seeds")
    given = parser.parse_args()
    if given.trace or given.shrink:
        result = run(given.seed, tracing=True)
        show(shrink(result) if given.shrink and result.wrong is not None else result)
        return 0 if result.wrong is None else 1
    begun = time.perf_counter()
    found = sweep(range(given.seed, given.seed + given.histories), wrong_max=given.histories if given.go_on else 1)
    took = time.perf_counter() - begun
    print(found)
    print(f"{took:.1f} s, {found.counts['histories'] / took * 60:,.0f} histories a minute")
    for result in found.wrong if given.go_on else []:
        print(f"seed {result.seed}: {type(result.wrong).__name__} {result.wrong}"[:300])
    if found.wrong and not given.go_on:
        show(shrink(found.wrong[0]))
    return 1 if found.wrong else 0


def show(result: Result) -> None:
    print(told(result) if result.wrong is not None else "\n".join(result.trace))
    if result.wrong is not None:
        traceback.print_exception(result.wrong)


if __name__ == "__main__":
    sys.exit(main())
