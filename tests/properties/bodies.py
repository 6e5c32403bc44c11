"""Random programs: the text of a module with up to two tables, two events and their transactions; and, in a flow, a few
events that these emit, with transactions that may emit others; some transactions of a flow take several events.

A `Writer` walks the grammar of the language top-down. It asks for an expression of a wanted type,
so that what it writes is well typed by construction, and it keeps a `Scope` of the names that are
surely assigned here. The same seed gives the same text.

    program(seed)      -> source text; program(seed, flow=True) of a flow; with groups=True, of one whose rounds are
                          mostly one group each; windows=True: with windows (window_bodies.py)
    load(source, dir)  -> the module, imported from a real file (the compiler reads its source)
    rows, batch        -> values for it, by name, from the declarations alone
"""

import importlib.util
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import function_bodies
import window_bodies
from values import pick

from penstock.declare.model import Program
from penstock.declare.types import BOOL, DATE, DATETIME, FLOAT, INT, INT_MAX, INT_MIN, STR, TIMEDELTA, Type

# Enums of a program. What is made and stored need not be a member, but a constant must: so the one that is stored has
# all strings that `literal` writes.
_SHADES = {"A": "a", "B": "b", "NONE": "", "E": "é", "SUN": "日本", "NEW": "new"}
_LEVELS = {"LOW": 0, "HIGH": 7, "BELOW": -1}
SHADE = Type("str", enum="Shade", members=tuple(_SHADES.values()))
LEVEL = Type("int", enum="Level", members=tuple(_LEVELS.values()))
# How often a string, or an int of an event from outside, is of an Enum.
ENUM = 0.25
KEY_TYPES = (INT, INT, STR, STR, SHADE, BOOL, Type("decimal", 9, 2), DATETIME, DATE, TIMEDELTA)
SCALES = (0, 2, 4, 6)
# What += and its kin may change.
CHANGED = ("int", "float", "decimal", "datetime", "date", "timedelta")
# Few keys, so that events meet; the last one is in no table at first.
KEYS = 4
# How often a program has fewer tables than two; an event's transaction has none to touch; a table has one row, or none.
NO_TABLE, ONE_TABLE, NONE_TOUCHED, ONE_ROW, NO_ROW = 0.05, 0.1, 0.06, 0.08, 0.04
# How often a transaction that takes an emitted event is nested.
NESTED = 0.4
# How often the records of an app's tables expire, and after how long; events come within some 100 of ts.
EXPIRE, TTLS = 0.1, (1, 5, 20, 60)
# How often an event's ids run once, and within which span.
ONCE, UNIQUE = 0.2, (1, 2, 5, 20, 2**62)
# How often a transaction of a group returns nothing, so that it may be caused from a loop.
SILENT = 0.7
# How often an event is emitted with at=; and how often a transaction sets its own event again.
TIMED, AGAIN = 0.45, 0.4
# How often a transaction of a flow takes several events, and which ones of those from outside.
SEVERAL, BATCHES = 0.2, ('"ts"', "1", "2", "5")
# Where a range may begin and end, and the steps that cross all ints in a few turns.
BOUNDS = ("LOWEST", "HIGHEST", "LOWEST + 1", "HIGHEST - 2", "0", "-1", "BIG")
# How many digits round() keeps.
DIGITS = ("0", "1", "1", "2", "2", "3", "5", "-1", "-1", "-2", "-3", "SMALL", "12", "17", "22", "-17", "-18")
# Ranges that are constant, and how often one is: then its turns are foreseen. How often a key is computed.
SPANS = ("1", "2", "3", "0", "1, 4, 2", "2, -3, -2", "SMALL", "65", "HIGHEST - 1, HIGHEST", "LOWEST, HIGHEST, BIG")
CONSTANT_RANGE, COMPUTED = 0.4, 0.25
# How often a program scans tables, and there: a loop, an expression that may be one, a column that is looked up by.
SCANS, SCANNED_LOOP, AGGREGATE, INDEXED = 0.4, 0.4, 0.08, 0.7
# How many records top and bottom give.
MANY = ("1", "1", "2", "3", "SMALL", "0", "-1", "BIG", "e.i1", "(e.i1 % 4)")
# How often a program has columns and fields that may be None, which ones, and how often one is; how often an operation
# takes such a value as it is.
NULLABLE, MAY_BE_NONE, IS_NONE, UNGUARDED = 0.4, 0.3, 0.3, 0.15
# Parts of a time that are methods; what replaces parts of a date, and of a datetime besides.
_CALLED = ("weekday()", "isoweekday()", "toordinal()")
_CUTS = ("day=1", "month=1, day=1", "year=SMALL, month=12, day=31", "day=28", "year=2024, month=2, day=29")
_TRUNCATED = ("minute=0, second=0, microsecond=0", "hour=0, minute=0", "second=59", "microsecond=SMALL")
# How often a program makes strings; and how often a string is then made, or is as it is.
TEXTS, MADE = 0.3, 0.6
STRIDES = ("4611686018427387904", "-4611686018427387904", "9223372036854775807", "-9223372036854775808")


def dec(scale: int) -> Type:
    return Type("decimal", 18, scale)


def written(type_: Type) -> str:
    """A type as a user writes it."""
    if type_.enum:
        return type_.enum
    if type_.kind == "decimal":
        return f"ps.decimal({type_.precision}, {type_.scale})"
    if type_.kind == "list":
        assert type_.item is not None
        return f"list[{written(type_.item)}]"
    return type_.traits.declared


# The constant dicts of a program: from values of a type to others.
TABLES = {INT: "SIZES", STR: "WORDS"}
DEFAULTS = {
    "int": "0",
    "float": "1.5",
    "bool": "False",
    "str": '"new"',
    "decimal": "1",
    "datetime": "datetime.datetime(2024, 2, 29, 12)",
    "date": "datetime.date(2024, 2, 29)",
    "timedelta": "datetime.timedelta(hours=-1)",
}


@dataclass
class TableShape:
    name: str
    keys: list[tuple[str, Type]]
    columns: list[tuple[str, Type, bool]]  # name, type, has a default
    indexed: str = ""  # a column that records are looked up by

    @property
    def gettable(self) -> bool:
        return all(default for _, _, default in self.columns)


@dataclass
class Record:
    table: TableShape
    optional: bool


@dataclass
class Scope:
    names: dict[str, Type] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)

    def copy(self) -> "Scope":
        return Scope(dict(self.names), dict(self.records))

    def keep_common(self, others: list["Scope"]) -> None:
        self.names = {n: t for n, t in others[0].names.items() if all(n in o.names for o in others)}
        self.records = {n: r for n, r in others[0].records.items() if all(n in o.records for o in others)}


def same(a: Type, b: Type) -> bool:
    """Whether two types are one in a body: a decimal's digits count only where it is stored."""
    return a.kind == b.kind and a.scale == b.scale


class Writer:
    """Writes expressions and statements; `rng` decides everything."""

    def __init__(self, rng: Random, tables: list[TableShape], fields: list[tuple[str, Type]], udfs: bool) -> None:
        self.rng = rng
        self.tables = tables
        self.fields = fields
        self.udfs = udfs
        self.scans = False
        self.texts = False  # whether it makes strings
        self.emits: list[tuple[str, list[tuple[str, Type]]]] = []  # events that it may emit, and their fields
        self.output = ""  # the one of them that goes out
        self.as_one: set[str] = set()  # those of them that one transaction takes together, and that are no timers
        self.grouped = False  # whether all that it causes is one group: nothing goes out from a loop, or waits
        self.silent = False  # whether nothing is returned
        self.windows: list[window_bodies.WindowShape] = []  # that belong to it
        self.looped: frozenset[str] = frozenset()  # windows that a loop goes over here
        self.scope = Scope()
        self.types: dict[str, Type] = {}  # every name's one type, assigned here or not
        self.kinds: dict[str, Record] = {}
        self.fresh = itertools.count(1)
        self.loops = 0
        self.budget = 14  # statements left to write
        self.functions: list[function_bodies.FunctionShape] = []  # that it may call
        self.returns: Type | None = None  # what a function gives; None in a transaction

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    # -- expressions ----------------------------------------------------------------------------

    def expr(self, type_: Type, depth: int) -> str:
        if depth <= 0 or self.chance(0.35):
            return self.atom(type_, depth)
        if self.chance(0.1):
            return f"({self.expr(type_, depth - 1)} if {self.condition(depth - 1)} else {self.expr(type_, depth - 1)})"
        if self.chance(0.06) and type_.kind not in ("bool", "datetime", "date"):
            return f"({self.expr(type_, depth - 1)} {self.rng.choice(('or', 'and'))} {self.expr(type_, depth - 1)})"
        if self.chance(0.08) and type_ in TABLES:
            table = TABLES[type_]
            if self.chance(0.4):
                return f"{table}[{self.expr(type_, depth - 1)}{' % 4' if type_ == INT else ''}]"
            return f"{table}.get({self.expr(type_, depth - 1)}, {self.expr(type_, depth - 1)})"
        if self.chance(0.1) and type_.kind != "bool":
            args = ", ".join(self.expr(type_, depth - 1) for _ in range(self.rng.choice((2, 2, 3))))
            return f"{self.rng.choice(('min', 'max'))}({args})"
        if self.scans and self.tables and self.chance(AGGREGATE):
            return self.aggregate(type_, depth)
        callable_ = [one for one in self.functions if same(one.returns, type_)]
        if callable_ and self.chance(function_bodies.CALLED):
            return function_bodies.call(self, self.rng.choice(callable_), depth)
        if self.chance(function_bodies.LISTED) and (text := function_bodies.of_list(self, type_, depth)):
            return text
        if type_ in (INT, FLOAT) and self.chance(0.08):
            return function_bodies.converted(self, type_, depth)
        ways = {"int": self.int_, "float": self.float_, "bool": self.bool_, "decimal": self.decimal_}
        ways |= {"timedelta": self.timedelta_, "datetime": self.place_, "date": self.place_, "str": self.str_}
        return ways.get(type_.kind, self.atom)(type_, depth)

    def atom(self, type_: Type, depth: int = 0) -> str:
        found = [f"e.{n}" for n, t in self.fields if same(t, type_) and (n[0] != "o" or self.chance(UNGUARDED))] * 2
        found += [n for n, t in self.scope.names.items() if same(t, type_)] * 3
        for name, record in self.scope.records.items():
            known = [c for c, t, _ in record.table.columns if same(t, type_)]
            found += [f"{name}.{c}" for c in known if c[0] != "o" or self.chance(UNGUARDED)] * 2
            found += [f"{name}.{c}" for c, t in record.table.keys if same(t, type_)]
        if depth > 0 and self.chance(0.1):
            for table in self.tables:
                found += [f"{self.access(table, depth - 1)}.{c}" for c, t, _ in table.columns if same(t, type_)]
        found += [self.guarded(one, type_) for one in self.may_be_none(type_)]
        if not found or (self.chance(0.2) and type_.kind not in ("datetime", "date")):
            found = [self.literal(type_)]
        return self.rng.choice(found)

    def may_be_none(self, type_: Type) -> list[str]:
        """Fields and columns of a type that may be None."""
        found = [f"e.{n}" for n, t in self.fields if same(t, type_) and n[0] == "o"]
        for name, record in self.scope.records.items():
            found += [f"{name}.{c}" for c, t, _ in record.table.columns if same(t, type_) and c[0] == "o"]
        return found

    def guarded(self, text: str, type_: Type) -> str:
        """A value where there is one, and something else where it is None."""
        other = {"datetime": "MOMENT", "date": "DAY"}.get(type_.kind) or self.literal(type_)
        if self.chance(0.3) and type_.kind not in ("datetime", "date"):
            return f"({text} or {other})"
        if self.chance(0.5):
            return f"({text} if {text} is not None else {other})"
        return f"({other} if {text} is None else {text})"

    def maybe(self, type_: Type, depth: int) -> str:
        """A value that may be stored where None may be."""
        known = self.may_be_none(type_)
        roll = self.rng.random()
        if roll < 0.2:
            return "None"
        if roll < 0.3:
            return f"(None if {self.condition(depth)} else {self.expr(type_, depth)})"
        if known and roll < 0.6:
            one = self.rng.choice(known)
            return one if roll < 0.5 else f"({one} if {self.condition(depth)} else {self.rng.choice(known)})"
        return self.stored(type_, depth)

    def asked(self) -> str:
        """Whether something is None."""
        every = [f"e.{n}" for n, _ in self.fields if n[0] == "o"] + list(self.scope.names)
        for name, record in self.scope.records.items():
            every += [f"{name}.{c}" for c, _, _ in record.table.columns if c[0] == "o"]
        if not every:
            return self.rng.choice(("True", "False"))
        return f"({self.rng.choice(every)} is {self.rng.choice(('', 'not '))}None)"

    def scan(self, table: TableShape, depth: int) -> str:
        """Some or all of a table's records."""
        roll = self.rng.random()
        if roll < 0.25:
            return table.name
        if roll < 0.45 and table.indexed:
            type_ = next(t for c, t, _ in table.columns if c == table.indexed)
            wanted = self.maybe(type_, depth) if table.indexed[0] == "o" else self.stored(type_, depth)
            return f"{table.name}.where({table.indexed}={wanted})"
        if roll < 0.65:
            count = self.rng.randrange(len(table.keys))
            ends = [t for _, t in table.keys[: count + 1]]
            if ends[-1] != BOOL:
                return f"{table.name}.between({', '.join(self.expr(t, depth) for t in (*ends, ends[-1]))})"
        known = (c for c, _, _ in table.columns if c[0] != "o")
        by = self.rng.choice([*(c for c, _ in table.keys), *known])
        return f'{table.name}.{self.rng.choice(("top", "bottom"))}({self.rng.choice(MANY)}, by="{by}")'

    def aggregate(self, type_: Type, depth: int) -> str:
        """A sum, an extreme or a test of what a scan gives."""
        table, name = self.rng.choice(self.tables), f"g{next(self.fresh)}"
        scan, before = self.scan(table, depth - 1), self.scope
        self.scope = before.copy()
        self.scope.records[name] = Record(table, False)
        sums = type_.kind in ("int", "float", "decimal", "timedelta") and self.chance(0.6)
        item = "1" if type_ == INT and sums and self.chance(0.3) else self.expr(type_, depth - 1)
        test = f" if {self.condition(depth - 1)}" if self.chance(0.4) else ""
        self.scope = before
        turns = f"{item} for {name} in {scan}{test}"
        if type_ == BOOL:
            return f"{self.rng.choice(('any', 'all'))}({turns})"
        if not sums:
            return f"{self.rng.choice(('min', 'max'))}({turns})"
        zeros = {"int": "0", "float": "0.0", "timedelta": "datetime.timedelta()"}
        zero = zeros.get(type_.kind) or f'Decimal("{0:.{type_.scale}f}")'
        return f"sum({turns})" if type_ == INT and self.chance(0.7) else f"sum(({turns}), {zero})"

    def literal(self, type_: Type) -> str:
        pick_one = self.rng.choice
        if type_.kind in ("int", "str") and self.chance(0.1):
            return f"{('Level', 'Shade')[type_ == STR]}.{pick_one(tuple((_LEVELS, _SHADES)[type_ == STR]))}"
        if type_.kind == "int":
            return pick_one(("0", "1", "2", "3", "7", "10", "-1", "100", "5", "SMALL", "SMALL", "BIG"))
        if type_.kind == "float":
            return pick_one(("0.0", "1.0", "0.5", "-2.5", "1e3", "HALF"))
        if type_.kind == "bool":
            return pick_one(("True", "False"))
        if type_.kind == "str":
            return pick_one(('"a"', '"b"', '""', '"é"', '"日本"'))
        if type_.kind == "decimal":
            digits = pick_one(("0", "1", "3", "12", "-2"))
            tail = "." + "".join(pick_one("0059") for _ in range(type_.scale)) if type_.scale else ""
            return f'Decimal("{digits}{tail}")'
        if type_.kind == "timedelta":
            units = ("minutes=5", "days=-1", "1, microseconds=-SMALL", "hours=0.5", "", "weeks=SMALL")
            return pick_one((f"datetime.timedelta({pick_one(units)})", "WHILE"))
        if type_ == DATE:
            return pick_one(("DAY", "datetime.date(1969, 12, 31)"))
        return pick_one(("MOMENT", "datetime.datetime(1970, 1, 1, microsecond=SMALL)"))

    def int_(self, type_: Type, depth: int) -> str:
        lists = [n for n, t in self.fields if t.kind == "list"]
        roll = self.rng.random()
        if roll < 0.6:
            op = self.rng.choice(("+", "+", "+", "-", "-", "-", "*", "*", "//", "%"))
            return f"({self.expr(INT, depth - 1)} {op} {self.expr(INT, depth - 1)})"
        if roll < 0.75:
            return f"{self.rng.choice(('-', 'abs'))}({self.expr(INT, depth - 1)})"
        if roll < 0.8:
            return f"({self.expr(TIMEDELTA, depth - 1)} // {self.expr(TIMEDELTA, depth - 1)})"
        if roll < 0.83:
            return f"round({self.expr(self.rng.choice((FLOAT, *(dec(s) for s in SCALES))), depth - 1)})"
        if roll < 0.86:
            return self.part(depth)
        if roll < 0.87:
            return f"len({self.expr(STR, depth - 1)})"
        if roll < 0.89 and lists:
            return f"len(e.{self.rng.choice(lists)})"
        if self.udfs and roll < 0.95:
            name, count = self.rng.choice((("mix", 2), ("fussy", 1)))
            return f"{name}({', '.join(self.expr(INT, depth - 1) for _ in range(count))})"
        return self.atom(type_, depth)

    def part(self, depth: int) -> str:
        """A part of a time: an int."""
        type_ = self.rng.choice((DATETIME, DATETIME, DATE, TIMEDELTA))
        names = {
            "datetime": ("year", "month", "day", "hour", "minute", "second", "microsecond", *_CALLED),
            "date": ("year", "month", "day", *_CALLED),
            "timedelta": ("days", "seconds", "microseconds"),
        }
        return f"{self.expr(type_, depth - 1)}.{self.rng.choice(names[type_.kind])}"

    def float_(self, type_: Type, depth: int) -> str:
        roll = self.rng.random()
        if roll < 0.15:
            return f"({self.expr(INT, depth - 1)} / {self.expr(INT, depth - 1)})"
        if roll < 0.2:
            return f"({self.expr(TIMEDELTA, depth - 1)} / {self.expr(TIMEDELTA, depth - 1)})"
        if roll < 0.22:
            return f"{self.expr(TIMEDELTA, depth - 1)}.total_seconds()"
        if roll < 0.27:
            return f"round({self.expr(FLOAT, depth - 1)}, {self.rng.choice(DIGITS)})"
        if roll < 0.75:
            op = self.rng.choice(("+", "+", "+", "-", "-", "*", "*", "/", "//", "%"))
            left, right = self.rng.choice(((FLOAT, FLOAT), (FLOAT, FLOAT), (FLOAT, INT), (INT, FLOAT)))
            return f"({self.expr(left, depth - 1)} {op} {self.expr(right, depth - 1)})"
        if roll < 0.9 or not self.udfs:
            return f"{self.rng.choice(('-', 'abs'))}({self.expr(FLOAT, depth - 1)})"
        return f"blend({self.expr(FLOAT, depth - 1)}, {self.expr(FLOAT, depth - 1)})"

    def timedelta_(self, type_: Type, depth: int) -> str:
        if self.chance(0.15):
            return f"{self.rng.choice(('-', 'abs'))}({self.expr(type_, depth - 1)})"
        if self.chance(0.1):
            parts = self.rng.choice(("minutes={}", "{}", "hours=SMALL, seconds={}", "weeks={}, microseconds={}"))
            return f"datetime.timedelta({parts.replace('{}', self.expr(INT, depth - 1))})"
        left, op, right = self.rng.choice(
            (
                *[(type_, "+", type_), (type_, "-", type_), (DATETIME, "-", DATETIME), (DATE, "-", DATE)] * 2,
                *((type_, "*", INT), (INT, "*", type_), (type_, "//", INT), (type_, "%", type_)),
            )
        )
        return f"({self.expr(left, depth - 1)} {op} {self.expr(right, depth - 1)})"

    def str_(self, type_: Type, depth: int) -> str:
        """A string that is made, of strings and ints."""
        if not self.texts or not self.chance(MADE):
            return self.atom(type_, depth)
        one = self.expr(STR, depth - 1)
        ways = [lambda: f"({one} + {self.expr(STR, depth - 1)})", lambda: f"str({self.expr(INT, depth - 1)})"]
        ways += [lambda: f"{one}.{self.rng.choice(('lower', 'upper', 'strip', 'lstrip', 'rstrip'))}()"] * 2
        ways.append(lambda: f"{one}[{self.rng.choice((':3', '1:', '-1:', ':-1', ':SMALL', 'e.i1:e.i2', '-SMALL:'))}]")
        # Before Python 3.12 the quotes of an f-string cannot stand inside it.
        parts = [p for p in (self.expr(self.rng.choice((INT, STR)), 1) for _ in range(2)) if '"' not in p]
        ways.append(lambda: f'f"{"-".join(f"{{{p}}}" for p in parts)}"')
        return self.rng.choice(ways)()

    def place_(self, type_: Type, depth: int) -> str:
        """A datetime or date, moved; cut; or the day of a time."""
        if self.chance(0.15):
            cut = self.rng.choice((*_CUTS, *_TRUNCATED) if type_ == DATETIME else _CUTS)
            return f"{self.expr(type_, depth - 1)}.replace({cut})"
        if type_ == DATE and self.chance(0.2):
            return f"{self.expr(DATETIME, depth - 1)}.date()"
        if self.chance(0.3):
            return f"({self.expr(TIMEDELTA, depth - 1)} + {self.expr(type_, depth - 1)})"
        return f"({self.expr(type_, depth - 1)} {self.rng.choice('+-')} {self.expr(TIMEDELTA, depth - 1)})"

    def decimal_(self, type_: Type, depth: int) -> str:
        s = type_.scale
        ways: list[Callable[[], str]] = [lambda: self.widest(s, self.rng.choice("+-+-+-%"), depth)] * 3
        ways.append(lambda: f"{self.rng.choice(('-', 'abs'))}({self.expr(type_, depth - 1)})")
        ways.append(lambda: f"round({self.expr(type_, depth - 1)}, {self.rng.choice(DIGITS)})")
        ways.append(lambda: self.product(s, depth))
        if s == 0:
            ways.append(lambda: self.widest(self.rng.choice(SCALES), "//", depth))
        if s >= 6:
            ways.append(lambda: self.widest(s if s > 6 else self.rng.choice(SCALES), "/", depth))
        return self.rng.choice(ways)()

    def widest(self, scale: int, op: str, depth: int) -> str:
        """Two operands, of which one is a decimal of this scale and the other has no larger one."""
        other = self.rng.choice([INT, *(dec(s) for s in SCALES if s <= scale)])
        pair = [self.expr(dec(scale), depth - 1), self.expr(other, depth - 1)]
        self.rng.shuffle(pair)
        return f"({pair[0]} {op} {pair[1]})"

    def product(self, scale: int, depth: int) -> str:
        left = self.rng.choice([s for s in (0, 2, 4, 6) if s <= scale])
        pair = [
            self.expr(dec(left) if left else INT, depth - 1),
            self.expr(dec(scale - left), depth - 1),
        ]
        self.rng.shuffle(pair)
        return f"({pair[0]} * {pair[1]})"

    def bool_(self, type_: Type, depth: int) -> str:
        roll = self.rng.random()
        if roll < 0.45:
            return self.comparison(depth)
        if roll < 0.5:
            return self.asked()
        if roll < 0.7:
            op = self.rng.choice(("and", "or"))
            count = self.rng.choice((2, 2, 3))
            return "(" + f" {op} ".join(self.expr(BOOL, depth - 1) for _ in range(count)) + ")"
        if roll < 0.8:
            return f"(not {self.condition(depth - 1)})"
        if roll < 0.92:
            return self.membership(depth)
        if roll < 0.96:
            a, b = self.expr(STR, depth - 1), self.expr(STR, depth - 1)
            in_it = self.rng.choice(("in", "not in"))
            return self.rng.choice((f"{a}.startswith({b})", f"{a}.endswith({b})", f"({b} {in_it} {a})"))
        return self.atom(type_, depth)

    def comparison(self, depth: int) -> str:
        kinds: tuple[Type, ...] = (INT, INT, FLOAT, STR, DATETIME, DATE, TIMEDELTA, dec(2), dec(4), BOOL)
        kind = self.rng.choice(kinds)
        if kind is BOOL:
            return f"({self.expr(BOOL, depth - 1)} {self.rng.choice(('==', '!='))} {self.expr(BOOL, depth - 1)})"
        partners: list[Type] = [kind]
        if kind in (INT, FLOAT):
            partners = [INT, FLOAT] if kind is FLOAT else [INT, INT, FLOAT, dec(2)]
        elif kind.kind == "decimal":
            partners = [kind, kind, INT, dec(0), dec(6)]
        enums = [f"e.{n}" for n, t in self.fields if t.enum == "Shade"]
        if kind == STR and enums and self.chance(0.4):
            way = self.rng.choice(("==", "!=", "is", "is not"))
            return f"({self.rng.choice(enums)} {way} Shade.{self.rng.choice(tuple(_SHADES))})"
        known = self.may_be_none(kind)
        if known and self.chance(0.3):
            one, other = self.rng.choice(known), self.rng.choice((*known, self.expr(kind, depth - 1)))
            return f"({one} {self.rng.choice(('==', '!='))} {other})"
        text = self.expr(kind, depth - 1)
        for link in range(self.rng.choice((1, 1, 1, 2))):
            # Only neighbours need compare: int with float and with decimal, float never with decimal.
            partner = self.rng.choice(partners) if link == 0 else kind if partners == [kind] else INT
            text += f" {self.rng.choice(('<', '<=', '>', '>=', '==', '!='))} {self.expr(partner, depth - 1)}"
        return f"({text})"

    def listed(self, depth: int) -> str:
        """Whether a value is among some, or among constants."""
        type_ = self.rng.choice((INT, INT, STR, TIMEDELTA, dec(2)))
        one = self.rng.choice([*self.may_be_none(type_), self.expr(type_, depth - 1)])
        among = f"({self.expr(type_, depth - 1)}, {self.literal(type_)})"
        if type_ in TABLES and self.chance(0.6):
            among = self.rng.choice((TABLES[type_], f"AMONG_{TABLES[type_]}"))
        return f"({one} {self.rng.choice(('in', 'not in'))} {among})"

    def membership(self, depth: int) -> str:
        if self.chance(0.25):
            return self.listed(depth)
        if not self.tables:
            return self.comparison(depth)
        table = self.rng.choice(self.tables)
        key = self.key(table, depth - 1)
        key = f"({key})" if len(table.keys) > 1 else key
        return f"({key} {self.rng.choice(('in', 'not in'))} {table.name})"

    def condition(self, depth: int) -> str:
        """A test, where numbers and strings mean that they are not zero or empty."""
        if self.chance(0.15):
            kind = self.rng.choice((INT, FLOAT, STR, TIMEDELTA, dec(2)))
            return self.expr(kind, depth - 1)
        if depth > 0 and self.chance(0.1):
            op = self.rng.choice(("and", "or"))
            return f"({self.condition(depth - 1)} {op} {self.condition(depth - 1)})"
        return self.expr(BOOL, max(depth, 1))

    def key(self, table: TableShape, depth: int) -> str:
        parts = []
        for name, type_ in table.keys:
            hot = [f"e.{n}" for n, t in self.fields if n.startswith(f"k{table.name.lower()}{name}") and same(t, type_)]
            # A loop over a list of keys gives names of this type.
            hot += [n for n, t in self.scope.names.items() if same(t, type_) and n.startswith("x")] * 3
            if hot and self.chance(COMPUTED):
                parts.append(self.from_event(type_, hot))
            elif hot and not self.chance(0.12):
                parts.append(self.rng.choice(hot))
            elif type_.kind == "decimal" and self.chance(0.3):
                parts.append(self.expr(self.rng.choice((INT, dec(4))), depth))
            else:
                parts.append(self.expr(type_, depth))
        return ", ".join(parts)

    def from_event(self, type_: Type, hot: list[str]) -> str:
        """A key that the event alone computes: of keys that others have, or of anything."""
        kept = self.scope, self.tables, self.udfs
        # What loops give is the event's as well, or a range's.
        self.scope = Scope({n: t for n, t in self.scope.names.items() if n.startswith("x")})
        self.tables, self.udfs = [], False
        a, b = self.rng.choice(hot), self.rng.choice(hot)
        ways = [lambda: self.expr(type_, 2), lambda: f"({a} if {self.condition(2)} else {b})"]
        if type_.kind in ("int", "decimal"):
            ways.append(
                lambda: f"({a} + {self.rng.choice(('0', '1', *(('e.i1', 'e.i1 // e.i2') if self.fields else ())))})"
            )
        if type_.kind != "bool":
            ways.append(lambda: f"{self.rng.choice(('min', 'max'))}({a}, {b})")
        text = self.rng.choice(ways)()
        self.scope, self.tables, self.udfs = kept
        return text

    def access(self, table: TableShape, depth: int) -> str:
        if table.gettable and self.chance(0.5):
            return f"{table.name}.get({self.key(table, depth)})"
        return f"{table.name}[{self.key(table, depth)}]"

    # -- statements -----------------------------------------------------------------------------

    def block(self, depth: int, size: int) -> tuple[list[str], bool]:
        """Some statements, and whether the last one always leaves."""
        lines: list[str] = []
        for _ in range(size):
            if self.budget <= 0 and lines:
                break
            self.budget -= 1
            more, leaves = self.statement(depth)
            lines += more
            if leaves:
                return lines, True
        return lines or ["pass"], False

    def statement(self, depth: int) -> tuple[list[str], bool]:
        ways: list[tuple[int, Callable[[], list[str]]]] = [
            (6, self.assign),
            (3, self.change),
            (2, self.together),
            (1, self.require),
            (1, lambda: function_bodies.two(self)),
            (1, self.loose),
        ]
        if self.tables:
            ways += [(5, self.fetch), (8, self.write), (2, self.insert), (2, self.delete)]
        if [name for name, _ in self.emits if not (self.grouped and self.loops and name == self.output)]:
            ways.append((8, self.emit))
        if self.windows:
            ways += [(9, lambda: window_bodies.add(self)), (6, lambda: window_bodies.read(self))]
        if self.windows and depth > 0:
            ways.append((4, lambda: window_bodies.loop(self, depth)))
        if depth > 0:
            ways.append((4, lambda: self.loop(depth)))
            if self.chance(0.3):
                return self.branch(depth)
        weights = [w for w, _ in ways]
        return self.rng.choices([way for _, way in ways], weights)[0](), False

    def any_type(self) -> Type:
        times = (DATETIME, DATE, TIMEDELTA, TIMEDELTA)
        return self.rng.choice((INT, INT, INT, FLOAT, FLOAT, BOOL, STR, *times, *(dec(s) for s in SCALES)))

    def name(self, type_: Type) -> str:
        """A name to assign to: a new one, or one that has this type already, assigned here or not."""
        old = [n for n, t in self.types.items() if same(t, type_) and (n[0] == "v" or self.chance(0.1))]
        name = self.rng.choice(old) if old and self.chance(0.5) else f"v{next(self.fresh)}"
        self.types[name] = type_
        return name

    def assign(self) -> list[str]:
        type_ = self.any_type()
        text = self.rng.choice([*self.may_be_none(type_), self.expr(type_, 3)])
        name = self.name(type_)
        self.scope.names[name] = type_
        return [f"{name} = {text}"]

    def change(self) -> list[str]:
        numbers = [(n, t) for n, t in self.scope.names.items() if t.kind in CHANGED]
        if not numbers:
            return self.assign()
        name, type_ = self.rng.choice(numbers)
        return [f"{name} {self.change_of(type_, 2)}"]

    def change_of(self, type_: Type, depth: int, stored: bool = False) -> str:
        if type_.kind == "int":
            return f"{self.rng.choice(('+', '+', '+', '-', '-', '*', '//', '%'))}= {self.expr(INT, depth)}"
        if type_.kind == "float":
            other = self.rng.choice((FLOAT, INT))
            return f"{self.rng.choice(('+', '+', '-', '-', '*', '/', '//', '%'))}= {self.expr(other, depth)}"
        if type_ in (DATETIME, DATE) or (type_ == TIMEDELTA and self.chance(0.6)):
            return f"{self.rng.choice('+-')}= {self.expr(TIMEDELTA, depth)}"
        if type_ == TIMEDELTA:
            op, other = self.rng.choice((("*", INT), ("//", INT), ("%", TIMEDELTA)))
            return f"{op}= {self.expr(other, depth)}"
        # A name keeps its scale; a column takes any and rounds.
        if stored:
            return f"{self.rng.choice('++-*/%')}= {self.expr(self.rng.choice((INT, dec(0), dec(2), dec(4))), depth)}"
        other = self.rng.choice([INT, *(dec(s) for s in SCALES if s <= type_.scale)])
        return f"{self.rng.choice('+-%')}= {self.expr(other, depth)}"

    def together(self) -> list[str]:
        writable = [(f"{n}.{c}", t) for n, r in self.scope.records.items() for c, t, _ in r.table.columns]
        pairs = [(a, b) for (a, t), (b, u) in itertools.combinations(writable, 2) if t == u]
        if pairs and self.chance(0.6):
            a, b = self.rng.choice(pairs)
            return [f"{a}, {b} = {b}, {a}"]
        types = [self.any_type() for _ in range(2)]
        texts = [self.expr(t, 2) for t in types]
        names: list[str] = []
        for type_ in types:
            name = self.name(type_)
            while name in names:
                name = f"v{next(self.fresh)}"
            self.types[name] = type_
            names.append(name)
        self.scope.names.update(zip(names, types, strict=True))
        return [f"{', '.join(names)} = {', '.join(texts)}"]

    def fetch(self) -> list[str]:
        table = self.rng.choice(self.tables)
        optional = table.gettable and self.chance(0.5)
        keys = [self.key(table, 1) for _ in range(2)]
        texts = [f"{table.name}.get({key})" if optional else f"{table.name}[{key}]" for key in keys]
        text = f"{texts[0]} if {self.condition(2)} else {texts[1]}" if self.chance(0.1) else texts[0]
        old = [n for n, r in self.kinds.items() if r.table is table and r.optional == optional]
        name = self.rng.choice(old) if old and self.chance(0.25) else f"r{next(self.fresh)}"
        self.kinds[name] = self.scope.records[name] = Record(table, optional)
        return [f"{name} = {text}"]

    def write(self) -> list[str]:
        if self.scope.records and not self.chance(0.2):
            name, record = self.rng.choice(sorted(self.scope.records.items(), key=lambda item: item[0]))
            table, target = record.table, name
        else:
            table = self.rng.choice(self.tables)
            target = self.access(table, 1)
        column, type_, _ = self.rng.choice(table.columns)
        if column[0] == "o" and self.chance(0.8):
            return [f"{target}.{column} = {self.maybe(type_, 3)}"]
        if type_.kind in CHANGED and self.chance(0.5):
            return [f"{target}.{column} {self.change_of(type_, 2, stored=True)}"]
        return [f"{target}.{column} = {self.stored(type_, 3)}"]

    def stored(self, type_: Type, depth: int) -> str:
        """A value to store: what converts on its way into the column is allowed too."""
        if type_.kind == "decimal":
            return self.expr(self.rng.choice((type_, type_, INT, dec(4), dec(6))), depth)
        if type_.kind == "float" and self.chance(0.15):
            return self.expr(INT, depth)
        return self.expr(type_, depth)

    def insert(self) -> list[str]:
        table = self.rng.choice(self.tables)
        key = self.key(table, 1)
        given = [(c, t) for c, t, default in table.columns if not default or self.chance(0.3)]
        self.rng.shuffle(given)
        texts = [f"{c}={self.maybe(t, 2) if c[0] == 'o' else self.stored(t, 2)}" for c, t in given]
        call = f"{table.name}.insert({', '.join([key, *texts])})"
        if self.chance(0.8):
            test = f"({key})" if len(table.keys) > 1 else key
            return [f"if {test} not in {table.name}:", f"    {call}"]
        if self.chance(0.5):
            name = f"r{next(self.fresh)}"
            self.kinds[name] = self.scope.records[name] = Record(table, False)
            return [f"{name} = {call}"]
        return [call]

    def emit(self) -> list[str]:
        name, fields = self.rng.choice(
            [e for e in self.emits if not (self.grouped and self.loops and e[0] == self.output)]
        )
        given = [
            f"{field}={self.maybe(type_, 2) if field[0] == 'o' else self.emitted(field, type_)}"
            for field, type_ in fields
            if field[0] != "o" or self.chance(0.8)
        ]
        self.rng.shuffle(given)
        at_once = self.grouped or name == self.output or name in self.as_one
        return [f"ps.emit({name}({', '.join(given)}){'' if at_once else self.later()})"]

    def later(self) -> str:
        """When it runs: mostly in this round; soon, late, or never; at a time that is past; or at any."""
        if self.chance(1 - TIMED):
            return ""
        near = self.rng.choice(("1", "SMALL", "10", "0", "-1", "-20", "BIG", f"e.{self.whole()} % 20"))
        return f", at=ps.now() + {near}" if self.chance(0.85) else f", at={self.expr(INT, 1)}"

    def whole(self) -> str:
        return self.rng.choice([n for n, t in self.fields if t == INT])

    def emitted(self, field: str, type_: Type) -> str:
        """A value for a field: keys are mostly those that this event has, so that they meet others."""
        known = [f"e.{n}" for n, t in self.fields if field[:3] == n[:3] and field.startswith("k") and same(t, type_)]
        known += [n for n, t in self.scope.names.items() if field.startswith("k") and n[0] == "x" and same(t, type_)]
        return self.rng.choice(known) if known and self.chance(0.85) else self.stored(type_, 2)

    def delete(self) -> list[str]:
        table = self.rng.choice(self.tables)
        key = self.key(table, 1)
        if self.chance(0.8):
            test = f"({key})" if len(table.keys) > 1 else key
            return [f"if {test} in {table.name}:", f"    del {table.name}[{key}]"]
        return [f"del {table.name}[{key}]"]

    def require(self) -> list[str]:
        usual = "e.i1 > -3" if self.fields else "SMALL > 2"
        return [f'ps.require({self.condition(2)} or {usual}, "required {next(self.fresh)}")']

    def loose(self) -> list[str]:
        """A literal 0 that a branch or loop turns into a decimal or a float."""
        name = f"z{next(self.fresh)}"
        type_ = self.rng.choice((dec(2), dec(4), FLOAT))
        lists = [n for n, t in self.fields if t.kind == "list" and t.item is not None and same(t.item, type_)]
        if self.scans and self.tables and self.chance(0.6):
            table = self.rng.choice(self.tables)
            item = next((f"y.{c}" for c, t, _ in table.columns if same(t, type_)), self.expr(type_, 1))
            lines = [f"{name} = sum({item} for y in {self.scan(table, 1)})"]
        elif lists and self.chance(0.6):
            lines = [f"{name} = 0", f"for y in e.{self.rng.choice(lists)}:", f"    {name} += y"]
        else:
            lines = [f"{name} = 1", f"if {self.condition(2)}:", f"    {name} = {self.expr(type_, 2)}"]
        target = [
            f"{n}.{c}" for n, r in self.scope.records.items() for c, t, _ in r.table.columns if t.kind == type_.kind
        ]
        if target:
            lines.append(f"{self.rng.choice(target)} = {name}")
        return lines

    def branch(self, depth: int) -> tuple[list[str], bool]:
        before = self.scope
        lines: list[str] = []
        after: list[Scope] = []
        arms = self.rng.choice((1, 1, 2, 2, 3))
        whole = self.chance(0.6)
        for arm in range(arms):
            self.scope = before  # a test sees nothing of the arms above it
            if arm == 0:
                lines.append(f"if {self.condition(3)}:")
            elif arm == arms - 1 and whole:
                lines.append("else:")
            else:
                lines.append(f"elif {self.condition(3)}:")
            self.scope = before.copy()
            leaves = self.arm(depth, lines)
            if not leaves:
                after.append(self.scope)
        if arms == 1 or not whole:
            after.append(before)
        self.scope = before
        if not after:
            return lines, True
        self.scope = before.copy()
        self.scope.keep_common(after)
        return lines, False

    def arm(self, depth: int, lines: list[str]) -> bool:
        body, leaves = self.block(depth - 1, self.rng.choice((1, 1, 2, 3)))
        if not leaves and self.chance(0.25):
            leaves = True
            roll = self.rng.random()
            if self.loops and roll < 0.6:
                body.append(self.rng.choice(("break", "continue")))
            elif roll < 0.8:
                body.append(self.returning(partial=True))
            else:
                body.append(f'ps.abort("abort {next(self.fresh)}")')
        lines += ["    " + line for line in body]
        return leaves

    def loop(self, depth: int) -> list[str]:
        before = self.scope
        self.scope = before.copy()
        lists = [(n, t.item) for n, t in self.fields if t.kind == "list" and t.item is not None]
        roll = self.rng.random() if lists else 1.0
        bound: dict[str, Type] = {}
        before_it: list[str] = []
        first: list[str] = []
        if self.scans and self.tables and self.chance(SCANNED_LOOP):
            table, name = self.rng.choice(self.tables), f"r{next(self.fresh)}"
            head = f"for {name} in {self.scan(table, 2)}:"
            self.kinds[name] = self.scope.records[name] = Record(table, False)
        elif roll < 0.35:
            field_, item = self.rng.choice(lists)
            bound = {f"x{next(self.fresh)}": item}
            part = self.rng.choice(("", "", "", "[1:]", "[:-1]", "[e.i1:2]"))
            head = f"for {', '.join(bound)} in e.{field_}{part}:"
            if self.chance(0.2):
                bound = {f"x{next(self.fresh)}": INT, **bound}
                head = f"for {', '.join(bound)} in enumerate(e.{field_}{part}):"
        elif roll < 0.65:
            chosen = [self.rng.choice(lists) for _ in range(self.rng.choice((2, 2, 3)))]
            bound = {f"x{next(self.fresh)}": item for _, item in chosen}
            head = f"for {', '.join(bound)} in zip({', '.join(f'e.{n}' for n, _ in chosen)}):"
        else:
            bound = {f"x{next(self.fresh)}": INT}
            head, before_it, first = self.range_(*bound)
        self.scope.names.update(bound)
        self.types.update(bound)
        self.loops += 1
        lines = [*before_it, head, *("    " + line for line in first)]
        body, leaves = self.block(depth - 1, self.rng.choice((1, 2, 3)))
        if not leaves and self.chance(0.3):
            body += [f"if {self.condition(2)}:", f"    {self.rng.choice(('break', 'continue'))}"]
        lines += ["    " + line for line in body]
        self.loops -= 1
        self.scope = before
        return lines

    def range_(self, name: str) -> tuple[str, list[str], list[str]]:
        """The head of a loop over a range; what stands before it, and what its body begins with so that it ends."""
        if self.chance(CONSTANT_RANGE):
            return f"for {name} in range({self.rng.choice(SPANS)}):", [], []
        roll = self.rng.random()
        if roll < 0.6:
            small, start = f"({self.expr(INT, 1)} % 5)", self.rng.choice(("-1", "0", "2"))
            spans = (small, f"{start}, {small}", f"{small}, {start}, -1", f"{start}, {small}, 2")
            return f"for {name} in range({self.rng.choice(spans)}):", [], []
        ends = [self.rng.choice((self.atom(INT), self.rng.choice(BOUNDS))) for _ in range(2)]
        if roll < 0.75:
            return f"for {name} in range({', '.join(ends)}, {self.rng.choice(STRIDES)}):", [], []
        step, turns = self.rng.choice(("", "", ", 3", ", -1", ", -2")), f"w{next(self.fresh)}"
        head = f"for {name} in range({', '.join(ends)}{step}):"
        return head, [f"{turns} = 0"], [f"{turns} += 1", f"if {turns} > {self.rng.choice((1, 2, 4))}:", "    break"]

    def returning(self, partial: bool = False) -> str:
        types: dict[str, tuple[Type, ...]] = {
            "ri": (INT,),
            "rf": (FLOAT,),
            "rb": (BOOL,),
            "rs": (STR,),
            "rt": (DATETIME,),
            "ry": (DATE,),
            "rg": (TIMEDELTA,),
            "rd": (dec(2), dec(4), dec(0)),
            "rn": (INT, dec(2)),
            "rq": (INT, FLOAT),
        }
        if self.returns is not None:
            return f"return {self.expr(self.returns, 2)}"
        if self.silent or (partial and self.chance(0.2)):
            return "return"
        names = self.rng.sample(sorted(types), self.rng.choice((1, 3, 5)))
        parts = []
        for name in names:
            type_ = self.rng.choice(types[name])
            known = self.may_be_none(type_)
            text = "None" if partial and self.chance(0.15) else self.rng.choice([*known, self.expr(type_, 2)])
            parts.append(f'"{name}": {text}')
        return f"return {{{', '.join(parts)}}}"


def program(seed: Any, *, flow: bool = False, groups: bool = False, windows: bool = False, small: bool = False) -> str:
    """The source of a random module; `app` in it is the App. small: transactions of a few statements."""
    rng = Random(repr(seed))
    udfs = rng.random() < 0.25
    tables = _tables(rng)
    scans, makes = rng.random() < SCANS, rng.random() < TEXTS
    for table in tables if scans else ():
        if rng.random() < INDEXED:
            table.indexed = rng.choice([c for c, t, _ in table.columns if t != FLOAT])
    lines = [
        "import datetime",
        "import enum",
        "from decimal import Decimal",
        "",
        "import penstock as ps",
        "",
        "SMALL = 3",
        "BIG = 4611686018427387904",
        "LOWEST, HIGHEST = -(2**63), 2**63 - 1",
        "HALF = 0.5",
        "MOMENT = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)",
        "DAY = datetime.date(2024, 2, 29)",
        "WHILE = datetime.timedelta(hours=36)",
        "SIZES = {0: 3, 1: -1, 2: BIG, 3: 0, -5: 7}",
        'WORDS = {"a": "b", "": "é", "é": ""}',
        "AMONG_SIZES, AMONG_WORDS = frozenset({0, 3, -1, 7}), ['a', '日本']",
        f'Shade = enum.Enum("Shade", {_SHADES!r})',
        f'Level = enum.IntEnum("Level", {_LEVELS!r})',
        'app = ps.App("random")',
    ]
    if udfs:
        lines += _UDFS
    expire = rng.random() < EXPIRE
    for table in tables:
        mark = f"@app.table(ttl={rng.choice(TTLS)})" if expire else "@app.table"
        lines += ["", "", mark, f"class {table.name}:"]
        lines += [f"    {n}: {written(t)} = ps.key()" for n, t in table.keys]
        for name, type_, default in table.columns:
            value = DEFAULTS[type_.kind] if default else ""
            if name[0] == "o" and rng.random() < 0.7:
                value = ""
            if name == table.indexed:
                value = f"ps.index({f'default={value}' if value else ''})"
            lines.append(_column(name, type_, value))
        for number in range(rng.choice((0, 1, 1, 2))):
            lines += _check(rng, table, number, udfs)
    inner = _inner(rng, tables) if flow else []
    for name, fields in inner:
        lines += ["", "", "@app.event", f"class {name}:", *(_field(rng, n, t) for n, t in fields)]
    shapes = window_bodies.shapes(rng, tables) if windows else []
    for shape in shapes:
        lines += window_bodies.declaration(shape, written)
    owner = {shape.name: rng.choice(["E1", "E1", "E2", *(name for name, _ in inner[:-1])]) for shape in shapes}

    def owned(event: str) -> list[window_bodies.WindowShape]:
        return [shape for shape in shapes if owner[shape.name] == event]

    transactions = []
    together = {name for name, _ in inner[:-1] if not groups and rng.random() < SEVERAL}
    for number in (1, 2):
        fields = _fields(rng, tables)
        lines += ["", "", "@app.event", f"class E{number}:", "    ts: int = ps.order()"]
        unique = f"unique={rng.choice(UNIQUE)}" if rng.random() < ONCE else ""
        lines += [f"    id: str = ps.id({unique})"] if number == 1 else []
        lines += [_field(rng, n, t) for n, t in fields]
        seen = [*fields, ("ts", INT), *([("id", STR)] if number == 1 else [])]
        own = owned(f"E{number}")
        functions, written_functions = _functions(rng, tables, f"h{number}", seen, udfs, scans)
        lines += written_functions
        given: dict[str, Any] = {
            "scans": scans,
            "texts": makes,
            "groups": groups,
            "together": together,
            "functions": functions,
            "small": small,
        }
        body = _transaction(rng, tables, f"E{number}", seen, udfs, inner, own, **given)
        if flow and not groups and rng.random() < SEVERAL:
            transactions.append(["", "", f"@app.transaction(batch={rng.choice(BATCHES)})", *_of_several(body)])
        else:
            transactions.append(["", "", "@app.transaction", *body])
    # Each emits only those behind it, so that there is no cycle; the last one is an output.
    for place, (name, fields) in enumerate(inner[:-1]):
        mark = "@app.transaction(nested=True)" if groups or rng.random() < NESTED else "@app.transaction"
        given = {
            "scans": scans,
            "texts": makes,
            "groups": groups,
            "together": together,
            "functions": [],
            "small": small,
        }
        given |= {"silent": groups and rng.random() < SILENT, "again": name not in together}
        body = _transaction(rng, tables, name, fields, udfs, inner[place + 1 :], owned(name), **given)
        made = ["@app.transaction", *_of_several(body)] if name in together else [mark, *body]
        transactions.append(["", "", *made])
    for place, shape in enumerate(shapes):
        if rng.random() < window_bodies.TRIGGERED:
            writer = Writer(rng, tables, [], udfs)
            writer.budget, writer.scans = 3, scans
            writer.emits = inner[-1:] if rng.random() < 0.3 else []
            writer.output = writer.emits[-1][0] if writer.emits else ""
            writer.windows = [other for other in shapes[place + 1 :] if owner[other.name] == owner[shape.name]]
            transactions.append(window_bodies.trigger(writer, shape, place))
    if flow or windows:
        rng.shuffle(transactions)  # of two that are ready, the first declared runs first
    return "\n".join([*lines, *(line for one in transactions for line in one)]) + "\n"


def _transaction(
    rng: Random,
    tables: list[TableShape],
    event: str,
    fields: list[tuple[str, Type]],
    udfs: bool,
    emits: list[tuple[str, list[tuple[str, Type]]]],
    windows: list[window_bodies.WindowShape],
    *,
    scans: bool,
    texts: bool,
    groups: bool,
    together: set[str],
    functions: list[function_bodies.FunctionShape],
    small: bool,
    silent: bool = False,
    again: bool = False,
) -> list[str]:
    touched = [] if rng.random() < NONE_TOUCHED else tables
    writer = Writer(rng, touched, fields, udfs)
    writer.emits, writer.scans, writer.silent, writer.windows = emits, scans, silent, windows
    writer.texts = texts
    writer.output, writer.grouped, writer.as_one = emits[-1][0] if emits else "", groups, together
    writer.functions = functions
    writer.budget = rng.choice(
        (1, 1, 2) if small else (2, 4, 6)
    )  # compiling takes more than twice as long for twice the statements
    body, leaves = writer.block(3, writer.budget)
    if not leaves and again and not groups and rng.random() < AGAIN:
        # A field counts the times, or it would never end.
        given = [f"{n}=e.i1 - 1" if n == "i1" else f"{n}={writer.emitted(n, t)}" for n, t in fields]
        body += ["if 0 < e.i1 < 5:", f"    ps.emit({event}({', '.join(given)}), at=ps.now() + {rng.choice((1, 2, 9))})"]
    if not leaves and rng.random() < 0.9:
        body.append(writer.returning())
    return [f"def t{event[1:] if event[0] == 'E' else event}(e: {event}):", *("    " + line for line in body)]


def _functions(
    rng: Random, tables: list[TableShape], prefix: str, fields: list[tuple[str, Type]], udfs: bool, scans: bool
) -> tuple[list[function_bodies.FunctionShape], list[str]]:
    """Functions of an event's transaction, of which each may call those before it."""
    made: list[function_bodies.FunctionShape] = []
    lines: list[str] = []
    for number in range(rng.choice((1, function_bodies.MOST)) if rng.random() < function_bodies.FUNCTIONS else 0):
        event = rng.random() < 0.6
        writer = Writer(rng, tables, fields if event else [], udfs)
        writer.scans, writer.functions = scans and event, [one for one in made if event or not one.event]
        record = None
        if tables and rng.random() < 0.4:
            table = rng.choice(tables)
            record = Record(table, table.gettable and rng.random() < 0.5)
        shape, text = function_bodies.declaration(writer, f"{prefix}{number}", event, record)
        made.append(shape)
        lines += text
    return made, lines


def _of_several(lines: list[str]) -> list[str]:
    """The same transaction, of each of several events in turn."""
    head, *body = lines
    name, event = head.removeprefix("def ").removesuffix("):").split("(e: ")
    return [f"def {name}(several: list[{event}]):", "    for e in several:", *("    " + line for line in body)]


def _inner(rng: Random, tables: list[TableShape]) -> list[tuple[str, list[tuple[str, Type]]]]:
    """Events that are emitted: i1 and keys, and some of the others."""
    # Nothing says that an int which is emitted is a member.
    every = [(n, INT if t == INT else t) for n, t in _fields(rng, tables) if t.kind != "list"]
    return [
        (f"N{number}", [(n, t) for n, t in every if n == "i1" or rng.random() < (0.8 if n[0] == "k" else 0.25)])
        for number in range(1, rng.choice((2, 3, 4, 5)) + 1)
    ]


_UDFS = [
    "",
    "",
    "@ps.udf",
    "def mix(a, b):",
    "    return (a * 31 + b) % 1000 - 500",
    "",
    "",
    "@ps.udf",
    "def fussy(n):",
    "    if n % 7 == 3:",
    '        raise ValueError("three")',
    "    return n // 2",
    "",
    "",
    "@ps.udf",
    "def blend(x, y):",
    "    return x * 0.5 + y",
]


def _tables(rng: Random) -> list[TableShape]:
    def columns(types: list[Type], required: float) -> list[tuple[str, Type, bool]]:
        named = [("o" if rng.random() < may_be_none else "c", n, t) for n, t in enumerate(types)]
        return [(f"{letter}{n}", t, rng.random() >= required or letter == "o") for letter, n, t in named]

    may_be_none = MAY_BE_NONE if rng.random() < NULLABLE else 0

    first = [INT, FLOAT, BOOL, STR, Type("decimal", 18, 2), DATETIME, DATE, TIMEDELTA, INT]
    second = [INT, rng.choice((FLOAT, STR)), Type("decimal", rng.choice((9, 18)), 4), rng.choice((BOOL, INT))]
    rng.shuffle(first)
    first, second = ([_or_enum(rng, t, SHADE) for t in several] for several in (first, second))
    both = [
        TableShape("A", [("p", rng.choice(KEY_TYPES))], columns(first, 0.0)),
        TableShape(
            "B", [("p", rng.choice(KEY_TYPES)), ("q", rng.choice(KEY_TYPES))], columns(second, rng.choice((0, 0.3)))
        ),
    ]
    roll = rng.random()
    if roll < NO_TABLE:
        return []
    return [rng.choice(both)] if roll < NO_TABLE + ONE_TABLE else both


def _or_enum(rng: Random, type_: Type, enum: Type) -> Type:
    return enum if type_ == enum and rng.random() < ENUM else type_


def _column(name: str, type_: Type, value: str) -> str:
    none = " | None" if name[0] == "o" else ""
    return f"    {name}: {written(type_)}{none}" + (f" = {value}" if value else "")


def _field(rng: Random, name: str, type_: Type) -> str:
    """An event's field; the reference's side of a default is what events are made of."""
    given = DEFAULTS[type_.kind] if name[0] in "os" and rng.random() < 0.3 else ""
    return _column(name, type_, given)


def _fields(rng: Random, tables: list[TableShape]) -> list[tuple[str, Type]]:
    fields: list[tuple[str, Type]] = [("i1", INT), ("i2", INT), ("f1", FLOAT), ("f2", FLOAT), ("b1", BOOL), ("s1", STR)]
    fields += [("d1", Type("decimal", 18, 2)), ("d2", Type("decimal", 9, 4)), ("t1", DATETIME), ("y1", DATE)]
    fields += [("t2", DATETIME), ("g1", TIMEDELTA), ("g2", TIMEDELTA)]
    fields = [(n, t if n == "i1" else _or_enum(rng, _or_enum(rng, t, SHADE), LEVEL)) for n, t in fields]
    if rng.random() < NULLABLE:
        several = (INT, STR, FLOAT, BOOL, Type("decimal", 18, 2), DATETIME, DATE, TIMEDELTA)
        fields += [(f"o{n}", _or_enum(rng, t, SHADE)) for n, t in enumerate(several) if rng.random() < MAY_BE_NONE]
    # Names that begin with k hold keys; those with o may be None, columns too.: k, the table, the key column, a number.
    for table in tables:
        for name, type_ in table.keys:
            fields += [(f"k{table.name.lower()}{name}{n}", type_) for n in (1, 2)]
            fields.append((f"k{table.name.lower()}{name}s", Type("list", item=type_)))
    for name, item in (
        ("li", INT),
        ("lf", FLOAT),
        ("ld", Type("decimal", 18, 2)),
        ("ls", _or_enum(rng, STR, SHADE)),
        ("lb", BOOL),
        ("lg", TIMEDELTA),
    ):
        if rng.random() < 0.7 or name == "li":
            fields.append((name, Type("list", item=item)))
    return fields


def _check(rng: Random, table: TableShape, number: int, udfs: bool) -> list[str]:
    writer = Writer(rng, [], [], udfs)
    writer.scope.records = {"self": Record(table, False)}
    writer.membership = writer.comparison  # type: ignore[method-assign]  # a check sees its record only
    # Mostly true, or no transaction would ever commit.
    whole = [f"self.{c}" for c, t, _ in table.columns if t.kind == "int" and c[0] != "o"] or ["0"]
    head = ["", f'    @ps.check("check {number} of {table.name}")', f"    def check{number}(self):"]
    usual = f"{whole[0]} < {rng.choice((5, 1000))}"
    if rng.random() < 0.5:
        return [*head, f"        return {usual} or {writer.condition(2)}"]
    body = [f"if {usual}:", "    return True", *writer.assign(), f"if {writer.condition(2)}:"]
    before = writer.scope.copy()
    body += ["    " + line for line in writer.assign()]
    writer.scope = before
    return [*head, *("        " + line for line in [*body, f"return {writer.condition(2)}"])]


# --- running them -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """A program and its input, all by name, so that it can be printed, shrunk and run again."""

    source: str
    rows: dict[str, list[dict[str, Any]]]
    batches: list[list[tuple[str, dict[str, Any]]]]
    forms: list[str]

    def __str__(self) -> str:
        lines = [self.source, "", f"rows = {self.rows!r}"]
        for form, events in zip(self.forms, self.batches, strict=True):
            lines.append(f"batch, as {form}:")
            lines += [f"    {n}({', '.join(f'{k}={v!r}' for k, v in values.items())})" for n, values in events]
        return "\n".join(lines)


def load(source: str, directory: Path, name: str) -> ModuleType:
    """Import the program from a file of its own."""
    path = directory / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def hot(type_: Type) -> list[Any]:
    """The few keys of a type that events and rows share."""
    rng = Random(7)
    found: list[Any] = []
    for _ in range(100):
        value = pick(rng, type_, edge=0.2)
        if value not in found:
            found.append(value)
    return found[:KEYS]


def rows(rng: Random, program: Program) -> dict[str, list[dict[str, Any]]]:
    """Initial rows: most of the hot keys are there; now and then one of them, or none."""
    out: dict[str, list[dict[str, Any]]] = {}
    for definition in program.tables:
        made = []
        for key in itertools.product(*(hot(c.type) for c in definition.keys)):
            if rng.random() < 0.9:
                row = {c.name: v for c, v in zip(definition.keys, key, strict=True)}
                row.update({c.name: pick(rng, c.type, edge=0.03) for c in definition.values})
                row.update({c.name: None for c in definition.values if c.nullable and rng.random() < IS_NONE})
                made.append(row)
        roll = rng.random()
        out[definition.name] = made[:0] if roll < NO_ROW else made[:1] if roll < NO_ROW + ONE_ROW else made
    return out


def batch(rng: Random, program: Program, size: int) -> list[tuple[str, dict[str, Any]]]:
    events = []
    for _ in range(size):
        kind = rng.choice([event for event in program.events if event.order is not None])
        values = {f.name: _value(rng, f.name, f.type) for f in kind.fields if f.required or rng.random() < 0.8}
        # The clock never falls: at the end of time there are no timers any more.
        extreme = 0.003 if program.flow is not None else 0.03
        values["ts"] = rng.choice((INT_MIN, INT_MAX)) if rng.random() < extreme else rng.randrange(max(1, size // 2))
        if "id" in values:
            values["id"] = rng.choice("abcdeé") + rng.choice("ab")
        events.append((kind.name, values))
    return events


def _value(rng: Random, name: str, type_: Type) -> Any:
    if rng.random() < (IS_NONE if name[0] == "o" else 0.01):
        return None
    if name.startswith("k"):
        if type_.kind == "list":
            assert type_.item is not None
            keys = hot(type_.item)
            return [rng.choice(keys) for _ in range(rng.choice((0, 1, 2, 3, 3)))]
        # Skew: half of all keys are the first one.
        keys = hot(type_)
        return keys[0] if rng.random() < 0.5 else rng.choice(keys)
    return pick(rng, type_, edge=0.05)
