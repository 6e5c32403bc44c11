"""What a user touches: `Account`, `Transfer(...)`, `ps.abort`, `ps.emit`, `ps.now`, `ps.function`, `ps.udf`.

A body mentions these objects by name. The compiler never calls them; when the body runs as
plain Python (the reference, a debugger), they pass every access on to the `Accesses` that is
current in this thread.

A type checker takes `@bank.table class Account` for a `Table[Account]`, whose records are what the class says, and
`@bank.event class Transfer` for a dataclass; mypy does so by its plugin (penstock/mypy.py).
"""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import enum
import types
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeAlias, TypeGuard, TypeVar, cast

import pyarrow as pa

from penstock.declare import notebook
from penstock.declare.fingerprint import Fingerprint, fingerprint
from penstock.declare.model import EventDef, TableDef, WindowDef
from penstock.declare.null import use
from penstock.errors import Aborted, DeclarationError, InputError, PenstockError

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    R = TypeVarWithDefault("R", default=Any)  # a record; `Table` alone is a table of any
else:
    R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])

KeyPart: TypeAlias = int | str | Decimal | datetime.date | enum.Enum  # a bool is an int, a datetime a date
Key: TypeAlias = KeyPart | tuple[KeyPart, ...]
Value: TypeAlias = KeyPart | float | None


class ArrowStream(Protocol):
    """What hands itself over as Arrow: a table of polars, pandas or DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


# What `load` takes, and what `run` takes: events, or rows by event.
Rows: TypeAlias = Sequence[dict[str, Any]] | pa.Table | pa.RecordBatch | ArrowStream
Batch: TypeAlias = Iterable[object] | Mapping[Any, Rows]


class Accesses(Protocol):
    """How a transaction that runs as plain Python reaches its tables. Keys are tuples."""

    def existing(self, table: TableDef, key: tuple[Any, ...]) -> Any: ...
    def optional(self, table: TableDef, key: tuple[Any, ...]) -> Any: ...
    def contains(self, table: TableDef, key: tuple[Any, ...]) -> bool: ...
    def insert(self, table: TableDef, key: tuple[Any, ...], values: dict[str, Any]) -> Any: ...
    def delete(self, table: TableDef, key: tuple[Any, ...]) -> None: ...
    def window(self, window: WindowDef, key: tuple[Any, ...]) -> Any: ...
    def emit(self, event: EventDef, values: dict[str, Any], at: Any) -> None: ...
    def now(self) -> Any: ...
    def scan(self, table: TableDef, way: str, names: tuple[str, ...], values: tuple[Any, ...]) -> Any: ...


current: contextvars.ContextVar[Accesses] = contextvars.ContextVar("penstock_accesses")


class Table(Generic[R]):
    """A declared table, as a body names it."""

    def __init__(self, definition: TableDef) -> None:
        self.definition = definition

    def __getitem__(self, key: Key) -> R:
        return self._accesses().existing(self.definition, _tuple(key))

    def get(self, *key: KeyPart) -> R:
        return self._accesses().optional(self.definition, key)

    def __contains__(self, key: Key) -> bool:
        return self._accesses().contains(self.definition, _tuple(key))

    def insert(self, *key: KeyPart, **values: Value) -> R:
        return self._accesses().insert(self.definition, key, values)

    def __delitem__(self, key: Key) -> None:
        self._accesses().delete(self.definition, _tuple(key))

    # What a `for` runs over: the records that are there before its first turn.

    def __iter__(self) -> Iterator[R]:
        """All records, in order of their keys."""
        return iter(self._scan("all"))

    def top(self, k: int, *, by: str) -> Iterable[R]:
        """The k records that have the most in a column, the highest first."""
        return self._scan("top", (by,), (k,))

    def bottom(self, k: int, *, by: str) -> Iterable[R]:
        """The k records that have the least in a column, the lowest first."""
        return self._scan("bottom", (by,), (k,))

    def where(self, **column: Value) -> Iterable[R]:
        """The records that have this in a column that is a `ps.index()`, in order of their keys."""
        return self._scan("where", tuple(column), tuple(column.values()))

    def between(self, *ends: KeyPart) -> Iterable[R]:
        """The records from one key to another, both included, in order. Of a key of several columns the first ones may
        stand before the two ends: `Board.between("top", 1, 3)`."""
        return self._scan("between", (), ends)

    def _scan(self, way: str, names: tuple[str, ...] = (), values: tuple[Any, ...] = ()) -> Iterable[R]:
        found: Iterable[R] = self._accesses().scan(self.definition, way, names, values)
        return found

    def _accesses(self) -> Accesses:
        try:
            return current.get()
        except LookupError:
            raise PenstockError(
                f"table '{self.definition.name}' holds records only inside a transaction; "
                f"read it with db.table({self.definition.name})"
            ) from None

    def __repr__(self) -> str:
        return f"<table {self.definition.name}>"


class WindowColumn(Protocol):
    """A column of the rows that a window shows."""

    def sum(self) -> Any: ...
    def mean(self) -> Any: ...
    def min(self) -> Any: ...
    def max(self) -> Any: ...
    def count(self) -> int: ...


class WindowRows(Protocol[R_co]):
    """Rows of a window: those that it shows, or that have entered or expired. Its columns are attributes."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[R_co]: ...
    def __getattr__(self, name: str) -> WindowColumn: ...


class Window(Generic[R]):
    """A declared window, as a body names it. One without a key is its own rows."""

    def __init__(self, definition: WindowDef) -> None:
        self.definition = definition

    def __getitem__(self, key: Key) -> Window[R]:
        found: Window[R] = self._accesses().window(self.definition, _tuple(key))
        return found

    def add(self, **values: Value) -> None:
        self._rows().add(**values)

    def __len__(self) -> int:
        return len(self._rows())

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows())

    def __getattr__(self, name: str) -> WindowColumn:
        if name.startswith("__"):
            raise AttributeError(name)
        found: WindowColumn = getattr(self._rows(), name)
        return found

    # In a trigger.
    if TYPE_CHECKING:

        @property
        def entered(self) -> WindowRows[R]: ...
        @property
        def expired(self) -> WindowRows[R]: ...

    def _rows(self) -> Any:
        if self.definition.keys:
            names = ", ".join(c.name for c in self.definition.keys)
            raise PenstockError(f"window '{self.definition.name}' has one window a key ({names}); name its key")
        return self._accesses().window(self.definition, ())

    def _accesses(self) -> Accesses:
        try:
            return current.get()
        except LookupError:
            raise PenstockError(f"window '{self.definition.name}' holds rows only inside its transaction") from None

    def __repr__(self) -> str:
        return f"<window {self.definition.name}>"


if TYPE_CHECKING:

    class _WindowMeta(type):
        """What the name of a window can do, as an instance of `Window` does where it runs."""

        def __getitem__(cls: type[Window[R]], key: Key) -> Window[R]: ...  # type: ignore[misc]
        def __len__(cls) -> int: ...
        def __iter__(cls: type[Window[R]]) -> Iterator[R]: ...  # type: ignore[misc]
        def __getattr__(cls, name: str) -> WindowColumn: ...

    class WindowType(Window[R], metaclass=_WindowMeta):
        """A declared window for pyright, which takes only a class for a type: so `w: Recent` in a trigger is one."""

        @classmethod
        def add(cls, **values: Value) -> None: ...


def _tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


class EventType:
    """A declared event; calling it makes one event."""

    def __init__(self, definition: EventDef) -> None:
        self.definition = definition

    def __call__(self, *places: Any, **values: Any) -> Event:
        names = [f.name for f in self.definition.fields]
        if places:
            name = self.definition.name
            raise InputError(
                f"event '{name}' takes its fields by name: {name}({names[0]}=…); it has {', '.join(names)}"
            )
        unknown = [n for n in values if n not in names]
        if unknown:
            raise InputError(f"event '{self.definition.name}' has no field '{unknown[0]}'; it has {', '.join(names)}")
        return Event(self.definition, {f.name: values.get(f.name, f.left_out) for f in self.definition.fields})

    def __repr__(self) -> str:
        return f"<event {self.definition.name}>"


class Event:
    """One event: its type and a value, or None, for every field."""

    __slots__ = ("definition", "values")

    def __init__(self, definition: EventDef, values: dict[str, Any]) -> None:
        self.definition = definition
        self.values = values

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(f"event '{self.definition.name}' has no field '{name}'") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self.definition is other.definition and self.values == other.values

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{k}={v!r}" for k, v in self.values.items())
        return f"{self.definition.name}({fields})"


def abort(reason: str, **fields: Any) -> NoReturn:
    """Undo this transaction; its outcome is `aborted` with this reason.

    Args:
        reason: A constant string.
        fields: Columns of the outcome, as a transaction returns them: `ps.abort("short", by=e.amount - src.balance)`.
    """
    raise Aborted(reason, fields)


def require(condition: Any, reason: str, **fields: Any) -> None:
    """Abort with this reason unless the condition holds.

    Args:
        condition: What must hold.
        reason: A constant string.
        fields: As `abort` takes them; they are evaluated whether or not it holds.
    """
    if not condition:
        raise Aborted(reason, fields)


def emit(event: object, *, at: Any = None) -> None:
    """Cause an event: its transaction runs behind this one, in the same round; without one, it is an output.

    Args:
        event: `Counted(contestant=1)`, an event that has no `ps.order()`.
        at: When it runs, as a value of ts: a timer. It then is a round of its own, before the first event whose clock
            is `at` or later.
    """
    accesses = current.get(None)
    if accesses is None:
        raise PenstockError(f"ps.emit({event!r}) has a meaning only inside a transaction")
    assert isinstance(event, Event), event
    accesses.emit(event.definition, event.values, at)


def now() -> Any:
    """The clock: the highest ts that has run, this event's own included. It falls only if it is set back
    by hand (`penstock advance`)."""
    accesses = current.get(None)
    if accesses is None:
        raise PenstockError("ps.now() has a meaning only inside a transaction")
    return accesses.now()


class Udf:
    """A scalar function that numba compiles; its compiled form is its meaning."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self._compiled: Any = None
        self._fingerprint: Fingerprint | None = None
        self.token = uuid.uuid4().hex  # stands for what it compiles to where no fingerprint can

    def __reduce__(self) -> Any:
        return Udf, (self.function,)  # what it compiled to stays in this process

    @property
    def compiled(self) -> Any:
        """The numba dispatcher."""
        if self._compiled is None:
            import numba

            # What is a constant in the one has to be in the other, whatever the user changes afterwards.
            self._fingerprint = fingerprint(self.function)
            self._compiled = numba.njit(nogil=True)(self.function)
        return self._compiled

    @property
    def fingerprint(self) -> Fingerprint:
        """Of what it was compiled from."""
        assert self.compiled and self._fingerprint is not None
        return self._fingerprint

    def __call__(self, *args: Any) -> Any:
        """Call it as plain Python: inside the reference this is the compiled function."""
        inside = current.get(None)
        if inside is None:
            return self.function(*args)
        try:
            return self.compiled(*[_plain(use(a)) for a in args])
        except Aborted:
            raise
        except Exception:
            raise Aborted(f"udf {self.name} failed") from None


def _plain(value: Any) -> Any:
    """An int subclass confuses numba's dispatch; hand it the plain number."""
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    return int(value)


def udf(function: F) -> F:
    """Mark a scalar function so that transactions may call it; numba compiles it."""
    if not isinstance(function, types.FunctionType):
        raise DeclarationError(f"@ps.udf marks a plain function, not {function!r}")
    if not function.__name__.isidentifier():
        raise DeclarationError(f"@ps.udf marks a function with a name, not {function.__name__}; write it with def")
    return cast(F, Udf(function))


def function(function: F) -> F:
    """Mark a plain function so that transactions, checks and triggers may call it; it becomes a part of each.

    It takes values, records, lists and the event, reads and writes tables, aborts, and returns what it likes. Where it
    is called in no transaction it is the function that it was.
    """
    if not isinstance(function, types.FunctionType) or not function.__name__.isidentifier():
        raise DeclarationError(f"@ps.function marks a function that is written with def, not {function!r}")
    with contextlib.suppress(OSError, TypeError):  # where it is called, it is told what to do about this
        notebook.source(function)
    setattr(function, _MARK, True)
    return function


_MARK = "__penstock_function__"


def is_function(found: Any) -> TypeGuard[types.FunctionType]:
    """Whether it is marked with @ps.function."""
    return isinstance(found, types.FunctionType) and _MARK in vars(found)
