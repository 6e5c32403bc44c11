"""`start(…, serve="127.0.0.1:0")`: a server beside a query, as a process of its own, which ends with the query."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.errors import InputError, StateError

pytestmark = pytest.mark.spark

shop = ps.App("shop")


@shop.table
class Item:
    name: str = ps.key()
    count: int = 0


@shop.event
class Add:
    ts: int = ps.order()
    name: str


@shop.transaction
def add(e: Add) -> None:
    Item.get(e.name).count += 1


def ask(state: Path, url: str, path: str) -> Any:
    token = (state / "read.token").read_text().strip()
    with urlopen(Request(url + path, headers={"Authorization": f"Bearer {token}"})) as answer:
        return json.load(answer)


def test_a_server_beside_a_query(spark: SparkSession, tmp_path: Path) -> None:
    state, files = tmp_path / "state", tmp_path / "in"
    schema = "ts long, name string"
    spark.createDataFrame([(1, "a"), (2, "b"), (3, "a")], schema).write.parquet(str(files))
    query: Any = shop.start(
        {Add: spark.readStream.schema(schema).parquet(str(files))},
        state=state,
        outcomes=tmp_path / "out",
        serve="127.0.0.1:0",
    )
    try:
        query.processAllAvailable()
        assert query.served.alive
        found = ask(state, query.served.url, "/v1/tables/Item/records/a?at_least=1")
        assert found["record"] == {"name": "a", "count": 2}
        assert ask(state, query.served.url, "/v1/status")["writer"]["pid"] == os.getpid()
        # It ends: the query goes on, and says so.
        os.kill(query.served.pid, signal.SIGKILL)
        while query.served.alive:
            pass
        assert query.served.error == "it ended with signal 9"
        spark.createDataFrame([(9, "a")], schema).write.mode("append").parquet(str(files))
        query.processAllAvailable()
        assert query.isActive
    finally:
        query.stop()
    again: Any = shop.start(
        {Add: spark.readStream.schema(schema).parquet(str(files))},
        state=state,
        outcomes=tmp_path / "out",
        serve="127.0.0.1:0",
    )
    assert ask(state, again.served.url, "/v1/tables/Item/records/a")["record"]["count"] == 3
    again.stop()
    assert not again.served.alive


def test_where_it_cannot_be_nothing_starts(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    frame = stream.selectExpr("value as ts", "'a' as name")
    for address, error, says in (
        ("0.0.0.0:0", InputError, "takes TLS"),
        ("7400", InputError, "is not HOST:PORT"),
        (7400, InputError, "is not an address"),
        ("203.0.113.1:0", InputError, "takes TLS"),
        ("127.0.0.1:1", StateError, "the server could not start: cannot listen on 127.0.0.1:1"),
    ):
        if address == "127.0.0.1:1" and os.getuid() == 0:
            continue  # root may
        where = {"state": tmp_path / "state", "outcomes": tmp_path / "out"}
        with pytest.raises(error, match=says):
            shop.start({Add: frame}, **where, serve=address)  # type: ignore[arg-type]
    # The directory is nobody's.
    shop.open(tmp_path / "state").close()
