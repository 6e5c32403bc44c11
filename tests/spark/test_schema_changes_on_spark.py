"""A query whose app has changed goes on from its checkpoint; the reader knows which version has which columns."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.replica.directory import Directory

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]

NOW = {"availableNow": True}
FIELDS = "ts long, account string, amount long, memo string"


def before() -> ps.App:
    app = ps.App("bank")

    @app.table
    class Account:
        id: str = ps.key()
        amount: int = 0

    @app.event
    class Put:
        ts: int = ps.order()
        account: str
        amount: int
        memo: str

    @app.transaction
    def put(e: Put):
        Account.get(e.account).amount += e.amount

    return app


def now() -> ps.App:
    app = ps.App("bank")

    @app.table
    class Account:
        id: str = ps.key()
        balance: ps.decimal(18, 2) = 0
        note: str = "-"

    @app.event
    class Put:
        ts: int = ps.order()
        account: str
        amount: int

    @app.transaction
    def put(e: Put):
        account = Account.get(e.account)
        account.balance += e.amount
        return {"left": account.balance}

    return app


RENAME = {"Account.amount": "balance"}


def put(folder: Path, number: int, *several: tuple[int, str, int]) -> None:
    folder.mkdir(exist_ok=True)
    rows = [{"ts": ts, "account": account, "amount": amount, "memo": "m"} for ts, account, amount in several]
    pq.write_table(pa.Table.from_pylist(rows), folder / f"{number}.parquet")


def rows(table: Any) -> list[dict[str, Any]]:
    table = table if isinstance(table, pa.Table) else table.toArrow()
    found: list[dict[str, Any]] = table.sort_by("id").to_pylist()
    return found


def changes(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((r["version"], r["change"], r["id"], r["balance"]) for r in frame.collect())


def test_a_query_goes_on_behind_a_change_and_readers_follow(spark: Any, tmp_path: Path) -> None:
    state, out, inbox = tmp_path / "state", tmp_path / "out", tmp_path / "in"
    session = spark.newSession()
    ps.register(session)

    def run(app: ps.App) -> None:
        source = spark.readStream.schema(FIELDS).parquet(str(inbox))
        query = app.start({"Put": source}, state=state, outcomes=out, watermark=5, trigger=NOW, on_bad="fail")
        query.awaitTermination()
        assert query.exception() is None

    def follow(into: list[Any]) -> Any:
        stream = session.readStream.format("penstock").options(feed="changes", table="Account").load(str(state))
        writer = stream.writeStream.foreachBatch(lambda frame, _: into.extend(changes(frame)))
        return writer.option("checkpointLocation", str(tmp_path / "feed")).trigger(**NOW)

    put(inbox, 1, (1, "a", 3), (2, "b", 4))
    run(before())
    old = session.read.format("penstock").option("table", "Account").load(str(state))
    assert rows(old) == [{"id": "a", "amount": 3}, {"id": "b", "amount": 4}]
    last = Directory(state).version
    stale, fresh = follow([]), list[Any]()

    app = now()
    app.migrate(state, rename=RENAME)
    put(inbox, 2, (9, "a", 5), (10, "c", 1))
    run(app)

    read = session.read.format("penstock").option("table", "Account")
    assert rows(read.load(str(state))) == [
        {"id": "a", "balance": Decimal("8.00"), "note": "-"},
        {"id": "b", "balance": Decimal("4.00"), "note": "-"},
        {"id": "c", "balance": Decimal("1.00"), "note": "-"},
    ]
    assert rows(read.option("version", last).load(str(state))) == [{"id": "a", "amount": 3}, {"id": "b", "amount": 4}]
    assert rows(old) == [{"id": "a", "amount": 3}, {"id": "b", "amount": 4}]  # planned before the change
    feed = session.read.format("penstock").options(feed="changes", table="Account").load(str(state))
    found = changes(feed)
    assert {row[1] for row in found} == {"written", "migrated"}
    assert [row[2:] for row in found if row[1] == "migrated"] == [("a", Decimal("3.00")), ("b", Decimal("4.00"))]
    outcomes = pq.read_table(out)
    assert outcomes.num_rows == 4 and set(outcomes["status"].to_pylist()) == {"committed"}

    with pytest.raises(Exception, match="has other columns since this was made"):
        stale.start().awaitTermination()
    follow(fresh).start().awaitTermination()
    assert sorted(fresh) == found
