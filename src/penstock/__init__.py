"""Penstock: ACID transactions in event-time order on streams."""

from typing import TYPE_CHECKING

from penstock._version import __version__
from penstock.app import App
from penstock.declare.marks import check, decimal, index, key, order
from penstock.declare.marks import id_ as id
from penstock.declare.objects import abort, emit, function, now, require, udf
from penstock.errors import (
    ConflictError,
    DeclarationError,
    FutureVersionError,
    InputError,
    NotRetainedError,
    NotYetError,
    PenstockError,
    QueueFullError,
    StateError,
)
from penstock.schedule.policy import Policy

if TYPE_CHECKING:
    from penstock.replica.reader import Reader as Reader
    from penstock.replica.reader import reader as reader
    from penstock.serve.remote.client import Client as Client
    from penstock.serve.remote.client import connect as connect
    from penstock.spark.files import parquet as parquet
    from penstock.spark.kafka.sink import kafka_sink as kafka_sink
    from penstock.spark.kafka.source import kafka as kafka
    from penstock.spark.reader import register as register
else:

    def __getattr__(name):
        """What needs pyspark, numba's cache or an extra, imported when it is asked for."""
        if name in ("Reader", "reader"):
            from penstock.replica import reader

            return getattr(reader, name)
        if name in ("Client", "connect"):
            from penstock.serve.remote import client

            return getattr(client, name)
        if name == "parquet":
            from penstock.spark.files import parquet

            return parquet
        if name == "kafka":
            from penstock.spark.kafka.source import kafka

            return kafka
        if name == "kafka_sink":
            from penstock.spark.kafka.sink import kafka_sink

            return kafka_sink
        if name == "register":
            from penstock.spark.reader import register

            return register
        raise AttributeError(f"module 'penstock' has no attribute '{name}'")


__all__ = [
    "App",
    "ConflictError",
    "DeclarationError",
    "FutureVersionError",
    "InputError",
    "NotRetainedError",
    "NotYetError",
    "PenstockError",
    "Policy",
    "QueueFullError",
    "StateError",
    "__version__",
    "abort",
    "check",
    "decimal",
    "emit",
    "function",
    "id",
    "index",
    "key",
    "now",
    "order",
    "require",
    "udf",
]
