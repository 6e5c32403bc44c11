"""A udf's fingerprint counts whatever numba compiles into it, or says that it cannot."""

from __future__ import annotations

import enum
import math
import os
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numba as nb
import numpy as np
import pytest
from numba.experimental import jitclass

import penstock as ps
from penstock.declare.fingerprint import Fingerprint, fingerprint


def made(text: str, **names: Any) -> Any:
    """A function of that text, `f`, and of these globals."""
    space: dict[str, Any] = {"np": np, "math": math, "nb": nb, "__name__": "rules"} | names
    exec(text, space)
    return space["f"]


def of(text: str, **names: Any) -> Fingerprint:
    return fingerprint(made(text, **names))


def holding(**values: Any) -> ModuleType:
    module = ModuleType("rates")
    vars(module).update(values)
    return module


def helper(text: str, **options: Any) -> Any:
    return nb.njit(**options)(made(f"def f(x): return {text}"))


CASES: dict[str, tuple[Callable[[int], Any], str]] = {
    "a number": (lambda v: v, "def f(x): return x * K"),
    "an array": (lambda v: np.array([1, v]), "def f(x): return x * K[1]"),
    "an array's type": (lambda v: np.zeros(2, f"i{v}"), "def f(x): return x * K[1]"),
    "an array's middle": (lambda v: np.array([0] * 5000 + [v] + [0] * 5000), "def f(x): return x * K[1]"),
    "a record": (lambda v: np.array([(v,)], [("a", "i8")])[0], "def f(x): return x * K.a"),
    "arrays in a tuple": (lambda v: (np.array([1]), np.array([v])), "def f(x): return x * K[1][0]"),
    "a module's attribute": (lambda v: holding(RATE=v), "def f(x): return x * K.RATE"),
    "a module in a module": (lambda v: holding(deep=holding(RATE=v)), "def f(x): return x * K.deep.RATE"),
    "in a comprehension": (lambda v: v, "def f(x): return sum([x * K for _ in range(2)])"),
    "an enum": (lambda v: enum.Enum("Level", {"GOLD": v}), "def f(x): return x * K.GOLD.value"),
    "an enum's member": (lambda v: enum.Enum("Level", {"GOLD": v}).GOLD, "def f(x): return x * K.value"),
    "a named tuple": (lambda v: namedtuple("Point", "a b")(v, 2), "def f(x): return x * K.a"),
    "a compiled helper": (lambda v: helper(f"x + {v}"), "def f(x): return K(x)"),
    "a helper's option": (lambda v: helper("x + 1.0", fastmath=v == 2), "def f(x): return K(x)"),
    "a helper's helper": (
        lambda v: nb.njit(made("def f(x): return G(x)", G=helper(f"x + {v}"))),
        "def f(x): return K(x)",
    ),
}


@pytest.mark.parametrize(("value", "text"), CASES.values(), ids=CASES.keys())
def test_what_a_function_names_counts(value: Callable[[int], Any], text: str) -> None:
    one, again, other = of(text, K=value(2)), of(text, K=value(2)), of(text, K=value(4))
    assert one == again and one.whole and other.whole
    assert one.digest != other.digest


PAIRS = {
    "a constant": ("def f(x): return x + 1", "def f(x): return x + 2"),
    "an int and a float": ("def f(x): return x + 1", "def f(x): return x + 1.0"),
    "an operator": ("def f(x): return x + 1", "def f(x): return x - 1"),
    "a name": ("def f(x): return math.sin(x)", "def f(x): return math.cos(x)"),
    "a default": ("def f(x, y=1): return x + y", "def f(x, y=2): return x + y"),
    "a keyword's default": ("def f(x, *, y=1): return x + y", "def f(x, *, y=2): return x + y"),
    "closed over": (
        "def g(k):\n  def f(x): return x + k\n  return f\nf = g(1)",
        "def g(k):\n  def f(x): return x + k\n  return f\nf = g(2)",
    ),
    "a function inside": (
        "def f(x):\n  def g(y): return y + 1\n  return g(x)",
        "def f(x):\n  def g(y): return y + 2\n  return g(x)",
    ),
}


@pytest.mark.parametrize(("one", "other"), PAIRS.values(), ids=PAIRS.keys())
def test_what_a_function_is_counts(one: str, other: str) -> None:
    assert of(one) == of(one) and of(one).digest != of(other).digest
    assert of(one).whole and of(other).whole


@pytest.mark.parametrize(
    "value",
    [[1], {1: 2}, SimpleNamespace(rate=1), type("Mine", (), {}), np.array([None]), [].append, object()],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_told_is_not_whole(value: Any) -> None:
    assert not of("def f(x): return K", K=value).whole


@pytest.mark.parametrize(
    "text", ["np.sqrt(x)", "math.sin(x)", "abs(x)", "nb.int64(x)", "np.int64(x)", "np.pi * x", "np.sum(np.arange(x))"]
)
def test_what_numba_knows_is_whole(text: str) -> None:
    assert of(f"def f(x): return {text}").whole


@pytest.mark.parametrize("value", [np.sqrt, np.sum, math.sin, abs, np.int64, float, nb.int64, None, True, "a", 1.5])
def test_what_numba_knows_is_whole_by_its_own_name(value: Any) -> None:
    assert of("def f(x): return K", K=value).whole


def test_functions_that_call_each_other() -> None:
    space: dict[str, Any] = {"nb": nb}
    exec("@nb.njit\ndef f(x): return g(x - 1) if x else 0\n@nb.njit\ndef g(x): return f(x)", space)
    assert isinstance(space["f"].py_func, FunctionType) and fingerprint(space["f"].py_func).whole


def test_a_plain_function_is_not_whole_for_only_an_overload_makes_it_compile() -> None:
    plain = made("def f(x): raise NotImplementedError")
    assert not of("def f(x): return K(x)", K=plain).whole
    assert not of("def f(x): return K(x)", K=nb.njit(made("def f(x): return G(x)", G=plain))).whole
    assert not of("def f(x): return K.rate(x)", K=holding(rate=plain)).whole


def test_it_is_the_same_in_every_process() -> None:
    program = """
import enum, math, numpy as np, numba as nb
from penstock.declare.fingerprint import fingerprint
NAMES, RATES, Level = ("a", "b"), np.arange(5), enum.Enum("Level", {"A": 1})
@nb.njit
def helper(x): return x
def f(x): return (x in {"a", "b", "c", "d"}, NAMES, RATES, Level.A, math.sin, helper(x), [y for y in range(x)])
print(fingerprint(f))
"""
    several = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        several.add(done.stdout)
    assert len(several) == 1 and "whole=True" in several.pop()


# -- in an app ----------------------------------------------------------------------------------


def multiplied(function: Callable[..., Any]) -> int:
    """What an app makes of 10 by this udf."""
    times, app = ps.udf(function), ps.App("rates")

    @app.event
    class Given:
        ts: int = ps.order()
        value: int

    @app.transaction
    def multiply(e: Given):
        return {"out": times(e.value)}

    with app.open() as db:
        return int(db.run([Given(ts=1, value=10)])["out"][0].as_py())


def by_array(rate: int) -> Callable[..., Any]:
    rates = np.array([rate, rate])

    def times(x):
        return x * rates[1]

    return times


def by_class(rate: int) -> Callable[..., Any]:
    @jitclass([("value", nb.int64)])
    class Rate:
        def __init__(self) -> None:
            self.value = rate

    def times(x):
        return x * Rate().value

    return times


@pytest.mark.parametrize(("make", "kept"), [(by_array, True), (by_class, False)])
def test_udfs_that_differ_in_a_value_do_not_share_a_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[int], Any], kept: bool
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "cache"))
    assert [multiplied(make(rate)) for rate in (3, 5)] == [30, 50]
    assert bool(list(tmp_path.glob("cache/*.code"))) == kept


# What is registered with numba stays for the life of a process: so each in a process of its own.
EXTENDED = """
import os, sys
import numba as nb
from numba.core import types
from numba.extending import overload, overload_attribute, overload_method
import penstock as ps

kind, rate, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
by = (lambda x: x * 2) if rate == 2 else (lambda x: x * 3)
def stub(x): raise NotImplementedError
{"overload": overload(stub), "attribute": overload_attribute(types.Integer, "charged"),
 "method": overload_method(types.Integer, "charge")}[kind](lambda x: by)

@ps.udf
def times(x):
    return KIND

app = ps.App("rates")

@app.table
class Total:
    id: int = ps.key()
    n: int = 0

@app.event
class Given:
    ts: int = ps.order()
    value: int

@app.transaction
def add(e: Given):
    total = Total.get(1)
    total.n += times(e.value)

db = app.open(path or None, **({"log": "input"} if path else {}))
db.run([Given(ts=1, value=10)])
db.run([Given(ts=2, value=10)])
print([row["n"] for row in db.table(Total).to_pylist()])
db.close()
"""
KINDS = {"overload": "stub(x)", "attribute": "x.charged", "method": "x.charge()"}


def extended(at: Path, kind: str, rate: int, state: str = "") -> subprocess.CompletedProcess[str]:
    program = at / "program.py"
    program.write_text(EXTENDED.replace("KIND", KINDS[kind], 1))
    command = [sys.executable, str(program), kind, str(rate), state]
    return subprocess.run(command, cwd=at, capture_output=True, text=True)


@pytest.mark.parametrize("kind", KINDS)
def test_what_extends_numba_decides_no_answer_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "cache"))
    assert [extended(tmp_path, kind, rate).stdout for rate in (2, 3)] == ["[40]\n", "[60]\n"]


def test_inputs_are_not_logged_with_a_udf_that_no_process_can_compare(tmp_path: Path) -> None:
    refused = extended(tmp_path, "overload", 2, "state")
    assert refused.returncode != 0
    for word in ("StateError", "app 'rates' cannot log its input", "udf", 'log="changes"'):
        assert word in refused.stderr


def test_a_value_that_changes_after_the_declaration_changes_neither_kernel_nor_fingerprint() -> None:
    rates = np.array([2, 3])

    def times(x):
        return x * rates[1]

    udf = ps.udf(times)
    before, made = udf.fingerprint, udf.compiled(10)
    rates[1] = 7
    assert (udf.fingerprint, udf.compiled(10)) == (before, made)


def test_a_udf_needs_a_name() -> None:
    with pytest.raises(ps.DeclarationError, match="with a name"):
        ps.udf(lambda x: x)
