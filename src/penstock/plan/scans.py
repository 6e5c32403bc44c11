"""What a `for` may run over beside lists: the records of a table, or some of them.

    for r in Account                          all, in order of their keys
    for r in Account.where(owner=e.owner)     those that have it in an indexed column, likewise
    for r in Board.between("top", 1, 3)       those whose key lies there, likewise
    for r in Account.top(3, by="votes")       those that have the most in a column; bottom: the least

A scan takes its keys before the first turn: a turn's record is a key, which every use of it looks up.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from penstock.declare.model import Column, TableDef
from penstock.declare.types import INT
from penstock.plan import expressions, names, nullable
from penstock.plan.numbers import to_type
from penstock.plan.values import Iterated, Val

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering

METHODS = ("top", "bottom", "where", "between")


def iterated(lo: Lowering, node: ast.expr) -> Iterated | None:
    """The scan that an expression is; None where it is none."""
    table = names.table_of(lo, node)
    if table is not None:
        return _scan(lo, node, table, "all")
    match node:
        case ast.Call(func=ast.Attribute(value=base, attr=method)) if (table := names.table_of(lo, base)) is not None:
            if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
                lo.body.refuse(node, "* and ** cannot be compiled; write the arguments out")
            if method in ("top", "bottom"):
                return _best(lo, table, method, node)
            if method == "where":
                return _where(lo, table, node)
            if method == "between":
                return _between(lo, table, node)
            ways = f"{table.name}, {', '.join(f'{table.name}.{name}(…)' for name in METHODS)}"
            lo.body.refuse(node, f"{table.name}.{method} gives nothing to loop over; use {ways}")
    return None


def _scan(lo: Lowering, node: ast.AST, table: TableDef, way: str, name: str = "", *args: Val) -> Iterated:
    return Iterated("scan", args, tuple(c.type for c in table.keys), way, table, name)


def _best(lo: Lowering, table: TableDef, way: str, node: ast.Call) -> Iterated:
    form = (
        f'{table.name}.{way} takes how many and by which column: {table.name}.{way}(3, by="{table.columns[-1].name}")'
    )
    if len(node.args) != 1 or [k.arg for k in node.keywords] != ["by"]:
        lo.body.refuse(node, form)
    given = node.keywords[0].value
    by = given.value if isinstance(given, ast.Constant) else names.static(lo, given)
    if not isinstance(by, str):
        lo.body.refuse(node, form + "; the column is a constant")
    column = _column(lo, table, by, node)
    if column.nullable:
        lo.body.refuse(
            node, f"'{column.name}' may be None, which has no place in an order; loop over the table, and test it"
        )
    count = expressions.value(lo, node.args[0])
    if count.type != INT:
        lo.body.refuse(node, f"{table.name}.{way} takes an int, how many; not {count.type}")
    return _scan(lo, node, table, way, column.name, count)


def _where(lo: Lowering, table: TableDef, node: ast.Call) -> Iterated:
    indexed = [c.name for c in table.columns if c.index]
    usual = f"{table.name}.where({(indexed or [table.columns[-1].name])[0]}=…)"
    if node.args or len(node.keywords) != 1:
        lo.body.refuse(node, f"{table.name}.where takes one column by name, {usual}; test the others with 'if'")
    (keyword,) = node.keywords
    column = _column(lo, table, str(keyword.arg), node)
    if not column.index:
        if column.key:
            instead = f"is a key column; use {table.name}.between(a, b)"
        elif "key" in column.type.traits.roles:
            instead = f"is not indexed; declare it as `{column.name}: {column.type.traits.declared} = ps.index()`"
        else:
            instead = f"is {column.type}, which is not looked up by; loop over the table, and test it with 'if'"
        lo.body.refuse(node, f"'{column.name}' of table '{table.name}' {instead}")
    wanted = expressions.nullable_value(lo, keyword.value)
    stored = to_type(lo, wanted, column.type, node, f"column '{column.name}'", nullable=column.nullable)
    wanted_too = (nullable.is_none(lo, stored),) if column.nullable else ()
    return _scan(lo, node, table, "where", column.name, stored, *wanted_too)


def _between(lo: Lowering, table: TableDef, node: ast.Call) -> Iterated:
    keys = ", ".join(c.name for c in table.keys)
    if node.keywords or not 2 <= len(node.args) <= len(table.keys) + 1:
        first = " behind the columns before it" if len(table.keys) > 1 else ""
        lo.body.refuse(
            node, f"{table.name}.between takes the two ends of a key column{first}, both included; its key is ({keys})"
        )
    columns = table.keys[: len(node.args) - 1]
    if not columns[-1].type.traits.ordered:
        lo.body.refuse(
            node, f"key '{columns[-1].name}' of table '{table.name}' is {columns[-1].type}, which has no order"
        )
    given = [expressions.nullable_value(lo, a) for a in node.args]
    # Python evaluates every argument before the call; conversion belongs to the call.
    ends = [
        to_type(lo, v, c.type, node, f"key '{c.name}' of table '{table.name}'")
        for v, c in zip(given, (*columns, columns[-1]), strict=True)
    ]
    return _scan(lo, node, table, "between", columns[-1].name, *ends)


def _column(lo: Lowering, table: TableDef, name: str, node: ast.AST) -> Column:
    column = table.column(name)
    if column is None:
        known = ", ".join(c.name for c in table.columns)
        lo.body.refuse(node, f"table '{table.name}' has no column '{name}'; it has {known}")
    return column
