"""What a commit holds besides its header: tables, by these names.

written:Account      records that the batch wrote, as it left them   (log="changes")
deleted:Account      keys of records that it deleted                 (log="changes")
written:$Expire      timers of an event that it set, and likewise those that have run; they are in snapshots too
ends:Spend           where a window's rows begin and end, of each key that the batch added to   (log="changes")
window:Spend         rows that the batch added to a window, and that it kept                     (log="changes")
ids:Transfer         ids that ran, and are to run once; in snapshots too, of all that are remembered   (log="changes")
event:Transfer       the batch's events, with their arrival          (log="input")
load:Account         rows of a load
aged:Account         when those that it wrote, or loaded, were written, by the clock, where records have a ttl; it is in
                     snapshots too
held:Transfer        events that wait (stream.py), in snapshots too
refused:Transfer     which rows of the files that the header names are no events           (log="source")
restated:Account     all records of a table, with the columns that a change of the schema has given it; timers likewise
outcomes             what became of every event (outcome_codec.py)
calls                of a version that answers calls, those with an id: event, id, row of the outcomes, and what stands
                     for their fields (execute/field_hashes.py)
emitted:Alert        events that went out (outcome_codec.py)

The header of a version that calls made has "cause": "call": its events ran in order of arrival. Where they arrived as
a batch does, since they have a ts of their own and there is a watermark, it is "arrival"; "advance" and "reset" say
that the clock was set by hand, on or back. An older Penstock has "calls": [[event, id, row of the outcomes], …] there
in the place of the part. With log="source", a batch from files has "files": {event: [[path, size, crc32], …]} in the
place of its events, and "watermark" and "flush".

The header of a version that changes the schema has "cause": "schema" and "schema": what it was, what it is and what has
another name (schemas.py). It ran no events, and whatever the log, it is a version of changes.
"""

from __future__ import annotations

from typing import TypeVar

WRITTEN, DELETED, AGED, EVENT, LOAD, HELD, EMITTED = "written", "deleted", "aged", "event", "load", "held", "emitted"
IDS = "ids"
REFUSED = "refused"
ENDS, WINDOW = "ends", "window"  # in snapshots too, of all keys and all rows
RESTATED = "restated"
OUTCOMES, CALLS = "outcomes", "calls"
# BETWEEN the batches of a stream.
CALL, ARRIVAL, ADVANCE, RESET, SCHEMA = BETWEEN = "call", "arrival", "advance", "reset", "schema"

T = TypeVar("T")


def part(kind: str, name: str) -> str:
    return f"{kind}:{name}"


def parts_of(kind: str, parts: dict[str, T]) -> dict[str, T]:
    """The parts of one kind, by the table or event that they are of."""
    return {name.removeprefix(f"{kind}:"): table for name, table in parts.items() if name.startswith(f"{kind}:")}
