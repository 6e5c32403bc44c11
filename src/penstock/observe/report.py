"""What a batch was: counts, policy, and seconds by stage; and what was found damaged."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.observe import html

# Of a report in the log, in this order; times stand behind them.
_TOLD = (
    *("app", "state", "query", "cause", "version", "id", "events", "committed", "aborted", "late", "rejected"),
    *("duplicate", "held", "changes", "policy"),
)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """`db.last_batch`."""

    version: int
    policy: str
    why: str
    events: int
    committed: int
    late: int
    held: int  # events that wait, after this batch: for a watermark, or for the rest of their atomic batch
    aborted: dict[str, int]  # by reason
    changes: int  # records written or deleted
    seconds: dict[str, float]  # by stage
    threads: int = 1
    spent: dict[str, float] = field(default_factory=dict)  # threads' seconds inside execute: useful, construct, …
    duplicate: int = 0  # events whose id had run already
    rejected: int = 0  # rows that cannot be events
    app: str = ""
    state: str | None = None  # the state directory; None: in memory
    id: int | None = None  # of the batch, as `run` was given it: on Spark the query's own number
    query: str | None = None  # the Spark query that it is of, by its id
    cause: str = "batch"  # or "call", "arrival" (of calls that wait for their time), "advance"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON can hold."""
        return asdict(self)

    def line(self) -> dict[str, Any]:
        """What the log says of it (log.py)."""
        ms = {stage: round(1000 * seconds, 3) for stage, seconds in self.seconds.items()}
        told: dict[str, Any] = {name: getattr(self, name) for name in _TOLD}
        return told | {"ms": round(sum(ms.values()), 3), "ms_by_stage": ms}

    def __str__(self) -> str:
        total = sum(self.seconds.values())
        reasons = ", ".join(f"{reason}: {n}" for reason, n in self.aborted.items()) or "none"
        stages = ", ".join(f"{stage} {1000 * s:.2f}" for stage, s in self.seconds.items())
        others = {"late": self.late, "duplicate": self.duplicate, "held": self.held}
        waiting = "; " + ", ".join(f"{n} {what}" for what, n in others.items() if n) if any(others.values()) else ""
        waiting += f"; {self.rejected} rejected" if self.rejected else ""
        return (
            f"batch {self.version}: {self.events} events, {self.committed} committed, aborted {reasons}{waiting}; "
            f"{self.changes} records changed; {self.policy}: {self.why}; {1000 * total:.2f} ms ({stages})"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        aborted = {f"aborted: {reason}": n for reason, n in self.aborted.items()}
        stages = {f"{stage} (ms)": f"{1000 * s:.2f}" for stage, s in self.seconds.items()}
        whole: dict[str, Any] = {"version": self.version, "events": self.events, "committed": self.committed, **aborted}
        whole |= {"late": self.late, "duplicate": self.duplicate, "rejected": self.rejected, "held": self.held}
        whole |= {"changes": self.changes}
        whole |= {"policy": self.policy, "why": self.why}
        return html.of_rows(("batch", ""), (whole | stages).items())


@dataclass(frozen=True, slots=True)
class Damage:
    """A file of a state directory that does not hold any more, found while its writer goes on."""

    directory: str
    file: str  # within it
    problem: str
    remedy: str

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON can hold."""
        return asdict(self)

    def __str__(self) -> str:
        return f"state directory {self.directory}: {self.file} {self.problem}; {self.remedy}"


@dataclass(slots=True)
class Stopwatch:
    """Seconds by stage; each stage begins where the one before it ended."""

    seconds: dict[str, float] = field(default_factory=dict)
    _begun: float = field(default_factory=time.perf_counter)

    def ends(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = now - self._begun
        self._begun = now
