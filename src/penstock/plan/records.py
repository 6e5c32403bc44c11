"""Records in a body: each use of one is a lookup by key at that moment.

Lowering stays literal: every read and write looks its record up again. passes.share then drops
the lookups that cannot have changed.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from penstock.declare.model import Column, TableDef, is_none
from penstock.declare.types import BOOL
from penstock.plan import nullable
from penstock.plan.ir import ROW
from penstock.plan.nullable import zero_of
from penstock.plan.numbers import to_type
from penstock.plan.values import RecordRef, Val, in_body, unscaled

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering


def keys(lo: Lowering, table: TableDef, given: list[Val], node: ast.AST) -> tuple[Val, ...]:
    if len(given) != len(table.keys):
        names = ", ".join(c.name for c in table.keys)
        lo.body.refuse(node, f"table '{table.name}' has {len(table.keys)} key column(s) ({names}), not {len(given)}")
    return tuple(
        to_type(lo, v, c.type, node, f"key '{c.name}' of table '{table.name}'")
        for v, c in zip(given, table.keys, strict=True)
    )


def locate(lo: Lowering, table: TableDef, given: list[Val], node: ast.AST) -> RecordRef:
    found = RecordRef(table, keys(lo, table, given, node), optional=False)
    _row(lo, "locate", found, node)
    return found


def _row(lo: Lowering, code: str, found: RecordRef, node: ast.AST) -> Val:
    return lo.value(code, ROW, *found.keys, node=node, table=found.table.name)


def contains(lo: Lowering, table: TableDef, given: list[Val], node: ast.AST) -> Val:
    found = RecordRef(table, keys(lo, table, given, node), optional=True)
    return lo.value("present", BOOL, _row(lo, "find", found, node), node=node)


def delete(lo: Lowering, table: TableDef, given: list[Val], node: ast.AST) -> None:
    found = keys(lo, table, given, node)
    lo.emit("delete", tuple(k.id for k in found), table=table.name, node=node)


def method(lo: Lowering, table: TableDef, name: str, node: ast.Call) -> RecordRef:
    from penstock.plan.expressions import nullable_value
    from penstock.plan.scans import METHODS

    if any(k.arg is None for k in node.keywords) or any(isinstance(a, ast.Starred) for a in node.args):
        lo.body.refuse(node, "* and ** cannot be compiled; write the arguments out")
    if name in METHODS:
        lo.body.refuse(node, f"{table.name}.{name} gives records to loop over: for r in {ast.unparse(node)}")
    if name not in ("get", "insert"):
        lo.body.refuse(
            node,
            f"table '{table.name}' has no method '{name}'; use {table.name}[k], get, insert, in or del, or loop over "
            f"{', '.join(METHODS)} (a count: sum(1 for r in {table.name}))",
        )
    given = [nullable_value(lo, a) for a in node.args]
    if name == "get":
        if node.keywords:
            lo.body.refuse(node, f"{table.name}.get takes the key alone")
        bare = [c.name for c in table.values if c.required]
        if bare:
            lo.body.refuse(node, f"{table.name}.get needs a default for every column; '{bare[0]}' has none")
        return RecordRef(table, keys(lo, table, given, node), optional=True)
    return _insert(lo, table, given, node)


def _insert(lo: Lowering, table: TableDef, given: list[Val], node: ast.Call) -> RecordRef:
    from penstock.plan.expressions import nullable_value

    named: dict[str, Val] = {}
    for keyword in node.keywords:
        assert keyword.arg is not None
        column = _column(lo, table, keyword.arg, node)
        if column.key:
            lo.body.refuse(node, f"key '{column.name}' is given by place: {table.name}.insert(k, …)")
        named[keyword.arg] = nullable_value(lo, keyword.value)
    # Python evaluates every argument before the call; conversion belongs to the call.
    key = keys(lo, table, given, node)
    values, flags = [], []
    for column in table.values:
        if column.name in named:
            what = f"column '{column.name}'"
            values.append(to_type(lo, named[column.name], column.type, node, what, nullable=column.nullable))
        elif column.required:
            lo.body.refuse(node, f"{table.name}.insert needs '{column.name}', which has no default")
        else:
            values.append(default(lo, column))
        if column.nullable:
            without = column.name not in named and column.default is None
            flags.append(lo.const(True, BOOL) if without else nullable.is_none(lo, values[-1]))
    values += flags
    lo.emit("insert", tuple(v.id for v in (*key, *values)), ROW, table=table.name, node=node, const=len(key))
    return RecordRef(table, key, optional=False)


def default(lo: Lowering, column: Column) -> Val:
    return lo.const(stored_default(column), column.type)


def stored_default(column: Column) -> object:
    """A default as the plan's constants are written: decimals unscaled."""
    if column.type.kind == "decimal":
        return unscaled(column.default, column.type.scale) if column.default is not None else 0
    return zero_of(column.type) if column.default is None else column.default


def _column(lo: Lowering, table: TableDef, name: str, node: ast.AST) -> Column:
    column = table.column(name)
    if column is None:
        names = ", ".join(c.name for c in table.columns)
        lo.body.refuse(node, f"table '{table.name}' has no column '{name}'; it has {names}")
    return column


def read(lo: Lowering, found: RecordRef, node: ast.Attribute) -> Val:
    column = _column(lo, found.table, node.attr, node)
    if column.key:
        return _read_key(lo, found, column, node)
    row = _row(lo, "find" if found.optional else "locate", found, node)
    return _read(lo, "read_or" if found.optional else "read", found.table, column, row, node)


def _read(lo: Lowering, code: str, table: TableDef, column: Column, row: Val, node: ast.AST) -> Val:
    found = lo.value(code, in_body(column.type), row, node=node, table=table.name, name=column.name)
    if not column.nullable:
        return found
    flag = lo.value(code, BOOL, row, node=node, table=table.name, name=is_none(column.name))
    return nullable.kept(lo, found, flag, column.name)


def _read_key(lo: Lowering, found: RecordRef, column: Column, node: ast.AST) -> Val:
    if not found.optional:
        _row(lo, "locate", found, node)
    key = found.keys[found.table.keys.index(column)]
    return Val(key.id, in_body(key.type))


def read_self(lo: Lowering, node: ast.Attribute) -> Val:
    assert lo.table is not None
    column = _column(lo, lo.table, node.attr, node)
    return _read(lo, "read", lo.table, column, Val(lo.self_row, ROW), node)


def write(lo: Lowering, found: RecordRef, target: ast.Attribute, new: Val) -> None:
    column = _column(lo, found.table, target.attr, target)
    if column.key:
        lo.body.refuse(
            target, f"'{column.name}' is a key of table '{found.table.name}'; delete the record and insert another"
        )
    stored = to_type(lo, new, column.type, target, f"column '{column.name}'", nullable=column.nullable)
    row = _row(lo, "ensure" if found.optional else "locate", found, target)
    lo.emit("write", (row.id, stored.id), table=found.table.name, name=column.name, node=target)
    if column.nullable:
        flag = nullable.is_none(lo, stored)
        lo.emit("write", (row.id, flag.id), table=found.table.name, name=is_none(column.name), node=target)
