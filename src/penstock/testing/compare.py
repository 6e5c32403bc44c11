"""Compare Arrow tables as a test wants to: row by row, with the first difference in words.

Rows of outcomes are compared in order, for the order is part of what they say; rows of a table
are matched by key. nan equals nan, and how a column is encoded (dictionary or plain, how many
chunks) does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first row in which two tables differ; None where one has no such row."""

    place: str
    left: Row | None
    right: Row | None


def assert_same_outcomes(a: pa.Table, b: pa.Table) -> None:
    """AssertionError that shows the first outcome in which a and b differ."""
    found = outcomes_difference(a, b)
    if found is not None:
        raise AssertionError("outcomes differ\n" + describe(found))


def assert_same_tables(a: pa.Table, b: pa.Table, keys: Sequence[str]) -> None:
    """AssertionError that shows the first record, by key, in which a and b differ."""
    found = tables_difference(a, b, keys)
    if found is not None:
        raise AssertionError("tables differ\n" + describe(found))


def outcomes_difference(a: pa.Table, b: pa.Table) -> Difference | None:
    _assert_same_columns(a, b)
    left, right = a.to_pylist(), b.to_pylist()
    for i in range(max(len(left), len(right))):
        mine, other = (rows[i] if i < len(rows) else None for rows in (left, right))
        if not _same_row(mine, other):
            return Difference(f"row {i}", mine, other)
    return None


def tables_difference(a: pa.Table, b: pa.Table, keys: Sequence[str]) -> Difference | None:
    _assert_same_columns(a, b)
    left, right = _by_key(a, keys), _by_key(b, keys)
    for key in sorted(left.keys() | right.keys()):
        if not _same_row(left.get(key), right.get(key)):
            shown = ", ".join(f"{name}={k!r}" for name, k in zip(keys, key, strict=True))
            return Difference(f"record {shown}", left.get(key), right.get(key))
    return None


def describe(found: Difference, names: tuple[str, str] = ("left", "right")) -> str:
    """The two rows, one column a line; those that differ carry a mark."""
    lines = [f"at {found.place}:"]
    if found.left is None or found.right is None:
        has, row = (names[0], found.left) if found.right is None else (names[1], found.right)
        return "\n".join([*lines, f"  only {has} has it: {row}"])
    width = max(len(name) for name in found.left)
    for name, value in found.left.items():
        other = found.right[name]
        if _same(value, other):
            lines.append(f"    {name:{width}}  {value!r}")
        else:
            lines.append(f"  ! {name:{width}}  {names[0]}: {value!r}  {names[1]}: {other!r}")
    return "\n".join(lines)


def _assert_same_columns(a: pa.Table, b: pa.Table) -> None:
    left, right = ([(f.name, _decoded(f.type)) for f in t.schema] for t in (a, b))
    for mine, other in zip(left, right, strict=False):
        if mine != other:
            raise AssertionError(f"columns differ: {mine[0]} {mine[1]} on the left, {other[0]} {other[1]} on the right")
    if len(left) != len(right):
        raise AssertionError(
            f"columns differ: {[n for n, _ in left]} on the left, {[n for n, _ in right]} on the right"
        )


def _decoded(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _by_key(table: pa.Table, keys: Sequence[str]) -> dict[tuple[Any, ...], Row]:
    out: dict[tuple[Any, ...], Row] = {}
    for row in table.to_pylist():
        key = tuple(row[k] for k in keys)
        if key in out:
            raise AssertionError(f"key {key} is there twice: {out[key]} and {row}")
        out[key] = row
    return out


def _same_row(a: Row | None, b: Row | None) -> bool:
    if a is None or b is None:
        return a is b
    return all(_same(a[name], b[name]) for name in a)


def _same(a: Any, b: Any) -> bool:
    # Only nan differs from itself.
    return bool(a == b or (a != a and b != b))
