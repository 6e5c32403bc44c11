"""Figure 6: transactions that are part of the one that caused them, next to a client that sends each statement.

S-Store's triggers inside the engine spare a trip between client and engine for each: up to 2.5 times at nine. Here the
client is next to PostgreSQL, and all of one event is one transaction there too; in memory, as nobody waits for a disk.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.flow.chain import BATCH, by_calls, in_batches
from benchmarks.flow.places import workplace
from benchmarks.flow.steps import KEYS, hold_against_python, starts

TRIGGERS = (1, 3, 5, 7, 9)
STEP = "insert into seen{k} values ({key}, 1) on conflict (key) do update set times = seen{k}.times + 1"


def figure(*, quick: bool = False) -> dict[str, Any]:
    from benchmarks.flow.places import CannotRun, postgres

    lengths, batch, calls = ((1, 3), 2_000, 50) if quick else (TRIGGERS, BATCH, 1_000)
    rates = {
        length: {
            "nested, in a batch": in_batches(length, batch, nested=True),
            "nested, a call": by_calls(length, calls, nested=True),
            "a call a step": by_calls(length, calls),
        }
        for length in lengths
    }
    note = ""
    try:
        with workplace() as work, postgres(work) as connection:
            for length in lengths:
                rates[length] |= _statements(connection, length, calls)
    except CannotRun as error:
        note = str(error)
    return {
        "batch": batch,
        "durability": "in memory; PostgreSQL with synchronous_commit = off",
        "note": note,
        "ns_per_trigger": _slope(rates),
        "points": _told(rates, note),
    }


def _statements(connection: Any, length: int, count: int) -> dict[str, float]:
    """The steps as statements of a client, and as one function on the server."""
    steps = range(length + 1)
    body = "; ".join(STEP.format(k=k, key="$1") for k in steps)
    statements = [STEP.format(k=k, key="%s") for k in steps]
    keys = starts(count)["key"].to_pylist()

    def by_client(key: int) -> None:
        with connection.transaction():
            for statement in statements:
                connection.execute(statement, (key,))

    def by_function(key: int) -> None:
        connection.execute("select steps(%s)", (key,))

    found = {}
    for name, run in (("PostgreSQL, statements", by_client), ("PostgreSQL, a function", by_function)):
        for k in steps:
            connection.execute(f"drop table if exists seen{k}")
            connection.execute(f"create table seen{k} (key int primary key, times int not null)")
        connection.execute(f"create or replace function steps(int) returns void language sql as $${body}$$")
        begun = time.perf_counter()
        for key in keys:
            run(key)
        found[name] = count / (time.perf_counter() - begun)
        hold_against_python([_seen(connection, k) for k in steps], [starts(count)])
    return found


def _seen(connection: Any, k: int) -> Any:
    times = np.zeros(KEYS, np.int64)
    for key, n in connection.execute(f"select * from seen{k}").fetchall():
        times[key] = n
    return times


def _slope(rates: dict[int, dict[str, float]]) -> dict[str, float]:
    """What each trigger more takes, ns: from the fewest to the most."""
    few, many = min(rates), max(rates)
    return {arm: (1e9 / rates[many][arm] - 1e9 / rates[few][arm]) / (many - few) for arm in rates[few]}


def _told(rates: dict[int, dict[str, float]], note: str) -> list[dict[str, Any]]:
    print("triggers " + " ".join(f"{arm:>24}" for arm in next(iter(rates.values()))) + "   events a second")
    for length, row in rates.items():
        print(f"{length:8} " + " ".join(f"{rate:24,.0f}" for rate in row.values()))
    print("ns/trig. " + " ".join(f"{ns:24,.0f}" for ns in _slope(rates).values()) + (f"   {note}" if note else ""))
    return [{"steps": length, "arm": arm, "per_s": rate} for length, row in rates.items() for arm, rate in row.items()]
