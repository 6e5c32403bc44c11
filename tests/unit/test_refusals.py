"""What cannot be compiled is refused where it is declared, with file and line, the reason, and what to write instead.

Each case is a body (or a declaration) as a user would write it. `# <-` marks the line that the
message must name; the words must be in the message.
"""

import importlib.util
import itertools
import textwrap
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

PRELUDE = """
import datetime
import math
from decimal import Decimal

import penstock as ps

app = ps.App("app")
other = ps.App("other")
LIMIT = 5
LIMITS = [1, 2]
NOTHING = None
BIG = 2**70


class Config:
    limit = 3


config = Config()


def helper(x):
    return x


@ps.udf
def double(x):
    return 2 * x


@ps.udf
def uncompilable(x):
    return open(x)


@ps.udf
def sometimes(x):
    if x > 0:
        return x


@ps.udf
def textual(x):
    return "a"


@app.table
class Account:
    id: str = ps.key()
    balance: ps.decimal(18, 2) = 0
    n: int = 0
    rate: float = 0.0
    open: bool = True
    note: str = ""


@app.table
class Stock:
    w: int = ps.key()
    i: int = ps.key()
    q: int


@app.table
class Shelf:
    id: str = ps.key()
    v: int = 0


@app.table
class Owned:
    id: str = ps.key()
    owner: str = ps.index()


@app.table
class Flag:
    id: bool = ps.key()


@app.event
class E:
    ts: int = ps.order()
    id: str = ps.id()
    k: str
    n: int
    x: float
    b: bool
    d: ps.decimal(18, 2)
    d4: ps.decimal(18, 4)
    day: datetime.date
    at: datetime.datetime
    gap: datetime.timedelta
    xs: list[int]
    ys: list[int]


@other.table
class Foreign:
    id: str = ps.key()
    v: int = 0
"""

# name: (body, words that the message must hold)
BODIES: dict[str, tuple[str, ...]] = {
    # -- statements
    "while": ("while e.n > 0:  # <-\n    pass", "'while'", "for"),
    "try": ("try:  # <-\n    x = 1\nexcept ValueError:\n    x = 2", "'try'", "ps.require"),
    "with": ("with open(e.k) as f:  # <-\n    pass", "'with'"),
    "raise": ("raise ValueError('no')  # <-", "'raise'", "ps.abort"),
    "assert": ("assert e.n > 0  # <-", "'assert'", "ps.require"),
    "import": ("import math  # <-", "'import'", "top of the file"),
    "from import": ("from math import pi  # <-", "'import'", "top of the file"),
    "nested def": ("def f(x):  # <-\n    return x", "nested function", "@ps.function"),
    "nested async def": ("async def f(x):  # <-\n    return x", "cannot be compiled"),
    "class": ("class C:  # <-\n    pass", "class cannot be made"),
    "global": ("global LIMIT  # <-\nLIMIT = 3", "'global'", "table"),
    "match": ("match e.n:  # <-\n    case 1:\n        pass", "'match'", "if/elif"),
    "chained assignment": ("a = b = 1  # <-", "two assignments"),
    "bare annotation": ("a: int  # <-", "assign it"),
    "expression without effect": ("e.n == 1  # <-", "does nothing"),
    "record without use": ("Account[e.k]  # <-", "does nothing"),
    "for else": ("for x in e.xs:\n    pass\nelse:\n    y = 1  # <-", "'else'", "break"),
    "unpacking a value": ("a, b = e.n  # <-", "tuple"),
    "unpacking too few": ("a, b = 1, 2, 3  # <-", "as many"),
    "starred target": ("a, *b = 1, 2  # <-", "assign to a name"),
    "del of a name": ("x = 1\ndel x  # <-", "del Account[k]"),
    "del of a column": ("del Account[e.k].n  # <-", "del Account[k]"),
    # -- never run
    "after return": ("return {'a': 1}\nx = 1  # <-", "never run"),
    "after abort": ("ps.abort('no')\nx = 1  # <-", "never run"),
    "after both arms return": ("if e.b:\n    return\nelse:\n    return\nx = 1  # <-", "never run"),
    "after break": ("for x in e.xs:\n    break\n    y = 1  # <-", "never run"),
    "after continue": ("for x in e.xs:\n    continue\n    y = 1  # <-", "never run"),
    # -- expressions
    "lambda": ("f = lambda x: x  # <-", "'lambda'"),
    "walrus": ("if (y := e.n) > 1:  # <-\n    pass", "':='"),
    "list comprehension": ("s = [x for x in e.xs]  # <-", "a list comprehension"),
    "dict comprehension": ("s = {x: 1 for x in e.xs}  # <-", "a dict comprehension"),
    "generator": ("s = (x for x in e.xs)  # <-", "a generator is no value", "sum, min"),
    "generator with two loops": ("s = sum(x + y for x in e.xs for y in e.ys)  # <-", "one 'for'"),
    "sum of a list in brackets": ("s = sum([x for x in e.xs])  # <-", "a list or a generator, without the brackets"),
    "sum of a number": ("s = sum(e.n)  # <-", "sum takes a list or a generator"),
    "sum that starts with a field": ("s = sum((x for x in e.xs), e.n)  # <-", "constant"),
    "sum of texts": ("s = sum(a.note for a in Account)  # <-", "takes numbers, not str"),
    "sum of bools": ("s = sum(a.open for a in Account)  # <-", "1 if x else 0"),
    "sum of records": ("s = sum(a for a in Account)  # <-", "record is not a value"),
    "loose sum multiplied": ("s = sum(a.balance for a in Account) * 2  # <-", 'Decimal("0.00")'),
    "max of a generator with a key": (
        "s = max((a.n for a in Account), key=abs)  # <-",
        "key=",
        "keep the best in a name",
        "Account.top(1, by=…)",
    ),
    "min of a list with a limit": ("s = min(e.xs, limit=3)  # <-", "and default="),
    "min of bools": ("s = min(a.open for a in Account)  # <-", "bool"),
    "any of two": ("s = any((a.n > 1 for a in Account), 2)  # <-", "takes a list or a generator"),
    "generator's name behind it": ("s = sum(a.n for a in Account)\nreturn {'n': a.n}  # <-", "'a'", "unassigned"),
    "list": ("s = [1, 2]  # <-", "a list cannot be made"),
    "tuple": ("s = (e.n, 1)  # <-\nx = Stock[s].q", "taken apart at once"),
    "dict in a name": ("out = {'a': 1}  # <-\nreturn out", "a dict stands only in"),
    "f-string of a float": ("s = f'{e.k}{e.x}'  # <-", "an f-string takes strings and ints, not float"),
    "f-string with a format": ("s = f'{e.n:03}'  # <-", "remove what stands behind ':'"),
    "f-string with repr": ("s = f'{e.k!r}'  # <-", "remove what stands behind ':' or '!'"),
    "long f-string": (f"s = f'{'{e.n}' * 61}'  # <-", "at most 60 parts"),
    "str of a float": ("s = str(e.x)  # <-", "str takes an int or a string, not float"),
    "string + int": ("s = e.k + e.n  # <-", "an f-string takes ints too"),
    "startswith of several": ("s = e.k.startswith(('a', 'b'))  # <-", "startswith takes one string"),
    "startswith from a place": (
        "s = e.k.startswith('a', 1)  # <-",
        "startswith takes one string",
        "or s.startswith(b)",
    ),
    "endswith of an int": ("s = e.k.endswith(e.n)  # <-", "endswith takes a string, not int"),
    "strip of characters": ("s = e.k.strip('x')  # <-", "strip() takes nothing here"),
    "int in a string": ("s = e.n in e.k  # <-", "'in' a string takes a string, not int"),
    "slice of an int": ("s = e.n[:1]  # <-", "a slice is of a list of the event or of a string, not of int"),
    "slice with a step": ("s = e.k[::2]  # <-", "a slice with a step cannot be compiled"),
    "slice from a float": ("s = e.k[e.x:]  # <-", "a slice is from int to int, not float"),
    "str * int": ("s = e.k * 2  # <-", "'*' takes numbers, not str", "an f-string"),
    "str %": ("s = '%s' % e.k  # <-", "'%'", "str"),
    "power of a float": ("s = e.x ** 2  # <-", "'**'", "not float", "x * x"),
    "power that is not constant": ("s = e.n ** e.n  # <-", "constant int from 0 to 8"),
    "power below zero": ("s = e.n ** -1  # <-", "1 / x ** 2"),
    "power too high": ("s = e.n ** 9  # <-", "from 0 to 8"),
    "power of constants too high": ("s = 10 ** 30  # <-", "64 bits"),
    "power with too many digits": ("s = e.d ** 8 ** 1 * e.d ** 3  # <-", "digits after the point"),
    "shift": ("s = e.n << 1  # <-", "'<<'", "x * 2**n"),
    "bit and": ("s = e.n & 1  # <-", "'&'", "write 'and'"),
    "invert": ("s = ~e.n  # <-", "cannot be compiled"),
    "unary plus": ("s = +e.n  # <-", "leading '+'", "remove"),
    "list index by a float": ("s = e.xs[1.0]  # <-", "indexed by an int", "not float"),
    "list slice as a value": ("s = 1 + e.xs[1:]  # <-", "a slice is a list", "len()"),
    "list slice with a step": ("for x in e.xs[::2]:  # <-\n    pass", "step", "range("),
    "list slice from a str": ("for x in e.xs[e.k:]:  # <-\n    pass", "from int to int, not str"),
    "list of lists": ("s = e.xs[0:1][1:]\nt = s.n  # <-", "'s' is a list"),
    "str item": ("s = e.k[0]  # <-", "tables and lists of the event can be indexed"),
    "table slice": ("s = Account[1:2].n  # <-", "a slice is of a list field"),
    "list as a value": ("s = 1 + e.xs  # <-", "'xs' is a list", "len()"),
    "list in a column": ("s = e.xs\nAccount[e.k].n = s  # <-", "a column holds one value; no list"),
    "list as a condition": ("if e.xs:  # <-\n    pass", "'xs' is a list"),
    "bytes": ("s = b'x'  # <-", "bytes"),
    "complex": ("s = 1j  # <-", "complex"),
    "huge int": ("s = 9223372036854775808  # <-", "64 bits"),
    "None": ("s = None + 1  # <-", "None is not a value", "`is None`"),
    "is None": ("if e.n is None:  # <-\n    pass", "'n' is never None", "`| None`"),
    "== None": ("if e.n == None:  # <-\n    pass", "`is None`"),
    "is": ("if e.n is e.n:  # <-\n    pass", "'is'", "=="),
    "in a list": ("if e.n in e.xs:  # <-\n    pass", "'in' asks a table", "loop over a list"),
    "and of two types": ("s = e.n and e.k  # <-", "it is str on one path and int on another"),
    "date as a condition": ("if e.day:  # <-\n    pass", "always true"),
    # -- calls
    "ordinary function": ("s = helper(e.n)  # <-", "'helper'", "@ps.function", "@ps.udf"),
    "ordinary function as a statement": ("helper(e.n)  # <-", "'helper'", "@ps.function"),
    "function that is written below": ("s = written_below(e.n)  # <-", "'written_below' is not defined", "above"),
    "print": ("print(e.n)  # <-", "'print'", "min, max"),
    "module function": ("s = math.sqrt(e.x)  # <-", "'math.sqrt'", "@ps.udf"),
    "int() of a str": ("s = int(e.k)  # <-", "int() takes int or float or decimal or bool, not str"),
    "float() of a str": ("s = float(e.k)  # <-", "float() takes", "not str"),
    "bool() of a datetime": ("s = bool(e.at)  # <-", "always true"),
    "divmod of three": ("a, b = divmod(1, 2, 3)  # <-", "divmod takes (a, b)"),
    "divmod as a value": ("s = divmod(e.n, 2)  # <-", "tuple of 2", "a, b = …"),
    "str method": ("s = e.k.title()  # <-", "'title' of a str", "lower(), upper()"),
    "list method": ("e.xs.append(1)  # <-", "'xs' is a list"),
    "len of an int": ("s = len(e.n)  # <-", "list field"),
    "len of a table": ("s = len(Account)  # <-", "sum(1 for r in Account)"),
    "max of one value": ("s = max(e.n)  # <-", "max takes a list or a generator"),
    "max of texts and ints": ("s = max(e.k, 1)  # <-", "do not compare"),
    "max with key": ("s = max(1, e.n, key=abs)  # <-", "takes no key="),
    "min of two with a default": ("s = min(1, e.n, default=0)  # <-", "takes no default="),
    "abs of two": ("s = abs(e.n, 1)  # <-", "abs takes (x)"),
    "round of an int": ("s = round(e.n, 2)  # <-", "round() takes float or decimal, not int"),
    "round of a str": ("s = round(e.k)  # <-", "round() takes int or float or decimal, not str"),
    "round of nothing": ("s = round()  # <-", "round takes (x) or (x, n)"),
    "round of three": ("s = round(e.x, 1, 2)  # <-", "round takes (x) or (x, n)"),
    "round to a field": ("s = round(e.x, e.n)  # <-", "round: n is a constant int from -18 to 22"),
    "round to a bool": ("s = round(e.x, True)  # <-", "round: n is a constant int"),
    "round too fine": ("s = round(e.x, 23)  # <-", "round: n is a constant int from -18 to 22"),
    "round too coarse": ("s = round(e.d, -19)  # <-", "round: n is a constant int from -18 to 22"),
    "round to None": ("s = round(e.x, None)  # <-", "None is not a value"),
    "round by name": ("s = round(e.x, ndigits=2)  # <-", "by place"),
    "round of a loose decimal": (
        "t = 0\nfor x in e.xs:\n    t += e.d\ns = round(t, 1)  # <-",
        "round()",
        'Decimal("0.00")',
    ),
    "round of a loose float": ("t = 0\nfor x in e.xs:\n    t += e.x\ns = round(t)  # <-", "round()", "0.0"),
    "Decimal of a float": ("s = Decimal(1.5)  # <-", "Decimal takes an int, or a constant"),
    "Decimal of a field": ("s = Decimal(e.x)  # <-", "not float", "ps.decimal(18, 2)"),
    "Decimal of nonsense": ("s = Decimal('x')  # <-", "Decimal takes an int, or a constant"),
    "Decimal nan": ("s = Decimal('NaN')  # <-", "finite"),
    "Decimal too long": ("s = Decimal('1e-19')  # <-", "18 digits"),
    "shadowed builtin": ("min = 3\ns = min(1, 2)  # <-", "'min'"),
    # -- names
    "unknown name": ("s = unknown  # <-", "'unknown' is not defined"),
    "unknown field": ("s = e.unknown  # <-", "event 'E'", "'unknown'", "it has ts, id, k"),
    "unknown column read": ("s = Account[e.k].unknown  # <-", "table 'Account'", "'unknown'", "it has id, balance"),
    "unknown column written": ("Account[e.k].unknown = 1  # <-", "table 'Account'", "'unknown'"),
    "unknown column inserted": ("Account.insert(e.k, unknown=1)  # <-", "table 'Account'", "'unknown'"),
    "unknown method": ("Account.update(e.k)  # <-", "no method 'update'", "insert", "between"),
    "count of a table": ("s = Account.count()  # <-", "no method 'count'", "top", "where", "sum(1 for r in Account)"),
    "the event as a value": ("s = e  # <-", "'e'", "fields"),
    "the table as a value": ("s = Account  # <-", "'Account'"),
    "a record as a value": ("a = Account[e.k]\nreturn {'a': a}  # <-", "Account record", "columns"),
    "a column of a value": ("s = e.n.x  # <-", "no columns"),
    "constant list": ("s = LIMITS  # <-", "'LIMITS' (list)", "int, float"),
    "constant None": ("s = 1 + NOTHING  # <-", "None is not a value"),
    "constant too large": ("s = BIG  # <-", "64 bits"),
    "constant object": ("s = config.limit  # <-", "'config' (Config)"),
    "missing constant": ("s = Config.nothing  # <-", "'Config'"),
    # -- maybe unassigned
    "if without else": ("if e.b:  \n    y = 1\nreturn {'y': y}  # <-", "'y' may be unassigned"),
    "other arm": ("if e.b:\n    y = 1\nelse:\n    z = 1\nreturn {'y': y}  # <-", "'y' may be unassigned"),
    "only in a loop": ("for x in e.xs:\n    y = x\nreturn {'y': y}  # <-", "'y' may be unassigned"),
    "a record that a loop chooses": (
        "for a in Account:\n    best = a\nbest.n = 1  # <-",
        "'best' may be unassigned",
        "keep the key in a name",
    ),
    "no record yet": ("best = None\nfor a in Account:  # <-\n    best = a", "keep its key"),
    "loop variable after its loop": ("for x in e.xs:\n    pass\nreturn {'y': x}  # <-", "'x' may be unassigned"),
    "before assignment": ("return {'y': y}  # <-\ny = 1", "'y' may be unassigned", "assign it first"),
    "own right side": ("y = y + 1  # <-", "'y' may be unassigned"),
    "augmented first": ("y += 1  # <-", "'y' may be unassigned"),
    "from the turn before": ("for x in e.xs:\n    z = y  # <-\n    y = x", "'y' may be unassigned"),
    "before a break": (
        "for x in e.xs:\n    if x > 1:\n        y = 1\n        break\nreturn {'y': y}  # <-",
        "'y' may be",
    ),
    # -- types
    "int and float in one name": ("y = e.n\nif e.b:  # <-\n    y = e.x", "'y'", "float", "int"),
    "int and str in a loop": ("y = 'a'\nfor x in e.xs:  # <-\n    y = x", "'y'", "str", "int"),
    "decimals of two scales": ("y = e.d\nif e.b:  # <-\n    y = e.d4", "'y'", "digits after the point"),
    "arms of two types": ("y = e.n if e.b else e.x  # <-", "two arms", "int", "float"),
    "min of two types": ("y = min(e.n, e.x)  # <-", "min", "int", "float"),
    "value and record": ("a = Account[e.k]\nif e.b:  # <-\n    a = 1", "'a'", "two names"),
    "two tables": ("a = Account[e.k]\nif e.b:  # <-\n    a = Shelf[e.k]", "'a'", "two names"),
    "existing and optional": ("a = Account[e.k]\nif e.b:  # <-\n    a = Account.get(e.k)", "'a'", "two names"),
    "record in a loop": ("a = 1\nfor x in e.xs:  # <-\n    a = Account[e.k]", "'a'", "two names"),
    "loose decimal times": (
        "t = 0\nfor x in e.xs:\n    t += e.d\ns = t * e.d  # <-",
        "'*'",
        'Decimal("0.00")',
    ),
    "loose float floor": ("t = 0\nif e.b:\n    t = e.x\ns = t // 2  # <-", "'//'", "0.0"),
    "decimal + float": ("s = e.d + e.x  # <-", "decimal", "float", "declare a column or field as ps.decimal(18, 2)"),
    "decimal * constant": ("s = e.d * 0.1  # <-", "decimal", "float", 'write the constant as Decimal("0.1")'),
    "decimal plus constant": ("s = e.d\ns += -0.25  # <-", 'Decimal("-0.25")'),
    "decimal or constant": ("s = max(e.d, 0.5)  # <-", "do not compare", 'Decimal("0.5")'),
    "decimal < float": ("s = e.d < 1.5  # <-", "decimal", "float", 'Decimal("1.5")'),
    "bool + int": ("s = e.b + 1  # <-", "bool", "1 if x else 0"),
    "-bool": ("s = -e.b  # <-", "bool"),
    "bool < bool": ("s = e.b < True  # <-", "bools have no order"),
    "str < int": ("s = e.k < 1  # <-", "str and int do not compare"),
    "bool == int": ("s = e.b == 1  # <-", "bool and int do not compare"),
    "date < datetime": ("s = e.day < e.at  # <-", "date and datetime do not compare"),
    "datetime + datetime": ("s = e.at + e.at  # <-", "'+' does not take datetime and datetime"),
    "datetime - date": ("s = e.at - e.day  # <-", "'-' does not take datetime and date"),
    "datetime + int": ("s = e.at + 1  # <-", "'+' takes numbers, not datetime", "n * timedelta(seconds=1)"),
    "part of a datetime": ("s = e.at.minutes  # <-", "'minutes' of a datetime", "hour, minute, second"),
    "method of a datetime": ("s = e.at.time()  # <-", "'time' of a datetime", "t.replace(hour=0"),
    "method that is not called": ("s = e.at.date  # <-", "'date' is a method", "e.at.date()"),
    "value that is called": ("s = e.at.hour()  # <-", "'hour' is a value", "e.at.hour"),
    "date of something": ("s = e.at.date(1)  # <-", "date() takes nothing"),
    "hours of a timedelta": ("s = e.gap.hours  # <-", "'hours' of a timedelta", "s // timedelta(hours=1)"),
    "replace by a field": ("s = e.at.replace(minute=e.n)  # <-", "minute is a constant int", "+ timedelta(…)"),
    "replace the month": ("s = e.at.replace(month=2)  # <-", "give the day too"),
    "replace by no day": ("s = e.at.replace(day=30)  # <-", "replace: day is out of range", "1 to 28"),
    "replace by no hour": ("s = e.at.replace(hour=24)  # <-", "replace: hour must be in 0..23"),
    "replace an hour of a date": ("s = e.day.replace(hour=1)  # <-", "replace takes year, month and day by name"),
    "replace nothing": ("s = e.at.replace()  # <-", "replace takes year"),
    "datetime.combine": ("s = datetime.datetime.combine(e.day, e.day)  # <-", "day - date(1970, 1, 1)"),
    "datetime.fromtimestamp": ("s = datetime.datetime.fromtimestamp(e.n)  # <-", "timedelta(seconds=n)"),
    "datetime.now": ("s = datetime.datetime.now()  # <-", "ps.now() is the clock"),
    "a datetime of fields": ("s = datetime.datetime(2026, 1, e.n)  # <-", "day is no constant", "timedelta(seconds=n)"),
    "a date of fields": ("s = datetime.date(e.n, 1, 1)  # <-", "year is no constant", "timedelta(days=n)"),
    "no such date": ("s = datetime.date(2026, 2, 30)  # <-", "date: day is out of range"),
    "half a date": ("s = datetime.date(2026, 2)  # <-", "date: "),
    "a date of an hour": ("s = datetime.date(2026, 2, 3, hour=1)  # <-", "date takes year, month and day"),
    "a method with a named argument": ("s = e.at.date(x=0)  # <-", "date() takes nothing"),
    "timedelta + int": ("s = e.gap + 1  # <-", "'+' does not take timedelta and int"),
    "timedelta - datetime": ("s = e.gap - e.at  # <-", "'-' does not take timedelta and datetime"),
    "timedelta * float": ("s = e.gap * 0.5  # <-", "'*' does not take timedelta and float"),
    "timedelta / int": ("s = e.gap / 2  # <-", "'/' does not take timedelta and int", "use //"),
    "timedelta < int": ("s = e.gap < 1  # <-", "timedelta and int do not compare"),
    "minus datetime": ("s = -e.at  # <-", "'-' takes a number, not datetime"),
    "timedelta of a float": ("s = datetime.timedelta(minutes=e.x)  # <-", "constant numbers and ints, not float"),
    "timedelta of a bool": ("s = datetime.timedelta(True)  # <-", "constant numbers and ints, not bool"),
    "timedelta of years": ("s = datetime.timedelta(years=1)  # <-", "days, seconds"),
    "timedelta twice": ("s = datetime.timedelta(1, days=1)  # <-", "days, seconds"),
    "timedelta of a dict": ("s = datetime.timedelta(**LIMIT)  # <-", "days, seconds"),
    "long timedelta": ("s = datetime.timedelta(days=106751992)  # <-", "longer than 106751991 days"),
    "endless timedelta": ("s = datetime.timedelta(days=10000000000)  # <-", "longer than 106751991 days"),
    "timedelta.max": ("s = e.gap < datetime.timedelta.max  # <-", "is longer than 106751991 days"),
    "product of too many digits": (
        "s = Decimal('0.000000000000000001') * Decimal('0.1')  # <-",
        "19 digits",
        "18",
    ),
    # -- records
    "float key": ("s = Account[e.x].n  # <-", "key 'id'", "float"),
    "int key for a str": ("s = Account[e.n].n  # <-", "key 'id'", "str", "int"),
    "too many keys": ("s = Account[e.k, e.n].n  # <-", "1 key column", "(id)", "not 2"),
    "too few keys": ("s = Stock[e.n].q  # <-", "2 key column", "(w, i)", "not 1"),
    "too few keys in in": ("s = e.n in Stock  # <-", "2 key column"),
    "too few keys in del": ("del Stock[e.n]  # <-", "2 key column"),
    "too few keys in insert": ("Stock.insert(e.n, q=1)  # <-", "2 key column"),
    "get without defaults": ("s = Stock.get(1, 2).q  # <-", "Stock.get", "'q'", "default"),
    "get with a default": ("s = Account.get(e.k, n=3).n  # <-", "Account.get", "key alone"),
    "insert without a column": ("Stock.insert(1, 2)  # <-", "Stock.insert needs 'q'"),
    "insert of a key by name": ("Stock.insert(1, 2, w=3, q=4)  # <-", "key 'w'", "by place"),
    "insert of a wrong type": ("Stock.insert(1, 2, q=2.5)  # <-", "column 'q' is int", "float"),
    "write of a wrong type": ("Account[e.k].n = 1.5  # <-", "column 'n' is int", "float"),
    "write of a decimal into a float": ("Account[e.k].rate = e.d  # <-", "column 'rate' is float", "decimal"),
    "write of a bool into an int": ("Account[e.k].n = e.b  # <-", "column 'n' is int", "bool"),
    "write of a record": ("Account[e.k].n = Account[e.k]  # <-", "not a record", "key"),
    "write of a key": ("Account[e.k].id = 'b'  # <-", "'id' is a key", "insert"),
    "write of a whole record": ("Account[e.k] = 3  # <-", "column by column"),
    "write of the event": ("e.n = 3  # <-", "event cannot be changed"),
    "write of a constant": ("config.limit = 4  # <-", "table"),
    "write of a table": ("Account.n = 3  # <-", "columns of records"),
    "the event's name": ("e = 3  # <-", "'e' is the event"),
    # -- loops
    "two names for a record": ("for a, b in Account:  # <-\n    pass", "one record a turn"),
    "loop over another app's table": ("for a in Foreign:  # <-\n    pass", "another app"),
    "loop over a record": ("for a in Account.get(e.k):  # <-\n    pass", "Account.top(…)"),
    "top in a name": ("a = Account.top(3, by='n')  # <-", "for r in Account.top"),
    "top by nothing": ("for a in Account.top(3):  # <-\n    pass", 'Account.top(3, by="note")'),
    "top by a field": ("for a in Account.top(3, by=e.k):  # <-\n    pass", "constant"),
    "top by a missing column": ("for a in Account.top(3, by='m'):  # <-\n    pass", "no column 'm'", "balance"),
    "top of no int": ("for a in Account.top(e.x, by='n'):  # <-\n    pass", "takes an int", "float"),
    "where without an index": ("for a in Account.where(n=1):  # <-\n    pass", "'n'", "`n: int = ps.index()`"),
    "where a float is": ("for a in Account.where(rate=1.0):  # <-\n    pass", "'rate'", "'if'"),
    "where of two columns": ("for a in Account.where(n=1, note=''):  # <-\n    pass", "one column"),
    "where of another type": ("for a in Owned.where(owner=e.x):  # <-\n    pass", "'owner' is str", "float"),
    "between one end": ("for a in Account.between(e.k):  # <-\n    pass", "two ends", "(id)"),
    "between more than the key": ("for a in Stock.between(1, 2, 3, 4):  # <-\n    pass", "two ends", "(w, i)"),
    "between bools": ("for a in Flag.between(e.b, True):  # <-\n    pass", "no order"),
    "record of a loop changed to a value": ("a = 1\nfor a in Account:  # <-\n    pass", "two names"),
    "scan in a starred call": ("for a in Account.between(*e.xs):  # <-\n    pass", "write the arguments out"),
    "loop over a str": ("for a in e.k:  # <-\n    pass", "list field"),
    "loop over a constant": ("for a in LIMITS:  # <-\n    pass", "list field"),
    "enumerate of two": ("for i, a in enumerate(zip(e.xs, e.ys)):  # <-\n    pass", "enumerate takes one list field"),
    "enumerate from one": ("for i, a in enumerate(e.xs, 1):  # <-\n    pass", "counts from 0"),
    "enumerate in one name": ("for a in enumerate(e.xs):  # <-\n    pass", "2 value(s)"),
    "zip of one name": ("for a in zip(e.xs, e.ys):  # <-\n    pass", "2 value(s)"),
    "zip with range": ("for a, b in zip(e.xs, range(3)):  # <-\n    pass", "list field"),
    "float range": ("for a in range(e.x):  # <-\n    pass", "range takes ints, not float"),
    "computed step": ("for a in range(0, 9, e.n):  # <-\n    pass", "step", "constant"),
    "zero step": ("for a in range(0, 9, 0):  # <-\n    pass", "step", "not 0"),
    # -- ending
    "returned value": ("return e.n  # <-", "return a dict"),
    "returned name": ("out = e.n\nreturn out  # <-", "return a dict"),
    "returned call": ("return dict(a=1)  # <-", "return a dict"),
    "returned choice": ("return {'a': 1} if e.b else {'a': 2}  # <-", "return a dict"),
    "computed field": ("return {e.k: 1}  # <-", "constant string"),
    "splatted fields": ("return {**LIMITS}  # <-", "constant string"),
    "outcome column": ("return {'status': 1}  # <-", "'status'", "another name"),
    "outcome column id": ("return {'id': e.k}  # <-", "'id'", "another name"),
    "returned list": ("return {'a': e.xs}  # <-", "'xs' is a list"),
    "computed reason": ("ps.abort(e.k)  # <-", "constant string"),
    "formatted reason": ("ps.abort(f'no {e.k}')  # <-", "constant string"),
    "empty reason": ("ps.abort('')  # <-", "constant string"),
    "no reason": ("ps.require(e.b)  # <-", "takes (condition, reason)"),
    "reason first": ("ps.require('no', e.n > 1)  # <-", "constant string"),
    "abort as a value": ("x = 1 if e.b else ps.abort('no')  # <-", "ps.abort", "statement"),
    "require as a value": ("x = ps.require(e.b, 'no')  # <-", "ps.require", "statement"),
    # -- udfs
    "uncompilable udf": ("s = uncompilable(e.n)  # <-", "udf 'uncompilable'", "cannot be compiled"),
    "udf without a value": ("s = sometimes(e.n)  # <-", "udf 'sometimes'", "every path"),
    "udf of a str": ("s = textual(e.n)  # <-", "udf 'textual'", "int, float or bool"),
    "udf given a str": ("s = double(e.k)  # <-", "udf 'double'", "not str"),
    "udf given a decimal": ("s = double(e.d)  # <-", "udf 'double'", "not decimal"),
    "udf given too much": ("s = double(e.n, e.n)  # <-", "udf 'double'", "2 argument"),
    "udf by name": ("s = double(x=e.n)  # <-", "double", "by place"),
    "udf as a value": ("s = double  # <-", "'double'"),
}

# name: (declaration, words); there is no line where a class is refused.
DECLARATIONS: dict[str, tuple[str, ...]] = {
    "table without key": ("@app.table\nclass T:\n    id: str", "table 'T'", "key", "ps.key()"),
    "float key": ("@app.table\nclass T:\n    id: float = ps.key()", "table 'T'", "column 'id'", "float", "int, str"),
    "list column": ("@app.table\nclass T:\n    id: int = ps.key()\n    v: list[int]", "'v'", "list", "second table"),
    "Decimal column": ("@app.table\nclass T:\n    id: int = ps.key()\n    v: Decimal = 0", "'v'", "ps.decimal(18, 2)"),
    "optional key": ("@app.table\nclass T:\n    id: int | None = ps.key()", "'id'", "cannot be None", "`| None`"),
    "optional order": ("@app.event\nclass F:\n    ts: int | None = ps.order()", "'ts'", "an order cannot be None"),
    "optional id": (
        "@app.event\nclass F:\n    ts: int = ps.order()\n    id: str | None = ps.id()",
        "'id'",
        "an id cannot",
    ),
    "optional list": ("@app.event\nclass F:\n    ts: int = ps.order()\n    v: list[int] | None", "'v'", "an empty one"),
    "optional column of a window": ("@app.window(rows=3)\nclass W:\n    v: int | None", "'v'", "cannot be None"),
    "union of types": ("@app.table\nclass T:\n    id: int = ps.key()\n    v: int | str = 0", "'v'", "not supported"),
    "unknown type": ("@app.table\nclass T:\n    id: int = ps.key()\n    v: 'Nope' = 0", "'v'", "'Nope'"),
    "wrong default": ("@app.table\nclass T:\n    id: int = ps.key()\n    v: int = 'x'", "'v'", "'x'", "int"),
    "None default": ("@app.table\nclass T:\n    id: int = ps.key()\n    v: int = None", "'v'", "None", "int"),
    "float default of a decimal": (
        "@app.table\nclass T:\n    id: int = ps.key()\n    v: ps.decimal(4, 2) = 0.5",
        "'v'",
        "0.5",
        "decimal(4, 2)",
    ),
    "default with too many digits": (
        "@app.table\nclass T:\n    id: int = ps.key()\n    v: ps.decimal(4, 2) = 100",
        "'v'",
        "100",
        "decimal(4, 2)",
    ),
    "precision": ("ps.decimal(19, 2)", "decimal(19, 2)", "1 to 18"),
    "precision is no bool": ("ps.decimal(True, 0)", "decimal(True, 0)", "1 to 18"),
    "scale": ("ps.decimal(4, 5)", "decimal(4, 5)", "scale"),
    "method": (
        "@app.table\nclass T:\n    id: int = ps.key()\n    def f(self):\n        return 1",
        "'f'",
        "@ps.check",
    ),
    "check without reason": (
        "@app.table\nclass T:\n    id: int = ps.key()\n    @ps.check\n    def f(self):\n        return 1",
        "ps.check",
        "reason",
    ),
    "check of another record": (
        "@app.table\nclass T:\n    id: int = ps.key()\n    @ps.check('no')\n    def f(self):\n"
        "        return Account['a'].n > 0  # <-",
        "check 'f' of table 'T'",
        "own record",
    ),
    "check of an unknown column": (
        "@app.table\nclass T:\n    id: int = ps.key()\n    @ps.check('no')\n    def f(self):\n"
        "        return self.v  # <-",
        "check 'f' of table 'T'",
        "no column 'v'",
    ),
    "check that writes": (
        "@app.table\nclass T:\n    id: int = ps.key()\n    v: int = 0\n    @ps.check('no')\n    def f(self):\n"
        "        self.v = 3  # <-\n        return True",
        "check 'f' of table 'T'",
        "cannot write",
    ),
    "check with arguments": (
        "@app.table\nclass T:\n    id: int = ps.key()\n    @ps.check('no')\n"
        "    def f(self, x):  # <-\n        return True",
        "check 'f' of table 'T'",
        "one argument",
    ),
    "table twice": (
        "@app.table\nclass Account:\n    id: str = ps.key()",
        "'Account'",
        "twice",
        "in a notebook, run the cell that makes the App again",
    ),
    "table twice but for case": ("@app.table\nclass ACCOUNT:\n    id: str = ps.key()", "'ACCOUNT'", "twice"),
    "table like an event": ("@app.table\nclass E:\n    id: str = ps.key()", "'E'", "twice"),
    "event with two orders": (
        "@app.event\nclass F:\n    a: int = ps.order()\n    b: int = ps.order()",
        "'b'",
        "'a'",
        "order",
    ),
    "event with two ids": (
        "@app.event\nclass F:\n    ts: int = ps.order()\n    a: str = ps.id()\n    b: str = ps.id()",
        "'b'",
        "'a'",
        "id",
    ),
    "float order": ("@app.event\nclass F:\n    ts: float = ps.order()", "'ts'", "int or datetime", "float"),
    "float id": (
        "@app.event\nclass F:\n    ts: int = ps.order()\n    id: float = ps.id()",
        "'id'",
        "int or str",
        "float",
    ),
    "another type of order": ("@app.event\nclass F:\n    ts: datetime.datetime = ps.order()", "'F'", "datetime", "int"),
    "another type of id": (
        "@app.event\nclass F:\n    ts: int = ps.order()\n    id: int = ps.id()",
        "'F'",
        "int",
        "str",
    ),
    "wrong default of a field": (
        "@app.event\nclass F:\n    ts: int = ps.order()\n    v: int = 'x'",
        "'v'",
        "not a int",
    ),
    "default of a list": ("@app.event\nclass F:\n    ts: int = ps.order()\n    v: list[int] = []", "'v'", "no default"),
    "None default of a field": (
        "@app.event\nclass F:\n    ts: int = ps.order()\n    v: int = None",
        "'v'",
        "int | None",
    ),
    "key of an event": ("@app.event\nclass F:\n    ts: int = ps.order()\n    v: int = ps.key()", "'v'", "ps.key()"),
    "list of lists": ("@app.event\nclass F:\n    ts: int = ps.order()\n    v: list[list[int]]", "'v'", "list"),
    "name that hides its type": (
        "from datetime import date\n@app.table\nclass Day:\n    id: str = ps.key()\n    date: date = ps.key()",
        "'date'",
        "hides",
        "datetime.date",
    ),
    "bare list": ("@app.event\nclass F:\n    ts: int = ps.order()\n    v: list", "'v'", "list[...]"),
    "event twice": ("@app.event\nclass E:\n    ts: int = ps.order()", "'E'", "twice"),
    "app without a name": ("ps.App('')", "name", "ps.App("),
    "no event": ("@app.transaction\ndef t():\n    pass", "transaction 't'", "one event"),
    "no type": ("@app.transaction\ndef t(e):\n    pass", "transaction 't'", "its type"),
    "two events": ("@app.transaction\ndef t(e: E, f: E):\n    pass", "transaction 't'", "one event"),
    "default event": ("@app.transaction\ndef t(e: E = None):  # <-\n    pass", "transaction 't'", "one argument"),
    "many events": ("@app.transaction\ndef t(*e: E):  # <-\n    pass", "transaction 't'", "one argument"),
    "not an event": (
        "@app.transaction\ndef t(e: Account):\n    pass",
        "transaction 't'",
        "Account",
        "not an event",
        "(E)",
    ),
    "unknown event": ("@app.transaction\ndef t(e: 'Nope'):\n    pass", "transaction 't'", "'Nope'", "not an event"),
    "another app's event": ("@other.transaction\ndef t(e: E):\n    pass", "transaction 't'", "app 'other'"),
    "async": ("@app.transaction\nasync def t(e: E):\n    pass", "transaction 't'", "plain `def`"),
    "a class": ("@app.transaction\nclass T:\n    pass", "'T'", "plain function"),
    "a lambda": ("app.transaction(lambda e: None)", "lambda", "one event"),
    "no source": ("exec('@app.transaction\\ndef t(e: E):\\n    pass')", "transaction 't'", "source", "notebook"),
    "two transactions of one event": (
        "@app.transaction\ndef t(e: E):\n    pass\n@app.transaction\ndef u(e: E):\n    pass",
        "'u'",
        "'E'",
        "'t'",
    ),
    "transaction twice": (
        "@app.event\nclass F:\n    ts: int = ps.order()\n@app.transaction\ndef t(e: E):\n    pass\n"
        "@app.transaction\ndef t(e: F):\n    pass",
        "'t'",
        "twice",
        "rename one; in a notebook, run the cell that makes the App again",
    ),
    "a name that is bound later": (
        "def make():\n    @app.transaction\n    def t(e: E):\n"
        "        ps.require(e.n < late, 'no')  # <-\n    late = 3\nmake()",
        "'late' is not defined",
    ),
    "a decorator of another signature": (
        "def twice(f):\n    def g(e: E):\n        return f(e)  # <-\n    return g\n@app.transaction\n@twice\n"
        "def t(e: E):\n    pass",
        "return a dict",
    ),
    "one field of two types": (
        "@app.event\nclass F:\n    ts: int = ps.order()\n    v: str\n"
        "@app.transaction\ndef t(e: E):\n    return {'a': e.n}\n@app.transaction\ndef u(e: F):\n    return {'a': e.v}",
        "'u'",
        "'a'",
        "str",
        "'t'",
        "int",
        "another name",
    ),
    "one field as decimal and float": (
        "@app.transaction\ndef t(e: E):\n    if e.b:\n        return {'a': e.d}\n    return {'a': e.x}",
        "'a'",
        "float",
        "decimal",
    ),
    "a float index": (
        "@app.table\nclass T:\n    id: int = ps.key()\n    x: float = ps.index()",
        "'x'",
        "float",
        "int, str",
    ),
    "a Decimal index": (
        "@app.table\nclass T:\n    id: int = ps.key()\n    x: Decimal = ps.index()",
        "'x'",
        "`x: ps.decimal(18, 2) = ps.index()`",
    ),
    "an index with another type's default": (
        "@app.table\nclass T:\n    id: int = ps.key()\n    x: int = ps.index(default='a')",
        "'x'",
        "int",
    ),
    "an index in an event": (
        "@app.event\nclass F:\n    ts: int = ps.order()\n    x: int = ps.index()",
        "'x'",
        "a table's column",
    ),
    "a check that scans": (
        "@app.table\nclass T:\n    id: int = ps.key()\n    n: int = 0\n    @ps.check('few')\n"
        "    def few(self):\n        return sum(1 for a in Account) < self.n  # <-",
        "its own record alone",
    ),
    "where a key is": (
        "@app.transaction\ndef t(e: E):\n    for s in Stock.where(w=1):  # <-\n        pass",
        "'w'",
        "key",
        "Stock.between(",
    ),
    "two udfs of one name": (
        "first = double\n@ps.udf\ndef double(x):\n    return x\n"
        "@app.transaction\ndef t(e: E):\n    s = first(e.n) + double(e.n)  # <-",
        "'double'",
        "rename",
    ),
}

_numbers = itertools.count()


def declare(path: Path, source: str) -> Any:
    """Import the prelude and this source as one module."""
    file = path / f"case{next(_numbers)}.py"
    file.write_text(PRELUDE + source + "\n")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refused(path: Path, source: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ps.DeclarationError) as caught:
        declare(path, source)
    message = str(caught.value)
    for word in words:
        assert word in message, message
    marked = [n for n, line in enumerate((PRELUDE + source).splitlines(), 1) if "# <-" in line]
    if marked:
        assert f".py:{marked[0]})" in message, f"should name line {marked[0]}: {message}"


def in_transaction(body: str) -> str:
    return "@app.transaction\ndef t(e: E):\n" + textwrap.indent(body, "    ")


@pytest.mark.parametrize("name", BODIES)
def test_body(tmp_path: Path, name: str) -> None:
    body, *words = BODIES[name]
    assert body.count("# <-") == 1
    refused(tmp_path, in_transaction(body), ("transaction 't'", *words))


@pytest.mark.parametrize("name", DECLARATIONS)
def test_declaration(tmp_path: Path, name: str) -> None:
    source, *words = DECLARATIONS[name]
    refused(tmp_path, source, tuple(words))


def test_what_is_refused_leaves_no_trace(tmp_path: Path) -> None:
    module = declare(tmp_path, "")
    app, before = module.app, module.app.program
    for source in (in_transaction("while True:\n    pass"), in_transaction("return {'a': e.xs}")):
        file = tmp_path / f"again{next(_numbers)}.py"
        file.write_text(source)
        with pytest.raises(ps.DeclarationError):
            exec(compile(source, str(file), "exec"), vars(module))
    assert app.program == before
    file = tmp_path / "good.py"
    file.write_text(in_transaction("Account[e.k].n += 1"))
    exec(compile(file.read_text(), str(file), "exec"), vars(module))
    assert "transaction t(E)" in app.explain()


# What would be ignored, or mean something else than it seems to. (source, words)
TREACHEROUS = {
    "a table of another app": (in_transaction("s = Foreign[e.k].v  # <-\nreturn {'s': s}"), "'Foreign'", "another app"),
    "require with its condition twice": (in_transaction("ps.require(e.b, condition='no')  # <-"), "ps.require"),
    "a check on a check": (
        "@app.table\nclass T:\n    id: int = ps.key()\n    @ps.check('a')\n    @ps.check('b')\n    def f(self):\n"
        "        return True",
        "ps.check",
    ),
    "a check on an event": (
        "@app.event\nclass F:\n    ts: int = ps.order()\n    @ps.check('a')\n    def f(self):\n        return True",
        "'F'",
        "'f'",
    ),
    "a column without a type": ("@app.table\nclass T:\n    id: int = ps.key()\n    v = 3", "'v'", "type"),
    "inherited columns": (
        "class Base:\n    v: int = 0\n@app.table\nclass T(Base):\n    id: int = ps.key()",
        "'T'",
    ),
    "an annotation that is no type": ("@app.table\nclass T:\n    id: int = ps.key()\n    v: []", "'v'"),
    "a wrapper that would be skipped": (
        "import functools\ndef logged(f):\n    @functools.wraps(f)\n    def g(e):\n"
        "        return {'a': 1}\n    return g\n"
        "@app.transaction\n@logged\ndef t(e: E):\n    pass",
        "'t'",
    ),
    "fields that differ in case alone": (in_transaction("return {'left': 1, 'Left': 2}  # <-"), "'Left'"),
    "an outcome column in another case": (in_transaction("return {'Status': 1}  # <-"), "'Status'"),
    "columns that differ in case alone": (
        "@app.table\nclass T:\n    id: int = ps.key()\n    v: int = 0\n    V: int = 0",
        "'V'",
    ),
    "a field without a name": (in_transaction("return {'': 1}  # <-"), "name"),
    "a table's name made local": (in_transaction("Account = Account[e.k]  # <-"), "'Account'", "not a table"),
    "an unknown name indexed": (in_transaction("s = Unknown[e.k].v  # <-"), "'Unknown' is not defined"),
    "the line of a field of two types": (
        in_transaction("if e.b:\n    return {'a': 1}\nreturn {'a': 'x'}  # <-"),
        "'a'",
        "str",
        "int",
    ),
}


@pytest.mark.parametrize("name", TREACHEROUS)
def test_treacherous(tmp_path: Path, name: str) -> None:
    source, *words = TREACHEROUS[name]
    refused(tmp_path, source, tuple(words))


# -- names that only a class or a function made by hand can have --------------------------------


@pytest.mark.parametrize("name", ["../Account", "a b", "", "A\nimport os", "1"])
def test_what_is_not_a_name_is_refused(name: str) -> None:
    """Names become names in generated source, and files' names."""
    app = ps.App("any/../name")  # an app's name becomes neither
    with pytest.raises(ps.DeclarationError, match="is not a name"):
        app.table(type(name, (), {"__annotations__": {"id": int}, "id": ps.key()}))
    with pytest.raises(ps.DeclarationError, match="is not a name"):
        app.event(type("Paid", (), {"__annotations__": {"ts": int, name: int}, "ts": ps.order()}))


@pytest.mark.parametrize("what", ["table", "event"])
def test_a_name_that_is_too_long_for_a_file_is_refused(what: str) -> None:
    """A table's files are NAME.arrow, held:NAME.arrow, NAME.list: a file's name has 255 bytes."""
    app = ps.App("long")

    def named(name: str) -> Any:
        return type(name, (), {"__annotations__": {"x": int}, "x": ps.key() if what == "table" else ps.order()})

    getattr(app, what)(named("A" * 200))
    for name in ("B" * 201, "ä" * 101):
        with pytest.raises(ps.DeclarationError, match=f"at most 200 bytes, not {len(name.encode())}; .* shorter"):
            getattr(app, what)(named(name))


def test_more_events_than_can_be_told_apart_are_refused() -> None:
    app = ps.App("many")

    def event(k: int) -> Any:
        return app.event(type(f"Kind{k}", (), {"__annotations__": {"ts": int}, "ts": ps.order()}))

    for k in range(127):
        event(k)
    with pytest.raises(ps.DeclarationError, match=r"'Kind127'.* has 127 events, .* one event with a field .* two apps"):
        event(127)
    assert len(app.program.events) == 127


# -- strings with half a surrogate pair, which neither Arrow nor a file can hold -----------------

SURROGATES = {
    "a literal": in_transaction("ps.require(e.id != '\\ud800', 'no')  # <-"),
    "a constant": "HALF = 'a\\udfff'\n" + in_transaction("Account[e.k].note = HALF  # <-"),
    "a reason to abort": in_transaction("ps.abort('\\ud800')  # <-"),
    "a reason to require": in_transaction("ps.require(e.b, '\\ud800')  # <-"),
    "a returned field": in_transaction("return {'\\ud800': 1}  # <-"),
    "a check": "ps.check('\\ud800')",
    "a default": "@app.table\nclass T:\n    id: int = ps.key()\n    v: str = '\\ud800'",
    "an app": "ps.App('\\ud800')",
}


@pytest.mark.parametrize("name", SURROGATES)
def test_half_a_surrogate_pair_is_refused(tmp_path: Path, name: str) -> None:
    refused(tmp_path, SURROGATES[name], ("half of a surrogate pair", "UTF-8"))


# -- loops within loops --------------------------------------------------------------------------


def nested(depth: int) -> str:
    """Loops one in the other; the one that is too deep is marked."""
    lines = [f"{'    ' * k}for i{k} in range(1):{'  # <-' if k == 15 else ''}" for k in range(depth)]
    return "\n".join([*lines, "    " * depth + "Shelf.get('a').v += 1"])


def test_loops_nested_deeper_than_python_can_are_refused(tmp_path: Path) -> None:
    for depth in (16, 18):
        refused(tmp_path, in_transaction(nested(depth)), ("transaction 't'", "loops nest 15 deep at most"))


def test_loops_nested_as_deeply_as_may_be_run(tmp_path: Path) -> None:
    module = declare(tmp_path, in_transaction(nested(15) + "\n" + nested(15)))
    with module.app.open() as db:
        db.run([module.E(ts=1, id="a")])
        assert db.table("Shelf").to_pylist() == [{"id": "a", "v": 2}]
