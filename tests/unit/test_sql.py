"""SQL that only reads: what a query may do, what it may not, and that no way leads around it."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

from penstock.cli.pipeline import app_of
from penstock.errors import InputError
from penstock.state import sql
from penstock.state.view import View

TABLES = {"Account": pa.table({"id": ["a", "b"], "balance": [1, 2]})}
VIEW = View(7, TABLES)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with files that a query must neither read nor change; there is nothing else in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", "hush")
    for name in (":memory:", "secret.csv"):
        Path(name).write_text("word\nhush\n")
    pa.parquet.write_table(TABLES["Account"], "secret.parquet")
    duckdb.connect("secret.db").close()
    return tmp_path


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def refusal(query: str) -> str:
    with pytest.raises(InputError) as refused:
        VIEW.sql(query)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select sum(balance) as s from account", [{"s": 3}]),
        ("SELECT count(*) AS n FROM Account;", [{"n": 2}]),
        ("; -- first\nselect 1 as n -- last\n;", [{"n": 1}]),
        ("with a as (select balance from account) select max(balance) as m from a", [{"m": 2}]),
        (
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < 3) select max(i) as i from n",
            [{"i": 3}],
        ),
        ("values (1)", [{"col0": 1}]),
        ("from account select id order by id limit 1", [{"id": "a"}]),
        ("(table account) order by id desc limit 1", [{"id": "b", "balance": 2}]),
        ("pivot account on id using sum(balance)", [{"a": 1, "b": 2}]),
        ("/* é */ with p as (pivot account on id using sum(balance)) select a from p", [{"a": 1}]),
        ("(pivot account on id using sum(balance))", [{"a": 1, "b": 2}]),
        ("from account pivot (sum(balance) for id in ('a'))", [{"a": 1}]),
        ("select count(*) as n from (unpivot account on balance)", [{"n": 2}]),
        ("select column_name as c from (describe account)", [{"c": "id"}, {"c": "balance"}]),
        ("select name from (show tables)", [{"name": "Account"}]),
        ("from query('select 1 as n')", [{"n": 1}]),
        ("select count(*) as n from query_table('account')", [{"n": 2}]),
        ("select current_setting('lock_configuration') as l", [{"l": True}]),
        ("select sum(i) as s from range(4) t(i)", [{"s": 6}]),
        ("select json_extract('{\"a\": 1}', '$.a')::int as j", [{"j": 1}]),
    ],
)
def test_what_reads_is_run(query: str, rows: list[dict[str, object]], place: Path) -> None:
    before = files(place)
    assert VIEW.sql(query).to_pylist() == rows
    assert files(place) == before


@pytest.mark.parametrize(
    "query",
    [
        "describe account",
        "show tables",
        "show account",
        "summarize account",
        "explain select * from account",
        "explain analyze from account",
        "explain (format json) select 1",
        "EXPLAIN pivot account on id using sum(balance)",
        "explain /* with */ (analyze, format json) with a as (select 1) from a",
    ],
)
def test_what_describes_is_run(query: str) -> None:
    assert VIEW.sql(query).num_rows > 0


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("copy account to 'x.csv'", "COPY"),
        ("copy (select 1) to ':memory:'", "COPY"),
        ("copy (pivot account on id using sum(balance)) to ':memory:'", "COPY"),
        ("copy account from 'secret.csv'", "COPY"),
        ("copy from database memory to temp", "PRAGMA"),
        ("export database 'x'", "EXPORT"),
        ("import database 'x'", "PRAGMA"),
        ("attach 'secret.db'", "ATTACH"),
        ("attach ':memory:' as other", "ATTACH"),
        ("detach memory", "DETACH"),
        ("use memory", "SET"),
        ("install httpfs", "LOAD"),
        ("load httpfs", "LOAD"),
        ("set threads = 1", "SET"),
        ("set variable x = 1", "SET"),
        ("reset threads", "SET"),
        ("pragma version", "PRAGMA"),
        ("pragma profiling_output = 'x'", "SET"),
        ("create table t (i int)", "CREATE"),
        ("create or replace temp view account as select 1", "CREATE"),
        ("create table t as pivot account on id using sum(balance)", "CREATE"),
        ("create macro f(x) as x", "CREATE"),
        ("create secret s (type s3)", "CREATE"),
        ("insert into account values ('c', 3)", "INSERT"),
        ("update account set balance = 0", "UPDATE"),
        ("delete from account", "DELETE"),
        ("truncate account", "DELETE"),
        ("merge into account using account b on account.id = b.id when matched then delete", "MERGE_INTO"),
        ("drop view account", "DROP"),
        ("alter table account add column x int", "ALTER"),
        ("comment on view account is 'x'", "ALTER"),
        ("call range(3)", "CALL"),
        ("call enable_logging(storage = 'file', storage_path = 'x')", "CALL"),
        ("checkpoint", "CALL"),
        ("vacuum", "VACUUM"),
        ("analyze", "VACUUM"),
        ("begin", "TRANSACTION"),
        ("commit", "TRANSACTION"),
        ("rollback", "TRANSACTION"),
        ("prepare p as select 1", "PREPARE"),
        ("execute p", "EXECUTE"),
        ("deallocate p", "DROP"),
        ("explain copy account to 'x.csv'", "COPY"),
        ("explain analyze copy account to ':memory:'", "COPY"),
        ("explain /* é */ (analyze, format json) copy (select 1) to 'x.csv'", "COPY"),
        ("explain analyze create table t as select 1", "CREATE"),
        ("explain analyze create table t as pivot account on id using sum(balance)", "CREATE"),
        ("explain analyze delete from account", "DELETE"),
    ],
)
def test_what_does_more_than_read_is_refused_before_it_runs(query: str, kind: str, place: Path) -> None:
    before = files(place)
    assert refusal(query) == (
        f"the query is of kind {kind}; only what reads is run, such as SELECT or EXPLAIN; for DuckDB whole, files "
        "and all, ask with allow_files=True (penstock query --allow-files)"
    )
    assert files(place) == before


FILES = ["secret.csv", ":memory:", "/etc/passwd", "/proc/self/environ", "/dev/stdin", "http://127.0.0.1/x.csv", "*"]


@pytest.mark.parametrize("file", [*FILES, "secret.parquet", "secret.db"])
@pytest.mark.parametrize(
    "query",
    [
        "from '{}'",
        "from query_table('{}')",
        "from query('from ''{}''')",
        "from read_csv('{}')",
        "from read_csv(['{}'])",
        "from read_text('{}')",
        "from read_blob('{}')",
        "from read_json('{}')",
        "from read_parquet('{}')",
        "from read_duckdb('{}')",
        "from parquet_metadata('{}')",
        "from sniff_csv('{}')",
        "from glob('{}')",
        "from json_execute_serialized_sql(json_serialize_sql('from read_text(''{}'')'))",
        "explain analyze from read_text('{}')",
        "summarize '{}'",
        "pivot read_csv('{}') on word",
    ],
)
def test_no_file_is_read(query: str, file: str, place: Path) -> None:
    before = files(place)
    said = refusal(query.format(file))
    assert "hush" not in said
    assert files(place) == before


def test_a_file_is_refused_with_what_to_do() -> None:
    assert refusal("from 'secret.csv'") == (
        'a query reads tables, and nothing else: Permission Error: Cannot access file "secret.csv" - file system '
        "operations are disabled by configuration; for DuckDB whole, files and all, ask with allow_files=True "
        "(penstock query --allow-files)"
    )


@pytest.mark.parametrize(
    "query",
    [
        "select getenv('SECRET')",
        "from duckdb_secrets()",
        "from which_secret('x', 's3')",
        "from query('copy account to ''x.csv''')",
        "from query('select 1; select 2')",
        "from json_execute_serialized_sql(json_serialize_sql('copy account to ''x.csv'''))",
        "from enable_logging(storage = 'file', storage_path = 'x')",
        "from enable_profiling(save_location = 'x')",
        "with w as (insert into account values ('c', 3) returning id) from w",
        "from python_map_function((select 1))",
        "from python_arrow_scan()",
        "from arrow_scan(1, 2, 3)",
        "from pandas_scan(1)",
        "select * from account where id = ?",
        "select $name",
    ],
)
def test_functions_lead_no_way_around(query: str, place: Path) -> None:
    before = files(place)
    assert "hush" not in refusal(query)
    assert files(place) == before


@pytest.mark.parametrize("allow_files", [False, True])
@pytest.mark.parametrize(
    "name", ["here", "everywhere", "tables", "query", "statements", "connection", "_LOCKED", "TABLES"]
)
def test_a_python_variable_is_no_table(name: str, allow_files: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    here = everywhere = pa.table({"x": [1]})
    monkeypatch.setitem(globals(), "everywhere", everywhere)
    monkeypatch.setattr(sql, "here", here, raising=False)
    with pytest.raises(InputError, match=f"the query failed: .*{name}"):
        VIEW.sql(f"select * from {name}", allow_files=allow_files)


@pytest.mark.parametrize("query", ["", "  ", ";", ";;\n", "-- nothing", "/* nothing */ ; -- at all"])
@pytest.mark.parametrize("allow_files", [False, True])
def test_an_empty_query(query: str, allow_files: bool) -> None:
    with pytest.raises(InputError, match=r"^the query is empty; write one, for example: select "):
        VIEW.sql(query, allow_files=allow_files)


def test_one_statement_at_a_time() -> None:
    assert refusal("select 1; copy account to 'x.csv'").startswith("the query holds 2 statements; give one at a time, ")


def test_what_duckdb_says_is_an_input_error_with_its_first_line() -> None:
    for query, says in {
        "selct": 'the query failed: Parser Error: syntax error at or near "selct"',
        "select * from nothing": "the query failed: Catalog Error: Table with name nothing does not exist!",
        "select nothing from account": 'the query failed: Binder Error: Referenced column "nothing" not found',
        "select cast('x' as int)": "the query failed: Conversion Error: Could not convert string 'x' to INT32",
    }.items():
        with pytest.raises(InputError) as refused:
            VIEW.sql(query)
        assert str(refused.value).startswith(says)
        assert isinstance(refused.value.__cause__, duckdb.Error)


def test_a_table_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(InputError, match=r"name nothing does not exist!; the tables are .*\bAccount\b"):
        VIEW.sql("select * from nothing")
    with pytest.raises(InputError, match=r"Function with name nothing does not exist!$"):
        VIEW.sql("select nothing(1)")


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(InputError, match="a query is text, not int; write SQL as a str"):
        VIEW.sql(5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"the query has a character that is no text, '\\udcff'; write it in UTF-8"):
        VIEW.sql("select '\udcff'")


@pytest.mark.parametrize("allow_files", [False, True])
def test_more_than_memory_holds(allow_files: bool, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sql._LOCKED, "memory_limit", "20MB")
    monkeypatch.setitem(sql._ALWAYS, "memory_limit", "20MB")
    before = files(place)
    with pytest.raises(InputError, match="the query needs more memory than there is; ask for less of it") as refused:
        VIEW.sql("select list(i order by i) as l from range(20000000) t(i)", allow_files=allow_files)
    assert ("allow_files" in str(refused.value)) is not allow_files
    if not allow_files:
        assert files(place) == before


def test_with_files_allowed_duckdb_is_whole() -> None:
    assert VIEW.sql("copy account to 'x.csv'", allow_files=True).to_pylist() == [{"Count": 2}]
    assert VIEW.sql("set threads = 1; from 'x.csv'", allow_files=True).num_rows == 2
    assert VIEW.sql("create table t (i int)", allow_files=True).num_rows == 0


@pytest.mark.parametrize("ask", [lambda db: db, lambda db: db.view()])
def test_a_database_is_asked_the_same_way(ask: Callable[..., View]) -> None:
    with app_of("penstock.workloads.bank:app").open("state") as db:
        db.load("Account", [{"id": "a", "balance": 10}])
        before = files(Path("state"))
        for query in ("copy account to 'state/log/000000000099.seg'", "", "selct"):
            with pytest.raises(InputError):
                ask(db).sql(query)
        assert files(Path("state")) == before
        ask(db).sql("copy account to 'x.csv'", allow_files=True)
        assert os.path.exists("x.csv")
        assert db.sql("from account", version=0, allow_files=True).num_rows == 1


def test_a_timedelta_that_sql_cannot_give_back_is_refused() -> None:
    spans = [datetime.timedelta(days=days) for days in (106_751, -106_751, 106_752, -106_752)]
    view = View(7, {"Timer": pa.table({"k": [0, 1, 2, 3], "span": pa.array(spans, pa.duration("us"))})})
    assert len(view.sql("select k, span from timer where k < 2")) == 2
    for k in (2, 3):
        with pytest.raises(InputError, match=r"in 'span' a timedelta of more than 292 years.*ask for epoch_us\(span\)"):
            view.sql(f"select k, span from timer where k = {k}")
    found = view.sql("select epoch_us(span) as us from timer order by k")
    assert found["us"].to_pylist() == [span // datetime.timedelta(microseconds=1) for span in spans]


@pytest.mark.parametrize(
    "within",
    [
        "[span]",
        "list(span)",
        "array_value(span, span)",
        "{'a': 1, 'it''s': span}",
        "row(span)",
        "map([1], [span])",
        "map([span], [1])",
        "union_value(a := span)",
        "[[{'a': map([1], [[span]])}]]",
    ],
)
def test_nor_is_one_within_something_else(within: str) -> None:
    spans = [datetime.timedelta(days=days) for days in (106_751, 106_752)]
    view = View(7, {"Timer": pa.table({"k": [0, 1], "span": pa.array(spans, pa.duration("us"))})})
    assert "9223286400000000000" in str(view.sql(f"select {within} as it from timer where k = 0").to_pylist())
    with pytest.raises(InputError, match=r"in 'it' a timedelta of more than 292 years"):
        view.sql(f"select {within} as it from timer where k = 1")


def test_a_statement_that_duckdb_has_no_name_for_is_refused() -> None:
    with pytest.raises(InputError, match="the query is of kind UPDATE; only what reads is run"):
        VIEW.sql("update extensions")
