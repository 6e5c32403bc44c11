"""SQL over HTTP: it reads, within its limits, and never holds up or breaks the server."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from serving import Server, serving

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: Decimal = ps.decimal(18, 2, default=0)
    count: int = 0


@bank.table
class Other:
    id: int = ps.key()


@bank.event
class Deposit:
    ts: int = ps.order()
    account: str
    amount: int


@bank.transaction
def deposit(e: Deposit) -> None:
    account = Account.get(e.account)
    account.balance += e.amount
    account.count += 1


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "bank"
    with bank.open(path, retain=20) as db:
        for ts in range(1, 6):
            db.run([Deposit(ts=ts, account=f"a{n}", amount=n) for n in range(100)])
    return path


@pytest.fixture(scope="module")
def server(state: Path) -> Iterator[Server]:
    with serving(state, "--sql") as running:
        yield running


def ask(server: Server, sql: str, query: str = "", **more: Any) -> tuple[int, Any]:
    return server.ask(f"/v1/sql{query}", {"sql": sql, **more})


def test_a_query_over_the_tables(server: Server) -> None:
    status, found = ask(server, "select id, balance, count from account where id in ('a1', 'a99') order by id")
    assert status == 200
    assert found["version"] == 5
    assert found["rows"] == [
        {"id": "a1", "balance": "5.00", "count": 5},
        {"id": "a99", "balance": "495.00", "count": 5},
    ]
    assert found["columns"] == [
        {"name": "id", "type": "VARCHAR"},
        {"name": "balance", "type": "DECIMAL(18,2)"},
        {"name": "count", "type": "BIGINT"},
    ]
    assert found["more"] is False


def test_values_have_the_forms_of_json(server: Server) -> None:
    time = "timestamptz '2026-03-01 00:00:00+00'"
    sql = f"select sum(count) s, 'nan'::double n, {{'a': [1.5]}} o, 1 s, {time} t, 'x'::blob b from account"
    status, found = ask(server, sql)
    assert status == 200, found
    (row,) = found["rows"]
    assert row["s"] == 500
    assert row["s_1"] == 1
    assert row["n"] == "NaN"
    assert row["o"] == {"a": ["1.5"]}
    assert row["t"] == "2026-03-01T00:00:00Z"
    assert row["b"] == "78"


def test_an_older_version_and_one_to_come(server: Server) -> None:
    for version in range(6):
        status, found = ask(server, "select coalesce(sum(count), 0) as n from account", f"?version={version}")
        assert (status, found["version"], found["rows"]) == (200, version, [{"n": 100 * version}])
    assert ask(server, "select 1", "?version=6")[0] == 404
    status, said = ask(server, "select 1", "?at_least=6&timeout_ms=20")
    assert (status, said["error"]) == (503, "not_yet")


def test_rows_have_a_limit(server: Server) -> None:
    _, found = ask(server, "select * from account order by id", limit=7)
    assert (len(found["rows"]), found["more"]) == (7, True)
    assert ask(server, "select * from account", limit=100)[1]["more"] is False
    assert len(ask(server, "from range(5000)")[1]["rows"]) == 1000
    assert len(ask(server, "from range(1000000000)", limit=10_000)[1]["rows"]) == 10_000
    for limit in (0, 10_001, -1, "7", True, 1.0, None):
        assert ask(server, "select 1", limit=limit)[0] == 400


@pytest.mark.parametrize(
    "sql",
    [
        "",
        ";",
        "select",
        "select 1; select 2",
        "create table x as select 1",
        "drop view account",
        "insert into account values ('x', 1, 1)",
        "update account set count = 0",
        "delete from account",
        "copy account to '/tmp/penstock-written.csv'",
        "copy (select 1) to '/tmp/penstock-written.csv'",
        "select * from read_csv('/etc/passwd')",
        "select * from '/etc/passwd'",
        "select * from read_text('/etc/passwd')",
        "select * from glob('/*')",
        "attach '/tmp/penstock-written.db'",
        "attach ':memory:' as m",
        "install httpfs",
        "load httpfs",
        "set memory_limit = '100GB'",
        "reset memory_limit",
        "pragma database_list",
        "call pragma_version()",
        "export database '/tmp/penstock-written'",
        "import database '/tmp/x'",
        "checkpoint",
        "vacuum",
        "begin",
        "commit",
        "prepare p as select 1",
        "execute p",
        "use memory",
        "explain copy account to '/tmp/penstock-written.csv'",
        "explain analyze insert into account values ('x', 1, 1)",
        "select * from 'http://127.0.0.1/x.csv'",
        "select * from nothing",
        "select getenv('HOME')",
        "create or replace macro f() as 1",
        "comment on view account is 'x'",
        "select * from sqlite_scan('/tmp/x', 'y')",
        "select " + "(" * 2000 + "1" + ")" * 2000,
        "\x00",
        "select '\ud800'",
    ],
)
def test_what_does_not_read_tables_is_refused(server: Server, sql: str) -> None:
    status, said = ask(server, sql)
    assert status == 400, said
    assert said["says"]
    assert "allow_files" not in said["says"]
    assert not list(Path("/tmp").glob("penstock-written*"))
    # And nothing of it stays.
    assert ask(server, "select count(*) as n from account")[1]["rows"] == [{"n": 100}]


def test_a_query_that_does_not_end_is_ended_and_others_are_answered_meanwhile(server: Server) -> None:
    answers: list[tuple[int, Any]] = []
    endless = "select count(*) from range(100000000000) a, range(10000) b"
    asking = threading.Thread(target=lambda: answers.append(ask(server, endless)))
    asking.start()
    while asking.is_alive():
        assert server.ask("/v1/tables/Account/records/a1")[0] == 200
        asking.join(0.05)
    assert answers[0][0] == 400
    assert "took more than 5 s" in answers[0][1]["says"]
    assert ask(server, "select 1 as one")[1]["rows"] == [{"one": 1}]


@pytest.mark.parametrize(
    "sql",
    [
        "select list(range) from range(1000000000)",
        # These do not listen to DuckDB's own limits, so their process is killed.
        pytest.param("select repeat('a', 2000000000)", marks=pytest.mark.long),
        pytest.param(
            "select count(distinct a.range + b.range * 1e9) from range(100000) a, range(100000) b",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_query_for_more_memory_than_it_may_have_is_refused(server: Server, sql: str) -> None:
    status, said = ask(server, sql)
    assert (status, said["error"] in ("bad_request", "too_large", "too_slow")) == (400, True), said
    assert ask(server, "select count(*) as n from account")[1]["rows"] == [{"n": 100}]


def test_an_answer_of_many_bytes_is_refused(server: Server) -> None:
    status, said = ask(server, "select repeat('a', 1000000) from range(100)")
    assert (status, said["error"]) == (413, "too_large")


def test_without_the_option_there_is_no_sql(state: Path) -> None:
    with serving(state) as server:
        assert ask(server, "select 1")[0] == 403


def test_its_process_that_was_killed_is_started_again_and_ends_with_the_server(state: Path) -> None:
    with serving(state, "--sql") as server:
        assert ask(server, "select 1 as one")[0] == 200
        (child,) = children(server.pid)
        os.kill(child, 9)
        while ask(server, "select 1 as one")[0] != 200:
            pass
        (child,) = children(server.pid)
        os.kill(server.pid, 9)
        server.process.wait()
        server.process.returncode = 0
        while Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_bytes():
            pass


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_versions_never_fall_between_sql_and_records(tmp_path: Path) -> None:
    with bank.open(tmp_path / "bank") as db, serving(tmp_path / "bank", "--sql") as server:
        done = threading.Event()

        def write() -> None:
            ts = 0
            while not done.is_set():
                ts += 1
                db.run([Deposit(ts=ts, account="a", amount=1)])

        writer = threading.Thread(target=write)
        writer.start()
        try:
            seen = 0
            for _ in range(15):
                for found in (
                    ask(server, "select sum(count) as n from account")[1],
                    server.ask("/v1/tables/Account/records/a")[1],
                ):
                    count = found["rows"][0]["n"] if "rows" in found else found["record"]["count"]
                    assert count == found["version"] >= seen
                    seen = found["version"]
        finally:
            done.set()
            writer.join()
