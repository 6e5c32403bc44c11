"""`where=`: which records, in a small language of its own. It is parsed, never handed to SQL.

    amount >= 10 and (branch = 'Rome' or branch in ('Oslo', 'Bonn')) and closed is null

    condition   = both { "or" both }       both = one { "and" one }
    one         = "not" one | "(" condition ")" | test
    test        = column ( "=" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) value
                | column [ "not" ] "in" "(" value { "," value } ")"
                | column "is" [ "not" ] "null"
    value       = 12 | -1.5 | 'text' | true | false        a quote within a text is doubled: 'it''s'
    column      = a name, as the table has it or in other cases; in double quotes where it is a word of this language

It means what SQL means: a test of null is neither true nor false, and such a record is not among the answers; NaN
equals itself and is greater than any number. A datetime, date or timedelta is a text in the form that answers have.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.declare.model import Column, TableDef
from penstock.errors import InputError
from penstock.serve.http.values import of_text

LENGTH_MAX = 4096
_DEPTH_MAX = 40
_TOKEN = re.compile(
    r"""\s*(?: (?P<number>-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<text>'(?:[^']|'')*')
      | (?P<word>[^\W0-9]\w*)
      | (?P<name>"(?:[^"]|"")*")
      | (?P<sign><>|!=|<=|>=|[=<>(),]))""",
    re.VERBOSE,
)
_WORDS = frozenset({"and", "or", "not", "in", "is", "null", "true", "false"})
_COMPARED = frozenset({"=", "!=", "<>", "<", "<=", ">", ">="})


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # number, text, word (of the language, in lower case), name, sign, end
    text: str
    at: int


def condition(table: TableDef, text: str) -> pc.Expression:
    """What pyarrow filters by; an InputError that says where it cannot be read."""
    if len(text) > LENGTH_MAX:
        raise InputError(f"where= has more than {LENGTH_MAX} characters; ask for less at a time")
    return _Parser(table, list(_tokens(text))).whole()


def _tokens(text: str) -> Iterator[_Token]:
    place, end = 0, len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            at = len(text) - len(text[place:].lstrip())
            what = "this quote does not end" if text[at] in "'\"" else "this is no part of it"
            raise InputError(f"where= cannot be read at {text[at : at + 20]!r}: {what}")
        kind = found.lastgroup or ""
        told, at = found[kind], found.start(kind)
        if kind == "word" and told.lower() not in _WORDS:
            kind = "name"
        elif kind == "word":
            told = told.lower()
        elif kind == "text":
            told = told[1:-1].replace("''", "'")
        elif kind == "name":
            told = told[1:-1].replace('""', '"')
        yield _Token(kind, told, at)
        place = found.end()
    yield _Token("end", "the end", end)


class _Parser:
    def __init__(self, table: TableDef, tokens: list[_Token]) -> None:
        self._table, self._tokens, self._place, self._depth = table, tokens, 0, 0

    def whole(self) -> pc.Expression:
        found = self._any()
        if self._next.kind != "end":
            raise self._odd("'and', 'or' or the end")
        return found

    def _any(self) -> pc.Expression:
        found = self._all()
        while self._took("or"):
            found = found | self._all()
        return found

    def _all(self) -> pc.Expression:
        found = self._one()
        while self._took("and"):
            found = found & self._one()
        return found

    def _one(self) -> pc.Expression:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise InputError(f"where= is nested deeper than {_DEPTH_MAX}; write it flatter")
        try:
            if self._took("not"):
                return ~self._one()
            if self._took("("):
                found = self._any()
                self._need(")")
                return found
            return self._test()
        finally:
            self._depth -= 1

    def _test(self) -> pc.Expression:
        column = self._column()
        field = pc.field(column.name)
        if self._took("is"):
            negated = self._took("not")
            self._need("null")
            return field.is_valid() if negated else field.is_null()
        if self._next.text in ("not", "in") and self._next.kind == "word":
            negated = self._took("not")
            self._need("in")
            found = self._among(column)
            return ~found if negated else found
        sign = self._next
        if sign.kind != "sign" or sign.text not in _COMPARED:
            raise self._odd("a comparison, such as '='")
        self._place += 1
        return _compared(column, sign.text, self._value(column))

    def _among(self, column: Column) -> pc.Expression:
        self._need("(")
        found = _compared(column, "=", self._value(column))
        values = []
        while self._took(","):
            values.append(self._value(column))
        self._need(")")
        # One by one they would be a tree as deep as there are values.
        if any(isinstance(value, float) and math.isnan(value) for value in values):
            found = found | _compared(column, "=", math.nan)
        held = [one for one in (_held(column, value) for value in values) if one is not None]
        if not held:
            return found
        field = pc.field(column.name)
        # Arrow's says false of null, where SQL says neither.
        among = field.isin(pa.array(held, column.type.arrow()))
        return found | pc.if_else(field.is_null(), pa.scalar(None, pa.bool_()), among)

    def _column(self) -> Column:
        token = self._next
        if token.kind != "name":
            raise self._odd("a column's name")
        self._place += 1
        found = self._table.column(token.text)
        if found is None:
            low = token.text.lower()
            found = next((column for column in self._table.columns if column.name.lower() == low), None)
        if found is None:
            names = ", ".join(column.name for column in self._table.columns)
            raise InputError(f"where=: table '{self._table.name}' has no column {token.text[:40]!r}; it has {names}")
        return found

    def _value(self, column: Column) -> Any:
        token = self._next
        kind = column.type.kind
        wants = {"bool": ("word",), "int": ("number",), "float": ("number", "text"), "decimal": ("number", "text")}
        if token.kind in wants.get(kind, ("text",)) and (token.kind != "word" or token.text in ("true", "false")):
            self._place += 1
            try:
                return _read(column, token)
            except (ValueError, OverflowError, decimal.DecimalException):
                pass
        elif token.kind not in ("number", "text", "word"):
            raise self._odd("a value")
        null = "; for null, write 'is null'" if token.text == "null" else ""
        raise InputError(
            f"where=: column '{column.name}' is {column.type}, and {token.text[:40]!r} is none; "
            f"write {_FORMS[kind]}{null}"
        )

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    def _took(self, text: str) -> bool:
        if self._next.kind in ("word", "sign") and self._next.text == text:
            self._place += 1
            return True
        return False

    def _need(self, text: str) -> None:
        if not self._took(text):
            raise self._odd(f"'{text}'")

    def _odd(self, wanted: str) -> InputError:
        found = self._next
        what = "it ends" if found.kind == "end" else f"{found.text[:20]!r} stands"
        return InputError(f"where= wants {wanted} where {what} (at character {found.at + 1})")


_FORMS = {
    "int": "a whole number",
    "float": "a number, or 'NaN', 'Infinity', '-Infinity'",
    "bool": "true or false",
    "str": "a text in single quotes",
    "decimal": "a number",
    "datetime": "a time such as '2026-03-01T12:00:00Z'",
    "date": "a day such as '2026-03-01'",
    "timedelta": "a duration such as 'P1DT2H'",
}


def _read(column: Column, token: _Token) -> Any:
    """A value to compare with; of an int or a decimal also one that its column cannot hold."""
    if column.type.kind == "int":
        return int(token.text)  # "1.5" raises; no int is that
    if column.type.kind == "decimal":
        found = decimal.Decimal(token.text)
        if not found.is_finite() or abs(found.adjusted()) > 60 or len(found.as_tuple().digits) > 60:
            raise ValueError(token.text)
        return found
    return of_text(column.type, token.text)


def _compared(column: Column, sign: str, value: Any) -> pc.Expression:
    field = pc.field(column.name)
    kind = column.type.kind
    if kind == "float":
        return _float_compared(field, sign, value)
    if kind == "int" and not -(2**63) <= value < 2**63:
        return _beyond(field, sign, above=value > 0)
    if kind == "decimal":
        return _decimal_compared(column, field, sign, value)
    return _plainly(field, sign, _scalar(column, value))


def _decimal_compared(column: Column, field: pc.Expression, sign: str, value: decimal.Decimal) -> pc.Expression:
    """In the column's own scale, as a value between two of its steps cannot be written there."""
    precision, scale = column.type.precision, column.type.scale
    with decimal.localcontext(decimal.Context(prec=200)):
        steps = value.scaleb(scale)
        below = steps.to_integral_value(decimal.ROUND_FLOOR)
        if abs(below) >= 10**precision:
            return _beyond(field, sign, above=value > 0)
        floor = pa.scalar(below.scaleb(-scale), column.type.arrow())
    if below == steps:
        return _plainly(field, sign, floor)
    if sign in ("=", "!=", "<>"):
        return _always(field, sign != "=")
    return field <= floor if sign in ("<", "<=") else field > floor


def _float_compared(field: pc.Expression, sign: str, value: float) -> pc.Expression:
    nan = pc.is_nan(field)
    if math.isnan(value):
        of = {"=": nan, ">=": nan, "!=": ~nan, "<>": ~nan, "<": ~nan}
        return of[sign] if sign in of else _always(field, sign == "<=")
    found = _plainly(field, sign, pa.scalar(value))
    return found | nan if sign in (">", ">=") else found


def _beyond(field: pc.Expression, sign: str, *, above: bool) -> pc.Expression:
    """Compared with a value that lies above, or below, all that the column can hold."""
    return _always(field, sign in ("!=", "<>") or ((sign in ("<", "<=")) == above and sign != "="))


def _always(field: pc.Expression, true: bool) -> pc.Expression:
    """The same for each value, and neither of null."""
    return pc.if_else(field.is_null(), pa.scalar(None, pa.bool_()), pa.scalar(true))


def _plainly(field: pc.Expression, sign: str, value: pa.Scalar) -> pc.Expression:
    match sign:
        case "=":
            return field == value
        case "!=" | "<>":
            return field != value
        case "<":
            return field < value
        case "<=":
            return field <= value
        case ">":
            return field > value
        case _:
            return field >= value


def _held(column: Column, value: Any) -> Any:
    """The value as the column holds it; None where it cannot hold it, and of NaN, which is told by its own test."""
    try:
        given = column.type.traits.given(value, column.type)
    except (ValueError, decimal.DecimalException):
        return None
    return None if isinstance(given, float) and math.isnan(given) else given


def _scalar(column: Column, value: Any) -> pa.Scalar:
    return pa.scalar(value, column.type.arrow())
