"""No memory, or Ctrl-C, at every call that Penstock makes: what may allocate, or be interrupted, is a call.

    MemoryError          before the call: what it was to allocate is not to be had
    KeyboardInterrupt    after it: what it did is done, but the caller does not hear of it

While the job runs, a trace function sees every instruction of Penstock's own code (sys.settrace), so that no list of
allocations has to be kept. Cleaning up is left out, `finally`, `except` and what closes: nothing can be promised of
a failure in the middle of a failure.

What must hold: the call came through or raised just that, with the truth in `committed`; after it the database
goes on rightly or refuses, for good; and a directory, opened again, has every batch that was acknowledged, each whole.
"""

from __future__ import annotations

import ast
import dis
import inspect
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa
import pytest
from bank_job import ROWS, Account, bank, batch, check, job, prefixes
from failing_disk import History, refused, scratch

import penstock
from penstock.errors import PenstockError, StateError
from penstock.schedule.policy import Policy
from penstock.testing import assert_same_outcomes, assert_same_tables

_PACKAGE = Path(penstock.__file__).parent
# Whatever reads a program and writes its kernels has no state to leave half-way; the rest is not part of a database.
_LEFT_OUT = ("declare", "plan", "execute/codegen", "observe", "testing", "cli", "spark", "workloads", "app.py")
# What gives back.
_CLEANING = {"close", "release", "forget", "__exit__", "__del__", "_discard", "_dismiss", "_let_go"}


@dataclass(frozen=True, slots=True)
class Site:
    """A call in Penstock's code."""

    code: CodeType
    offset: int

    def __str__(self) -> str:
        lines = {start: line for start, _, line in self.code.co_lines()}
        line = lines[max(start for start in lines if start <= self.offset)]
        return f"{Path(self.code.co_filename).relative_to(_PACKAGE)}:{line} ({self.code.co_qualname})"


class Watch:
    """Sees every call: `seen`, in turn."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error
        self.seen: list[Site] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._enters)
        threading.settrace(self._enters)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(None)

    def looks_into(self, code: CodeType) -> bool:
        return sites(code) is not None

    def at(self, site: Site) -> None:
        self.seen.append(site)

    def _enters(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not self.looks_into(frame.f_code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._steps

    def _steps(self, frame: FrameType, event: str, arg: Any) -> Any:
        found = sites(frame.f_code) if event == "opcode" else None
        if found is not None and frame.f_lasti in found[self.error is KeyboardInterrupt]:
            self.at(Site(frame.f_code, frame.f_lasti))
        return self._steps


class Interruption(Watch):
    """Raises at one call, when it is made for the so-many-th time."""

    def __init__(self, error: type[BaseException], site: Site, time: int) -> None:
        super().__init__(error)
        self.site, self.left = site, time
        self.met = False

    def looks_into(self, code: CodeType) -> bool:
        return code is self.site.code and self.left > 0

    def at(self, site: Site) -> None:
        if site == self.site:
            self.left -= 1
            if self.left == 0:
                self.met = True
                raise self.error("injected")

    def heal(self) -> None:
        self.left = 0


def call_in(function: Any, text: str, error: type[BaseException]) -> Interruption:
    """Raises at the first call of the first line of a function that has this text."""
    function = inspect.unwrap(function)
    code = function.__code__
    lines, first = inspect.getsourcelines(function)
    wanted = first + next(i for i, line in enumerate(lines) if text in line)
    found = sites(code)
    assert found is not None
    offsets = {step.offset for step in dis.get_instructions(code) if step.positions.lineno == wanted}
    return Interruption(error, Site(code, min(offsets & found[error is KeyboardInterrupt])), 1)


@cache
def sites(code: CodeType) -> tuple[frozenset[int], frozenset[int]] | None:
    """Where the code makes calls, and where it goes on behind them; None for code that is not looked at."""
    file = Path(code.co_filename)
    if not file.is_relative_to(_PACKAGE) or code.co_name in _CLEANING:
        return None
    if str(file.relative_to(_PACKAGE)).startswith(_LEFT_OUT):
        return None
    cleaning = _cleaning_lines(file)
    before, after = set(), set()
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "PRECALL")]
    line = code.co_firstlineno
    for i, step in enumerate(steps[:-1]):
        line = step.positions.lineno or line if step.positions else line
        leaves_with = step.arg == 2 and all(s.opname == "LOAD_CONST" and s.argval is None for s in steps[i - 3 : i])
        if step.opname.startswith("CALL") and not leaves_with and line not in cleaning:
            before.add(step.offset)
            # Behind the last call of a block it would be raised outside of it, where Ctrl-C never is.
            if _handler(code, steps[i + 1].offset) == _handler(code, step.offset):
                after.add(steps[i + 1].offset)
    return frozenset(before), frozenset(after)


def _handler(code: CodeType, offset: int) -> int | None:
    """Where an error goes from here."""
    entries = dis.Bytecode(code).exception_entries
    return next((entry.target for entry in entries if entry.start <= offset < entry.end), None)


@cache
def _cleaning_lines(file: Path) -> frozenset[int]:
    """The lines of its `finally` and `except` blocks."""
    blocks: list[ast.stmt] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Try):
            blocks += [*node.finalbody, *(statement for handler in node.handlers for statement in handler.body)]
    return frozenset(line for block in blocks for line in range(block.lineno, (block.end_lineno or 0) + 1))


def interruptions(run: Callable[[Watch], None], error: type[BaseException]) -> list[tuple[Site, int]]:
    """Every call of a run, for the first time and for the last."""
    watch = Watch(error)
    run(watch)
    counts: dict[Site, int] = {}
    for site in watch.seen:
        counts[site] = counts.get(site, 0) + 1
    return [(site, time) for site, count in counts.items() for time in sorted({1, count})]


# -- on a directory ---------------------------------------------------------------------------------


class MemoryHistory(History):
    raised = (MemoryError, KeyboardInterrupt, PenstockError)

    def explained(self, error: BaseException) -> None:
        """It is what was injected, or says that this is its cause; or it refuses, because of that."""
        link: BaseException | None = error
        while link is not None and link.args != ("injected",):
            link = link.__cause__ or link.__context__
        if link is None:
            refused(error)


@cache
def durable_faults(error: type[BaseException], way: str, background: bool) -> list[tuple[Site, int]]:
    def run(watch: Watch) -> None:
        with scratch() as folder, watch.watching():
            job(folder / "state", way, lambda k: None, background=background)

    return interruptions(run, error)


def durable(folder: Path, error: type[BaseException], way: str, background: bool, site: Site, time: int) -> bool:
    """Whether the call was made so often."""
    prefixes(way)  # Before anything is traced.
    path, fault = folder / "state", Interruption(error, site, time)
    history = MemoryHistory(path, way, background, fault)
    with fault.watching():
        history.run()
    check(path, way, history.acknowledged)
    shutil.rmtree(path)
    return fault.met


# -- in memory --------------------------------------------------------------------------------------


def _growing(db: Any) -> Iterator[Callable[[], Any]]:
    """Tables and strings that grow, strings that are forgotten, batches by their graph and under locks."""
    names = [f"n{k}" for k in range(1000)]
    rows = pa.table({"id": names, "balance": _amounts(5, len(names))})
    events = {
        "ts": range(1000, 1100),
        "src": names[:100],
        "dst": [f"m{k}" for k in range(100)],
        "amount": _amounts(1, 100),
    }
    yield lambda: db.load(Account, ROWS)
    yield lambda: db.load(Account, rows)
    yield lambda: db.run(batch(0), id=0)
    yield lambda: db.run({"Move": pa.table(events)}, id=1)
    for k, policy in enumerate((Policy(threads=2), Policy.locking("lal", threads=2)), 2):
        yield lambda k=k, policy=policy: db.run(batch(k), policy, id=k)
    yield lambda: db.table(Account)


def _amounts(amount: int, count: int) -> pa.Array:
    return pa.array([Decimal(amount)] * count, pa.decimal128(18, 2))


@cache
def _grown() -> list[tuple[Any, pa.Table]]:
    """What each of these calls gives and leaves, by the reference."""
    reference = bank.reference()
    return [(call(), reference.table(Account)) for call in _growing(reference)]


def _open_in_memory() -> Any:
    db = bank.open()
    db._engine.tables._compact_at = 0  # forget strings after every batch
    return db


@cache
def transient_faults(error: type[BaseException]) -> list[tuple[Site, int]]:
    def run(watch: Watch) -> None:
        with _open_in_memory() as db, watch.watching():
            for call in _growing(db):
                call()

    run(Watch(error))  # What is compiled once is compiled now.
    return interruptions(run, error)


def transient(error: type[BaseException], site: Site, time: int) -> bool:
    """A database in memory goes on rightly, or refuses for good; whether the call was made so often."""
    right, fault = _grown(), Interruption(error, site, time)
    with _open_in_memory() as db:
        for call, (outcomes, table) in zip(_growing(db), right, strict=True):
            try:
                try:
                    with fault.watching():
                        found = call()
                except error:
                    fault.heal()
                    found = call()
            except StateError as refusal:
                refused(refusal)
                for read in (lambda: db.table(Account), lambda: db.run([]), lambda: db.load(Account, [])):
                    with pytest.raises(StateError, match="open it again"):
                        read()
                break
            if outcomes is not None and "status" in outcomes.column_names:
                assert_same_outcomes(found, outcomes)
            assert_same_tables(db.table(Account), table, ["id"])
    return fault.met
