"""A query that is started again, and the sources that it had before.

Spark's checkpoint has a line of offsets for each source, and knows a source by its line alone:

    {"event": "Deposit", "files": 3}      a direct source, which says whose it is
    {"event": "Bid", "offsets": {…}}      another, of Kafka
    {"logOffset": 2}                      a DataFrame's; one of several sources has several lines

If two direct sources changed places, each would go on where the other had stopped: some files would be read twice, and
some never. So they are put back into their places, and what cannot be the same sources is refused.
"""

from __future__ import annotations

from typing import Any

from penstock.declare.model import EventDef, Program
from penstock.errors import InputError
from penstock.spark.checkpoint import noted_offsets
from penstock.spark.direct_source import DirectInput

_WAYS = {"files": "ps.parquet", "offsets": "ps.kafka"}  # of direct sources, by what their offsets have


def as_before(program: Program, sources: dict[EventDef, Any], state: str) -> dict[EventDef, Any]:
    """The sources in the order that the checkpoint of a state directory has them in."""
    offsets = noted_offsets(state)
    if offsets is None:
        return sources
    noted = [None if offset is None else str(offset["event"]) for offset in offsets]
    direct = {event.name: event for event, source in sources.items() if isinstance(source, DirectInput)}
    others = [event for event in sources if event.name not in noted]
    fewer = len(direct) == len(sources) < len(noted)  # a DataFrame may be of several sources; a direct one is one
    if fewer or len(sources) > len(noted) or any(name not in direct for name in noted if name is not None):
        raise InputError(
            f"app '{program.name}': the query in {state} reads {_before(offsets)}, and is now given {_now(sources)}; "
            "Spark goes on with the same sources only: give them as they were, or begin another state directory"
        )
    if len(sources) < len(noted):
        return sources
    rest = iter(others)
    order = [next(rest) if name is None else direct[name] for name in noted]
    return {event: sources[event] for event in order}


def _before(noted: list[dict[str, Any] | None]) -> str:
    parts = []
    for part, way in _WAYS.items():
        names = [offset["event"] for offset in noted if offset is not None and part in offset]
        parts += [f"{', '.join(names)} with {way}"] if names else []
    frames = noted.count(None)
    parts += [f"{frames} source{'s' * (frames > 1)} of DataFrames"] if frames else []
    return " and ".join(parts)


def _now(sources: dict[EventDef, Any]) -> str:
    ways = {
        event.name: source.way if isinstance(source, DirectInput) else "a DataFrame"
        for event, source in sources.items()
    }
    return ", ".join(f"{name} with {way}" for name, way in ways.items())
