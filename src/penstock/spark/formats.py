"""Our streaming formats, made known to a session once: Spark warns of a second time."""

from __future__ import annotations

import weakref
from typing import Any

from pyspark.sql.datasource import DataSource

_registered: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def register(spark: Any, source: type[DataSource]) -> None:
    known = _registered.setdefault(spark, set())
    if source.name() not in known:
        spark.dataSource.register(source)
        known.add(source.name())
