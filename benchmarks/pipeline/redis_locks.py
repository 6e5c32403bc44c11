"""d1, d2: foreachBatch into Redis. The balances are keys there.

d1  A lock a key, as MorphStream's authors gave Flink (6.2.1). One client takes the events in order of ts, so the
    result is right; for each event it takes the locks of its keys in order of key and reads the balances in one
    round trip (SET NX …, MGET), and writes balances and outcome and gives the locks back in another (MULTI … EXEC).
    Other clients that keep to the locks may work on the same accounts.

d2  No locks: a Lua script, which Redis runs alone and whole, takes a thousand events at a time in order of ts.

Both keep the outcomes in Redis with the balances, and skip an event that has one when its batch is sent again.
Redis answers before its log is on disk: appendfsync everysec may lose the last second.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame

from benchmarks.pipeline import servers, session
from benchmarks.pipeline.ledger import COLUMNS, OPENING, TRANSFER, by_place, result_of
from benchmarks.pipeline.peers import CannotRun, Done, Job, Peer

HELD_MS = 30_000  # a lock whose holder died is free again after this
AT_ONCE = 1000  # events a script call

SCRIPT = """
local balance, out = {}, {}
local function read(id)
    if not balance[id] then balance[id] = tonumber(redis.call('GET', 'a:' .. id)) end
    return balance[id]
end
local last = tonumber(redis.call('GET', 'last') or '-1')
for i = 1, #ARGV, 5 do
    local ts, kind, src, dst, amount = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], tonumber(ARGV[i + 4])
    if tonumber(ts) > last then
        local left = ''
        if kind == '0' or read(src) >= amount then
            if kind == '1' then balance[src] = balance[src] - amount end
            balance[dst] = read(dst) + amount
            left = string.format('%d', balance[dst])
        end
        out[#out + 1] = ts
        out[#out + 1] = left
        last = tonumber(ts)
    end
end
local set = {}
for id, value in pairs(balance) do
    set[#set + 1] = 'a:' .. id
    set[#set + 1] = string.format('%d', value)
end
if #set > 0 then redis.call('MSET', unpack(set)) end
if #out > 0 then redis.call('HSET', 'outcomes', unpack(out)) end
redis.call('SET', 'last', string.format('%d', last))
"""


def _rows(events: pa.Table) -> list[tuple[int, ...]]:
    events = events.sort_by("ts")
    return list(zip(*[events[name].to_pylist() for name in COLUMNS], strict=True))


def _outcomes(client: Any, rows: list[tuple[int, ...]]) -> pa.Table:
    """What each event left, from Redis: empty where it was aborted."""
    ts = [row[0] for row in rows]
    left: list[bytes] = []
    for i in range(0, len(ts), 10_000):
        left += client.hmget("outcomes", ts[i : i + 10_000])
    balance = pa.array([int(b) if b else None for b in left], pa.int64())
    status = pa.array(["committed" if b else "aborted" for b in left])
    return pa.table({"ts": pa.array(ts, pa.int64()), "status": status, "balance": balance})


def _with_locks(client: Any, events: pa.Table) -> pa.Table:
    rows = _rows(events)
    token = secrets.token_hex(8)
    last = int(client.get("last") or -1)
    for ts, kind, src, dst, amount in rows:
        if ts <= last:
            continue
        keys = sorted((src, dst)) if kind == TRANSFER else [dst]
        balance = dict(zip(keys, _lock(client, keys, token), strict=True))
        committed = kind != TRANSFER or balance[src] >= amount
        if committed:
            if kind == TRANSFER:
                balance[src] -= amount
            balance[dst] += amount
        with client.pipeline(transaction=True) as pipe:
            if committed:
                pipe.mset({f"a:{key}": value for key, value in balance.items()})
            pipe.hset("outcomes", ts, balance[dst] if committed else "")
            pipe.set("last", ts)
            pipe.delete(*[f"l:{key}" for key in keys])
            pipe.execute()
    return _outcomes(client, rows)


def _lock(client: Any, keys: list[int], token: str) -> list[int]:
    """Take the locks, in order of key; the balances behind them."""
    while True:
        with client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.set(f"l:{key}", token, nx=True, px=HELD_MS)
            pipe.mget([f"a:{key}" for key in keys])
            *taken, balances = pipe.execute()
        if all(taken):
            return [int(b) for b in balances]
        ours = [f"l:{key}" for key, mine in zip(keys, taken, strict=True) if mine]
        if ours:
            client.delete(*ours)


def _with_scripts(client: Any, events: pa.Table) -> pa.Table:
    rows = _rows(events)
    script = client.register_script(SCRIPT)
    for i in range(0, len(rows), AT_ONCE):
        script(args=[word for row in rows[i : i + AT_ONCE] for word in row])
    return _outcomes(client, rows)


def _run(job: Job, apply: Callable[[Any, pa.Table], pa.Table]) -> Done:
    try:
        import redis
    except ImportError as error:
        raise CannotRun("the Redis client is not installed: pip install 'redis[hiredis]'") from error
    out: Path = job.work / "outcomes"
    with servers.redis(job.work) as where, redis.Redis(**where) as client:
        opening = job.stream.opening()
        ids = opening["id"].to_pylist()
        for i in range(0, len(ids), 10_000):
            client.mset({f"a:{key}": OPENING for key in ids[i : i + 10_000]})

        def each(frame: DataFrame, batch_id: int) -> None:
            session.write_outcomes(out, batch_id, apply(client, frame.toArrow()))

        query = session.for_each(session.read(job.spark, job.events), each, job.work / "checkpoint")
        durations = session.finish(query)
        balances = [
            int(b) for i in range(0, len(ids), 10_000) for b in client.mget([f"a:{k}" for k in ids[i : i + 10_000]])
        ]
        version = client.info("server")["redis_version"]
    outcomes = ds.dataset(out, format="parquet").to_table()
    result = result_of(outcomes, by_place(pa.array(ids), pa.array(balances), job.stream.accounts))
    return Done(durations, result, note=f"Redis {version}, redis-py {redis.__version__}")


def with_locks(job: Job) -> Done:
    return _run(job, _with_locks)


def with_scripts(job: Job) -> Done:
    return _run(job, _with_scripts)


DURABLE = "appendonly, appendfsync everysec: the last second may be lost"
PEERS = [
    Peer("d1", "Redis, a lock a key", DURABLE, with_locks, slow=True),
    Peer("d2", "Redis, Lua scripts of 1000 events", DURABLE, with_scripts),
]
