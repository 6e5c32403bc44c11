"""Generated lines as a function of their own: which names they take and give, its text, and how it is called.

def sub3(d0, nu, p0_v2, t0_c0):                 ended, c, d0, nu, p0_v7 = sub3(d0, nu, p0_v2, t0_c0)
    c = 0                                       if ended:
    p0_v7 = 0                                       break
    stopped = True
    while True:
        ...                                     the lines; where they abort they `break`
        stopped = False
        break
    return stopped, c, d0, nu, p0_v7
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.execute.codegen.source import Source

IMPORTS = "from penstock.state.jit import keep"
_DECORATOR = (
    '@nb.njit(nogil=True, error_model="numpy", boundscheck=False, no_cfunc_wrapper=True, no_cpython_wrapper=True)'
)


@dataclass(slots=True)
class Names:
    """The names that source loads and stores."""

    loads: set[str] = field(default_factory=set)
    stores: set[str] = field(default_factory=set)

    def add(self, other: Names) -> None:
        self.loads |= other.loads
        self.stores |= other.stores


def names_of(body: Source) -> Names:
    out = Names()
    for statement in _statements(body):
        _add(out, statement)
    return out


def zeros_of(lines: Iterable[str]) -> dict[str, str]:
    """Name -> the line that defines it."""
    return {line.split(" = ")[0]: line for line in lines}


class Function:
    def __init__(self, body: Source, taken: set[str], state: set[str], zeros: Mapping[str, str]) -> None:
        """state: what it takes, changes and gives back, but for what it sets anew; zeros: what it makes and gives."""
        self.body = body
        self.aborts = "c" in state
        statements = _statements(body)
        self.stops = _leaves(statements)
        self.zeros = zeros
        self.taken = sorted((taken | state) - set(zeros) - _set_anew(statements) - ({"c"} if self.aborts else set()))
        first = [name for name, there in (("stopped", self.stops), ("c", self.aborts)) if there]
        self.given = [*first, *sorted(state - {"c"}), *zeros]

    def text(self, name: str) -> str:
        out = Source()
        out.text(f"\n\n{_DECORATOR}\ndef {name}({', '.join(self.taken)}):")
        with out.indented():
            if self.aborts:
                out.line("c = 0")
            for line in self.zeros.values():
                out.line(line)
            if self.stops:
                out.line("stopped = True")
            out.line("while True:")
            out.lines += self.body.lines
            with out.indented():
                if self.stops:
                    out.line("stopped = False")
                out.line("break")
            out.line(f"keep({', '.join(self.taken)})")
            if self.given:
                out.line(f"return {', '.join(self.given)}")
        return str(out)

    def call(self, name: str, called: Mapping[str, str]) -> list[str]:
        """The lines that call it; called: what its names stand for there, where they are not the same."""
        called = {**called, "stopped": "ended"}  # the caller has a `stopped` of its own
        taken, given = (", ".join(called.get(n, n) for n in several) for several in (self.taken, self.given))
        call = f"{name}({taken})"
        return [f"{given} = {call}" if given else call, *(("if ended:", "    break") if self.stops else ())]


def _statements(body: Source) -> list[ast.stmt]:
    """Lines that stand in a function, or in a loop in one."""
    heads = ("def f():", "while True:")[: body.depth]
    tree: Any = ast.parse("\n".join("    " * k + head for k, head in enumerate(heads)) + "\n" + str(body))
    for _ in heads:
        tree = tree.body[0]
    return list(tree.body)


def _add(names: Names, statement: ast.stmt) -> None:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            (names.stores if isinstance(node.ctx, ast.Store) else names.loads).add(node.id)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names.loads.add(node.target.id)


def _set_anew(statements: list[ast.stmt]) -> set[str]:
    """The names that are set before all else, whatever they were."""
    out: set[str] = set()
    names = Names()
    for statement in statements:
        if not isinstance(statement, ast.Assign | ast.Expr):
            break
        known = set(names.stores)
        _add(names, statement)
        out |= names.stores - known - names.loads
    return out


def _leaves(statements: list[ast.stmt]) -> bool:
    """Whether statements that stand in a loop leave it."""
    todo: list[ast.AST] = [*statements]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Break):
            return True
        if not isinstance(node, ast.For | ast.While):
            todo += ast.iter_child_nodes(node)
    return False
