"""The engine: an app's tables, and batches run over them one after the other.

    order      the batch's events by (ts, id); duplicates marked     (execute/order.py, duplicates.py)
    encode     the fields that the transactions use, as arrays       (execute/native.py)
    execute    the compiled kernels run every event, by a policy     (schedule/scheduler.py)
    outcomes   what became of every event, as an Arrow table         (execute/outcomes.py)

It knows no files, no readers and no streams: whoever holds one (database.py, a replay of a log) says which batch is
next and what its version is. `order` and `encode` change nothing; after `run`, and until `end_batch`, the tables know
what the batch has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.execute import called, duplicates
from penstock.execute.atomic_batches import grouped
from penstock.execute.intake import EventBatch
from penstock.execute.native import BatchContext, Kernel, Result
from penstock.execute.order import OrderedBatch, order, titles
from penstock.execute.outcomes import BatchOutcomes, Outcomes
from penstock.execute.request import KeptSteps
from penstock.plan.ir import Plan
from penstock.schedule.policy import Policy, RunSummary
from penstock.schedule.scheduler import Scheduler
from penstock.state.tables import Tables


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    ordered: OrderedBatch
    lanes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BatchRun:
    """A batch that the tables have gone through."""

    version: int
    ordered: OrderedBatch
    result: Result
    summary: RunSummary


class Engine:
    def __init__(self, plan: Plan, kernel: Kernel | None = None, *, steps: KeptSteps = "all") -> None:
        self.plan, self.program = plan, plan.program
        self.kernel = kernel or Kernel(plan)
        self.tables = Tables(self.program, plan.windows)
        self._expires = any(table.ttl is not None for table in self.program.tables)
        self._outcomes = Outcomes(self.program, self.reasons, steps)

    @cached_property
    def scheduler(self) -> Scheduler:
        """Made when it is first asked for: a replay of a log needs none."""
        return Scheduler(self.kernel)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a transaction may abort: code c means the reason at c - 1."""
        return self.kernel.layout.reasons

    def replica(self) -> Engine:
        """Another engine for the same app, with empty tables; the two may run at the same time."""
        return Engine(self.plan, self.kernel.twin())

    def order(
        self,
        events: list[EventBatch],
        late: list[Any] | None = None,
        clock: int | None = None,
        until: int | None = None,
    ) -> OrderedBatch:
        return self._arranged(order(self.program, events, late, clock, until))

    def in_turn(self, calls: list[EventBatch], clock: int | None, *, kept: bool = True) -> OrderedBatch:
        """Events that were called, in order of arrival. clock: the highest ts that ran before them. kept: not where all
        of them only read."""
        return self._arranged(called.in_turn(self.program, calls, clock), judged=kept)

    def marked(self, ordered: OrderedBatch) -> OrderedBatch:
        """With its duplicates marked."""
        return duplicates.marked(self.program, ordered, self.tables) if self.program.unique else ordered

    def _arranged(self, ordered: OrderedBatch, *, judged: bool = True) -> OrderedBatch:
        """Duplicates marked, and atomic batches' events side by side."""
        ordered = self.marked(ordered) if judged else ordered
        return grouped(self.program, ordered) if self.program.batches else ordered

    def encode(self, ordered: OrderedBatch) -> EncodedBatch:
        return EncodedBatch(ordered, self.kernel.encode(self.tables, ordered))

    def run(self, batch: EncodedBatch, version: int, policy: Policy) -> BatchRun:
        context = self._begin(batch, version)
        summary = self.scheduler.run(context, policy)
        self._end_run(batch.ordered, version)
        return BatchRun(version, batch.ordered, self.kernel.result(context), summary)

    def replay(self, batch: EncodedBatch, version: int) -> None:
        """Run a batch of the log again, for its changes alone."""
        self.kernel.run(self._begin(batch, version))
        self._end_run(batch.ordered, version)

    def outcomes(self, run: BatchRun, rejected: pa.Table | None = None) -> BatchOutcomes:
        """rejected: rows of the batch that are no events."""
        out = self._outcomes.table(run.ordered, run.result, self.tables.strings, run.version)
        return out if rejected is None else self._outcomes.with_rejected(out, rejected, run.version)

    def end_batch(self) -> None:
        """The tables forget what the last batch has changed: it was written down, or nobody needs it."""
        self.tables.end_batch()

    def explain(self, batch: EncodedBatch, version: int, policy: Policy) -> str:
        """The graph and the schedule of a batch, as text; nothing runs."""
        context = self._begin(batch, version)
        text = self.scheduler.explain(context, policy, titles(self.program, batch.ordered), self._record)
        self.end_batch()
        return text

    def _begin(self, batch: EncodedBatch, version: int) -> BatchContext:
        return self.kernel.begin(self.tables, batch.ordered, batch.lanes, version)

    def _end_run(self, ordered: OrderedBatch, version: int) -> None:
        """Remember the ids that have run, and forget what has outlived its time."""
        duplicates.remember(ordered, self.tables, version)
        if self._expires:
            self.tables.expire(ordered.clock_after, version)

    def _record(self, table: Any, row: int) -> str:
        key = table.arrow(np.array([row]), self.tables.strings, keys_only=True).to_pylist()[0]
        return f"{table.definition.name}[{', '.join(map(str, key.values()))}]"
