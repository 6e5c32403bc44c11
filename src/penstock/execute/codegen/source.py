"""Small pieces of generated source: lines, constants, zeros, wrappers for udfs."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.declare.types import Type

IMPORTS = """\
import numba as nb
import numpy as np

from penstock.execute import kernels as k_
from penstock.execute import steps as s_
from penstock.state.hashing import ONE, TWO, combine, first
from penstock.state.prefetch import BLOCK, prefetch
from penstock.state.strings import compare as compare_text

INF, NAN = np.inf, np.nan
"""
SCANS = "from penstock.state import index as i_\nfrom penstock.state import scan as z_\n"
WINDOWS = "from penstock.state import rings as r_\n"
# Modules of kernels that operations name, by what their names begin with.
MODULES = {
    "dates": "from penstock.execute import dates\n",
    "texts": "from penstock.state import texts\n",
}
IMPORTED = {
    name.asname or name.name
    for node in ast.walk(ast.parse(IMPORTS + SCANS + WINDOWS + "".join(MODULES.values())))
    if isinstance(node, ast.Import | ast.ImportFrom)
    for name in node.names
} | {"INF", "NAN"}


class Source:
    """Lines with an indent."""

    def __init__(self, depth: int = 0) -> None:
        self.lines: list[str] = []
        self.depth = depth
        self.quoted = ""  # the last comment that is a line of the user's

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def comment(self, text: str) -> None:
        self.line(f"# {one_line(text)}")

    def text(self, text: str) -> None:
        self.lines.extend(text.splitlines())

    @contextmanager
    def indented(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


def one_line(text: str) -> str:
    """A user's text as a comment: nothing in it ends the line."""
    return "".join(c if c.isprintable() else " " for c in text)


def code_of(line: str) -> str:
    """A line without its indent and its comment."""
    text = line.strip()
    return "" if text.startswith("#") else text.partition("  # ")[0].rstrip()


def length(lines: list[str]) -> int:
    """How many lines there are but for comments: these cost nothing to compile."""
    return sum(not line.lstrip().startswith("#") for line in lines)


def zero(type_: Type) -> str:
    return type_.lane.zero


def number(value: Any) -> str:
    if isinstance(value, float):
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "INF" if value > 0 else "(-INF)"
    return f"({value!r})" if not isinstance(value, bool) and value < 0 else repr(value)


def unfolded(value: str) -> str:
    """A constant that Python will not compute with while it reads the source: the result may be no int64."""
    return f"np.int64({value})" if value.strip("(-)").isdigit() else value


def udf_wrapper(name: str, fingerprint: str) -> str:
    """A udf that raises must not stop the batch: it says that it failed."""
    return f"""

@nb.njit(nogil=True, error_model="python")
def udf_{name}(*args):  # {fingerprint}
    try:
        return True, raw_{name}(*args)
    except Exception:
        return False, zero_{name}
"""
