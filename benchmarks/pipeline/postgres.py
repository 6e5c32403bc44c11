"""c1, c2: foreachBatch into PostgreSQL. The balances are a table there; a batch is staged with COPY.

c1  A procedure takes the staged events in order of ts and commits after each: one transaction an event, its
    outcome in the same transaction. Started again, it goes on behind the last outcome.

c2  One transaction a batch. Events on the same account depend on each other, so no single statement over the
    batch is right: what the second transfer may take is what the first has left. The fastest right form found
    is a loop over arrays in PL/pgSQL: the driver numbers the accounts of the batch (numpy), the procedure reads
    their balances into an array, runs the events over it, and one UPDATE puts it back. An UPDATE an event in one
    transaction a batch was a quarter as fast (100k events a batch), and rounds of events without conflicts would
    be 1187 statements for 200k events, as the hottest account sets their number.
    The outcomes of the batch are kept as one row, in the same transaction, so that a batch sent again is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame

from benchmarks.pipeline import servers, session
from benchmarks.pipeline.ledger import by_place, result_of
from benchmarks.pipeline.peers import CannotRun, Done, Job, Peer

TABLES = """
create table account (id bigint primary key, balance bigint not null) with (fillfactor = 50);
create temporary table staged (ts bigint, kind bigint, src bigint, dst bigint, amount bigint);
"""

EVENT_BY_EVENT = """
create table outcome (ts bigint primary key, committed bool not null, balance bigint);

create procedure apply_staged() language plpgsql as $$
declare
    e record;
    had bigint;
    done bool;
    got bigint;
    last bigint := coalesce((select max(ts) from outcome), -1);
begin
    for e in select * from staged where ts > last order by ts loop
        done := true;
        got := null;
        if e.kind = 1 then
            update account set balance = balance - e.amount where id = e.src and balance >= e.amount;
            done := found;
        end if;
        if done then
            update account set balance = balance + e.amount where id = e.dst returning balance into got;
        end if;
        insert into outcome values (e.ts, done, got);
        commit;
    end loop;
end $$;
"""

BATCH_AT_ONCE = """
create temporary table touched (place bigint, id bigint);
create table outcomes (
    batch bigint primary key, ts bigint[] not null, committed bool[] not null, balance bigint[] not null
);
alter table outcomes alter ts set storage external, alter committed set storage external,
    alter balance set storage external;

create procedure apply_staged(this bigint) language plpgsql as $$
declare
    ids bigint[];
    held bigint[];
    times bigint[];
    kinds bigint[];
    srcs bigint[];
    dsts bigint[];
    amounts bigint[];
    done bool[];
    got bigint[];
    n int;
    s int;
    d int;
    a bigint;
    b bigint;
begin
    if exists (select from outcomes where batch = this) then
        return;
    end if;
    select array_agg(id), array_agg(balance) into ids, held
        from (select id, balance from touched join account using (id) order by place) as t;
    select array_agg(ts), array_agg(kind), array_agg(src), array_agg(dst), array_agg(amount), count(*)
        into times, kinds, srcs, dsts, amounts, n
        from (select * from staged order by ts) as e;
    done := array_fill(true, array[n]);
    got := array_fill(0::bigint, array[n]);
    for i in 1..n loop
        a := amounts[i];
        if kinds[i] = 1 then
            s := srcs[i];
            b := held[s];
            if b < a then
                done[i] := false;
                continue;
            end if;
            held[s] := b - a;
        end if;
        d := dsts[i];
        b := held[d] + a;
        held[d] := b;
        got[i] := b;
    end loop;
    update account set balance = new.balance
        from unnest(ids, held) as new (id, balance)
        where account.id = new.id and account.balance <> new.balance;
    insert into outcomes values (this, times, done, got);
end $$;
"""


def copy_rows(table: pa.Table) -> bytes:
    """Whole numbers in PostgreSQL's binary COPY format: each field is its length, then big-endian bytes."""
    layout = [("fields", ">i2")]
    for name in table.column_names:
        layout += [(f"{name}_size", ">i4"), (name, ">i8")]
    rows = np.zeros(table.num_rows, np.dtype(layout))
    rows["fields"] = table.num_columns
    for name in table.column_names:
        rows[f"{name}_size"] = 8
        rows[name] = table[name].to_numpy()
    return b"PGCOPY\n\xff\r\n\0" + bytes(8) + rows.tobytes() + b"\xff\xff"


def _copy(cursor: Any, name: str, table: pa.Table) -> None:
    cursor.execute(f"truncate {name}")
    with cursor.copy(f"copy {name} ({', '.join(table.column_names)}) from stdin (format binary)") as copy:
        copy.write(copy_rows(table))
    cursor.execute(f"analyze {name}")


def numbered(events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The accounts that the events touch, numbered from 1; and the events with these numbers as src and dst."""
    both = np.concatenate([events["src"].to_numpy(), events["dst"].to_numpy()])
    ids, place = np.unique(both, return_inverse=True)
    src, dst = np.split(place + 1, 2)
    columns = {"ts": events["ts"], "kind": events["kind"], "src": src, "dst": dst, "amount": events["amount"]}
    return pa.table({"place": np.arange(1, ids.size + 1), "id": ids}), pa.table(columns)


def _table(ts: Any, committed: Any, balance: Any) -> pa.Table:
    done = pa.array(committed, pa.bool_())
    status = pa.compute.if_else(done, "committed", "aborted")
    return pa.table({"ts": pa.array(ts, pa.int64()), "status": status, "balance": pa.array(balance, pa.int64())})


def _event_by_event(connection: Any, events: pa.Table, batch_id: int) -> pa.Table:
    with connection.cursor(binary=True) as cursor:
        _copy(cursor, "staged", events)
        cursor.execute("call apply_staged()")
        cursor.execute(
            "select array_agg(ts), array_agg(committed), array_agg(balance)"
            " from (select * from outcome where ts in (select ts from staged) order by ts) as o"
        )
        return _table(*cursor.fetchone())


def _batch_at_once(connection: Any, events: pa.Table, batch_id: int) -> pa.Table:
    with connection.transaction(), connection.cursor(binary=True) as cursor:
        touched, staged = numbered(events)
        _copy(cursor, "touched", touched)
        _copy(cursor, "staged", staged)
        cursor.execute("call apply_staged(%s)", [batch_id])
        cursor.execute("select ts, committed, balance from outcomes where batch = %s", [batch_id])
        row = cursor.fetchone()
    return _table(*row)


def _run(job: Job, tables: str, apply: Callable[[Any, pa.Table, int], pa.Table]) -> Done:
    try:
        import psycopg
    except ImportError as error:
        raise CannotRun("psycopg is not installed: pip install 'psycopg[binary]'") from error
    out: Path = job.work / "outcomes"
    with servers.postgres(job.work) as where, psycopg.connect(**where, autocommit=True) as connection:
        connection.execute(TABLES)
        connection.execute(tables)
        with connection.cursor() as cursor:
            _copy(cursor, "account", job.stream.opening())
        connection.execute("vacuum analyze account")
        connection.execute("checkpoint")

        def each(frame: DataFrame, batch_id: int) -> None:
            outcomes = apply(connection, frame.toArrow(), batch_id)
            session.write_outcomes(out, batch_id, outcomes)

        query = session.for_each(session.read(job.spark, job.events), each, job.work / "checkpoint")
        durations = session.finish(query)
        ids, balances = zip(*connection.execute("select id, balance from account").fetchall(), strict=True)
        version = connection.execute("show server_version").fetchone()[0]
    balances = by_place(pa.array(ids), pa.array(balances), job.stream.accounts)
    outcomes = ds.dataset(out, format="parquet").to_table()
    return Done(durations, result_of(outcomes, balances), note=f"PostgreSQL {version}, psycopg {psycopg.__version__}")


def event_by_event(job: Job) -> Done:
    return _run(job, EVENT_BY_EVENT, _event_by_event)


def batch_at_once(job: Job) -> Done:
    return _run(job, BATCH_AT_ONCE, _batch_at_once)


COMMITS = "fsync and synchronous_commit on"
PEERS = [
    Peer("c1", "PostgreSQL, a transaction an event", f"{COMMITS}, at each event", event_by_event, slow=True),
    Peer("c2", "PostgreSQL, a transaction a batch", f"{COMMITS}, at each batch", batch_at_once),
]
