"""What newer versions of Spark let a Python source do, and what it is where Spark is older.

    Spark 4.0    DataFrames, direct sources without a limit, the reader
    Spark 4.1    and filters that a reader takes (`key = …`)
    Spark 4.2    and admission control: a limit to a batch, `files_per_batch`, `rows_per_batch` and `versions_per_batch`

A source of Spark 4.2 is asked for `latestOffset(start, limit)`, an older one for `latestOffset()`: ours answer both. An
older Spark's one batch takes all there is, also with availableNow; a limit is refused by `need_admission`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql import datasource
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql.datasource import EqualTo, Filter, In
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    ADMITS = FILTERS = True
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxFiles,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        ADMITS = True
    except ModuleNotFoundError:
        ADMITS = False

        class ReadLimit:
            """Nobody asks for one."""

        @dataclass
        class ReadAllAvailable(ReadLimit):
            """All there is."""

        @dataclass
        class ReadMaxFiles(ReadLimit):
            max_files: int

        @dataclass
        class ReadMaxRows(ReadLimit):
            max_rows: int

        class SupportsTriggerAvailableNow:
            """Spark asks once what there is, and takes that."""

    FILTERS = hasattr(datasource, "Filter")
    EqualTo, Filter, In = (getattr(datasource, name, Any) for name in ("EqualTo", "Filter", "In"))


def arrow_schema(schema: Any) -> pa.Schema:
    """Spark's schema as Arrow's, with times in UTC; an older Spark takes no other."""
    return to_arrow_schema(schema, timezone="UTC") if ADMITS else to_arrow_schema(schema)


def need_admission(who: str, option: str, instead: str) -> None:
    """InputError where Spark's Python sources know no limit."""
    if not ADMITS:
        raise InputError(
            f"{who}: {option} limits a batch, which a Python source can from Spark 4.2 on, and this is Spark "
            f"{pyspark.__version__}; {instead}, or install pyspark 4.2 or newer"
        )


__all__ = [
    "ADMITS",
    "FILTERS",
    "EqualTo",
    "Filter",
    "In",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxFiles",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "need_admission",
]
