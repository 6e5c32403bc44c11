"""Strings that bodies look at and make: kernels against Python's own, and what the pool keeps of them."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.declare.limits import LONGEST_TEXT
from penstock.state import tables, texts
from penstock.state.strings import Strings

LETTERS = "ab AB\t\n\x1c\x85\u3000\u200b09-.'·\u0301ßΣσςçÇİıǅﬃŉΐ日本𐐀𐐨ªʰ\u00ad\U0001f600\ue000"


class Pool:
    """Strings, and the kernels over them: grown where they say that it is full, as an engine does."""

    def __init__(self) -> None:
        self.strings = Strings()

    def number(self, text: str) -> int:
        return self.strings.number(text)

    def look(self, kernel: Any, *given: Any) -> Any:
        return kernel(self.strings.starts, self.strings.data, *given)

    def make(self, kernel: Any, *given: Any) -> str | None:
        while True:
            of = self.strings
            number = kernel(of.slots, of.starts, of.data, of.pool, *given)
            if number != texts.FULL:
                return None if number == texts.LOST else self.text(number)
            of.grow(texts.ROOM)

    def text(self, number: int) -> str:
        return str(self.strings.arrow(np.array([number]))[0].as_py())


def words(rng: Random, count: int) -> Iterator[str]:
    yield from ("", "a", "Σ", "aΣ", "ΣΣ", "aΣ.b", "a.Σ. ", "\u0301Σ", "a\u0301Σ\u0301b", "ŉΐﬃ", "İI")
    for _ in range(count):
        if rng.random() < 0.3:
            points = (
                rng.choice((rng.randrange(0x300), rng.randrange(0x3000), rng.randrange(0x110000))) for _ in range(6)
            )
            yield "".join(chr(p) for p in points if not 0xD800 <= p < 0xE000)
        else:
            yield "".join(rng.choice(LETTERS) for _ in range(rng.choice((1, 2, 3, 5, 12))))


def agree(count: int, seed: int) -> None:
    rng, pool = Random(seed), Pool()
    cases = texts.cases()
    several = list(words(rng, count))
    for text in several:
        other = rng.choice((rng.choice(several), text[: rng.randrange(3)], text[rng.randrange(3) :], text[1:2]))
        a, b = pool.number(text), pool.number(other)
        assert pool.look(texts.length, a) == len(text)
        assert pool.look(texts.startswith, a, b) == text.startswith(other)
        assert pool.look(texts.endswith, a, b) == text.endswith(other)
        assert pool.look(texts.contains, a, b) == (other in text)
        assert pool.make(texts.lower, *cases, a) == text.lower(), ascii(text)
        assert pool.make(texts.upper, *cases, a) == text.upper(), ascii(text)
        assert pool.make(texts.strip, a) == text.strip(), ascii(text)
        assert pool.make(texts.lstrip, a) == text.lstrip(), ascii(text)
        assert pool.make(texts.rstrip, a) == text.rstrip(), ascii(text)
        first, end = (rng.choice((0, 1, -1, 2, -2, 5, 2**63 - 1, -(2**63), rng.randrange(-9, 9))) for _ in range(2))
        assert pool.make(texts.cut, a, first, end) == text[first:end], (ascii(text), first, end)
        n = rng.choice((0, -1, 9, 10, 2**63 - 1, -(2**63), rng.randrange(-(10**9), 10**9)))
        assert pool.make(texts.join, (a, n, b, n), 0b1010) == f"{text}{n}{other}{n}"


def test_kernels_do_what_python_does() -> None:
    agree(1500, 1)


@pytest.mark.long
def test_kernels_do_what_python_does_300_000_times() -> None:
    agree(300_000, 2)


@pytest.mark.parametrize("around", ["{}", "a{}Σ", "{}Σ", "aΣ{}", "aΣ{}b"])
def test_every_code_point_has_the_case_that_python_gives_it(around: str) -> None:
    """A thousand at once, with what stands between words between them."""
    cases, pool = texts.cases(), Pool()
    points = [chr(p) for p in range(0x110000) if not 0xD800 <= p < 0xE000]
    for first in range(0, len(points), 1000):
        text = "\n".join(around.format(c) for c in points[first : first + 1000])
        number = pool.number(text)
        assert pool.make(texts.lower, *cases, number) == text.lower(), hex(first)
        assert pool.make(texts.upper, *cases, number) == text.upper(), hex(first)


def test_every_white_space_is_stripped() -> None:
    pool, points = Pool(), [chr(p) for p in range(0x110000) if not 0xD800 <= p < 0xE000]
    for c in {
        *points[:0x300],
        *points[0x2000:0x2100],
        *(c for c in points if c.isspace()),
        "\u1680",
        "\u180e",
        "\ufeff",
    }:
        assert pool.make(texts.strip, pool.number(f"{c}x{c}")) == f"{c}x{c}".strip(), ascii(c)


def test_equal_strings_have_one_number() -> None:
    pool = Pool()
    ab, c = pool.number("ab"), pool.number("c")
    pool.strings.grow(2 * texts.ROOM)
    of = pool.strings
    made = texts.join(of.slots, of.starts, of.data, of.pool, (ab, c), 0)
    assert made == 2
    assert texts.join(of.slots, of.starts, of.data, of.pool, (ab, c), 0) == made
    assert pool.number("abc") == made
    assert of.count == 3


@pytest.mark.parametrize("size", [LONGEST_TEXT - 1, LONGEST_TEXT, LONGEST_TEXT + 1, 2 * LONGEST_TEXT])
def test_the_longest_string(size: int) -> None:
    """In bytes: what is longer is no string, whichever way it was made."""
    pool, cases = Pool(), texts.cases()
    text = "x" * (size - 2) + "é"
    assert len(text.encode()) == size
    a, b, one = pool.number(text), pool.number(text[:-2]), pool.number(text[-2:])
    expected = text if size <= LONGEST_TEXT else None
    assert pool.make(texts.join, (b, one), 0) == expected
    assert pool.make(texts.lower, *cases, a) == expected
    assert pool.make(texts.strip, a) == expected
    assert pool.make(texts.cut, a, 0, size) == expected
    assert pool.make(texts.cut, a, 0, 2) == "xx"
    tens = text[:-2] + "12"
    assert pool.make(texts.join, (b, 12), 0b10) == (tens if len(tens) <= LONGEST_TEXT else None)
    doubled = pool.make(texts.upper, *cases, pool.number("ŉ" * (size // 3)))  # 2 bytes become 3
    assert doubled == ("ʼN" * (size // 3) if size // 3 * 3 <= LONGEST_TEXT else None)


# -- in bodies ----------------------------------------------------------------------------------

app = ps.App("texts")


@app.table
class Name:
    key: str = ps.key()
    shown: str = ""
    count: int = 0

    @ps.check("too long")
    def short(self):
        return len(self.shown) < 40 and not self.key.startswith("!")


@app.event
class Add:
    ts: int = ps.order()
    name: str
    n: int


@app.event
class Seen:
    ts: int = ps.order()
    name: str


@app.transaction
def add(e: Add):
    one = Name.get(e.name.strip().lower())
    one.count += 1
    one.shown += f"{e.name}#{e.n};"
    if one.shown.endswith("#7;"):
        ps.abort("seven", shown=one.shown)
    return {"key": one.key, "times": one.count}


@app.transaction
def seen(e: Seen):
    ps.require(e.name in Name and "x" not in e.name, "unseen", by=len(e.name))
    Name[e.name].count += 100


POLICIES = (
    ps.Policy.serial(),
    ps.Policy.adaptive(),
    ps.Policy.locking("lwm", threads=2),
    *(ps.Policy(unit=unit, threads=2) for unit in ("operation", "chain", "transaction")),
)


def batch(seed: int, size: int = 300) -> list[Any]:
    rng = Random(seed)
    out: list[Any] = []
    for ts in range(size):
        name = rng.choice(("", " ", "!")) + rng.choice(("Ab", "aB", "ÉΣ", "éς ", "ß", "x"))
        out.append(Seen(ts=ts, name=name.lower()) if rng.random() < 0.5 else Add(ts=ts, name=name, n=rng.randrange(9)))
    return out


def test_every_policy_makes_the_strings_of_the_reference() -> None:
    reference = app.reference()
    expected = [reference.run(batch(seed)).to_pylist() for seed in (1, 2)]
    reasons = {row["reason"] for rows in expected for row in rows}
    assert reasons == {None, "seven", "unseen", "too long"}
    for policy in POLICIES:
        with app.open() as db:
            assert [db.run(batch(seed), policy=policy).to_pylist() for seed in (1, 2)] == expected
            assert db.table(Name).sort_by("key").equals(reference.table(Name).sort_by("key"))


def test_why_says_that_new_strings_run_alone() -> None:
    with app.open() as db:
        db.run(batch(1))
        assert "events have a new string, and must run alone" in db.last_batch.why
        db.run([Seen(ts=1000 + n, name="ab") for n in range(10)])
        assert "new string" not in db.last_batch.why
    assert "runs alone, since it makes strings" in app.explain()


@pytest.mark.parametrize("log", ["changes", "input"])
def test_new_strings_outlive_the_process(tmp_path: Path, log: Any) -> None:
    reference = app.reference()
    expected = [reference.run(batch(seed)).to_pylist() for seed in (1, 2, 3)]
    found = []
    for seed in (1, 2, 3):
        with app.open(tmp_path / "state", log=log, snapshot_every=2) as db:
            found.append(db.run(batch(seed)).to_pylist())
    assert found == expected
    with app.open(tmp_path / "state", log=log) as db:
        assert db.table(Name).sort_by("key").equals(reference.table(Name).sort_by("key"))


grow = ps.App("grow")


@grow.table
class Long:
    id: int = ps.key()
    text: str = "ab"


@grow.event
class Double:
    ts: int = ps.order()
    id: int
    tail: str


@grow.transaction
def double(e: Double):
    one = Long.get(e.id)
    one.text += one.text
    one.text += e.tail
    return {"size": len(one.text)}


def test_a_string_that_is_too_long_aborts() -> None:
    events = [Double(ts=ts, id=ts % 2, tail="é"[: ts % 3 // 2]) for ts in range(40)]
    reference = grow.reference()
    expected = reference.run(events)
    assert expected.column("reason").to_pylist().count("overflow") == 12
    with grow.open() as db:
        assert db.run(events).to_pylist() == expected.to_pylist()
        assert db.table(Long).sort_by("id").equals(reference.table(Long).sort_by("id"))


churn = ps.App("churn")


@churn.table
class Last:
    id: int = ps.key()
    text: str = ""


@churn.event
class Write:
    ts: int = ps.order()
    id: int
    tail: str


@churn.transaction
def write(e: Write):
    Last.get(e.id).text = f"{e.ts} {e.tail}"
    ps.require(e.ts % 3, "undone")


@pytest.mark.parametrize(("limit", "least"), [("_COMPACT_ABOVE", 1 << 9), ("_COMPACT_ABOVE_BYTES", 1 << 15)])
def test_strings_that_nobody_holds_are_forgotten(limit: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were overwritten, and those of transactions that aborted."""
    monkeypatch.setattr(tables, limit, least)
    reference, sizes = churn.reference(), []
    with churn.open() as db:
        for first in range(0, 2000, 100):
            events = [Write(ts=first + n, id=n % 10, tail="é" * 100) for n in range(100)]
            assert db.run(events).to_pylist() == reference.run(events).to_pylist()
            sizes.append(db._engine.tables.strings.size)
        assert db.table(Last).sort_by("id").equals(reference.table(Last).sort_by("id"))
    assert any(after < before for before, after in itertools.pairwise(sizes))
    assert max(sizes) < 150_000


def test_columns_of_new_strings_are_arrow() -> None:
    with app.open() as db:
        out = db.run([Add(ts=1, name=" Éa ", n=1)])
        assert out.column("key").to_pylist() == ["éa"]
        assert out.schema.field("key").type == pa.string()
        assert db.sql("select shown from name").to_pylist() == [{"shown": " Éa #1;"}]


maybe = ps.App("maybe")


@maybe.event
class Say:
    ts: int = ps.order()
    how: int
    a: str | None
    b: str | None
    n: int | None
    at: datetime.datetime | None


@maybe.transaction
def say(e: Say):
    made, test, size = "", False, 0
    if e.how == 0:
        made = e.a + e.b
    elif e.how == 1:
        made = f"{e.a}{e.n}{e.b}"
    elif e.how == 2:
        test = e.a.startswith(e.b)
    elif e.how == 3:
        test = e.a in e.b
    elif e.how == 4:
        made = e.a[e.n :]
    elif e.how == 5:
        made = e.a[: e.n].upper() + str(e.n)
    elif e.how == 6:
        size = len(e.a) + len(e.b)
    elif e.how == 7:
        made, size = e.b.strip(), (e.at + datetime.timedelta(hours=e.n)).hour
    return {"made": made, "test": test, "size": size}


def test_what_is_none_aborts_where_it_is_used() -> None:
    given: Any = itertools.product(
        range(8), ("Ab", None), ("b ", None), (1, None), (datetime.datetime(2026, 1, 1), None)
    )
    events = [Say(ts=ts, how=how, a=a, b=b, n=n, at=at) for ts, (how, a, b, n, at) in enumerate(given)]
    expected = maybe.reference().run(events).to_pylist()
    assert {row["reason"] for row in expected} == {None, "null a", "null b", "null n", "null at"}
    with maybe.open() as db:
        assert db.run(events).to_pylist() == expected
