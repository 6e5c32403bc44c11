"""The command line: what it prints, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock import observe
from penstock._version import __version__
from penstock.cli.commands import app
from penstock.cli.pipeline import app_of
from penstock.spark import session

TINY = ["--accounts", "50", "--batch", "200", "--batches", "2", "--memory-events", "5000", "--json"]


def penstock(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


def test_version() -> None:
    assert penstock("--version") == (0, f"penstock {__version__}\n", "")


@pytest.mark.parametrize("command", ["bench", "demo", "run", "query", "history", "check", "migrate"])
def test_every_command_has_help(command: str) -> None:
    code, out, _ = penstock(command, "--help")
    assert code == 0
    assert "Usage: " in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["bench"], "there is no workload; name one, such as 'penstock bench sl', or give --records"),
        (["bench", "sl", "--records", "10"], "--records measures a table of its own; give no workload with it"),
        (["bench", "nothing"], "there is no workload 'nothing'; choose one of sl, ob, gs, tp, smallbank"),
        (["bench", "sl", "--policy", "lucky"], "there is no policy 'lucky'"),
        (["bench", "gs", "--keys", "str"], "workload 'gs' has keys int, not 'str'"),
        (["bench", "gs", "--keys", "str", "--cost", "1"], "workload 'gs' has keys int, not 'str'"),
        (["bench", "smallbank", "--cost", "1"], "workload 'smallbank' has no knobs; those that have are sl, ob, gs"),
        (["bench", "sl", "--read-ratio", "0.5"], "workload 'sl' has no --read-ratio"),
        (["bench", "sl", "--length", "3"], "Streaming Ledger: length is an even number, not 3"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(words: list[str], says: str) -> None:
    code, out, err = penstock(*words)
    assert (code, out) == (1, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("workload", ["sl", "gs"])
def test_bench_prints_one_json_object(workload: str) -> None:
    code, out, err = penstock("bench", workload, *TINY)
    assert code == 0, err
    report = json.loads(out)
    assert (report["workload"], report["keys"], report["batch"]) == (workload, "int", 200)
    assert set(report["events_per_s"]) == {"kernel", "memory", "durable"}
    assert set(report["compile_s"]) == {"cold", "warm"}
    assert set(report["latency_ms"]) == {"p50", "p99"}
    assert {"policy", "threads", "bytes_per_event", "machine", "command", "durability"} <= set(report)
    assert ("ratio" in report) == (workload == "sl")


@pytest.mark.parametrize("keys", ["int", "str"])
def test_bench_measures_a_table_of_so_many_records(keys: str) -> None:
    words = ["--records", "500", "--batch", "100", "--batches", "3", "--json"]
    code, out, err = penstock("bench", *words, *(["--string-keys"] if keys == "str" else []))
    assert code == 0, err
    report = json.loads(out)
    assert (report["records"], report["keys"], report["batches"]) == (500, keys, 3)
    assert report["sql_s"]["queries"] >= 1
    assert {"batch_ms", "opening_s", "bytes_a_record", "load_s", "machine", "command", "durability"} <= set(report)
    assert 0 < report["batch_ms"]["median"] <= report["batch_ms"]["slowest"]


def test_bench_takes_policies_by_name_and_knobs() -> None:
    knobs = ("--cost", "0.1", "--abort-ratio", "0.2", "--length", "2", "--read-ratio", "0.5")
    code, out, err = penstock("bench", "gs", "--policy", "ready/transaction", "--threads", "2", *knobs, *TINY)
    assert code == 0, err
    report = json.loads(out)
    assert (report["policy"], report["chosen"], report["threads"]) == (
        "ready/transaction",
        "ready/transaction/eager",
        2,
    )
    assert report["knobs"] == {"cost": 0.1, "abort_ratio": 0.2, "length": 2, "read_ratio": 0.5}
    assert {"useful", "construct", "explore", "sync", "abort"} <= set(report["spent_ms"])
    assert report["why"] == "as asked"
    assert 0 < report["aborted"]["negative"] < report["committed"]
    assert "ratio" not in report


def test_every_failure_of_run_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    rest = ("--state", "state", "--outcomes", "out")
    bank, flow = "penstock.workloads.bank:app", "orders:shop"
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    for words, says in {
        ("nothing", "--input", "Deposit=in"): "'nothing' does not name an app; write MODULE:APP",
        ("no_such_module:app", "--input", "Deposit=in"): "there is no module 'no_such_module' here",
        ("penstock.workloads.bank:nothing", "--input", "Deposit=in"): "has no app 'nothing'",
        (bank, "--input", "in"): "--input in is not EVENT=PATH, for example Deposit=in/",
        (bank, "--input", "Bid=in"): "has no transaction for event Bid; it has Deposit, Transfer",
        (bank, "--input", "Deposit=no"): "event 'Deposit': there is no directory no",
        (bank, "--input", "Deposit=in", "--input", "Deposit=in"): "event 'Deposit' has two inputs",
        (bank, "--input", "Deposit=in", "--output", "out"): "--output out is not EVENT=DIR, for example Event=out/",
        (bank, "--input", "Deposit=in", "--output", "Bid=out"): "app 'bank' has no output Bid",
        (flow, "--input", "Order=in", "--output", "Ship=out"): "takes; it has Shipped",
        (flow, "--input", "Order=in", *("--output", "Shipped=out") * 2): "event 'Shipped' has two outputs",
    }.items():
        code, out, err = penstock("run", *words, *rest)
        assert (code, out) == (1, "")
        assert says in err
        assert len(err.strip().splitlines()) == 1


def test_without_spark_or_java_a_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    code, out, err = penstock("demo")
    assert (code, out) == (1, "")
    assert "needs Java 17 or newer, and none was found; install one" in err
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda name: None)
    code, out, err = penstock("demo")
    assert (code, out) == (1, "")
    assert "pyspark is not installed; pip install 'penstock[spark]'" in err


@pytest.fixture
def state(tmp_path: Path) -> str:
    bank = app_of("penstock.workloads.bank:app")
    with bank.open(tmp_path / "state") as db:
        db.load("Account", [{"id": "a", "balance": 10}, {"id": "b"}])
        for ts in (1, 2):
            db.run({"Transfer": [{"ts": ts, "id": f"t{ts}", "src": "a", "dst": "b", "amount": 4}]})
    return str(tmp_path / "state")


def test_query_reads_a_version_without_the_app(state: str) -> None:
    sql = "select balance from account order by id"
    assert json.loads(penstock("query", state, sql, "--json")[1]) == {
        "version": 2,
        "rows": [{"balance": "2.00"}, {"balance": "8.00"}],
    }
    code, out, _ = penstock("query", state, sql, "--version", "1")
    assert code == 0
    assert out.startswith("version 1: 2 rows\n") and "6.00" in out
    code, out, err = penstock("query", state, "selct")
    assert (code, out) == (1, "")
    assert err == 'penstock: the query failed: Parser Error: syntax error at or near "selct"\n'
    assert "has no version 9" in penstock("query", state, sql, "--version", "9")[2]
    assert "is not a state directory" in penstock("query", str(Path(state).parent), sql)[2]


def test_query_shows_spans_of_time_as_history_does(state: str) -> None:
    sql = "select interval '61 seconds' as span, interval '-1 day' as back, interval '2 months' as months"
    (row,) = json.loads(penstock("query", state, sql, "--json")[1])["rows"]
    assert row == {"span": "0:01:01", "back": "-1 day, 0:00:00", "months": "2 months, 0:00:00"}
    out = penstock("query", state, sql)[1]
    assert "0:01:01" in out and "MonthDayNano" not in out


def test_query_only_reads_unless_files_are_allowed(state: str, tmp_path: Path) -> None:
    before = {file: file.read_bytes() for file in Path(state).rglob("*") if file.is_file()}
    segment = Path(state) / "log" / "000000000099.seg"
    code, out, err = penstock("query", state, f"copy account to '{segment}'")
    assert (code, out) == (1, "")
    assert "the query is of kind COPY; only what reads is run" in err and "--allow-files" in err
    assert {file: file.read_bytes() for file in Path(state).rglob("*") if file.is_file()} == before
    sheet = tmp_path / "account.csv"
    assert penstock("query", state, f"copy (from account order by id) to '{sheet}'", "--allow-files")[0] == 0
    assert sheet.read_text() == "id,balance\na,2.00\nb,8.00\n"
    assert "--allow-files" in penstock("query", "--help")[1]


def test_every_failure_of_query_is_one_line(state: str, tmp_path: Path) -> None:
    def fails(sql: str = "select 1", *, at: str = state) -> str:
        code, out, err = penstock("query", at, sql)
        assert (code, out) == (1, "")
        assert len(err.strip().splitlines()) == 1
        return err

    assert "the query is empty; write one, for example: select " in fails("")
    assert "the query is empty" in fails("/* nothing */")
    assert "the query holds 2 statements; give one at a time" in fails("select 1; select 2")
    assert "there is no directory" in fails(at=str(tmp_path / "nowhere"))
    assert "not a directory; a state directory must be a directory" in fails(at=f"{state}/head")
    assert "not a directory; a state directory must be a directory" in fails(at=f"{state}/head/deeper")
    assert "name a directory by a shorter path" in fails(at="x" * 5000)
    log, kept = Path(state) / "log", Path(state) / "kept"
    log.rename(kept)
    assert f"{log} is missing; restore it from a backup" in fails()
    log.write_text("")
    assert f"cannot list {log}: not a directory; " in fails()
    log.unlink()
    kept.rename(log)
    for name in ("log/000000000002.seg", "penstock.json"):
        file = Path(state) / name
        file.rename(tmp_path / file.name)
        file.mkdir()
        assert f"cannot read {file}: is a directory; a directory is where a file should be: " in fails()
        file.rmdir()
        (tmp_path / file.name).rename(file)
    assert penstock("query", state, "select 1")[0] == 0


def test_history_shows_each_change_of_a_record(state: str) -> None:
    shown = json.loads(penstock("history", state, "account", "a", "--json")[1])
    assert (shown["table"], shown["key"]) == ("Account", {"id": "a"})
    assert [(r["version"], r["change"], r["balance"]) for r in shown["rows"]] == [
        (0, "loaded", "10.00"),
        (1, "written", "6.00"),
        (2, "written", "2.00"),
    ]
    assert penstock("history", state, "Account", "nobody")[1].startswith("Account nobody: 0 rows\n")
    assert "has the key (id); got 2 part(s)" in penstock("history", state, "Account", "a", "b")[2]
    assert "has no table 'Nothing'; it has Account" in penstock("history", state, "Nothing", "a")[2]


def test_subscribers_get_every_batch_and_cannot_break_one(caplog: pytest.LogCaptureFixture) -> None:
    bank = app_of("penstock.workloads.bank:app")
    seen: list[dict[str, Any]] = []

    def remember(report: observe.BatchReport) -> None:
        seen.append(report.to_dict() | {"rows": db.table("Account").num_rows})  # the database can be read by now

    def fail(report: observe.BatchReport) -> None:
        raise ValueError("no")

    observe.subscribe(fail)
    observe.subscribe(remember)
    try:
        with bank.open() as db:
            db.run({"Deposit": [{"ts": 1, "id": "d", "account": "nobody", "amount": 1}]})
    finally:
        observe.unsubscribe(fail)
        observe.unsubscribe(remember)
    with bank.open() as db:
        db.run({"Deposit": []})
    assert [(r["version"], r["events"], r["aborted"], r["rows"]) for r in seen] == [(1, 1, {"missing Account": 1}, 0)]
    assert json.loads(json.dumps(seen)) == seen
    assert "a subscriber failed on batch 1" in caplog.text
