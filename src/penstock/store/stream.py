"""What a stream keeps besides tables: which query feeds it, how far it is, and the events that are held back.

It goes into every segment and snapshot, so that the newest one holds all of it:

    header "stream"       {"source": …, "offsets": …, "drained": …, "highest": …, "frontier": …}; and where there is
                          one, "watermark": …, "timers": …, and "waiting": [[event, id, ts, place, fields], …]
    part held:Transfer    events held back, in order of arrival; with "held": "unchanged" in the header those of the
                          version before, as a call leaves them
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from penstock.execute.watermark import WatermarkBuffer
from penstock.store.segment import HELD, part, parts_of

# More than lies between any two times: it lets nothing run.
ALL = 1 << 65


class WaitingCall(NamedTuple):
    """An event that was called, and that the watermark holds back."""

    event: str
    id: Any  # None: it has none
    ts: int
    place: int  # among the events of this type, ts and id
    fields: int | None = None  # execute/field_hashes.py; None: an older Penstock did not note it


class StreamState(NamedTuple):
    """A tuple, as `WatermarkBuffer` is."""

    source: str | None = None
    buffer: WatermarkBuffer = WatermarkBuffer()
    offsets: str | None = None  # how its last batch was planned: a batch of that number planned anew is another one
    drained: int | None = None  # the last version that ran what was held, because the stream had come to its end
    watermark: int | None = None  # of the last batch
    waiting: tuple[WaitingCall, ...] = ()
    timers: int | None = None  # how many numbers were given to timers (state/timers.py)

    def ran(self, ts: Any) -> StreamState:
        """After a batch whose events, in order, have these times."""
        before = self.buffer
        after = before.ran(ts.item(-1)) if ts.size else before
        return self if after is before else self._replace(buffer=after)

    def advanced(self, to: int) -> StreamState:
        """After the clock was set by hand."""
        return self._replace(buffer=self.buffer.ran(to))

    def holds_as(self, before: StreamState) -> bool:
        """Whether what is held has not changed since."""
        return bool(self.buffer.held) and self.buffer.held is before.buffer.held

    def header(self, before: StreamState | None = None) -> dict[str, Any]:
        """before: the state that the version before left, where what is unchanged since need not be said again."""
        kept: dict[str, Any] = {
            "source": self.source,
            "offsets": self.offsets,
            "drained": self.drained,
            "highest": self.buffer.highest,
            "frontier": self.buffer.frontier,
        }
        if self.watermark is not None or self.buffer.held:
            kept["watermark"] = self.watermark
        if before is not None and self.holds_as(before):
            kept["held"] = "unchanged"
        if self.timers is not None:
            kept["timers"] = self.timers
        if self.waiting:
            kept["waiting"] = [list(one) for one in self.waiting]
        return {"stream": kept} if any(value is not None for value in kept.values()) else {}

    def parts(self, before: StreamState | None = None) -> dict[str, pa.Table]:
        if before is not None and self.holds_as(before):
            return {}
        return {part(HELD, name): table for name, table in self.buffer.held.items()}

    @classmethod
    def read(cls, header: dict[str, Any], parts: dict[str, pa.Table], before: StreamState | None = None) -> StreamState:
        kept = header.get("stream", {})
        held = parts_of(HELD, parts)
        if kept.get("held") == "unchanged" and before is not None:
            held = dict(before.buffer.held)
        buffer = WatermarkBuffer(kept.get("highest"), kept.get("frontier"), held)
        waiting = tuple(WaitingCall(*one) for one in kept.get("waiting", ()))
        source, offsets, drained = kept.get("source"), kept.get("offsets"), kept.get("drained")
        # An older Penstock did not note it: then what is held, and what is called beside it, waits for a batch.
        watermark = kept.get("watermark", ALL if buffer.held else None)
        return cls(source, buffer, offsets, drained, watermark, waiting, kept.get("timers"))
