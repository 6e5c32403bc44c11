"""A stream with rows that cannot be events, and with wild times, runs to its end: each row has one outcome, and the
good ones are as if the others had not come."""

import datetime as dt
import os
import random
import subprocess
import sys
import textwrap
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from test_kills import progress
from test_stream import NOW, finish, put

import penstock as ps
from penstock.testing import assert_same_outcomes, assert_same_tables

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]

shop = ps.App("shop")
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SECOND = 10**6


@shop.table
class Total:
    key: str = ps.key()
    sum: ps.decimal(8, 2) = 0
    last: int = 0


@shop.event
class Order:
    ts: dt.datetime = ps.order()
    id: str = ps.id()
    key: str
    amount: ps.decimal(8, 2)
    note: str
    parts: list[ps.decimal(4, 0)]


@shop.transaction
def order(e: Order):
    total = Total.get(e.key)
    total.sum = total.sum * Decimal("0.9") + e.amount  # so that order matters
    for part in e.parts:
        ps.require(part != 7, "seven")
    total.last = 1 if e.note == "note" else 2
    return {"sum": total.sum}


WIDE = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("id", pa.string()),
        ("key", pa.string()),
        ("amount", pa.decimal128(20, 4)),
        ("note", pa.binary()),
        ("parts", pa.list_(pa.int64())),
    ]
)
BAD: tuple[dict[str, Any], ...] = (
    {"ts": None},
    {"id": None},
    {"amount": Decimal("0.001")},
    {"amount": Decimal(10**9)},
    {"note": b"\xc3\x28"},
    {"parts": [1, 10**6]},
    {"ts": None, "id": None, "parts": [2**62]},
)


def rows(rng: random.Random, first: int, count: int) -> list[dict[str, Any]]:
    """1 % of them are bad, and 0.1 % wild."""
    out = []
    for i in range(first, first + count):
        made = {
            "ts": START + dt.timedelta(seconds=i // 2 + rng.randrange(5)),
            "id": f"{i:06}",
            "key": rng.choice(("a", "b", "c", None)),
            "amount": Decimal(rng.randrange(9000)) / 100,
            "note": rng.choice((b"", b"note", None)),
            "parts": rng.choice(([], [1, 2], [7], [None], None)),
        }
        chance = rng.random()
        if i % 100 == 50:
            made |= BAD[i // 100 % len(BAD)]
        elif i % 1000 == 777 or chance < 0.0005:
            made["ts"] = START.replace(year=rng.choice((2100, 3000, 9999)))
        out.append(made)
    return out


def as_table(some: list[dict[str, Any]]) -> pa.Table:
    """With text that need not be UTF-8."""
    table = pa.Table.from_pylist(some, schema=WIDE)
    notes = table.column("note").combine_chunks()
    text = pa.Array.from_buffers(pa.string(), len(notes), notes.buffers(), notes.null_count)
    return table.set_column(4, "note", text)


def is_good(row: dict[str, Any]) -> bool:
    far = row["ts"] is None or row["ts"].year > 2099
    return (
        not far and row["id"] is not None and all(row[name] != bad for one in BAD for name, bad in one.items() if bad)
    )


def put_rows(root: Path, seed: int, files: int, each: int) -> list[dict[str, Any]]:
    rng, every = random.Random(seed), list[dict[str, Any]]()
    for number in range(files):
        some = rows(rng, number * each, each)
        put(root / "in", as_table(some))
        every += some
    return every


def source(spark: Any, root: Path, kind: str) -> dict[Any, Any]:
    if kind == "direct":
        return {Order: ps.parquet(root / "in", files_per_batch=1)}
    schema = spark.createDataFrame(WIDE.set(4, pa.field("note", pa.string())).empty_table()).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return {Order: reader.parquet(str(root / "in"))}


def outcomes(root: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(file) for file in sorted((root / "out").glob("version-*.parquet"))])


def assert_each_once(root: Path, every: list[dict[str, Any]]) -> None:
    """One outcome a row; and the good ones are those of the reference, which had no others."""
    out, good = outcomes(root), [row for row in every if is_good(row)]
    rejected = pc.equal(out["status"].cast("string"), "rejected")
    bad, ran = out.filter(rejected), out.filter(pc.invert(rejected))
    named = [row["id"] for row in every if not is_good(row)]
    assert bad.num_rows == len(named) > 0
    assert sorted(map(str, bad["id"].to_pylist())) == sorted(map(str, named))
    reference = shop.reference()
    wanted = reference.run({Order: as_table(good)})
    assert_same_outcomes(ran.drop("version"), wanted.drop("version"))
    with shop.open(root / "state") as db:
        assert_same_tables(db.table(Total), reference.table(Total), ["key"])
        assert db.held == 0


@pytest.mark.parametrize(("kind", "log"), [("direct", "source"), ("frames", "changes")])
def test_each_row_has_one_outcome(spark: Any, tmp_path: Path, kind: str, log: str) -> None:
    every = put_rows(tmp_path, 1, 2, 500)

    def start(**trigger: Any) -> Any:
        return shop.start(
            source(spark, tmp_path, kind),
            state=tmp_path / "state",
            outcomes=tmp_path / "out",
            watermark="20 seconds",
            log=log,
            **trigger,
        )

    query = start()
    query.processAllAvailable()
    query.stop()
    rng = random.Random(2)
    for number in (2, 3):
        some = rows(rng, number * 500, 500)
        put(tmp_path / "in", as_table(some))
        every += some
    finish(start(trigger=NOW))
    assert_each_once(tmp_path, every)


def test_a_batch_of_bad_rows_is_applied_or_refused(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "in", as_table(rows(random.Random(3), 0, 200)))
    frame = spark.read.parquet(str(tmp_path / "in"))
    with pytest.raises(ps.InputError, match="event 'Order'"):
        shop.apply({Order: frame}, state=tmp_path / "state", on_bad="fail")
    out = shop.apply({Order: frame}, state=tmp_path / "state")
    told = [row.status for row in out.collect()]
    assert len(told) == 200 and told.count("rejected") == 2
    with pytest.raises(ps.InputError, match="on_bad='drop' does not say"):
        shop.apply({Order: frame}, state=tmp_path / "state", on_bad="drop")  # type: ignore[arg-type]
    with pytest.raises(ps.InputError, match="ahead='soon' is not"):
        shop.apply({Order: frame}, state=tmp_path / "state", ahead="soon")


JOB = """
    import sys
    from pathlib import Path

    from pyspark.sql import SparkSession
    from test_bad_rows_on_spark import shop, source

    root = Path(sys.argv[1])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "ERROR").getOrCreate()
    query = shop.start(
        source(spark, root, sys.argv[3]),
        state=root / "state",
        outcomes=root / "out",
        watermark="20 seconds",
        trigger={"availableNow": True},
        log=sys.argv[2],
        snapshot_every=4,
    )
    query.awaitTermination()
"""


@pytest.fixture
def job(tmp_path: Path) -> Any:
    """Runs it, and kills it after so many files more of Spark, the engine and the outcomes; None: to its end."""
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(JOB))

    def run(log: str, kind: str, steps: int | None) -> bool:
        command, before = [sys.executable, str(script), str(tmp_path), log, kind], progress(tmp_path)
        with open(tmp_path / "said", "a") as said:
            with subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True) as process:
                try:
                    while process.poll() is None and (steps is None or progress(tmp_path) < before + steps):
                        try:
                            process.wait(0.01)
                        except subprocess.TimeoutExpired:
                            continue
                    over = process.poll() is not None
                finally:
                    try:
                        os.killpg(process.pid, 9)
                    except ProcessLookupError:
                        pass
        assert not over or process.returncode == 0, (tmp_path / "said").read_text()[-3000:]
        return over

    return run


@pytest.mark.long
@pytest.mark.parametrize(("kind", "log"), [("direct", "source"), ("direct", "changes"), ("frames", "input")])
def test_kills_leave_each_row_one_outcome(tmp_path: Path, job: Any, kind: str, log: str) -> None:
    every, rng, kills = put_rows(tmp_path, 7, 16, 500), random.Random(7), 0
    for _ in range(5):
        if job(log, kind, rng.randrange(2, 14)):
            break
        kills += 1
    assert job(log, kind, None)
    assert_each_once(tmp_path, every)
    print(f"{kills} kills")
    assert kills > 2
