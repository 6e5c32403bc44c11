"""The parallel kernels of a plan: made when they are first asked for, or in the background."""

from __future__ import annotations

import threading

from penstock.execute.native import Kernel
from penstock.execute.order import order
from penstock.schedule.graph_executor import GraphExecutor
from penstock.schedule.lock_executor import LockExecutor
from penstock.schedule.policy import EXPLORE, Policy
from penstock.state.tables import Tables


class Executors:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._graph: GraphExecutor | None = None
        self._lock: LockExecutor | None = None
        self._warm = False
        self._broken = ""
        self._compiling: threading.Thread | None = None

    @property
    def graph(self) -> GraphExecutor:
        if self._graph is None:
            self._graph = GraphExecutor(self.kernel)
        return self._graph

    @property
    def lock(self) -> LockExecutor:
        if self._lock is None:
            self._lock = LockExecutor(self.graph)
        return self._lock

    def missing(self, threads: int, *, sure: bool) -> str:
        """Why the kernels that `adaptive` may choose are not there; '' if they are. Asking for sure compiles them."""
        if self._warm:
            return ""
        if not sure:
            return "one small batch that took long may only have been held up"
        if self._compiling is None:
            name, work = "penstock-compile", self._warm_or_say_why
            self._compiling = threading.Thread(target=work, args=(threads,), name=name, daemon=True)
            self._compiling.start()
        return self._broken or "the parallel kernels are being compiled meanwhile"

    def warm(self, threads: int = 2) -> None:
        """Compile what `adaptive` may choose: run nothing, on tables of its own."""
        other = GraphExecutor(self.kernel)
        program = self.kernel.plan.program
        batch, tables = order(program, []), Tables(program, self.kernel.plan.windows)
        running = self.kernel.begin(tables, batch, self.kernel.encode(tables, batch), 0)
        for unit in ("transaction", "operation") if other.splits.any else ("transaction",):
            for explore in EXPLORE:
                other.warm(running, Policy(explore=explore, unit=unit, threads=threads))
        other.team.close()
        self.graph.adopt(other)
        self._warm = True

    def _warm_or_say_why(self, threads: int) -> None:
        try:
            self.warm(threads)
        except Exception as error:  # the stream goes on without
            self._broken = f"the parallel kernels did not compile: {error}"

    def close(self) -> None:
        if self._graph is not None:
            self._graph.team.close()
