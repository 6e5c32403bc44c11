"""None, where a body runs as plain Python: what may be done with it, and what aborts.

A nullable field or column that is None gives a `Null` there, which knows the reason by which a use of it aborts. It is
false, and equals None alone. `is None` is asked of it by `is_none` (execute/uncompiled.py).
"""

from __future__ import annotations

from typing import Any, NoReturn

from penstock.errors import Aborted


class Null:
    """No value. Any use of it aborts."""

    __slots__ = ("__reason",)

    def __init__(self, reason: str) -> None:
        object.__setattr__(self, "_Null__reason", reason)

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return is_none(other)

    def __hash__(self) -> int:
        return hash(None)  # whether it is in a set may be asked

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        use(self)

    def __repr__(self) -> str:
        return f"Null({self.__reason!r})"


def use(value: Any) -> Any:
    """The value, which an operation needs."""
    if isinstance(value, Null):
        raise Aborted(object.__getattribute__(value, "_Null__reason"))
    return value


def is_none(value: Any) -> bool:
    return value is None or isinstance(value, Null)


def _abort(self: Null, *_: Any, **__: Any) -> NoReturn:
    use(self)
    raise AssertionError


for _name in (
    *(
        f"__{side}{name}__"
        for name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"]
        for side in ("", "r")
    ),
    *(
        f"__{name}__"
        for name in [
            "lt",
            "le",
            "gt",
            "ge",
            "neg",
            "pos",
            "abs",
            "round",
            "int",
            "float",
            "index",
            "len",
            "iter",
            "getitem",
            "contains",
        ]
    ),
    *("__format__", "__str__"),
):
    setattr(Null, _name, _abort)
