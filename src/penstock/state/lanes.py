"""How a typed value lies in an array; declare/kinds.py says in which of three lanes."""

from __future__ import annotations

from typing import Any

from penstock.declare.types import Type


def dtype(type_: Type) -> Any:
    return type_.lane.dtype


def constant(value: Any, type_: Type) -> Any:
    """A constant that is not a str, as it lies in its lane (decimals come unscaled)."""
    return type_.traits.word(value)
