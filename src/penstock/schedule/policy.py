"""Policy: how a batch is scheduled, as a value.

scheme    adaptive   chosen for each batch from what is measured (the default)
          serial     one fused loop on one core
          graph      by the dependencies of the batch (below)
          lal lwm pat none   the papers' lock-based baselines; `none` takes no locks and may break the law
explore   bfs        strata of the graph with a barrier between them
          dfs        each thread its own share, waiting where it must
          ready      count-down latches; what is ready is run or taken over by others
unit      transaction, operation (one record's share of a transaction), chain (all operations on one record;
          chains that wait for each other in a circle are one)
on_abort  eager      a write can be seen only once its transaction is decided, so nothing is ever redone
          lazy       operations run ahead of decisions; when all have run, what aborted and all that saw it are
                     redone. A transaction that runs as one unit is decided when it has run: both are the same
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

EXPLORE = ("bfs", "dfs", "ready")
UNITS = ("operation", "chain", "transaction")
ON_ABORT = ("eager", "lazy")
LOCKING = ("lal", "lwm", "pat", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    explore: str = "ready"
    unit: str = "transaction"
    on_abort: str = "eager"
    threads: int = 0  # 0: as many as there are cores
    partitions: int = 0  # pat: 0 means one a thread
    scheme: str = "graph"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("explore", self.explore, EXPLORE),
            ("unit", self.unit, UNITS),
            ("on_abort", self.on_abort, ON_ABORT),
            ("scheme", self.scheme, ("adaptive", "serial", "graph", *LOCKING)),
        ):
            if value not in known:
                raise ValueError(f"a policy's {name} is one of {', '.join(known)}, not {value!r}")
        if not (_is_count(self.threads) and _is_count(self.partitions)):
            raise ValueError(
                "a policy's threads and partitions are ints above 0, or 0 for the machine's own; got "
                f"threads={self.threads!r}, partitions={self.partitions!r}"
            )
        if not self.threads:
            object.__setattr__(self, "threads", 1 if self.scheme == "serial" else cores())

    @classmethod
    def adaptive(cls, threads: int = 0) -> Policy:
        """Let Penstock choose for each batch (the default)."""
        return cls(scheme="adaptive", threads=threads)

    @classmethod
    def serial(cls) -> Policy:
        """One fused loop over the batch, on one core."""
        return cls(scheme="serial", threads=1)

    @classmethod
    def tstream(cls, threads: int = 0) -> Policy:
        """TStream's way: operation chains, level by level; aborts are handled when the batch has run."""
        return cls(explore="bfs", unit="chain", on_abort="lazy", threads=threads)

    @classmethod
    def locking(cls, scheme: str, threads: int = 0, partitions: int = 0) -> Policy:
        """The lock-based baselines: lal, lwm, pat; `none` takes no locks, so its results may be wrong."""
        if scheme not in LOCKING:
            raise ValueError(f"a locking policy is one of {', '.join(LOCKING)}, not {scheme!r}")
        return cls(scheme=scheme, threads=threads, partitions=partitions)

    @classmethod
    def parse(cls, text: str, threads: int = 0) -> Policy:
        """A policy from its name: adaptive, serial, tstream, lal, lwm, pat, none, or ready/operation/lazy."""
        if text in ("adaptive", "tstream"):
            return cls.adaptive(threads) if text == "adaptive" else cls.tstream(threads)
        if text == "serial":
            return cls.serial()
        if text in LOCKING:
            return cls.locking(text, threads)
        parts = text.split("/")
        found: dict[str, str] = {}
        for part in parts:
            kind = next((k for k, known in _PARTS.items() if part in known), None)
            if kind is None or kind in found:
                raise ValueError(
                    f"no policy {text!r}; use adaptive, serial, tstream, {', '.join(LOCKING)}, or parts such as "
                    "ready/transaction/eager"
                )
            found[kind] = part
        return cls(**found, threads=threads)  # type: ignore[arg-type]

    @property
    def name(self) -> str:
        return f"{self.explore}/{self.unit}/{self.on_abort}" if self.scheme == "graph" else self.scheme

    def with_threads(self, threads: int) -> Policy:
        return replace(self, threads=threads)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """How a batch was run."""

    policy: Policy
    why: str
    spent: dict[str, float] = field(default_factory=dict)  # thread-seconds by what they went to
    nested: str = ""  # the policies, where groups of transactions had different ones

    @property
    def name(self) -> str:
        return self.nested or self.policy.name


_PARTS = {"explore": EXPLORE, "unit": UNITS, "on_abort": ON_ABORT}


# An operation that takes less than this, in seconds for each thread, leaves the others to wait for the common heap.
_QUICK = 0.4e-6


def redone(explore: str, operation: float, threads: int) -> str:
    """How what ran ahead in vain is explored again. That is cautious: in the common heap its many steps, if they are
    short, would be in each other's way. operation: seconds of one."""
    return "bfs" if explore == "ready" and operation < _QUICK * threads else explore


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
