"""Operations on strings: those that look at some, and those that make a new one (state/texts.py)."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from penstock.declare.types import STR, Type
from penstock.plan.values import Val

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering


def look(lo: Lowering, kernel: str, type_: Type, *given: Val, node: ast.AST) -> Val:
    return lo.value("look", type_, *given, node=node, name=kernel)


def make(lo: Lowering, kernel: str, *given: Val, node: ast.AST, const: Any = None) -> Val:
    if lo.table is not None:
        lo.body.refuse(node, "a check only looks, and this makes a string; store that in a column, and compare it")
    return lo.value("make", STR, *given, node=node, name=kernel, const=const)
