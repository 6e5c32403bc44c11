"""What a class says under `@app.table`, `@app.window` or `@app.event`: columns, their types, what they are set to.

A class that says more is refused: what would be ignored is not what its author meant.
"""

from __future__ import annotations

import datetime
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import PurePath
from typing import Any

from penstock.declare.limits import LONGEST, MICROSECOND
from penstock.declare.marks import DecimalColumn, Id, Index, Key, Order
from penstock.declare.model import REQUIRED, CheckDef
from penstock.declare.objects import is_function
from penstock.declare.spans import microseconds_of
from penstock.declare.types import INT_MAX, Type, of_annotation, to_python
from penstock.errors import DeclarationError


def where_of(what: str, cls: Any) -> str:
    """Who is being declared, and in which line: "table 'Account' (bank.py:7)"."""
    if not isinstance(cls, type):
        raise DeclarationError(f"@app.{what} decorates a class, not {cls!r}")
    frame = caller()
    at = f" ({PurePath(frame.f_code.co_filename).name}:{frame.f_lineno})" if frame is not None else ""
    return f"{what} '{cls.__name__}'{at}"


def caller() -> types.FrameType | None:
    """The nearest frame outside this package: where the user's decorator stands."""
    frame: types.FrameType | None = sys._getframe(1)
    while (
        frame is not None
        and frame.f_globals.get("__name__", "").startswith("penstock.")
        and "workloads" not in str(frame.f_globals.get("__name__"))
    ):
        frame = frame.f_back
    return frame


def annotations_of(cls: type) -> dict[str, Any]:
    """The class's own annotations, in order; strings (future annotations) are evaluated where the class stands."""
    raw = inspect.get_annotations(cls)
    frame = caller()
    scope = {**frame.f_globals, **frame.f_locals} if frame is not None else vars(sys.modules[cls.__module__])
    out = {}
    for name, annotation in raw.items():
        refuse_odd_name(name, f"'{cls.__name__}'")
        if isinstance(annotation, str):
            try:
                annotation = eval(annotation, scope)
            except Exception as error:
                raise DeclarationError(
                    f"'{cls.__name__}', '{name}': cannot read its type {annotation!r}: {error}"
                ) from None
        out[name] = annotation
    return out


def type_and_value(name: str, annotation: Any, value: Any, where: str, *, lists: bool) -> tuple[Type, Any]:
    """A field's type and what stands behind its `=`: a mark, a default or REQUIRED. A decimal says its type there."""
    if isinstance(value, Type):
        value = DecimalColumn(value, REQUIRED)
    form = f"`{name}: Decimal = ps.decimal(18, 2)`"
    if isinstance(value, DecimalColumn):
        if annotation is not Decimal:
            raise DeclarationError(f"{where}: ps.decimal is the value of a Decimal; write {form}")
        return value.type, value.default
    if annotation is Decimal and isinstance(value, Order | Id):
        may = "an order is int or datetime.datetime" if isinstance(value, Order) else "an id is int or str"
        raise DeclarationError(f"{where}: {may}, not a Decimal")
    if annotation is Decimal and isinstance(value, Index):
        raise DeclarationError(
            f"{where}: a Decimal says its digits; with an index, write `{name}: ps.decimal(18, 2) = ps.index()`"
        )
    if annotation is Decimal and not isinstance(value, Key):
        raise DeclarationError(f"{where}: a Decimal says its digits; write {form}, so that the scale is known")
    if isinstance(annotation, DecimalColumn):
        raise DeclarationError(f"{where}: its default stands behind the type; write {form[:-2]}, default=…)`")
    return of_annotation(annotation, where=where, lists=lists), value


def default_of(given: Any, type_: Type, where: str, *, nullable: bool) -> Any:
    """A column's or field's default, as Python has it; what may be None is that by itself."""
    if nullable and (given is REQUIRED or given is None):
        return None
    return given if given is REQUIRED else to_python(given, type_, where=where)


def span_of(unique: Any, where: str) -> datetime.timedelta | int | None:
    """Within which an id is to run once."""
    told = microseconds_of(unique)
    span = unique if told is None else min(told, INT_MAX) * MICROSECOND
    if span is None or (isinstance(span, datetime.timedelta) and datetime.timedelta(0) < span <= LONGEST):
        return span
    if isinstance(span, int) and not isinstance(span, bool) and 0 < span <= INT_MAX:
        return span
    raise DeclarationError(
        f'{where}: unique={unique!r} is no span of time; give one above 0: "1 day" or timedelta(hours=6) where ts is a '
        "datetime, or an int in the unit of ts"
    )


def refuse_odd_name(name: str, where: str) -> None:
    """Names become names in generated source, and files' names: those of a class made by hand may be anything."""
    if not name.isidentifier():
        raise DeclarationError(f"{where}: {name!r} is not a name; use letters, digits and _, and no digit first")


def refuse_extras(cls: type, where: str, checks: tuple[CheckDef, ...]) -> None:
    """A class declares columns and checks, and nothing that would be ignored."""
    if cls.__bases__ != (object,):
        raise DeclarationError(f"{where} inherits from {cls.__bases__[0].__name__}; write its columns out")
    typed = inspect.get_annotations(cls)
    folded: dict[str, str] = {}
    for name in typed:
        # SQL and Spark do not tell upper case from lower.
        if folded.setdefault(name.lower(), name) != name:
            raise DeclarationError(f"{where}: '{folded[name.lower()]}' and '{name}' differ only in case; rename one")
    for name, value in vars(cls).items():
        if name in typed or (name.startswith("__") and name.endswith("__")) or value in checks:
            continue
        if is_function(value) and where.startswith("table"):
            _refuse_twin(value, name, typed, where)
            continue
        if callable(value) or isinstance(value, property | classmethod | staticmethod | CheckDef):
            hint = 'mark it with @ps.check("reason"), or with @ps.function to call it: account.available()'
            if not where.startswith("table"):
                hint = "a window has columns only" if where.startswith("window") else "an event has fields only"
            raise DeclarationError(f"{where}: '{name}' is not a field; {hint}")
        shown = type(value).__name__, repr(value)
        if isinstance(value, Type | DecimalColumn):
            shown = "Decimal", f"ps.{value}"
        raise DeclarationError(f"{where}: '{name}' needs a type: {name}: {shown[0]} = {shown[1]}")


def _refuse_twin(function: Callable[..., Any], name: str, typed: Mapping[str, object], where: str) -> None:
    """A method is known by the name that it was written with, and takes its record."""
    if function.__name__ != name:
        raise DeclarationError(f"{where}: '{name}' is another name of '{function.__name__}'; write it with def")
    if not inspect.signature(function).parameters:
        raise DeclarationError(f"{where}: '{name}' takes the record first: def {name}(self)")
