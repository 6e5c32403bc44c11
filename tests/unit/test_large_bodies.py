"""Bodies that are long, wide or deep: compiled, and equal to the reference; or refused where they are declared."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import DeclarationError
from penstock.execute.codegen import generate, subroutines
from penstock.schedule.codegen.fragments import splits
from penstock.testing import check

HEAD = """
from decimal import Decimal
import penstock as ps

app = ps.App("large")

@app.table
class Account:
    id: str = ps.key()
    balance: int = 0
    {columns}
{check}
@app.table
class Note:
    account: str = ps.key()
    number: int = ps.key()
    held: ps.decimal(18, 2) = 0

@app.event
class Go:
    ts: int = ps.order()
    src: str
    dst: str
    what: int
    amount: int
    parts: list[int]

@app.transaction
def go(e: Go):
    src, dst = Account[e.src], Account[e.dst]
"""
CHECK = """
    @ps.check("poor")
    def solvent(self):
        return self.balance >= -1000
"""
LEFT = '    return {"left": src.balance}\n'


def head(columns: list[str] | None = None, check: str = "") -> str:
    return HEAD.replace("{columns}", "\n    ".join(columns or ["pass"])).replace("{check}", check)


def branches(count: int, *, chain: bool) -> str:
    """if … elif … elif, or one if after the other; in each a write, in some a record of its own or an abort."""
    out = head(check=CHECK) + "    total = 0\n"
    for k in range(count):
        word = "elif" if chain and k else "if"
        out += f"    {word} e.what {'==' if chain else '>'} {k}:\n        src.balance -= e.amount + {k}\n"
        if k % 10 == 1:
            out += f"        Note.get(e.dst, {k}).held += Decimal('0.5')\n"
        if k % 10 == 2:
            out += f"        total = dst.balance + {k}\n"
        if k % 40 == 7:
            out += f'        if e.amount == {k}:\n            ps.abort("no {k}")\n'
    return out + '    dst.balance += total\n    return {"left": src.balance, "total": total}\n'


def wide(count: int) -> str:
    """As many columns, writes and returned fields."""
    kinds = (
        ("int = 1", "dst.c{k} + e.amount"),
        ("float = 0.5", "src.c{k} * 0.5"),
        ("bool = False", "not src.c{k}"),
        ("ps.decimal(18, 2) = 3", "dst.c{k} + 1"),
    )
    out = head([f"c{k}: {kinds[k % 4][0]}" for k in range(count)])
    for k in range(count):
        out += f"    src.c{k} = {kinds[k % 4][1].format(k=k)}\n"
    out += "    if e.amount == 7:\n        ps.abort('seven')\n"
    return out + "    return {" + ", ".join(f'"f{k}": src.c{k}' for k in range(count)) + "}\n"


def columns(count: int) -> str:
    """Records of many columns, inserted, made by `get`, deleted."""
    every = " + ".join(f"src.c{k}" for k in range(count))
    out = head([f"c{k}: int = {k}" for k in range(count)], CHECK)
    return f"""{out}
    if e.what % 4 == 0:
        Account.get(e.dst).c1 += 1
    elif e.what % 4 == 1:
        del Account[e.dst]
        Account.insert(e.dst, c{count - 1}=e.amount)
    elif e.what % 4 == 2:
        del Account[e.src]
        ps.require(e.amount != 7, "seven")
        return {{}}
    src.balance += {every}
    return {{"left": src.balance}}
"""


def nested(depth: int) -> str:
    out = head(check=CHECK)
    for k in range(depth):
        pad = "    " * (k + 1)
        out += f"{pad}if e.what > {k}:\n{pad}    src.balance -= e.amount + {k}\n"
    return out + LEFT


def long_sum(count: int) -> str:
    terms = ("e.amount", "src.balance", "{k}", "dst.balance * {k}")
    total = " + ".join(terms[k % 4].format(k=k) for k in range(count))
    return head() + f"    src.balance = {total}\n" + LEFT


def long_and(count: int) -> str:
    tests = " and ".join(f"e.what != {k} and src.balance // (e.amount - {k + 1}) > -{2 * k + 9}" for k in range(count))
    return head() + f"    if {tests}:\n        src.balance += 1\n" + LEFT


def in_loop(count: int) -> str:
    """A long body of a loop, with values that go from turn to turn."""
    out = head(check=CHECK) + "    total, seen = 0, 0\n    for part in e.parts:\n"
    for k in range(count):
        out += f"        {'elif' if k else 'if'} part == {k}:\n            src.balance -= part + {k}\n"
        out += f"            total += {k}\n" if k % 3 else "            seen += dst.balance\n"
    out += "        if total > 400:\n            break\n        dst.balance += 1\n"
    return out + '    return {"left": src.balance, "total": total, "seen": seen}\n'


def many(count: int) -> str:
    """Many small transactions."""
    out = head(check=CHECK).split("@app.event")[0]
    for k in range(count):
        out += f"\n@app.event\nclass Go{k}:\n    ts: int = ps.order()\n    src: str\n    amount: int\n"
        out += (
            f"\n@app.transaction\ndef go{k}(e: Go{k}):\n    src = Account[e.src]\n    src.balance -= e.amount * {k}\n"
        )
        out += f'    return {{"left": src.balance, "f{k % 7}": {k}}}\n'
    return out


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Any]:
    """Declares an app from its source: a function of it gives the module."""
    made = []

    def load(source: str) -> Any:
        name = f"large_{len(made)}"
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        made.append(name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in made:
        del sys.modules[name]


def law(module: Any, count: int, policies: tuple[Any, ...] = (ps.Policy.serial(),)) -> None:
    """Every block is reached, commits and aborts."""
    rows = [{"id": name, "balance": k} for k, name in enumerate("abcd")]
    batch = [
        module.Go(
            ts=n,
            src="abcd"[n % 4],
            dst="bcadxb"[n % 6],
            what=n % (count + 3),
            amount=n * 5 % 23 if n % 3 else n % (count + 3),
            parts=[(n + 3 * k) % (count + 1) for k in range(n % 7)],
        )
        for n in range(3 * (count + 3))
    ]
    for policy in policies:
        outcomes = check(module.app, load={"Account": rows}, batches=[batch[::2], batch[1::2]], policy=policy)
        statuses = {status for out in outcomes for status in out["status"].to_pylist()}
        assert statuses == {"committed", "aborted"}


def is_cut(module: Any) -> bool:
    return "def sub1(" in generate(module.app.plan)[0]


SHAPES = {
    "120 elif": (branches(120, chain=True), 120),
    "120 ifs": (branches(120, chain=False), 120),
    "70 writes and 70 fields": (wide(70), 30),
    "90 columns": (columns(90), 30),
    "40 deep": (nested(40), 40),
    "a sum of 500": (long_sum(500), 30),
    "an and of 160": (long_and(80), 80),
    "60 elif in a loop": (in_loop(60), 60),
}
LARGER = SHAPES | {"150 writes and 150 fields": (wide(150), 30)}


@pytest.mark.parametrize("name", SHAPES)
def test_a_large_body_equals_the_reference(app: Any, name: str) -> None:
    source, count = SHAPES[name]
    module = app(source)
    assert is_cut(module)
    law(module, count)


def test_many_transactions(app: Any) -> None:
    module = app(many(30))
    assert is_cut(module)
    rows = [{"id": name, "balance": 500} for name in "ab"]
    batch = [getattr(module, f"Go{n % 30}")(ts=n, src="abx"[n % 3], amount=n % 11) for n in range(240)]
    check(module.app, load={"Account": rows}, batches=[batch], policy=ps.Policy.serial())


def test_a_large_body_in_parallel(app: Any) -> None:
    law(app(branches(24, chain=True)), 24, (ps.Policy(threads=2),))


@pytest.mark.long
@pytest.mark.parametrize("name", LARGER)
def test_large_bodies_under_every_scheme(app: Any, name: str) -> None:
    source, count = LARGER[name]
    law(app(source), count, (ps.Policy.serial(), ps.Policy(threads=2), ps.Policy.locking("lal", 2)))


# -- how it is cut ------------------------------------------------------------------------------


def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut where a few lines are together."""
    monkeypatch.setattr(subroutines, "LONG", 0)
    monkeypatch.setattr(subroutines, "PART", 16)


def test_a_loop_that_is_cut_everywhere(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere(monkeypatch)
    law(app(in_loop(4)), 9)


def test_pieces_that_are_cut_everywhere(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere(monkeypatch)
    module = app(branches(4, chain=True))
    assert splits(module.app.plan)
    law(module, 9, (ps.Policy(unit="operation", threads=2),))


def test_a_short_body_is_not_cut(app: Any) -> None:
    assert not is_cut(app(branches(9, chain=True)))


def test_a_loop_leaves_room_in_the_undo_log_for_what_follows(app: Any) -> None:
    module = app(in_loop(3))
    text = generate(module.app.plan)[0]
    straight = app(in_loop(3).replace("    return {", "    dst.balance += 1\n    src.balance += 1\n    return {"))
    more = generate(straight.app.plan)[0]

    def room(source: str) -> int:
        return max(int(n) for n in re.findall(r"nu \+ (\d+) > undo_what.size", source))

    assert room(more) >= room(text) + 2 * 2  # a write notes when the record was written, and the column


# -- what is refused ----------------------------------------------------------------------------


def test_an_expression_that_is_nested_too_deeply_is_refused_where_it_is_declared(app: Any) -> None:
    deep = "e.amount"
    for k in range(600):
        deep = f"{k} if e.what == {k} else {deep}" if k % 2 else f"-{k} if e.what == {k} else {deep}"
    with pytest.raises(DeclarationError, match=r"transaction 'go' \(large_0.py:\d+\): .*nested too deeply"):
        app(head() + f"    src.balance = {deep}\n" + LEFT)


def test_a_chain_is_as_long_as_python_can_read(app: Any) -> None:
    module = app(branches(900, chain=True))
    assert len(module.app.plan.transactions[0].block.ops) > 900
