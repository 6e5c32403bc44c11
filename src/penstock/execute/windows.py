"""The law of windows: lists of rows, and which of them are seen.

    rows    . . . . . . . . . . . .        in the order of adds; those before are gone
            |       seen      |staged|
            expired           entered      as of the last add

What is seen is a pure function of the rows and the clock: of a span of time, the rows in (edge - size, edge], where
the edge is the clock, or the last multiple of the slide; of a number of rows, the last ones of those that have entered,
`slide` by `slide`. Only an `add` takes rows away, so that a trigger misses none; it is undone with its transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.declare.model import Program, WindowDef
from penstock.declare.types import Type
from penstock.errors import Aborted
from penstock.execute.values import Dec, Int, convert, lower

if TYPE_CHECKING:
    from penstock.execute.uncompiled import Transaction

Row = dict[str, Any]  # all columns, the key's included, as a body sees them


@dataclass(frozen=True, slots=True)
class Rows:
    """What is kept of one window."""

    rows: tuple[tuple[int, Row], ...] = ()  # with the clock at their add; windows of rows do not look at it
    entered: int = 0  # how many of them had entered at the last add; the others are staged


def seen(window: WindowDef, kept: Rows, clock: int) -> tuple[int, int]:
    """Which rows are seen: from, and up to before."""
    if window.rows is not None:
        return max(0, kept.entered - window.rows), kept.entered
    edge = clock - clock % window.step if window.step else clock
    before = sum(at <= edge - window.size for at, _ in kept.rows)
    return before, sum(at <= edge for at, _ in kept.rows)


def add(window: WindowDef, kept: Rows, row: Row, clock: int) -> tuple[Rows, list[Row], list[Row]]:
    """One row more: what is kept then, which rows have entered, and which have expired."""
    rows, entered = (*kept.rows, (clock, row)), kept.entered
    if window.rows is not None and len(rows) - entered == window.step:
        entered = len(rows)
    first, end = seen(window, Rows(rows, entered), clock)
    came, left = rows[kept.entered : end], rows[:first]
    return Rows(rows[first:], end - first), [row for _, row in came], [row for _, row in left]


class Windows:
    """All windows of an app, and what their triggers run."""

    def __init__(self, program: Program, compiled: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self.kept: dict[str, dict[tuple[Any, ...], Rows]] = {w.name: {} for w in program.windows}
        self.triggers = {w.name: [compiled(t.function) for t in program.triggers_of(w)] for w in program.windows}


class WindowView:
    """A window as a body sees it: a definition and a key, which looks through at each use."""

    # Two underscores, which Python spells _WindowView__key: a column can have any other name.
    __slots__ = ("__key", "__slid", "__transaction", "__window")

    def __init__(
        self, transaction: Transaction, window: WindowDef, key: tuple[Any, ...], slid: tuple[Any, Any] | None = None
    ) -> None:
        self.__transaction, self.__window, self.__key, self.__slid = transaction, window, key, slid

    def add(self, **values: Any) -> None:
        given = {c.name: convert(values[c.name], c.type) for c in self.__window.values}
        names = (c.name for c in self.__window.keys)
        self.__transaction.add(self.__window, self.__key, {**dict(zip(names, self.__key, strict=True)), **given})

    @property
    def entered(self) -> RowsView:
        assert self.__slid is not None
        return RowsView(self.__window, self.__slid[0])

    @property
    def expired(self) -> RowsView:
        assert self.__slid is not None
        return RowsView(self.__window, self.__slid[1])

    def __rows(self) -> RowsView:
        return RowsView(self.__window, self.__transaction.seen(self.__window, self.__key))

    def __len__(self) -> int:
        return len(self.__rows())

    def __iter__(self) -> Iterator[RowView]:
        return iter(self.__rows())

    def __getattr__(self, name: str) -> Any:
        """A column of its rows; or a part of its key."""
        for column, part in zip(self.__window.keys, self.__key, strict=True):
            if column.name == name:
                return part
        return getattr(self.__rows(), name)


class RowsView:
    """Some rows of a window: those seen, entered or expired."""

    __slots__ = ("__rows", "__window")

    def __init__(self, window: WindowDef, rows: list[Row]) -> None:
        self.__window, self.__rows = window, rows

    def __len__(self) -> int:
        return len(self.__rows)

    def __iter__(self) -> Iterator[RowView]:
        return iter([RowView(row) for row in self.__rows])

    def __getattr__(self, name: str) -> ColumnView:
        if self.__window.column(name) is None:
            raise AttributeError(f"window '{self.__window.name}' has no column '{name}'")
        return ColumnView(self.__window, name, [row[name] for row in self.__rows])


class RowView:
    __slots__ = ("__row",)

    def __init__(self, row: Row) -> None:
        self.__row = row

    def __getattr__(self, name: str) -> Any:
        if name not in self.__row:
            raise AttributeError(f"the row has no column '{name}'")
        return self.__row[name]


class ColumnView:
    """A column of those rows. Sums of ints and decimals are exact; floats are added in the order of the rows."""

    def __init__(self, window: WindowDef, name: str, values: list[Any]) -> None:
        column = window.column(name)
        assert column is not None
        self._window, self._type, self._values = window, column.type, values

    def count(self) -> Any:
        return Int(len(self._values))

    def sum(self) -> Any:
        return total(self._values, self._type)

    def mean(self) -> Any:
        self._need_some()
        return self.sum() / self.count()

    def min(self) -> Any:
        return self._best(lambda one, best: one < best)

    def max(self) -> Any:
        return self._best(lambda one, best: one > best)

    def _best(self, better: Callable[[Any, Any], bool]) -> Any:
        """The first of the best, as of Python's own min and max."""
        self._need_some()
        best = self._values[0]
        for one in self._values[1:]:
            if better(one, best):
                best = one
        return best

    def _need_some(self) -> None:
        if not self._values:
            raise Aborted(f"empty {self._window.name}")


def total(values: list[Any], type_: Type) -> Any:
    """Of ints and decimals the exact sum, which alone has to be within range; floats one after the other, from 0.0."""
    if type_.kind == "decimal":
        return Dec(sum(one.n for one in values), type_.scale)
    if type_.kind == "int":
        return convert(sum(map(lower, values)), type_)
    out = 0.0
    for one in values:
        out += one
    return out
