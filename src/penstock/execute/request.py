"""What is asked for with a batch, besides its events, and of its outcomes; checked before anything is done."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast, get_args

from penstock.declare.model import Program
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
