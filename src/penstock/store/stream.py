"""What a stream keeps besides tables: which query feeds it, how far it is, and the events that are held back.

It goes into every segment and snapshot, so that the newest one holds all of it:

    header "stream"       {"source": …, "offsets": …, "drained": …, "highest": …, "frontier": …, "timers": …}
    part held:Transfer    events held back, in order of arrival
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from penstock.execute.watermark import WatermarkBuffer
from penstock.store.segment import HELD, part, parts_of


class StreamState(NamedTuple):
    """A tuple, as `WatermarkBuffer` is."""

    source: str | None = None
    buffer: WatermarkBuffer = WatermarkBuffer()
    offsets: str | None = None  # how its last batch was planned: a batch of that number planned anew is another one
    drained: int | None = None  # the last version that ran what was held, because the stream had come to its end
    timers: int | None = None  # how many numbers were given to timers (state/timers.py)

    def ran(self, ts: Any) -> StreamState:
        """After a batch whose events, in order, have these times."""
        source, before, offsets, drained, timers = self
        after = before.ran(ts.item(-1)) if ts.size else before
        return self if after is before else StreamState(source, after, offsets, drained, timers)

    def advanced(self, to: int) -> StreamState:
        """After the clock was set by hand."""
        return self._replace(buffer=self.buffer.ran(to))

    def header(self) -> dict[str, Any]:
        kept = {
            "source": self.source,
            "offsets": self.offsets,
            "drained": self.drained,
            "highest": self.buffer.highest,
            "frontier": self.buffer.frontier,
        }
        if self.timers is not None:
            kept["timers"] = self.timers
        return {"stream": kept} if any(value is not None for value in kept.values()) else {}

    def parts(self) -> dict[str, pa.Table]:
        return {part(HELD, name): table for name, table in self.buffer.held.items()}

    @classmethod
    def read(cls, header: dict[str, Any], parts: dict[str, pa.Table]) -> StreamState:
        kept = header.get("stream", {})
        buffer = WatermarkBuffer(kept.get("highest"), kept.get("frontier"), parts_of(HELD, parts))
        return cls(kept.get("source"), buffer, kept.get("offsets"), kept.get("drained"), kept.get("timers"))
