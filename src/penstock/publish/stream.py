"""What a stream keeps besides tables: which query feeds it, and the events that are held back.

It goes into every segment and snapshot, so that the newest one holds all of it:

    header "stream"       {"source": …, "highest": …, "frontier": …}
    part held:Transfer    events held back, in order of arrival
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.execute.waiting import Waiting

HELD = "held:"


@dataclass(frozen=True, slots=True)
class Stream:
    source: str | None = None
    waiting: Waiting = field(default_factory=Waiting)

    def header(self) -> dict[str, Any]:
        kept = {"source": self.source, "highest": self.waiting.highest, "frontier": self.waiting.frontier}
        return {} if kept == {"source": None, "highest": None, "frontier": None} else {"stream": kept}

    def parts(self) -> dict[str, pa.Table]:
        return {HELD + name: table for name, table in self.waiting.held.items()}

    @classmethod
    def read(cls, header: dict[str, Any], parts: dict[str, pa.Table]) -> Stream:
        kept = header.get("stream", {})
        held = {name.removeprefix(HELD): table for name, table in parts.items() if name.startswith(HELD)}
        return cls(kept.get("source"), Waiting(kept.get("highest"), kept.get("frontier"), held))
