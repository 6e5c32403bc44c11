"""What a commit holds besides its header: tables, by these names.

written:Account      records that the batch wrote, as it left them   (log="changes")
deleted:Account      keys of records that it deleted                 (log="changes")
ends:Spend           where a window's rows begin and end, of each key that the batch added to   (log="changes")
window:Spend         rows that the batch added to a window, and that it kept                     (log="changes")
event:Transfer       the batch's events, with their arrival          (log="input")
load:Account         rows of a load
held:Transfer        events that a watermark holds back (stream.py), in snapshots too
outcomes             what became of every event (outcome_codec.py)
emitted:Alert        events that went out (outcome_codec.py)
"""

from __future__ import annotations

from typing import TypeVar

WRITTEN, DELETED, EVENT, LOAD, HELD, EMITTED = "written", "deleted", "event", "load", "held", "emitted"
ENDS, WINDOW = "ends", "window"  # in snapshots too, of all keys and all rows
OUTCOMES = "outcomes"

T = TypeVar("T")


def part(kind: str, name: str) -> str:
    return f"{kind}:{name}"


def parts_of(kind: str, parts: dict[str, T]) -> dict[str, T]:
    """The parts of one kind, by the table or event that they are of."""
    return {name.removeprefix(f"{kind}:"): table for name, table in parts.items() if name.startswith(f"{kind}:")}
