"""A stream's driver: the calls of penstock.spark.batch.MicroBatch, in their order.

    catch_up     after opening: the outcomes of the newest version are in their file
    settle       what runs ahead has run
    stored       is the batch committed already? Then it was sent again
    behind       the outcomes of the batch before are in their file
    run          commits
    publish      its outcomes go to their file, behind the driver's back
    go on        the next batch runs ahead, if it is known; and the guess may turn out wrong
    done         Spark notes the batch: after a crash before that, it is sent again, as it was planned

What Spark notes (which events a batch has, and which batch was done) is as durable as what the plan says: it is not
penstock's. At the end every version has its file of outcomes, and each holds what the model says.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow.parquet as pq

from penstock.errors import StateError
from penstock.publish.files import OutcomeFiles
from simulation.app import BatchRequest
from simulation.oracle import OUTCOMES, PATH, outcome_files
from simulation.session import Refused, outcomes
from simulation.writer import Writer

SOURCE = "query"


class Driver(Writer):
    def write(self) -> None:
        self._files = OutcomeFiles(str(OUTCOMES), str(PATH), self.session.disk)
        self._behind: Beside | None = None
        self._ahead: Beside | None = None
        try:
            self._stream()
        finally:  # before the database is closed
            with suppress(Refused):
                self._wait_behind()
            with suppress(Refused):
                self._settle()

    def _stream(self) -> None:
        choices, plan, session = self.choices, self.plan, self.session
        self._catch_up()
        while plan.batches > 0:
            id = plan.done + 1
            if id not in plan.planned:
                plan.planned[id] = self._planned(id)
            asked = plan.planned[id]
            self._settle()
            found = session.stored(asked)
            if found is None:
                self._wait_behind()
                found = session.run(asked)
            self._publish(found)
            if choices.below(3):
                self._go_on(id + 1)
            self.oracle.machine.scheduler.pause()
            plan.done = id
            plan.batches -= 1
            if choices.once_in(12):
                break
        self._settle()
        if plan.batches <= 0 and session.db.held:
            self._wait_behind()
            self._publish(session.run(BatchRequest(flush=True, source=SOURCE)))
        self._wait_behind()

    def look_at_all(self) -> None:
        """All outcomes are in files, and nothing else is."""
        session, oracle = self.session, self.oracle
        self._files = OutcomeFiles(str(OUTCOMES), str(PATH), session.disk)
        self._catch_up()
        wanted = {c.version: list(c.outcomes) for c in oracle.commits if c.outcomes and not c.is_load}
        found = outcome_files(oracle.machine)
        oracle.check(found.keys() == wanted.keys(), f"files of versions {sorted(found)}, not of {sorted(wanted)}")
        for version, data in found.items():
            given = outcomes(pq.ParquetFile(io.BytesIO(data)).read())
            oracle.check(given == wanted[version], f"the file of version {version} holds {given}")

    def _planned(self, id: int) -> BatchRequest:
        plan = self.plan
        plan.plans += 1  # no two plans are the same
        return BatchRequest(plan.batch(), id, SOURCE, f"plan {plan.plans}", plan.watermark)

    def _catch_up(self) -> None:
        db = self.session.db
        if db.source is not None:
            with self.session.refusing("catch up"):
                self._files.write(db.outcomes(db.version))

    def _go_on(self, id: int) -> None:
        planned = self.plan.planned
        guess = planned[id] if id in planned else self._planned(id)
        if self.choices.below(4):
            planned[id] = guess
        elif id in planned:
            guess = self._planned(id)
        self._ahead = Beside(self, "ahead", lambda: self.session.run_ahead(guess))

    def _settle(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.wait()

    def _publish(self, found: Any) -> None:
        self._wait_behind()

        def write() -> None:
            with self.session.refusing("write outcomes"):
                self._files.write(found)

        self._behind = Beside(self, "outcomes", write)

    def _wait_behind(self) -> None:
        if self._behind is not None:
            self._behind.wait()


class Beside:
    """A piece of work in a thread of the same process; who waits for it is told what went wrong, however often."""

    def __init__(self, driver: Driver, name: str, work: Callable[[], None]) -> None:
        self._error: Exception | None = None

        def whole() -> None:
            try:
                work()
            except (Refused, StateError) as error:
                self._error = error

        self._thread = driver.session.disk.thread(whole, name)

    def wait(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise Refused from self._error
