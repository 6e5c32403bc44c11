"""`where=` means what SQL means: random conditions over random records, against DuckDB."""

from __future__ import annotations

import datetime as dt
import math
import random
import re
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import InputError
from penstock.serve.http.where import condition

app = ps.App("where")


@app.table
class Thing:
    id: int = ps.key()
    n: int | None = None
    x: float | None = None
    b: bool | None = None
    s: str | None = None
    d: Decimal | None = ps.decimal(10, 2, default=None)
    t: dt.datetime | None = None
    day: dt.date | None = None
    span: dt.timedelta | None = None
    Null: int = 0


TABLE = app.program.tables[0]
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
VALUES: dict[str, list[Any]] = {
    "n": [None, -(2**63), 2**63 - 1, 0, 1, 2, 3, -7],
    "x": [None, 0.0, -0.0, 1.5, -2.25, math.nan, math.inf, -math.inf, 1e300],
    "b": [None, True, False],
    "s": [None, "", "a", "it's", "Rome", "é", "%", "a\nb"],
    "d": [None, Decimal("0.00"), Decimal("1.25"), Decimal("-3.10"), Decimal("99999999.99")],
    "t": [None, START, START + dt.timedelta(microseconds=1), START - dt.timedelta(days=900)],
    "day": [None, dt.date(2026, 3, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "span": [None, dt.timedelta(0), dt.timedelta(days=1, microseconds=5), dt.timedelta(hours=-3)],
}
# As where= has them, and as DuckDB has them.
LITERALS: dict[str, list[tuple[str, str]]] = {
    "n": [(t, t) for t in ("0", "1", "3", "-7", "9223372036854775807", "-9223372036854775808")]
    + [("9223372036854775808", "9223372036854775808::hugeint"), ("-99999999999999999999", "-99999999999999999999")],
    "x": [(t, f"{t}::double") for t in ("0", "1.5", "-2.25", "1e300", "'NaN'")]
    + [("'Infinity'", "'inf'::double"), ("'-Infinity'", "'-inf'::double")],
    "b": [("true", "true"), ("FALSE", "false")],
    "s": [(t, t) for t in ("''", "'a'", "'it''s'", "'Rome'", "'é'", "'%'", "'b'")],
    "d": [
        (t, f"{t}::decimal(38,6)")
        for t in ("0", "1.25", "1.255", "-3.1", "-3.105", "99999999.99", "1e3", "123456789012")
    ]
    + [("-99999999999999.5", "-99999999999999.5::decimal(38,6)")],
    "t": [
        ("'2026-03-01T00:00:00Z'", "timestamptz '2026-03-01 00:00:00+00'"),
        ("'2026-03-01T01:00:00.000001+01:00'", "timestamptz '2026-03-01 00:00:00.000001+00'"),
        ("'2025-01-01'", "timestamptz '2025-01-01 00:00:00+00'"),
    ],
    "day": [(t, f"date {t}") for t in ("'2026-03-01'", "'0001-01-01'", "'2027-01-01'")],
    "span": [
        ("'P1DT0.000005S'", "interval '1 day 5 microseconds'"),
        ("'PT0S'", "interval 0 hours"),
        ("'-PT3H'", "interval '-3 hours'"),
    ],
}


def rows(choose: random.Random, count: int) -> pa.Table:
    # Every value is there, and then whatever comes.
    columns: dict[str, Any] = {"id": list(range(count))}
    for name, values in VALUES.items():
        columns[name] = [values[i] if i < len(values) else choose.choice(values) for i in range(count)]
    columns["Null"] = [choose.randrange(3) for _ in range(count)]
    return pa.table(columns, schema=TABLE.arrow())


def some(choose: random.Random, depth: int) -> tuple[str, str]:
    """A condition, in both languages."""
    kind = choose.randrange(8)
    if depth and kind < 2:
        (a, a_sql), (b, b_sql) = some(choose, depth - 1), some(choose, depth - 1)
        word = choose.choice(["and", "or", "AND", "Or"])
        return f"({a}) {word} ({b})", f"({a_sql}) {word} ({b_sql})"
    if depth and kind == 2:
        a, a_sql = some(choose, depth - 1)
        return f"not ({a})", f"not ({a_sql})"
    name = choose.choice(list(LITERALS))
    shown = choose.choice([name, name.upper(), f'"{name}"'])
    if kind == 3:
        word = choose.choice(["is null", "is not null"])
        return f"{shown} {word}", f"{name} {word}"
    if kind == 4:
        several = [choose.choice(LITERALS[name]) for _ in range(choose.randrange(1, 5))]
        word = choose.choice(["in", "not in"])
        sql = " or ".join(f"{name} = {b}" for _, b in several)
        return f"{shown} {word} ({', '.join(a for a, _ in several)})", f"not ({sql})" if "not" in word else f"({sql})"
    sign = choose.choice(["=", "!=", "<>"] + ([] if name == "b" else ["<", "<=", ">", ">="]))
    a, a_sql = choose.choice(LITERALS[name])
    return f"{shown}{choose.choice([' ', ''])}{sign} {a}", f"{name} {sign} {a_sql}"


@pytest.mark.parametrize("seed", range(4))
def test_it_means_what_sql_means(seed: int) -> None:
    choose = random.Random(seed)
    things = rows(choose, 60)
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("thing", things)
        for _ in range(120):
            text, sql = some(choose, choose.randrange(4))
            wanted = [row[0] for row in connection.execute(f"select id from thing where {sql} order by id").fetchall()]
            found = things.filter(condition(TABLE, text)).column("id").to_pylist()
            assert sorted(found) == wanted, (seed, text, sql)


def test_precedence_is_that_of_sql() -> None:
    things = rows(random.Random(1), 60)
    for text in ("n = 1 or n = 2 and s = 'a'", "not n = 1 and s = 'a'", "not not n = 1", '"Null" = 1 and n is null'):
        wanted = duckdb.sql(f"select id from things where {text} order by id").fetchall()
        assert [(i,) for i in sorted(things.filter(condition(TABLE, text)).column("id").to_pylist())] == wanted


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a column's name where it ends"),
        ("n", "a comparison"),
        ("n =", "a value where it ends"),
        ("n = 1 1", "'and', 'or' or the end where '1' stands (at character 7)"),
        ("n = 1.5", "'n' is int"),
        ("n = 'a'", "'n' is int"),
        ("n = null", "write 'is null'"),
        ("n is 1", "'null'"),
        ("m = 1", "has no column 'm'; it has id, n"),
        ('s = "a"', "a value where"),
        ("s = 'a", "this quote does not end"),
        ("s like 'a'", "a comparison"),
        ("n in ()", "a value"),
        ("n in (1", "')'"),
        ("n not 1", "'in'"),
        ("(n = 1", "')'"),
        ("n = 1; drop table thing", "this is no part of it"),
        ("n = 1 -- x", "this is no part of it"),
        ("b = 1", "true or false"),
        ("t = 'yesterday'", "a time such as"),
        ("day = '2026-13-01'", "a day such as"),
        ("span = '1 day'", "a duration such as"),
        ("d = 1e99", "'d' is decimal(10, 2)"),
        ("x = 1e999", "'x' is float"),
        ("(" * 50 + "n = 1" + ")" * 50, "nested deeper than 40"),
        ("not " * 50 + "n = 1", "nested deeper than 40"),
        ("n = 1 or " * 600 + "n = 1", "more than 4096 characters"),
    ],
)
def test_what_it_is_not_is_refused_in_words(text: str, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        condition(TABLE, text)


def test_as_long_as_it_may_be_it_is_read() -> None:
    things = rows(random.Random(1), 20)
    text = " or ".join(["n=1"] * 500)
    assert things.filter(condition(TABLE, text)).equals(things.filter(condition(TABLE, "n = 1")))
    text = f"n in ({','.join(['1'] * 2000)})"
    assert things.filter(condition(TABLE, text)).equals(things.filter(condition(TABLE, "n = 1")))
