"""The next batch of direct sources, read and run while Spark plans it.

What Spark does between two batches takes as long as 100,000 events or more. Meanwhile the next batch, as far as it is
certain which files it has, is read and run (`Database.run_ahead`); when Spark asks for it, it only has to happen. If
Spark asks for another one, the database goes back, and this reads that one's files.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pyarrow as pa

from penstock.declare.model import EventDef, Program
from penstock.execute.source_files import SourceRows, read, read_named
from penstock.spark.direct_source import Spans, files_of
from penstock.spark.files import SourceFiles
from penstock.spark.outcome_writer import OutcomeWriter
from penstock.spark.threads import FEW_CORES, worker

# With few cores, Spark between two batches is slowed down by as much as we gain if we take all of them. So files are
# read by one thread, and outcomes written first, unless these are many: seconds that they are waited for.
FEW_OUTCOMES_S = 0.015


def following(sources: tuple[SourceFiles, ...], done: Spans, *, all_listed: bool) -> Spans | None:
    """The batch after this one, as Spark will plan it; None where that is not certain, as new files may come first.
    all_listed: Spark takes no new ones, as with availableNow."""
    out = {}
    for source in sources:
        start, share, known = done[source.event][1], source.files_per_batch, len(source.names())
        if share is None or (known < start + share and not all_listed):
            return None
        out[source.event] = start, min(start + share, known)
    return out if any(start < end for start, end in out.values()) else None


class RunAhead:
    def __init__(self) -> None:
        self._pool = worker("penstock-ahead")
        self._coming: dict[tuple[str, ...], Future[pa.Table | SourceRows]] = {}
        self._running: Future[None] | None = None

    def wait(self) -> None:
        """Until what runs ahead has run; raises what went wrong, which nobody else would be told."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def take(
        self, program: Program, sources: tuple[SourceFiles, ...], wanted: Spans, *, named: bool = False
    ) -> dict[str, pa.Table | SourceRows] | None:
        """The events of a batch; None where the lists lack a file that it names. named: with their files."""
        coming, self._coming = self._coming, {}
        files = files_of(program, sources, wanted)
        if files is None:
            return None
        out: dict[str, pa.Table | SourceRows] = {}
        for event, names in files:
            ready = _had(coming.get(names))
            out[event.name] = _read(event, names, named) if ready is None else ready
        return out

    def start(
        self,
        program: Program,
        sources: tuple[SourceFiles, ...],
        wanted: Spans,
        run: Callable[[dict[str, pa.Table | SourceRows]], None],
        outcomes: OutcomeWriter,
        *,
        named: bool = False,
    ) -> None:
        """Read the files of a batch, and run it, while the caller goes on. outcomes: what is still being written;
        named: as `take` will want it."""
        files = files_of(program, sources, wanted) or []
        if FEW_CORES:
            self._pool.submit(outcomes.wait_at_most, FEW_OUTCOMES_S)
        self._coming = {names: self._pool.submit(_read, event, names, named) for event, names in files}
        coming = {event.name: self._coming[names] for event, names in files}

        def run_if_read() -> None:
            if all(future.exception() is None for future in coming.values()):
                run({name: future.result() for name, future in coming.items()})

        self._running = self._pool.submit(run_if_read)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _read(event: EventDef, names: tuple[str, ...], named: bool) -> pa.Table | SourceRows:
    return (read_named if named else read)(event, names, threads=not FEW_CORES)


def _had(coming: Future[pa.Table | SourceRows] | None) -> pa.Table | SourceRows | None:
    """What was read ahead. A file that could not be read then may have been mended since."""
    return None if coming is None or coming.exception() is not None else coming.result()
