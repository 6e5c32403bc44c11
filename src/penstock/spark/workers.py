"""Which Python Spark runs for what Penstock registers with a session: sources, and the reader.

Spark runs them in workers, as PYSPARK_PYTHON says, or else in the `python3` that comes first on the PATH. Where a
virtual environment was not activated, in an IDE or a service, that is an interpreter without Penstock. A source that
is registered carries its interpreter's name with it. So where workers run on this machine, and nobody has said which
Python they are, ours carry the name of the one that registers them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.errors import PenstockError

SETTING = "PYSPARK_PYTHON"
# What Spark says where a worker is another Python, or has none of ours.
_WRONG = (
    r"No module named '(penstock|pyarrow|numpy|numba|duckdb)'",
    r"PYTHON_VERSION_MISMATCH",
    r"Cannot run program \"",
)


def is_connect(spark: Any) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def this_python(spark: Any) -> Iterator[None]:
    """What is registered meanwhile runs in this interpreter, unless it is known better."""
    if is_connect(spark) or SETTING in os.environ or not spark.sparkContext.master.startswith("local"):
        yield
        return
    context = spark.sparkContext
    before, context.pythonExec = context.pythonExec, sys.executable
    try:
        yield
    finally:
        context.pythonExec = before


@contextmanager
def plainly(spark: Any) -> Iterator[None]:
    """Where a worker is the wrong Python: PenstockError that says so, and what to set."""
    try:
        yield
    except Exception as error:
        found = next(filter(None, (re.search(wrong, str(error)) for wrong in _WRONG)), None)
        if found is None:
            raise
        where, python = "in this process's environment", os.environ.get(SETTING, "python3")
        if is_connect(spark):
            where, python = "where the Spark Connect server is started", "another Python"
        raise PenstockError(
            f"Spark's Python workers run {python}, which does not do ({found[0]}); before the session is made, set "
            f"{SETTING} {where} to an interpreter that has Penstock, on every machine of the cluster (this process is "
            f"{sys.executable})"
        ) from error
