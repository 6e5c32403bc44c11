"""Fixed programs that together use the whole language; each module makes one `CASE`.

They are loaded one by one, so that a program which is refused fails its own test only.
"""

import importlib
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from penstock.declare.objects import Event, Table

WORKLOADS = ("sl", "ob", "gs", "tp", "smallbank")

NAMES = (
    "bank",
    "bare",
    "chase",
    "control",
    "conversions",
    "decimals",
    "functions",
    "keys",
    "kinds",
    "lifecycle",
    "lists",
    "merge",
    "numbers",
    "rounding",
    "short_circuit",
    "spans",
    "texts",
    "timers",
    "times",
    "udfs",
    "unique",
)


@dataclass(frozen=True)
class Case:
    app: Any
    rows: dict[Table, st.SearchStrategy[list[dict[str, Any]]]]
    event: st.SearchStrategy[Event]
    size: int = 30
    batch: st.SearchStrategy[list[Event]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", st.lists(self.event, max_size=self.size))


def case(name: str) -> Case:
    found: Case = importlib.import_module(f"{__name__}.{name}").CASE
    return found
