"""Our streaming formats, made known to a session once: Spark warns of a second time."""

from __future__ import annotations

import weakref
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource

from penstock.spark.workers import plainly, this_python

_registered: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def pieces_of_stream(spark: Any, source: type[DataSource], options: dict[str, str]) -> DataFrame:
    """The streaming DataFrame of a direct source's pieces."""
    known = _registered.setdefault(spark, set())
    if source.name() not in known:
        with this_python(spark):
            spark.dataSource.register(source)
        known.add(source.name())
    with plainly(spark):
        return spark.readStream.format(source.name()).options(**options).load()
