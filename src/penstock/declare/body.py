"""A function's source as a syntax tree, and what the names in it stand for."""

from __future__ import annotations

import ast
import builtins
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NoReturn

from penstock.declare import notebook
from penstock.errors import DeclarationError

MISSING = object()


@dataclass(frozen=True, slots=True)
class Body:
    """One parsed function. `label` says who it is, for errors: "transaction 'transfer'"."""

    label: str
    file: str
    tree: ast.FunctionDef
    function: Callable[..., Any]
    source: str = ""  # as it was when it was declared
    called: str = ""  # of a @ps.function: from where, for errors

    @property
    def parameter(self) -> str:
        """The name of what a transaction, a check or a trigger takes; what a @ps.function takes has no such place."""
        return "" if self.called else (*self.tree.args.posonlyargs, *self.tree.args.args)[0].arg

    def lookup(self, name: str) -> Any:
        """What a name that is not local stands for, or MISSING."""
        closure = dict(zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True))
        if name in closure:
            try:
                return closure[name].cell_contents
            except ValueError:  # The enclosing function assigns it only later.
                return MISSING
        if name in self.function.__globals__:
            return self.function.__globals__[name]
        return getattr(builtins, name, MISSING)

    def refuse(self, node: ast.AST, what: str) -> NoReturn:
        line = getattr(node, "lineno", self.tree.lineno)
        raise DeclarationError(f"{self.label} ({self.file}:{line}): {what}{self.called}")


def stored(body: Body) -> frozenset[str]:
    """The names that it assigns anywhere."""
    return frozenset(n.id for n in ast.walk(body.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def read(function: Callable[..., Any], label: str) -> Body:
    """A function of one parameter, parsed from its source file (or notebook cell)."""
    body = parsed(function, label)
    arguments = body.tree.args
    if (
        len(arguments.posonlyargs + arguments.args) != 1
        or arguments.vararg
        or arguments.kwarg
        or arguments.kwonlyargs
        or arguments.defaults
    ):
        raise DeclarationError(f"{label} ({body.file}:{body.tree.lineno}): takes exactly one argument")
    return body


def parsed(function: Callable[..., Any], label: str, called: str = "") -> Body:
    code = function.__code__
    if hasattr(function, "__wrapped__"):
        raise DeclarationError(f"{label} is wrapped by another decorator, which cannot be compiled; remove that one")
    file = PurePath(code.co_filename).name
    try:
        source = textwrap.dedent(notebook.source(function)[0])
        tree = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError, RecursionError) as error:
        raise DeclarationError(
            f"{label} ({file}:{code.co_firstlineno}): {notebook.no_source(code.co_filename, error)}"
        ) from None
    if not isinstance(tree, ast.FunctionDef):
        raise DeclarationError(
            f"{label} ({file}:{code.co_firstlineno}): decorate a plain `def`, not {type(tree).__name__}"
        )
    ast.increment_lineno(tree, code.co_firstlineno - 1)
    return Body(label, file, tree, function, source, called)
