"""What is given to `start` and `apply` beside sources, checked and in the engine's units."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

from penstock.declare.limits import MICROSECOND
from penstock.declare.model import Program
from penstock.declare.spans import microseconds_of
from penstock.errors import InputError
from penstock.execute.request import Admission, checked_on_bad, is_default
from penstock.serve.http.options import Options, need_extra
from penstock.spark.outcome_sink import SinkInput
from penstock.spark.workers import is_connect


def refuse_odd(program: Program, outcomes: Any, trigger: Any) -> None:
    """What pyspark or pathlib would refuse in words of their own, which do not say what to give."""
    if not (callable(outcomes) or isinstance(outcomes, str | os.PathLike | SinkInput)):
        raise InputError(
            f"app '{program.name}': outcomes={outcomes!r} is not a directory, ps.kafka_sink(…) or "
            "f(dataframe, batch_id)"
        )
    if trigger is not None and not isinstance(trigger, dict):
        raise InputError(f"app '{program.name}': trigger={trigger!r} is not a dict, such as {{'availableNow': True}}")


def admission(program: Program, on_bad: Any, ahead: Any) -> Admission:
    """What becomes of rows that cannot be events; the default is for datetimes, where they are to be rejected."""
    on_bad, ts = checked_on_bad(program, on_bad), program.order_type()
    if is_default(ahead) and (on_bad == "fail" or ts is None or ts.kind != "datetime"):
        ahead = None
    return Admission(on_bad, span(program, "ahead", ahead))


def idle_after(program: Program, idle: Any, outcomes: Any, spark: Any) -> int | None:
    """After how many microseconds a stream is idle."""
    if idle is None:
        return None
    ts, where = program.order_type(), f"app '{program.name}': idle={idle!r} "
    if ts is None or ts.kind != "datetime":
        raise InputError(
            f"{where}moves the clock by the wall clock, and ts is {ts}; declare the order as a datetime, or call "
            "db.advance yourself"
        )
    if callable(outcomes):
        raise InputError(
            f"{where}makes versions between Spark's batches; give a directory for outcomes, not a function"
        )
    if is_connect(spark):
        raise InputError(f"{where}is not there under Spark Connect; use a session of classic Spark")
    after = span(program, "idle", idle)
    if not after:
        raise InputError(f"{where}is no time to wait for; give one, such as '30 seconds'")
    return after


def serving(program: Program, listen: Any, state: str, spark: Any) -> Options:
    """Where a server is to listen, beside the query."""
    if not isinstance(listen, str):
        raise InputError(f"app '{program.name}': serve={listen!r} is not an address, such as '127.0.0.1:7400'")
    if is_connect(spark):
        raise InputError(
            f"app '{program.name}': serve= is not there under Spark Connect, whose engine runs elsewhere; run penstock "
            "serve where the state directory is"
        )
    need_extra()
    options = Options(Path(state), listen)
    options.check()
    return options


def span(program: Program, option: str, given: str | int | datetime.timedelta | None) -> int | None:
    """A span of time in the unit of the order column: "5 seconds" or a timedelta for datetimes, an int for ints.

    option: what it is given as, `watermark`, `ahead` or `idle`."""
    if given is None:
        return None
    ts = program.order_type()
    is_time = ts is not None and ts.kind == "datetime"
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    written = microseconds_of(given)
    if written is not None and is_time:
        return written
    if is_time and isinstance(given, datetime.timedelta) and given >= datetime.timedelta(0):
        return given // MICROSECOND
    takes = "an int, in the unit of its order column"
    if is_time:
        takes = '"5 seconds", a timedelta or a number of microseconds'
    raise InputError(f"app '{program.name}': {option}={given!r} is not {takes}")
