"""What of Python's syntax a body does not have, and what to write instead: one row each, by the name that `ast` has.

    words(node)    the row of a node, in words; of an unknown one, from a newer Python, that as well

A class of `ast` that is in no row is lowered by plan/lower.py, plan/expressions.py or plan/numbers.py; a test goes
through all of them.
"""

from __future__ import annotations

import ast

_SHARED_STATE = "keep shared state in a table"
_TEXT = "such a text cannot be compiled; write an f-string of strings and ints"
_STATEMENTS = {
    "While": "'while' cannot be compiled; use 'for' over a list field or range(n)",
    "AsyncFor": "'async' cannot be compiled; use a plain 'for'",
    "Try": "'try' cannot be compiled; test with 'in' or ps.require before you act",
    "TryStar": "'try' cannot be compiled; test with 'in' or ps.require before you act",
    "With": "'with' cannot be compiled; a transaction only reads and writes its tables",
    "AsyncWith": "'with' cannot be compiled; a transaction only reads and writes its tables",
    "Raise": "'raise' cannot be compiled; use ps.abort(\"reason\")",
    "Assert": "'assert' cannot be compiled; use ps.require(condition, \"reason\")",
    "Import": "'import' inside a transaction cannot be compiled; import at the top of the file",
    "ImportFrom": "'import' inside a transaction cannot be compiled; import at the top of the file",
    "FunctionDef": "a nested function cannot be compiled; mark one outside of it with @ps.function, and call that",
    "AsyncFunctionDef": "a nested function cannot be compiled; mark one outside of it with @ps.function, and call that",
    "ClassDef": "a class cannot be made in a transaction; declare a table or an event at the top of the file",
    "TypeAlias": "'type' cannot be compiled; write it at the top of the file",
    "Global": f"'global' cannot be compiled; {_SHARED_STATE}",
    "Nonlocal": f"'nonlocal' cannot be compiled; {_SHARED_STATE}",
    "Match": "'match' cannot be compiled; use if/elif",
    # Some of these are compiled; this is what is said of the others.
    "Expr": "this expression does nothing; assign it or remove it",
    "Assign": "a = b = … cannot be compiled; write two assignments",
    "AnnAssign": "a name without a value cannot be declared; assign it",
}
_A_GENERATOR = "a generator stands in sum, min, max, any or all: sum(x for x in e.xs)"
_EXPRESSIONS = {
    "NamedExpr": "':=' cannot be compiled; assign on a line of its own, before this one",
    "Lambda": "'lambda' cannot be compiled; mark a function with @ps.function, and call that",
    "Dict": "a dict stands only in 'return {\"left\": x}'; keep what is looked up in a table",
    "Set": "a set cannot be made here; compare one by one, or keep the values in a table",
    "List": "a list cannot be made here; use names, and loop over a list field of the event",
    "Tuple": "a tuple stands where it is taken apart at once: a, b = x, y",
    "Starred": "* cannot be compiled; write the arguments or names out",
    "Slice": "a slice is of a list field; a part of a table is Account.between(a, b)",
    "Await": "a transaction is a plain function; return a dict of named fields",
    "Yield": "a transaction is a plain function; return a dict of named fields",
    "YieldFrom": "a transaction is a plain function; return a dict of named fields",
    "GeneratorExp": f"a generator is no value; {_A_GENERATOR}",
    "ListComp": f"a list comprehension cannot be compiled; {_A_GENERATOR}",
    "SetComp": f"a set comprehension cannot be compiled; {_A_GENERATOR}",
    "DictComp": f"a dict comprehension cannot be compiled; {_A_GENERATOR}",
    "JoinedStr": _TEXT,
    "FormattedValue": _TEXT,
    "TemplateStr": _TEXT,
    "Interpolation": _TEXT,
}
_OPERATORS = {
    "BitAnd": "'&' cannot be compiled; of bools write 'and', of ints x % 2**n for the lowest bits, or call a @ps.udf",
    "BitOr": "'|' cannot be compiled; of bools write 'or'; of ints call a @ps.udf",
    "BitXor": "'^' cannot be compiled; of bools write '!='; of ints call a @ps.udf",
    "LShift": "'<<' cannot be compiled; write x * 2**n",
    "RShift": "'>>' cannot be compiled; write x // 2**n",
    "MatMult": "'@' cannot be compiled; write sum(x * y for x, y in zip(e.xs, e.ys))",
    "Invert": "'~' cannot be compiled; of a bool write 'not', of an int -x - 1",
    "UAdd": "a leading '+' does nothing; remove it",
    "Is": "'is' compares objects; use ==. To ask whether a record is there: k in Account. A null field aborts when it "
    "is used",
    "IsNot": "'is not' compares objects; use !=. To ask whether a record is there: k in Account. A null field aborts "
    "when it is used",
}
ROWS = _STATEMENTS | _EXPRESSIONS | _OPERATORS


def words(node: ast.AST) -> str:
    name = type(node).__name__
    return ROWS.get(name, f"'{name}' cannot be compiled; write it with names, arithmetic, 'if' and 'for'")
