"""App: where a user declares, and opens what was declared."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, dataclass_transform, overload

from penstock.check.scrub import SCRUB
from penstock.commit import RETAIN, SNAPSHOT_EVERY, Disk
from penstock.declare import notebook
from penstock.declare.app import Declarations
from penstock.declare.marks import decimal, id_, order
from penstock.declare.model import Program
from penstock.declare.objects import EventType, F, Rows, Table, Window
from penstock.errors import DeclarationError, InputError
from penstock.execute.loading import OnConflict
from penstock.execute.reference import Reference
from penstock.execute.request import AHEAD, Ahead, KeptSteps, OnBad
from penstock.observe.html import Text
from penstock.plan.build import Lowered, LoweredCheck, agree, build, lower_check, lower_transaction, lower_trigger
from penstock.plan.ir import Plan
from penstock.plan.migration import Words

if TYPE_CHECKING:
    from penstock.database import Database
    from penstock.declare.objects import WindowType
    from penstock.replica.reader import Reader
    from penstock.serve.client import Connection
    from penstock.spark.typing import DataFrame, Outcomes, Output, Source, StreamingQuery

T = TypeVar("T")


class App(Declarations):
    """A set of tables, events and transactions. What cannot be compiled is refused as it is declared."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._lowered: list[Lowered | None] = []  # None: it does not fit what it names, which was declared anew
        self._checks: list[LoweredCheck] = []
        self._handles: dict[str, Any] = {}  # what users have in hand of tables, events and windows
        self._plan: Plan | None = None

    @overload
    def table(self, cls: type[T], /) -> Table[T]: ...
    @overload
    def table(
        self, cls: None = None, /, *, ttl: int | datetime.timedelta | None = None
    ) -> Callable[[type[T]], Table[T]]: ...
    def table(self, cls: Any = None, /, *, ttl: int | datetime.timedelta | None = None) -> Any:
        """Declare a table: its columns, its key, its checks.

        Args:
            cls: A class with a line a column.
            ttl: A record that no transaction has written for so long, by the clock, is absent. A timedelta, or an int
                in the unit of ts.
        """
        if cls is None:
            return partial(self._table, ttl=ttl)
        return self._table(cls, ttl=ttl)

    def _table(self, cls: type[T], *, ttl: int | datetime.timedelta | None) -> Table[T]:
        definition = self._add_table(cls, ttl)
        checks = [lower_check(definition, check) for check in definition.checks]
        self._checks = [one for one in self._checks if one.plan.table != definition.name] + checks
        return cast("Table[T]", self._declare("table", Table, "tables", definition))

    @dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(order, id_, decimal))
    def event(self, cls: type[T]) -> type[T]:
        """Declare an event: its fields, its place in time."""
        return cast("type[T]", self._declare("event", EventType, "events", self._add_event(cls)))

    def window(
        self,
        cls: None = None,
        /,
        *,
        rows: int | None = None,
        time: int | datetime.timedelta | None = None,
        slide: int | datetime.timedelta | None = None,
    ) -> Callable[[type[T]], type[WindowType[T]]]:
        """Declare a window: the last rows that one transaction has added, or those of the last while.

        Args:
            cls: Not to be given: a window says how large it is, so its decorator is always called.
            rows: How many rows it shows.
            time: Or of which span up to the clock: a timedelta, or an int in the order's unit.
            slide: In which steps rows enter: so many at once, or at each multiple of this span. Without it each row
                enters as it is added.
        """
        if cls is not None:
            raise DeclarationError(
                f"window '{getattr(cls, '__name__', cls)}': say how large it is: @app.window(rows=100), or "
                "@app.window(time=timedelta(minutes=10))"
            )

        def declare(cls: type[T]) -> type[WindowType[T]]:
            definition = self._add_window(cls, rows=rows, time=time, slide=slide)
            return cast("type[WindowType[T]]", self._declare("window", Window, "windows", definition))

        return declare

    def trigger(self, function: F) -> F:
        """Declare what runs inside the transaction that adds to a window, where rows have entered or expired."""
        definition = self._add_trigger(function)
        lower_trigger(self.program, definition)
        program = replace(self.program, triggers=_with(self.program.triggers, definition))
        # It is part of the transaction that adds to the window, which may stand above it.
        lowered = [
            one if one is None or definition.window.name not in one.windows else lower_transaction(program, transaction)
            for transaction, one in zip(program.transactions, self._lowered, strict=True)
        ]
        again = len(program.triggers) == len(self.program.triggers)
        self.program, self._lowered, self._plan = _agreed(program, lowered), lowered, None
        if again:
            notebook.note(_anew("trigger", definition.name))
        return function

    @overload
    def transaction(self, function: F, /) -> F: ...
    @overload
    def transaction(
        self, function: None = None, /, *, nested: bool = False, batch: Literal["ts"] | int | None = None
    ) -> Callable[[F], F]: ...
    def transaction(
        self, function: Any = None, /, *, nested: bool = False, batch: Literal["ts"] | int | None = None
    ) -> Any:
        """Declare what an event does. The function stays as it is. Called by itself it reaches no records, but
        `app.reference()` runs it as plain Python, where a breakpoint stops (`python -m pdb`).

        Args:
            function: Of one event, `def transfer(e: Transfer)`, or of several, `def settle(trades: list[Trade])`.
            nested: Part of the transaction that emitted the event: they commit or abort as one.
            batch: Of several events from outside, which ones are one transaction: "ts", all of one time, or how many.
        """
        if function is None:
            return partial(self._transaction, nested=nested, batch=batch)
        return self._transaction(function, nested=nested, batch=batch)

    def _transaction(self, function: F, *, nested: bool, batch: str | int | None) -> F:
        definition = self._add_transaction(function, nested=nested, batch=batch)
        one = lower_transaction(self.program, definition)
        program = replace(self.program, transactions=_with(self.program.transactions, definition))
        again = len(program.transactions) == len(self._lowered)
        names = [transaction.name for transaction in program.transactions]
        lowered = [*self._lowered] if again else [*self._lowered, one]
        lowered[names.index(definition.name)] = one
        self.program, self._lowered, self._plan = _agreed(program, lowered), lowered, None
        if again:
            notebook.note(_anew("transaction", definition.name))
        return function

    def _declare(self, what: str, handle: type[Any], where: str, definition: Any) -> Any:
        """A table, an event or a window, as users name it. Where its cell has run again it takes the place of the one
        before: what users have in hand of that one is the new one from now on, so transactions follow it."""
        before = getattr(self.program, where)
        changed: dict[str, Any] = {where: _with(before, definition)}
        self._plan = None
        if len(changed[where]) > len(before):
            self.program, self._handles[definition.name] = replace(self.program, **changed), handle(definition)
            return self._handles[definition.name]
        again = self._handles[definition.name]
        again.definition = definition
        follow = {"events": ("transactions", "event"), "windows": ("triggers", "window")}.get(where)
        if follow is not None:
            several, part = follow
            new: dict[str, Any] = {part: definition}
            changed[several] = tuple(
                replace(one, **new) if getattr(one, part).name == definition.name else one
                for one in getattr(self.program, several)
            )
        program = replace(self.program, **changed)
        lowered, odd = list[Lowered | None](), ""
        for transaction in program.transactions:
            try:
                lowered.append(lower_transaction(program, transaction))
            except DeclarationError as error:
                lowered.append(None)
                odd += f"; run the cell of transaction '{transaction.name}' again, which does not fit it: {error}"
        self.program, self._lowered = program, lowered
        try:
            self.program = _agreed(program, lowered)
        except DeclarationError as error:
            odd += f"; {error}"
        notebook.note(_anew(what, definition.name) + odd)
        return again

    @property
    def plan(self) -> Plan:
        """The whole app, planned."""
        if self._plan is None:
            lowered = [
                one or lower_transaction(self.program, transaction)  # which says what does not fit
                for transaction, one in zip(self.program.transactions, self._lowered, strict=True)
            ]
            self._plan = build(self.program, lowered, self._checks)
        return self._plan

    def explain(self, what: str = "plan") -> str:
        """What every transaction reads, writes, requires and returns, as text; or the "source" of the kernel that runs
        them one by one, with the lines that it was made from."""
        if what == "plan":
            return Text(self.plan.explain())
        if what == "source":
            from penstock.execute.codegen.annotated import annotated

            return Text(annotated(self.plan))
        raise InputError(f'explain({what!r}) of app {self.program.name!r}: give "plan" or "source"')

    @overload
    def open(self, path: str | os.PathLike[str], *, read_only: Literal[True], disk: Disk | None = None) -> Reader: ...

    @overload
    def open(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        read_only: Literal[False] = False,
        log: Literal["changes", "input", "source"] = "changes",
        retain: int = RETAIN,
        snapshot_every: int = SNAPSHOT_EVERY,
        background: bool = True,
        scrub: float | None = SCRUB,
        disk: Disk | None = None,
        calls: bool | Iterable[Any] = False,
        steps: KeptSteps = "all",
        progress: bool | Callable[[str], None] | None = None,
    ) -> Database: ...

    def open(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        read_only: bool = False,
        log: Literal["changes", "input", "source"] = "changes",
        retain: int = RETAIN,
        snapshot_every: int = SNAPSHOT_EVERY,
        background: bool = True,
        scrub: float | None = SCRUB,
        disk: Disk | None = None,
        calls: bool | Iterable[Any] = False,
        steps: KeptSteps = "all",
        progress: bool | Callable[[str], None] | None = None,
    ) -> Database | Reader:
        """A database: in memory, or durable in a directory.

        Args:
            path: The state directory; it is made if it is not there. None: in memory.
            read_only: Give a `Reader` (`ps.reader`) instead, beside whatever writer there is: it takes no lock, writes
                nothing, and follows. Here it also refuses a directory of another app. The other options are a writer's.
            log: "changes" (records as each batch left them), "input" (events; opening runs them again) or "source" (of
                a batch from files their names alone: opening reads and runs them again).
            retain: How many versions stay readable.
            snapshot_every: Batches between two snapshots.
            background: Whether snapshots are written beside the batches.
            scrub: Hours between two slow passes over all files, beside the batches, for damage (`db.damage`,
                `observe.Damage`); None for none.
            disk: How files are reached, for fault tests.
            calls: Whether other processes of this machine may call (`connect`); or the events that they may call.
            steps: Of an app that emits, which rows outcomes have: "all", or "roots": the events that arrived, and of
                those that they caused only what aborted. What is left out is not logged either.
            progress: Whether a `run` of several seconds says so in a line; None: on a terminal and in a notebook. Or a
                function that gets the line each second, and "" at its end.
        """
        if read_only:
            from penstock.replica.reader import opened

            return opened(self.plan, path, disk)
        # numba looks for its cache as soon as a kernel is defined: not before somebody runs one.
        from penstock.database import Database

        database = Database(
            self.plan,
            path,
            log=log,
            retain=retain,
            snapshot_every=snapshot_every,
            background=background,
            scrub=scrub,
            disk=disk,
            steps=steps,
            progress=progress,
        )
        if calls:
            try:
                database.serve_calls(None if calls is True else calls)
            except BaseException:
                database.close()
                raise
        return database

    def migrate(
        self,
        path: str | os.PathLike[str],
        rename: Mapping[str, str] | None = None,
        drop: Sequence[str] = (),
        drop_tables: Sequence[str] = (),
        *,
        dry_run: bool = False,
    ) -> tuple[str, ...]:
        """Bring a state directory to this app's declarations, all of it or nothing, as a version of its own. It prints
        what it does before it does it, and gives that, a sentence each. What loses nothing `open` does by itself.

        Args:
            path: The state directory; nobody else may be writing to it.
            rename: What columns are called now: `{"Account.amount": "balance"}`.
            drop: Columns that go with their values: `["Account.note"]`.
            drop_tables: Tables, and windows, that go with their records: `["Old"]`.
            dry_run: Only say it, and change nothing.
        """
        from penstock.database import Database
        from penstock.engine import Engine
        from penstock.store.migrate import planned

        words = Words.checked(rename or {}, drop, drop_tables)
        steps = planned(Engine(self.plan), path, words)
        if not steps:
            told = f"{os.fspath(path)} is as app '{self.program.name}' declares it: there is nothing to do"
        else:
            told = f"{os.fspath(path)}, by app '{self.program.name}'{' (nothing is changed now)' * dry_run}:"
        sys.stdout.write("\n  ".join([told, *steps]) + "\n")
        sys.stdout.flush()
        if steps and not dry_run:
            Database(self.plan, path, words=words).close()
        return steps

    def connect(self, state: str | os.PathLike[str]) -> Connection:
        """Calls to whoever writes this state directory: another process of this machine, which has opened it, or
        started its query, with `calls=True`."""
        from penstock.serve.client import Connection

        return Connection(self.plan.program, state)

    def reference(self, *, steps: KeptSteps = "all") -> Reference:
        """The law's other side: the uncompiled functions, one by one, over dicts. steps: as `open` takes it."""
        return Reference(self.plan.program, steps)

    # -- on Spark ---------------------------------------------------------------------------

    def start(
        self,
        sources: Mapping[Any, Source],
        *,
        state: str | os.PathLike[str],
        outcomes: Outcomes,
        watermark: str | int | datetime.timedelta | None = None,
        trigger: dict[str, Any] | None = None,
        name: str | None = None,
        outputs: Mapping[Any, Output] | None = None,
        calls: bool | Iterable[Any] = False,
        serve: str | None = None,
        idle: str | int | datetime.timedelta | None = None,
        on_bad: OnBad = "reject",
        ahead: Ahead = AHEAD,
        **options: Any,
    ) -> StreamingQuery:
        """Run this app over streaming DataFrames; returns pyspark's StreamingQuery.

        Args:
            sources: Event -> streaming DataFrame, `ps.parquet("in/")` or `ps.kafka("topic", …)`.
            state: The durable directory: tables, log, Spark's checkpoint.
            outcomes: A directory for Parquet files (made for its owner alone; one that is there gives files its mode),
                `ps.kafka_sink("topic", …)`, or `f(dataframe, batch_id)`. A function may get a batch again after a
                crash, under the same batch_id: the version that it made. So it grows from call to call, and what a
                watermark still held at the end of an availableNow query has one too.
            watermark: Hold back for event order across batches: "5 seconds" or a timedelta, or an int in the order
                column's unit, which for a datetime is a microsecond.
            trigger: As `DataStreamWriter.trigger` takes it. A query with availableNow runs at its end what is held.
            name: The query's name.
            outputs: Event that is emitted, and that no transaction takes -> a directory for Parquet files, one a batch,
                or `ps.kafka_sink("topic", …)`. An event that is left out goes nowhere, and the logger `penstock` warns.
            calls: Whether other processes of the machine that the engine runs on may call (`connect`) while the query
                runs, or the events that they may call. Outcomes of calls go to the files, too; a function gets those of
                the stream.
            serve: "127.0.0.1:7400": serve the state there over HTTP while the query runs, as `penstock serve` does. The
                server is a process of its own: `query.served` says its `url`, whether it is `alive`, and the `error` it
                ended with, if it did by itself, which does not disturb the query.
            idle: When no data has come for so long, the clock goes on to the wall clock minus the watermark, and what
                is held or waits up to there runs: "30 seconds". For datetimes. What comes afterwards with an older ts
                is late (without a watermark: behind timers that have run). So choose it longer than the longest outage
                after which a producer catches up with its backlog, or leave it off.
            on_bad: What becomes of a row that cannot be an event (no ts, no id, a number out of range, ...): "reject"
                gives it an outcome `rejected` that says why, and the rest runs; "fail" stops the query.
            ahead: How far a ts may lie ahead of the wall clock; where ts is an int, of the highest of earlier batches.
                A row that is further ahead is rejected, and moves no watermark. Without it one wild ts makes all that
                follows late. None: as far as it likes, which is the default for ints, and where on_bad="fail".
            options: As `open` takes them.
        """
        from penstock.spark import start

        # It is a dict; as an argument it is a Mapping, so that a dict of files only is one of sources to type checkers.
        return start.start(
            self.plan,
            cast("dict[Any, Any]", sources),
            state=state,
            outcomes=outcomes,
            watermark=watermark,
            trigger=trigger,
            name=name,
            outputs=None if outputs is None else dict(outputs),
            calls=calls,
            serve=serve,
            idle=idle,
            on_bad=on_bad,
            ahead=ahead,
            **options,
        )

    def apply(
        self,
        sources: Mapping[Any, DataFrame],
        *,
        state: str | os.PathLike[str],
        on_bad: OnBad = "reject",
        ahead: Ahead = None,
        **options: Any,
    ) -> DataFrame:
        """Run static DataFrames as one batch; its outcomes as a DataFrame.

        Args:
            sources: Event -> DataFrame.
            state: The state directory.
            on_bad: As `start` takes it.
            ahead: As `start` takes it; None, the default, lets a ts lie as far ahead as it likes.
            options: As `open` takes them.
        """
        from penstock.spark import start

        given = cast("dict[Any, Any]", sources)
        return start.apply(self.plan, given, state=state, on_bad=on_bad, ahead=ahead, **options)

    def load(
        self,
        table: Table | str,
        rows: Rows | DataFrame,
        on_conflict: OnConflict = "fail",
        check: bool = True,
        *,
        state: str | os.PathLike[str],
        **options: Any,
    ) -> None:
        """Fill a table of a state directory.

        Args:
            table: The table, or its name.
            rows: Dicts, Arrow or a DataFrame. All of them are loaded, or none where one is refused.
            on_conflict: What becomes of a record that is there already: "fail" refuses its row, "keep" leaves it as it
                is, "replace" puts the row in its place, with defaults for columns that the row leaves out.
            check: Whether the table's checks must hold for what is loaded.
            state: The state directory.
            options: As `open` takes them.
        """
        from penstock.spark import start

        start.load(self.plan, table, rows, on_conflict, check, state=state, **options)


def _with(several: tuple[Any, ...], one: Any) -> tuple[Any, ...]:
    """With this one, in the place of one of the same name."""
    names = [other.name for other in several]
    if one.name not in names:
        return (*several, one)
    place = names.index(one.name)
    return (*several[:place], one, *several[place + 1 :])


def _agreed(program: Program, lowered: list[Lowered | None]) -> Program:
    """What all transactions say of the program, if all are known."""
    known = [one for one in lowered if one is not None]
    return agree(program, known) if len(known) == len(lowered) else program


def _anew(what: str, name: str) -> str:
    return f"{what} '{name}' is declared anew; databases that are open keep the one before"
