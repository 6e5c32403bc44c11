"""The next batch of direct sources, read and run while Spark plans it.

What Spark does between two batches takes as long as 100,000 events or more. Meanwhile the next batch, as far as it is
certain which rows it has, is read and run (`Database.run_ahead`); when Spark asks for it, it only has to happen. If
Spark asks for another one, the database goes back, and this reads that one's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from penstock.declare.model import EventDef, Program
from penstock.spark.direct_source import DirectSource, Pieces, Rows, Spans, pieces_of
from penstock.spark.outcome_writer import OutcomeWriter
from penstock.spark.threads import FEW_CORES, worker

# With few cores, Spark between two batches is slowed down by as much as we gain if we take all of them. So rows are
# read by one thread, and outcomes written first, unless these are many: seconds that they are waited for.
FEW_OUTCOMES_S = 0.015


class RunAhead:
    def __init__(self) -> None:
        self._pool = worker("penstock-ahead")
        self._coming: dict[tuple[str, Pieces], Future[Rows]] = {}
        self._running: Future[None] | None = None

    def wait(self) -> None:
        """Until what runs ahead has run; raises what went wrong, which nobody else would be told."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def take(
        self, program: Program, sources: Sequence[DirectSource], wanted: Spans, *, named: bool = False
    ) -> dict[str, Rows] | None:
        """The events of a batch; None where a source does not know its pieces. named: with what a log says of them."""
        coming, self._coming = self._coming, {}
        found = pieces_of(program, sources, wanted)
        if found is None:
            return None
        out: dict[str, Rows] = {}
        for source, event, pieces in found:
            ready = _had(coming.get((event.name, pieces)))
            out[event.name] = _read(source, event, pieces, named) if ready is None else ready
        return out

    def start(
        self,
        program: Program,
        sources: Sequence[DirectSource],
        wanted: Spans,
        run: Callable[[dict[str, Rows]], None],
        outcomes: OutcomeWriter,
        *,
        named: bool = False,
    ) -> None:
        """Read the rows of a batch, and run it, while the caller goes on. outcomes: what is still being written.
        named: as `take` is asked for it."""
        found = pieces_of(program, sources, wanted) or []
        if FEW_CORES:
            self._pool.submit(outcomes.wait_at_most, FEW_OUTCOMES_S)
        coming = {event.name: self._pool.submit(_read, source, event, pieces, named) for source, event, pieces in found}
        self._coming = {(event.name, pieces): coming[event.name] for _, event, pieces in found}

        def run_if_read() -> None:
            if all(future.exception() is None for future in coming.values()):
                run({name: future.result() for name, future in coming.items()})

        self._running = self._pool.submit(run_if_read)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _read(source: DirectSource, event: EventDef, pieces: Pieces, named: bool) -> Rows:
    return source.read(event, pieces, named=named, threads=not FEW_CORES)


def _had(coming: Future[Rows] | None) -> Rows | None:
    """What was read ahead. What could not be read then may have been mended since."""
    return None if coming is None or coming.exception() is not None else coming.result()
