"""What is asked for with a batch, besides its events, and of its outcomes; checked before anything is done."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast, get_args

from penstock.declare.limits import INT_MAX, microseconds
from penstock.declare.model import EventDef, Program
from penstock.errors import InputError

# Of an app that emits, which rows outcomes have; "roots" leaves out those that were caused and committed.
KeptSteps = Literal["all", "roots"]


class BatchRequest(NamedTuple):
    """A tuple, since a small batch feels what a frozen dataclass takes to make."""

    id: int | None = None
    source: str | None = None
    offsets: str | None = None
    watermark: int | None = None
    flush: bool = False
    until: int | None = None  # what the clock is set to by hand

    def checked(self) -> BatchRequest:
        """Itself; InputError if it cannot be taken."""
        id, source, offsets, watermark, flush, _ = self
        if not (_is_int(id) and _is_str(source) and _is_str(offsets)):
            raise InputError(
                f"id={id!r}, source={source!r}, offsets={offsets!r} cannot be taken: an int numbers a batch; a str "
                "names its stream, and another says what of it the batch is"
            )
        if not _is_int(watermark) or (watermark is not None and watermark < 0):
            raise InputError(
                f"watermark={watermark!r} cannot be taken: give an int of 0 or more, in the unit of the order field; "
                "for a datetime, that is microseconds"
            )
        if flush is not True and flush is not False:
            raise InputError(f"flush={flush!r} cannot be taken: give True or False")
        return self


def checked_steps(program: Program, steps: object) -> KeptSteps:
    """The same; InputError if that is no choice of rows."""
    if steps not in get_args(KeptSteps):
        raise InputError(
            f"app '{program.name}': steps={steps!r} does not say which rows outcomes have; write steps=\"all\", or "
            'steps="roots" to leave out those that were caused and committed'
        )
    return cast("KeptSteps", steps)


def _is_int(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _is_str(value: Any) -> bool:
    return value is None or isinstance(value, str)


# -- admission: what becomes of rows that cannot be events (admission.py) --------------------

OnBad = Literal["reject", "fail"]


class _Default(str):
    """What nobody has asked for: it says nothing to whom it does not suit."""


AHEAD = _Default("1 day")  # of `start`, for datetimes
Ahead = str | int | datetime.timedelta | None


def wall_clock() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@dataclass(frozen=True, slots=True)
class Admission:
    on_bad: OnBad = "reject"
    ahead: int | None = None  # in the unit of ts
    wall: Callable[[], datetime.datetime] = wall_clock

    def limit(self, program: Program, highest: int | None) -> int | None:
        """The last ts that is believed; highest: that earlier batches brought."""
        if self.ahead is None:
            return None
        start = microseconds(self.wall()) if _is_time(program) else highest
        return None if start is None else min(start + self.ahead, INT_MAX)

    def too_far(self, event: EventDef, ts: str, program: Program) -> str:
        """Why a row was rejected, of which this is the ts."""
        span = str(datetime.timedelta(microseconds=self.ahead or 0) if _is_time(program) else self.ahead)
        return f"{event.order}: {ts} is more than {span.removesuffix(', 0:00:00')} ahead"


def set_back(event: EventDef, ts: str) -> str:
    """Why an event that waited was rejected, of which this is the ts."""
    return f"{event.order}: {ts} lies beyond what the clock was set back to"


def checked_on_bad(program: Program, on_bad: object) -> OnBad:
    """The same; InputError if it cannot be taken."""
    if on_bad not in get_args(OnBad):
        raise InputError(
            f"app '{program.name}': on_bad={on_bad!r} does not say what becomes of rows that cannot be events; write "
            '"reject", which gives them an outcome of that status, or "fail"'
        )
    return cast("OnBad", on_bad)


def is_default(ahead: Ahead) -> bool:
    return isinstance(ahead, _Default)


def _is_time(program: Program) -> bool:
    ts = program.order_type()
    return ts is not None and ts.kind == "datetime"
