"""Many histories, counted: `PYTHONPATH=src:tests python -m simulation --histories 10000 --seed 1`.

The first history that is wrong is run again, step by step, and made small.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from simulation.history import Result, run
from simulation.shrink import shrink


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first; the others follow it")
    parser.add_argument("--trace", action="store_true", help="print every step of the history with --seed")
    parser.add_argument("--shrink", action="store_true", help="make the history with --seed small, and print it")
    parser.add_argument("--go-on", action="store_true", help="count all that are wrong, and show none")
    given = parser.parse_args()
    if given.trace or given.shrink:
        result = run(given.seed, tracing=True)
        show(shrink(result) if given.shrink and result.wrong is not None else result)
        return 0 if result.wrong is None else 1
    begun = time.perf_counter()
    total = Counter[str]()
    wrong: list[Result] = []
    for seed in range(given.seed, given.seed + given.histories):
        result = run(seed)
        total["histories"] += 1
        total["operations"] += result.counts.operations
        total["commits"] += result.commits
        total["answers judged"] += result.answers
        total.update({f"crashes: {kind}": n for kind, n in result.counts.crashes.items()})
        total.update({f"faults: {kind}": n for kind, n in result.counts.faults.items()})
        if result.wrong is not None:
            wrong.append(result)
            if not given.go_on:
                break
            what = f"{type(result.wrong).__name__} {result.wrong}"[:240]
            print(f"seed {result.seed} ({result.counts.operations} operations): {what}")
    took = time.perf_counter() - begun
    for what, count in total.items():
        print(f"{what:20} {count:12,}")
    print(f"{'wrong':20} {len(wrong):12,}")
    print(f"{took:.1f} s, {total['histories'] / took * 60:,.0f} histories a minute")
    if wrong and not given.go_on:
        show(shrink(wrong[0]))
    return 1 if wrong else 0


def show(result: Result) -> None:
    print("\n".join(result.trace))
    if result.wrong is not None:
        print(f"seed {result.seed} is wrong:")
        traceback.print_exception(result.wrong)


if __name__ == "__main__":
    sys.exit(main())
