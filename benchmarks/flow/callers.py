"""Who calls beside a stream: so many calls a second, whatever becomes of those before; here or in another process.

python -m benchmarks.flow.callers DIRECTORY RATE SECONDS    as the other process; begins at a line on its input
"""

import json
import sys
import threading
import time
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps

KEYS = 100_000


def bank() -> tuple[ps.App, Any]:
    app = ps.App("bank")

    @app.table
    class Account:
        id: int = ps.key()
        balance: int = 0
        calls: int = 0

    @app.event
    class Deposit:
        ts: int = ps.order()
        id: int
        amount: int

    @app.event
    class Pay:
        id: int

    @app.transaction
    def deposit(e: Deposit):
        Account.get(e.id).balance += e.amount

    @app.transaction
    def pay(e: Pay):
        account = Account.get(e.id)
        account.calls += 1
        return {"left": account.balance}

    return app, Pay


def deposits(count: int, first: int) -> pa.Table:
    rng = np.random.default_rng((3, first))
    ts = np.arange(first, first + count)
    return pa.table({"ts": ts, "id": rng.integers(0, KEYS, count), "amount": rng.integers(1, 100, count)})


def call_for(pay: Any, caller: Any, rate: int, seconds: float) -> tuple[list[float], float]:
    """Calls at their times; how long each took, from when it should have been made to its answer; and all, in s."""
    waits: list[float] = []
    numbers = count()
    begun = time.perf_counter()

    def work() -> None:
        for number in numbers:  # shared: next() of a count is one step
            at = begun + number / rate
            if at >= begun + seconds:
                return
            time.sleep(max(0.0, at - time.perf_counter()))
            caller.call(pay(id=number * 7919 % KEYS))
            waits.append(time.perf_counter() - at)

    # As many as may wait at a time: those that come in two tenths of a second.
    threads = [threading.Thread(target=work) for _ in range(min(256, max(8, rate // 5)))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return waits, time.perf_counter() - begun


if __name__ == "__main__":
    app, event = bank()
    with app.connect(sys.argv[1]) as connection:
        connection.call(event(id=0))  # warms up
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(call_for(event, connection, int(sys.argv[2]), float(sys.argv[3]))), flush=True)
