"""Table 1: the talent show, votes a second, and whether the boards are right."""

from __future__ import annotations

import copy
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.flow import driven
from benchmarks.flow.places import workplace
from benchmarks.flow.shows import Postgres, Redis, of_penstock, state_of
from benchmarks.pipeline import servers
from benchmarks.pipeline.peers import CannotRun
from penstock.workloads import bind, leaderboard

BATCH = 100_000


@dataclass(frozen=True, slots=True)
class Row:
    arm: str
    durability: str
    votes: int
    per_s: float | None
    right: bool | None  # whether contestants, ballots and boards equal the plain loop's
    note: str = ""


def table1(*, quick: bool = False) -> dict[str, Any]:
    every = 1_000 if quick else leaderboard.EVERY
    many, some, few = (4_000, 2_000, 500) if quick else (500_000, 20_000, 5_000)
    wanted = _wanted({many, some, few, few // 10}, every)
    rows = []
    with workplace() as work:
        arms: list[tuple[str, str, int, Callable[[int], tuple[float, dict[str, Any]]]]] = [
            ("Penstock, 100,000 votes a batch", "one fsync a batch", many, lambda n: _penstock(work, n, every)),
            ("Penstock, a call a vote", "in memory", few, lambda n: _called(None, n, every)),
            ("Penstock, a call a step, socket", "one fsync a call", few // 10, lambda n: _called(work, n, every)),
            ("PostgreSQL, a function a vote", "one fsync a vote", few, _served(work, "postgres", False, every)),
            (
                "PostgreSQL, 1,000 votes a transaction",
                "one fsync a transaction",
                some,
                _served(work, "postgres", True, every),
            ),
            ("Redis, a script a vote", "appendfsync everysec", few, _served(work, "redis", False, every)),
            ("Redis, 1,000 votes a script", "appendfsync everysec", some, _served(work, "redis", True, every)),
        ]
        for name, durability, count, run in arms:
            try:
                seconds, state = run(count)
                row = Row(name, durability, count, count / seconds, state == wanted[count])
            except CannotRun as error:
                row = Row(name, durability, count, None, None, str(error))
            rows.append(row)
            shown = row.note if row.per_s is None else f"{row.per_s:12,.0f} votes/s  {'' if row.right else 'WRONG'}"
            print(f"{name:42} {durability:26} {shown}")
    rates = {row.arm: row.per_s for row in rows if row.per_s}
    ours = rates.pop(rows[0].arm)
    for arm, rate in rates.items():
        print(f"{ours / rate:8.1f} times {arm}")
    return {
        "every": every,
        "durability": "as each says",
        "rows": [asdict(row) for row in rows],
        "ratios": {arm: ours / rate for arm, rate in rates.items()},
    }


def _votes(count: int) -> list[tuple[int, int]]:
    """The beginning of the one stream that all arms take."""
    out: list[tuple[int, int]] = []
    for first in range(0, count, BATCH):
        made = leaderboard.batch(BATCH, first=first)["Vote"].slice(0, count - first)
        out += zip(made["phone"].to_pylist(), made["contestant"].to_pylist(), strict=True)
    return out


def _wanted(counts: set[int], every: int) -> dict[int, dict[str, Any]]:
    """The plain loop's state after so many votes."""
    hand, found = leaderboard.ByHand(every=every), {}
    for number, (phone, contestant) in enumerate(_votes(max(counts)), 1):
        hand.vote(phone, contestant)
        if number in counts:
            found[number] = copy.deepcopy(state_of(hand))
    return found


def _penstock(work: Path, count: int, every: int) -> tuple[float, dict[str, Any]]:
    """Whole batches from Arrow tables to outcomes and fsync, one after the other."""
    app = leaderboard.app(every=every)
    batches = [
        bind(app, {"Vote": leaderboard.batch(BATCH, first=first)["Vote"].slice(0, count - first)})
        for first in range(0, count, BATCH)
    ]
    warm = bind(app, leaderboard.batch(1_000))
    with app.open() as db:
        db.run(warm)
    with app.open(work / "penstock") as db:
        for table, rows in bind(app, leaderboard.tables()).items():
            db.load(table, rows)
        begun = time.perf_counter()
        for batch in batches:
            db.run(batch)
        return time.perf_counter() - begun, of_penstock(db)


def _called(work: Path | None, count: int, every: int) -> tuple[float, dict[str, Any]]:
    """One call after the other: of the vote, which causes the rest; or, through the socket, of each procedure."""
    app, by_steps = driven.show(every) if work else (leaderboard.app(every=every), None)
    votes, vote = _votes(count), next(iter(bind(app, leaderboard.batch(0))))
    with app.open(work / "called", calls=True) if work else app.open() as db:
        db.load("Contestant", leaderboard.tables()["Contestant"])
        caller = app.connect(work / "called") if work else db
        begun = time.perf_counter()
        for ts, (phone, contestant) in enumerate(votes):
            if by_steps:
                by_steps(caller, ts, phone, contestant)
            else:
                caller.call(vote(ts=ts, id=ts, phone=phone, contestant=contestant))
        seconds = time.perf_counter() - begun
        if work:
            caller.close()
        return seconds, of_penstock(db)


def _served(work: Path, kind: str, by_thousands: bool, every: int) -> Callable[[int], tuple[float, dict[str, Any]]]:
    def run(count: int) -> tuple[float, dict[str, Any]]:
        try:
            import psycopg
            import redis
        except ImportError as error:
            raise CannotRun(f"{error.name} is not installed") from error
        del psycopg, redis
        shutil.rmtree(work / kind, ignore_errors=True)
        with servers.postgres(work) if kind == "postgres" else servers.redis(work) as where:
            show = Postgres(where) if kind == "postgres" else Redis(where)
            try:
                votes = _votes(count)
                begun = time.perf_counter()
                (show.by_thousands if by_thousands else show.vote_by_vote)(votes, every)
                return time.perf_counter() - begun, show.state()
            finally:
                show.close()

    return run
