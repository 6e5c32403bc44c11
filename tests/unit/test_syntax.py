"""Every class of Python's syntax is compiled or refused with words that say what to write instead; also what a newer
Python adds."""

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
from test_refusals import in_transaction, refused

from penstock.plan import refusals
from penstock.plan.numbers import COMPARISONS, OPERATORS

# What plan/lower.py, plan/expressions.py and plan/numbers.py lower, at least in some places.
LOWERED = {
    *("Expr", "Pass", "Assign", "AnnAssign", "AugAssign", "If", "For", "Return", "Break", "Continue", "Delete"),
    *("Constant", "Name", "Attribute", "Subscript", "UnaryOp", "BinOp", "BoolOp", "Compare", "Call", "IfExp"),
    *("Tuple", "Dict", "Slice", "GeneratorExp"),
    *("And", "Or", "Not", "USub", "Pow", "In", "NotIn"),
    *(cls.__name__ for cls in (*OPERATORS, *COMPARISONS)),
}
BASES = (ast.stmt, ast.expr, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
# Old names that Python keeps for constants.
OLD = {"Num", "Str", "Bytes", "NameConstant", "Ellipsis", "Index", "ExtSlice"}

# One of each that is refused; where its place is not the transaction's own text, what is put into it says so.
SAMPLES = {
    "While": "while e.b:  # <-\n    pass",
    "Try": "try:  # <-\n    pass\nexcept ValueError:\n    pass",
    "TryStar": "try:  # <-\n    pass\nexcept* ValueError:\n    pass",
    "With": "with open('x'):  # <-\n    pass",
    "Raise": "raise ValueError  # <-",
    "Assert": "assert e.b  # <-",
    "Import": "import os  # <-",
    "ImportFrom": "from os import path  # <-",
    "FunctionDef": "def f():  # <-\n    pass",
    "AsyncFunctionDef": "async def f():  # <-\n    pass",
    "ClassDef": "class C:  # <-\n    pass",
    "TypeAlias": "type T = int  # <-",
    "Global": "global LIMIT  # <-",
    "Match": "match e.n:  # <-\n    case 1:\n        pass",
    "Expr": "e.n + 1  # <-",
    "Assign": "a = b = 1  # <-",
    "AnnAssign": "a: int  # <-",
    "NamedExpr": "if (x := e.n) > 1:  # <-\n    pass",
    "Lambda": "f = lambda: 1  # <-",
    "Dict": "s = {1: 2}  # <-",
    "Set": "s = {1, 2}  # <-",
    "List": "s = [1, 2]  # <-",
    "Tuple": "s = 1, 2  # <-",
    "Starred": "a, b = *e.xs, 1  # <-",
    "Slice": "s = Account[1:2]  # <-",
    "Yield": "s = yield  # <-",
    "YieldFrom": "s = yield from e.xs  # <-",
    "GeneratorExp": "s = (x for x in e.xs)  # <-",
    "ListComp": "s = [x for x in e.xs]  # <-",
    "SetComp": "s = {x for x in e.xs}  # <-",
    "DictComp": "s = {x: x for x in e.xs}  # <-",
    "BitAnd": "s = e.n & 1  # <-",
    "BitOr": "s = e.n | 1  # <-",
    "BitXor": "s = e.n ^ 1  # <-",
    "LShift": "s = e.n << 1  # <-",
    "RShift": "s = e.n\ns >>= 1  # <-",
    "MatMult": "s = e.n @ 1  # <-",
    "Invert": "s = ~e.n  # <-",
    "UAdd": "s = +e.n  # <-",
}
# What Python itself refuses in a plain function, or what only stands inside of another that is refused or compiled.
NOWHERE = {"AsyncFor", "AsyncWith", "Await", "Nonlocal", "FormattedValue", "TemplateStr", "Interpolation"}
# What other tests say where it is compiled and where not.
ELSEWHERE = {"JoinedStr", "Is", "IsNot"}


def classes() -> dict[str, Any]:
    found = {cls.__name__: cls for base in BASES for cls in base.__subclasses__() if cls.__module__ in ("ast", "_ast")}
    return {name: cls for name, cls in found.items() if name not in OLD}


@pytest.mark.parametrize("name", sorted(classes()))
def test_every_class_is_lowered_or_has_words(name: str) -> None:
    assert name in LOWERED or name in refusals.ROWS
    if name in refusals.ROWS:
        assert name in SAMPLES or name in NOWHERE or name in ELSEWHERE
        said = refusals.ROWS[name]
        assert any(sign in said for sign in (";", "stands")) and name not in said.replace("'", " ").split()


@pytest.mark.parametrize("name", [n for n in SAMPLES if n != "TypeAlias" or sys.version_info >= (3, 12)])
def test_what_is_refused_says_what_to_write(tmp_path: Path, name: str) -> None:
    refused(tmp_path, in_transaction(SAMPLES[name]), (refusals.ROWS[name],))


def test_what_a_newer_python_adds_has_words() -> None:
    class Novelty(ast.expr):
        pass

    assert refusals.words(Novelty()) == "'Novelty' cannot be compiled; write it with names, arithmetic, 'if' and 'for'"
