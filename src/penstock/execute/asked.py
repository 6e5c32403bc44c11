"""What is asked for with a batch, besides its events; checked before anything is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.errors import InputError


@dataclass(frozen=True, slots=True)
class Asked:
    id: int | None = None
    source: str | None = None
    offsets: str | None = None
    watermark: int | None = None
    flush: bool = False

    def __post_init__(self) -> None:
        if not (_is_int(self.id) and _is_str(self.source) and _is_str(self.offsets)):
            raise InputError(
                f"id={self.id!r}, source={self.source!r}, offsets={self.offsets!r} cannot be taken: an int numbers a "
                "batch; a str names its stream, and another says what of it the batch is"
            )
        if not (_is_int(self.watermark) and (self.watermark is None or self.watermark >= 0)):
            raise InputError(
                f"watermark={self.watermark!r} cannot be taken: give an int of 0 or more, in the unit of the order "
                "field; for a datetime, that is microseconds"
            )
        if not isinstance(self.flush, bool):
            raise InputError(f"flush={self.flush!r} cannot be taken: give True or False")


def _is_int(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _is_str(value: Any) -> bool:
    return value is None or isinstance(value, str)
