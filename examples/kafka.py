"""Transfers from a Kafka topic; what became of them to another one, each once.

python examples/kafka.py localhost:9092      (a broker with the topics `transfers` and `outcomes`; or --fill makes them)
"""

import argparse
import json
from decimal import Decimal
from typing import Any

import penstock as ps

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: Decimal = ps.decimal(18, 2, default=0)


@bank.event
class Transfer:
    ts: int = ps.order()
    id: str = ps.id()
    src: str
    dst: str
    amount: Decimal = ps.decimal(18, 2)


@bank.transaction
def transfer(e: Transfer) -> dict[str, Any]:
    src, dst = Account[e.src], Account[e.dst]
    ps.require(src.balance >= e.amount, "not enough")
    src.balance -= e.amount
    dst.balance += e.amount
    return {"left": src.balance}


SOME = [
    {"ts": 10, "id": "t1", "src": "ann", "dst": "bob", "amount": "30.00"},
    {"ts": 20, "id": "t2", "src": "bob", "dst": "eve", "amount": 20},
    {"ts": 30, "id": "t3", "src": "bob", "dst": "eve", "amount": "20.00"},
]


def fill(bootstrap: str) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    topics = [NewTopic(name, 1, 1) for name in ("transfers", "outcomes")]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(topics).values():
        made.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for row in SOME:
        producer.produce("transfers", json.dumps(row).encode())
    producer.produce("transfers", b"no event")
    producer.flush()


def show(bootstrap: str) -> None:
    """All that is in the topic, as any consumer sees it that reads what has committed."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "show", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("outcomes", 0, 0)])
    while (message := consumer.poll(5)) is not None:
        row = json.loads(message.value() or b"{}")
        print(row["id"], row["status"], row["reason"] or row["left"])
    consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("--state", default="state/kafka")
    parser.add_argument("--fill", action="store_true", help="make the topics, and some transfers")
    args = parser.parse_args()

    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    if args.fill:
        fill(args.bootstrap)
        bank.load(Account, [{"id": "ann", "balance": 40}, {"id": "bob"}, {"id": "eve"}], state=args.state)
    query = bank.start(
        {Transfer: ps.kafka("transfers", bootstrap=args.bootstrap, rows_per_batch=100_000)},
        state=args.state,
        outcomes=ps.kafka_sink("outcomes", bootstrap=args.bootstrap),
        trigger={"availableNow": True},  # without it the query goes on
    )
    query.awaitTermination()
    show(args.bootstrap)
    spark.stop()


if __name__ == "__main__":
    main()
