"""An app on Spark: streams in, outcomes and state out, the same as the reference run on all events at once."""

import datetime as dt
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.spark.batch import MicroBatch
from penstock.spark.compatibility import ADMITS
from penstock.testing import assert_same_outcomes, assert_same_tables

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]

NOW = {"availableNow": True}
# How long anything may take before it counts as hung: a machine that does other things as well may be slow.
PATIENCE_S = 300
needs_limits = pytest.mark.skipif(not ADMITS, reason="Python sources limit their batches from Spark 4.2 on")
NAMES = ("a", "b", "c", "d")
START = [{"id": name, "balance": 100} for name in NAMES]

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: ps.decimal(18, 2) = 0

    @ps.check("insufficient funds")
    def solvent(self):
        return self.balance >= 0


@bank.event
class Transfer:
    ts: int = ps.order()
    id: str = ps.id()
    src: str
    dst: str
    amount: ps.decimal(18, 2)


@bank.event
class Deposit:
    ts: int = ps.order()
    id: str = ps.id()
    account: str
    amount: ps.decimal(18, 2)


@bank.transaction
def transfer(e: Transfer):
    src, dst = Account[e.src], Account[e.dst]
    if src.balance < e.amount:
        ps.abort("not enough")
    src.balance -= e.amount
    dst.balance += e.amount
    return {"left": src.balance}


@bank.transaction
def deposit(e: Deposit):
    account = Account[e.account]
    account.balance += e.amount
    account.balance = account.balance * Decimal("0.9")  # so that order matters
    return {"left": account.balance}


# --- what the other files of this folder use too ---------------------------------------------


def events(seed: int, count: int, disorder: int = 0, first: int = 0) -> list[Any]:
    """Random events in an order in which none comes more than `disorder` late."""
    chance = random.Random(seed)
    made = []
    for i in range(first, first + count):
        who = {"ts": i // 2, "id": f"{i:05}", "amount": Decimal(chance.randrange(1, 9000)) / 100}
        if chance.random() < 0.7:
            made.append(Transfer(**who, src=chance.choice(NAMES), dst=chance.choice([*NAMES, "nobody"])))
        else:
            made.append(Deposit(**who, account=chance.choice(NAMES)))
    return sorted(made, key=lambda e: e.values["ts"] + chance.uniform(0, disorder))


def tables_of(some: list[Any]) -> dict[Any, pa.Table]:
    """Events as one Arrow table for each type that there is."""
    out = {}
    for kind in (Transfer, Deposit):
        rows = [e.values for e in some if e.definition is kind.definition]
        if rows:
            out[kind] = pa.Table.from_pylist(rows, schema=kind.definition.arrow())
    return out


def put(folder: Path, table: pa.Table) -> Path:
    """The next file of a folder: it appears whole, and is newer than those before it."""
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("*.parquet")))
    making, final = folder / f".{number}.tmp", folder / f"part-{number:04}.parquet"
    pq.write_table(table, making)
    os.utime(making, (1_700_000_000 + number, 1_700_000_000 + number))
    making.rename(final)
    return final


def put_cut(root: Path, some: list[Any], cuts: int) -> None:
    """Events as `cuts` files for each type, under root/Transfer and root/Deposit. A file may be empty: a source that
    had fewer would be ahead of the other in time."""
    size = -(-len(some) // cuts)
    for at in range(0, len(some), size):
        tables = tables_of(some[at : at + size])
        for kind in (Transfer, Deposit):
            put(root / kind.definition.name, tables.get(kind, kind.definition.arrow().empty_table()))


def frames(spark: Any, root: Path, per_batch: int = 1) -> dict[Any, Any]:
    out = {}
    for kind in (Transfer, Deposit):
        schema = spark.createDataFrame(kind.definition.arrow().empty_table()).schema
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", per_batch)
        out[kind] = reader.parquet(str(root / kind.definition.name))
    return out


def direct(root: Path, per_batch: int | None = 1) -> dict[Any, Any]:
    return {kind: ps.parquet(root / kind.definition.name, files_per_batch=per_batch) for kind in (Transfer, Deposit)}


def finish(query: Any) -> None:
    assert query.awaitTermination(PATIENCE_S), f"the query still runs: {query.lastProgress}"


def outcomes_in(folder: Path) -> pa.Table:
    """All outcomes, in the order of their versions."""
    found = [pq.read_table(file) for file in sorted(folder.glob("version-*.parquet"))]
    return pa.concat_tables(found) if found else bank.program.outcomes().empty_table()


def assert_as_reference(some: list[Any], state: Path, outcomes: pa.Table | None, start: Any = START) -> None:
    """Each event once, in event order, and the tables that this leaves."""
    reference = bank.reference()
    reference.load(Account, start)
    wanted = reference.run(some)
    if outcomes is not None:
        assert_same_outcomes(outcomes.drop("version"), wanted.drop("version"))
    with bank.open(state) as db:
        assert db.held == 0
        assert_same_tables(db.table(Account), reference.table(Account), ["id"])


def run_python(code: str, folder: Path, *args: Any) -> str:
    """A script in its own process; what it printed."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code))
    command = [sys.executable, str(script), *map(str, args)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


def state_of(tmp_path: Path) -> Path:
    state = tmp_path / "state"
    bank.load(Account, START, state=state)
    return state


# --- streams ----------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["frames", "direct", "mixed"])
def test_two_types_of_event_are_merged_in_event_order(spark: Any, tmp_path: Path, source: str) -> None:
    some = events(1, 120, disorder=10)
    put_cut(tmp_path, some, 4)
    state = state_of(tmp_path)
    sources = frames(spark, tmp_path) if source == "frames" else direct(tmp_path)
    if source == "mixed":
        sources[Transfer] = frames(spark, tmp_path)[Transfer]
    finish(bank.start(sources, state=state, outcomes=tmp_path / "out", watermark=60, trigger=NOW))
    out = outcomes_in(tmp_path / "out")
    assert_as_reference(some, state, out)
    assert set(out["status"].to_pylist()) == {"committed", "aborted"}
    read = spark.read.parquet(str(tmp_path / "out"))
    assert read.columns == bank.program.outcomes().names
    assert sorted(r.id for r in read.collect()) == sorted(e.values["id"] for e in some)


def test_without_a_watermark_batches_run_as_they_come(spark: Any, tmp_path: Path) -> None:
    late_first = [events(2, 20, first=100), events(3, 20)]
    for some in late_first:
        put(tmp_path / "Transfer", tables_of(some)[Transfer])
    state = state_of(tmp_path)
    query = bank.start(
        {Transfer: ps.parquet(tmp_path / "Transfer", files_per_batch=1)},
        state=state,
        outcomes=tmp_path / "out",
        trigger=NOW,
    )
    finish(query)
    reference = bank.reference()
    reference.load(Account, START)
    wanted = [reference.run({Transfer: tables_of(some)[Transfer]}) for some in late_first]
    assert_same_outcomes(outcomes_in(tmp_path / "out"), pa.concat_tables(wanted))


def test_late_events_say_so_and_change_nothing(spark: Any, tmp_path: Path) -> None:
    first, late = events(2, 40, first=100), events(3, 6)
    put_cut(tmp_path, first, 1)
    state = state_of(tmp_path)
    for some in (first, late, events(4, 6, first=300)):
        if some is not first:
            put_cut(tmp_path, some, 1)
        finish(bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", watermark=5, trigger=NOW))
    out = outcomes_in(tmp_path / "out").to_pylist()
    assert [r["id"] for r in out if r["status"] == "late"] == sorted(e.values["id"] for e in late)
    assert_as_reference([*first, *events(4, 6, first=300)], state, None)


def test_a_function_gets_the_outcomes_of_each_batch(spark: Any, tmp_path: Path) -> None:
    some = events(5, 60, disorder=4)
    put_cut(tmp_path, some, 3)
    state = state_of(tmp_path)
    got: list[tuple[int, Any]] = []

    def take(frame: Any, batch_id: int) -> None:
        got.append((batch_id, frame.toArrow()))

    finish(bank.start(frames(spark, tmp_path), state=state, outcomes=take, watermark=40, trigger=NOW))
    assert [n for n, _ in got] == [1, 2, 3, 4]  # the last is of what was held
    assert_as_reference(some, state, pa.concat_tables([t for _, t in got]))


def test_columns_that_the_event_does_not_declare_are_ignored(spark: Any, tmp_path: Path) -> None:
    some = events(6, 30)
    for kind, table in tables_of(some).items():
        put(tmp_path / kind.definition.name, table.append_column("note", pa.array(["x"] * table.num_rows)))
    state = state_of(tmp_path)
    sources = direct(tmp_path)
    frame = spark.readStream.schema(spark.read.parquet(str(tmp_path / "Transfer")).schema)
    sources[Transfer] = (
        frame.parquet(str(tmp_path / "Transfer"))
        .withColumnRenamed("src", "SRC")
        .select("note", "amount", "SRC", "dst", "id", "ts")
        .withColumnRenamed("SRC", "src")
    )
    finish(bank.start(sources, state=state, outcomes=tmp_path / "out", trigger=NOW))
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


def test_apply_and_load_take_static_frames(spark: Any, tmp_path: Path) -> None:
    state = tmp_path / "a state"
    bank.load(
        Account, spark.createDataFrame(pa.Table.from_pylist(START, schema=Account.definition.arrow())), state=state
    )
    some = events(7, 50)
    sources = {kind: spark.createDataFrame(table) for kind, table in tables_of(some).items()}
    out = bank.apply(sources, state=state)
    assert out.columns == bank.program.outcomes().names
    assert_as_reference(some, state, out.toArrow())


def test_a_day_time_interval_is_a_timedelta(spark: Any, tmp_path: Path) -> None:
    app = ps.App("waits")

    @app.table
    class Wait:
        id: int = ps.key()
        total: dt.timedelta = dt.timedelta()

    @app.event
    class Waited:
        at: dt.datetime = ps.order()
        id: int
        since: dt.datetime
        parts: list[dt.timedelta]
        gap: dt.timedelta

    @app.transaction
    def waited(e: Waited):
        wait = Wait.get(e.id)
        wait.total += e.at - e.since + e.gap
        for part in e.parts:
            wait.total += part
        return {"total": wait.total}

    state = tmp_path / "state"
    app.load(Wait, spark.sql("select 2L as id, interval '3' day as total"), state=state)
    given = spark.sql(
        "select timestamp'2024-03-01 00:00:00' as at, id, timestamp'2024-02-29 00:00:00' as since, "
        "array(interval '-1' second, interval '2' hour) as parts, interval '0 00:00:00.000001' day to second as gap "
        "from values (1L), (2L) as t(id)"
    )
    out = app.apply({Waited: given}, state=state)
    assert out.schema["total"].dataType.typeName() == "daytimeinterval"
    one = dt.timedelta(days=1, hours=2, seconds=-1, microseconds=1)
    assert [row.total for row in out.collect()] == [one, one + dt.timedelta(days=3)]
    wrong = given.withColumn("gap", given.id)
    with pytest.raises(ps.InputError, match="column 'gap' is bigint, not timedelta"):
        app.apply({Waited: wrong}, state=state)


def test_paths_may_hold_spaces(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "my files %20 é"
    some = events(8, 40, disorder=3)
    put_cut(root, some, 2)
    state = state_of(root)
    sources = direct(root)
    sources[Deposit] = frames(spark, root)[Deposit]
    finish(bank.start(sources, state=state, outcomes=root / "the out", watermark=30, trigger=NOW))
    assert_as_reference(some, state, outcomes_in(root / "the out"))


def test_a_running_query_takes_files_as_they_appear_and_stops(spark: Any, tmp_path: Path) -> None:
    # Of one type: of two files, the query might take one before the other is there.
    some = [event for event in events(9, 120) if event.definition is Transfer.definition]
    half = sum(event.values["ts"] < 30 for event in some)
    put_cut(tmp_path, some[:half], 1)
    state = state_of(tmp_path)
    query = bank.start(
        {Transfer: direct(tmp_path)[Transfer]},
        state=state,
        outcomes=tmp_path / "out",
        watermark=0,
        trigger={"processingTime": "100 milliseconds"},
        name="bank",
    )
    assert query.isActive
    assert query.name == "bank"
    wait_for(lambda: outcomes_in(tmp_path / "out").num_rows == half)
    put_cut(tmp_path, some[half:], 1)
    wait_for(lambda: outcomes_in(tmp_path / "out").num_rows == len(some))
    assert query.awaitTermination(1) is False
    query.processAllAvailable()
    assert query.lastProgress is not None
    assert query.exception() is None
    query.stop()
    assert not query.isActive
    query.awaitTermination()
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


@pytest.mark.parametrize("source", [frames, direct])
def test_a_stopped_query_starts_again_and_goes_on(spark: Any, tmp_path: Path, source: Any) -> None:
    some = events(10, 90, disorder=8)
    state = state_of(tmp_path)
    # Stopped while it holds events back, twice, and drained at the end.
    for part, trigger in ((some[:30], None), (some[30:60], None), (some[60:], NOW)):
        put_cut(tmp_path, part, 1)
        sources = source(spark, tmp_path) if source is frames else source(tmp_path)
        query = bank.start(sources, state=state, outcomes=tmp_path / "out", watermark=40, trigger=trigger)
        if trigger is None:
            query.processAllAvailable()
            query.stop()
        finish(query)
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


@pytest.mark.parametrize("source", [frames, direct])
def test_a_query_that_is_stopped_before_its_end_is_not_drained(
    spark: Any, tmp_path: Path, source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has not read may have to run before what it holds."""
    some = events(14, 120, disorder=10)
    put_cut(tmp_path, some, 12)
    state = state_of(tmp_path)

    def again() -> Any:
        sources = frames(spark, tmp_path) if source is frames else direct(tmp_path)
        return bank.start(sources, state=state, outcomes=tmp_path / "out", watermark=30, trigger=NOW)

    some_are_there, stopping = threading.Event(), threading.Event()

    def pause(self: MicroBatch, engine: Any, out: Any, *batch: Any) -> None:
        publish(self, engine, out, *batch)
        if out.num_rows:
            some_are_there.set()
            assert stopping.wait(PATIENCE_S)

    publish = MicroBatch.publish
    with monkeypatch.context() as patch:
        patch.setattr(MicroBatch, "publish", pause)
        query = again()
        assert some_are_there.wait(PATIENCE_S)
        stop = threading.Thread(target=query.stop)
        stop.start()  # it returns once the batch has ended
        stop.join(1)
        stopping.set()
        stop.join(PATIENCE_S)
        finish(query)
    assert 0 < outcomes_in(tmp_path / "out").num_rows < len(some)
    finish(again())
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


def test_the_directory_is_free_once_the_query_has_stopped(spark: Any, tmp_path: Path) -> None:
    put_cut(tmp_path, events(11, 20), 1)
    state = state_of(tmp_path)
    query = bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out")
    query.processAllAvailable()
    query.stop()
    bank.load(Account, [{"id": "new"}], state=state)
    with bank.open(state) as db:
        assert db.table(Account).num_rows == 5


def wait_for(what: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.05)


# --- other sessions, each in its own process --------------------------------------------------

RUN = """
    import sys
    from pathlib import Path

    from pyspark.sql import SparkSession

    {app}

    if __name__ == "__main__":
        root, way, master = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
        builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
        builder = builder.config("spark.sql.shuffle.partitions", "2")
        spark = (builder.remote(master) if way == "connect" else builder.master(master)).getOrCreate()
        sources = {{Transfer: ps.parquet(root / "Transfer", files_per_batch={limit})}}
        schema = "ts long, id string, account string, amount decimal(18,2)"
        sources[Deposit] = spark.readStream.schema(schema).parquet(str(root / "Deposit"))
        where = {{"state": root / "state", "outcomes": root / "out", "watermark": 60}}
        query = bank.start(sources, **where)
        query.processAllAvailable()
        query.stop()
        query = bank.start(sources, trigger={{"availableNow": True}}, **where)
        query.awaitTermination()
        print("ended", type(query).__module__)
        spark.stop()
"""
LIMIT = 1 if ADMITS else None
IMPORTED = "import penstock as ps\n    from test_stream import Deposit, Transfer, bank"


def in_main() -> str:
    """The app's own source, to stand in the script itself."""
    text = Path(__file__).read_text()
    app = text[text.index('bank = ps.App("bank")') : text.index("# --- what the other")]
    return textwrap.indent("from decimal import Decimal\n\nimport penstock as ps\n\n" + app, "    ").lstrip()


@pytest.mark.parametrize("master", ["local[1]", "local[*]"])
def test_other_masters(tmp_path: Path, master: str) -> None:
    root = tmp_path / "with a space"
    some = events(12, 40, disorder=5)
    put_cut(root, some, 2)
    state = state_of(root)
    run_python(RUN.format(app=IMPORTED, limit=LIMIT), root, root, "classic", master)
    assert_as_reference(some, state, outcomes_in(root / "out"))


SERVER = """
    import sys

    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
    # Any port that is free.
    builder = builder.config("spark.connect.grpc.binding.port", "0").config("spark.log.level", "ERROR")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    service = getattr(spark._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    print(getattr(service, "MODULE$").localPort(), flush=True)
    sys.stdin.read()  # until who started it closes it, or dies
    spark.stop()
"""


@pytest.fixture(scope="module")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Spark Connect server in a process of its own; its address."""
    for needed in ("grpc", "grpc_status", "pandas"):
        pytest.importorskip(needed)
    folder = tmp_path_factory.mktemp("connect")
    (folder / "server.py").write_text(textwrap.dedent(SERVER))
    with (
        open(folder / "said", "w+") as said,
        subprocess.Popen(
            [sys.executable, str(folder / "server.py")],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            start_new_session=True,
        ) as server,
    ):
        try:
            port = server.stdout.readline().strip()
            assert port.isdigit(), (folder / "said").read_text()[-3000:]
            yield f"sc://localhost:{port}"
            server.stdin.close()
            server.wait(PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)


@pytest.mark.parametrize("where", ["imported", "main"])
def test_spark_connect(connect_server: str, tmp_path: Path, where: str) -> None:
    root = tmp_path / "with a space"
    some = events(13, 40, disorder=5)
    put_cut(root, some, 2)
    for kind in (Transfer, Deposit):
        row = {"ts": None, "id": "bad", "src": "a", "dst": "b", "account": "a", "amount": Decimal(1)}
        schema = kind.definition.arrow()
        put(root / kind.definition.name, pa.table([pa.array([row[f.name]], f.type) for f in schema], schema))
    state = state_of(root)
    code = RUN.format(app=IMPORTED if where == "imported" else in_main(), limit=LIMIT)
    printed = run_python(code, root, root, "connect", connect_server)
    assert "ended pyspark.sql.connect" in printed
    wait_for(lambda: is_free(state))  # the server's worker that had it leaves a moment after the query
    found = outcomes_in(root / "out")
    is_bad = pc.equal(found.column("status").cast("string"), "rejected")
    assert found.filter(is_bad).column("reason").to_pylist() == ["ts: null"] * 2
    assert_as_reference(some, state, found.filter(pc.invert(is_bad)))


def is_free(state: Path) -> bool:
    try:
        bank.open(state).close()
    except ps.StateError:
        return False
    return True
