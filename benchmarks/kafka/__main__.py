"""Events of a topic in batches: read by the engine, beside Spark's own Kafka source.

    python -m benchmarks.kafka --rows 2000000 --batch 200000

    a   ps.kafka: each event a transfer between two accounts, logged and fsynced, its outcome in Parquet, exactly once
    b   Spark's source (its jars from Maven Central): the values through mapInArrow unchanged, into Parquet: no state
    c   the same, and the JSON parsed by from_json

They run one after another in one process, on one broker that this starts (tests/spark/broker.py), or on --bootstrap, in
turns: a, b, c, a, b, c, … A turn's time is the median of its batches without the first.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps

ACCOUNTS, PARTITIONS = 10_000, 4

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: ps.decimal(18, 2) = 0  # type: ignore[valid-type]


@bank.event
class Transfer:
    ts: int = ps.order()
    id: str = ps.id()
    src: str
    dst: str
    amount: ps.decimal(18, 2)  # type: ignore[valid-type]


@bank.transaction
def transfer(e: Transfer):
    src, dst = Account[e.src], Account[e.dst]
    ps.require(src.balance >= e.amount, "not enough")
    src.balance -= e.amount
    dst.balance += e.amount
    return {"left": src.balance}


def fill(bootstrap: str, topic: str, rows: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    conf = {"linger.ms": 50, "queue.buffering.max.messages": 500_000, "batch.num.messages": 10_000}
    producer, chance = Producer({"bootstrap.servers": bootstrap, **conf}), random.Random(1)
    for i in range(rows):
        row = {"ts": i, "id": f"t{i}", "src": f"a{chance.randrange(ACCOUNTS)}", "dst": f"a{chance.randrange(ACCOUNTS)}"}
        value = json.dumps({**row, "amount": chance.randrange(1, 100)}).encode()
        while True:
            try:
                producer.produce(topic, value, partition=i % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if i % 1000 == 0:
            producer.poll(0)
    producer.flush()


def run_penstock(spark: Any, bootstrap: str, topic: str, batch: int, work: Path) -> list[float]:
    state = work / "state"
    bank.load(Account, [{"id": f"a{i}", "balance": 1000} for i in range(ACCOUNTS)], state=state)
    source = {Transfer: ps.kafka(topic, bootstrap=bootstrap, rows_per_batch=batch)}
    return finish(bank.start(source, state=state, outcomes=work / "out", trigger={"availableNow": True}))


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def run_spark(spark: Any, bootstrap: str, topic: str, batch: int, work: Path, *, parse: bool) -> list[float]:
    from pyspark.sql import functions as F

    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", batch)
    frame, schema = reader.load().select("value"), "value binary"
    if parse:
        schema = "ts long, id string, src string, dst string, amount decimal(18, 2)"
        frame = frame.select(F.from_json(F.col("value").cast("string"), schema).alias("e")).select("e.*")

    def each(part: Any, batch_id: int) -> None:
        part.mapInArrow(unchanged, schema).write.mode("append").parquet(str(work / "out"))

    writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(work / "checkpoint"))
    return finish(writer.trigger(availableNow=True).start())


def finish(query: Any) -> list[float]:
    query.awaitTermination()
    done = {p["batchId"]: p["durationMs"] for p in query.recentProgress if "addBatch" in p["durationMs"]}
    return [done[i]["triggerExecution"] / 1000 for i in sorted(done)]


def session() -> Any:
    from broker import spark_jars
    from pyspark.sql import SparkSession

    made = (
        SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    )
    made = made.config("spark.sql.streaming.numRecentProgressUpdates", "1000")
    return made.config("spark.jars", ",".join(map(str, spark_jars()))).getOrCreate()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--bootstrap", help="a broker that runs; without it one is started")
    args = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "spark"))
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bootstrap = args.bootstrap
        if bootstrap is None:
            from broker import running

            (work / "broker").mkdir()
            bootstrap = stack.enter_context(running(work / "broker")).bootstrap
        topic = f"transfers-{time.time_ns()}"
        fill(bootstrap, topic, args.rows)
        spark = session()
        found: dict[str, list[float]] = {"a": [], "b": [], "c": []}
        for turn in range(args.turns):
            for name in found:
                root = work / f"{name}{turn}"
                root.mkdir()
                if name == "a":
                    seconds = run_penstock(spark, bootstrap, topic, args.batch, root)
                else:
                    seconds = run_spark(spark, bootstrap, topic, args.batch, root, parse=name == "c")
                each = statistics.median(seconds[1:] or seconds)
                found[name].append(args.batch / each)
                print(
                    f"turn {turn} {name}: {len(seconds)} batches, {each:.3f} s each, {args.batch / each:,.0f} events/s"
                )
        spark.stop()
    rates = {name: statistics.median(several) for name, several in found.items()}
    print(json.dumps({"events_per_s": rates, "a_to_b": rates["a"] / rates["b"], "a_to_c": rates["a"] / rates["c"]}))


if __name__ == "__main__":
    main()
