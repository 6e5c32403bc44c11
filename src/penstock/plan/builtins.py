"""The built-in functions that a body may call: one row each.

A row says which object a name in a body has to stand for, the names of its parameters, and its forms: for which kinds
of values it gives what kind, and which kernel (execute/kernels.py) computes that. What a form takes is

    int, float, decimal, …   a value of that kind; the kernel gets it, and behind a decimal's unscaled int its scale
    constant                 an int that the body's text gives, from the row's range

A function that is no kernel (min is a chain of comparisons, len a property of a list) has a `lower` of its own instead.
What Python's own function does not do as a body means it, execute/values.py has a reference for.
"""

from __future__ import annotations

import ast
import datetime
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.declare.types import INT, Type
from penstock.plan import aggregates, expressions, lists, making_texts, making_times, names, windows
from penstock.plan.nullable import use
from penstock.plan.numbers import compare, negate, to_type
from penstock.plan.values import Val, decimal_type

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering


@dataclass(frozen=True, slots=True)
class Form:
    takes: tuple[str, ...]
    gives: str  # a kind; the result has the type of the first argument where that is of this kind
    kernel: str  # none: it is that already
    overflows: bool = False  # the kernel gives a value and whether it was lost, which aborts with `overflow`


@dataclass(frozen=True, slots=True)
class Builtin:
    function: Any
    parameters: tuple[str, ...] = ()
    forms: tuple[Form, ...] = ()
    constants: tuple[int, int] = (0, 0)  # the range of its constants
    lower: Callable[[Lowering, ast.Call], Val] | None = None
    named: bool = False  # its arguments may be given by name
    loop: bool = False  # no value, but what a `for` runs over, or two values (calls.py)

    @property
    def name(self) -> str:
        return str(self.function.__name__)


def find(function: Any) -> Builtin | None:
    """The row of a function that gives a value."""
    return next((row for row in BUILTINS if row.function is function and not row.loop), None)


def call(lo: Lowering, row: Builtin, node: ast.Call) -> Val:
    return row.lower(lo, node) if row.lower is not None else _kernel(lo, row, node)


# -- kernels ------------------------------------------------------------------------------------


def _kernel(lo: Lowering, row: Builtin, node: ast.Call) -> Val:
    forms = [form for form in row.forms if len(form.takes) == len(node.args)]
    if not forms or any(isinstance(a, ast.Starred) for a in node.args):
        counts = sorted({len(form.takes) for form in row.forms})
        ways = " or ".join(f"({', '.join(row.parameters[:count])})" for count in counts)
        lo.body.refuse(node, f"{row.name} takes {ways}")
    given = [expressions.nullable_value(lo, a) for a in node.args]
    given = [use(lo, one, a) for a, one in zip(node.args, given, strict=True)]
    for place, one in enumerate(given):
        kinds = list(dict.fromkeys(form.takes[place] for form in forms))
        if kinds == ["constant"]:
            _refuse_variable(lo, row, place, one, node)
        elif one.type.kind not in kinds:
            lo.body.refuse(node, f"{row.name}() takes {' or '.join(kinds)}, not {one.type}")
        elif one.loose:
            instead = "0.0" if one.type.kind == "float" else f'Decimal("{0:.{one.type.scale}f}")'
            lo.body.refuse(
                node,
                f"{row.name}(): this is a {one.type.kind} on one path and a literal on another; "
                f"write the literal as {instead}",
            )
        forms = [form for form in forms if form.takes[place] in (one.type.kind, "constant")]
    form = forms[0]
    if not form.kernel:
        return given[0]
    type_ = given[0].type if form.gives == given[0].type.kind else Type(form.gives)
    return lo.value("call", type_, *_arguments(lo, given), node=node, name=form.kernel, const=form.overflows)


def _refuse_variable(lo: Lowering, row: Builtin, place: int, one: Val, node: ast.Call) -> None:
    low, high = row.constants
    if not isinstance(one.literal, int) or not low <= one.literal <= high:
        lo.body.refuse(node, f"{row.name}: {row.parameters[place]} is a constant int from {low} to {high}")


def _arguments(lo: Lowering, given: list[Val]) -> list[Val]:
    out = []
    for one in given:
        out.append(one)
        if one.type.kind == "decimal":
            out.append(lo.const(one.type.scale, INT))
    return out


# -- the others ---------------------------------------------------------------------------------


def _only(lo: Lowering, node: ast.Call) -> ast.expr:
    """The one argument of a call."""
    if len(node.args) != 1:
        lo.body.refuse(node, f"{ast.unparse(node.func)} takes (x)")
    return node.args[0]


def _abs(lo: Lowering, node: ast.Call) -> Val:
    return negate(lo, expressions.nullable_value(lo, _only(lo, node)), node, code="abs")


def _len(lo: Lowering, node: ast.Call) -> Val:
    found = windows.length(lo, _only(lo, node))
    if found is None and (table := names.table_of(lo, _only(lo, node))) is not None:
        lo.body.refuse(node, f"a table has no len; count its records: sum(1 for r in {table.name})")
    if found is None and lists.found(lo, _only(lo, node)) is None:
        found = making_texts.length(lo, _only(lo, node))
    return found or lo.value("len", INT, lists.needed(lo, _only(lo, node)), node=node)


def _min(lo: Lowering, node: ast.Call) -> Val:
    return aggregates.lower_min(lo, node) if aggregates.of_one(node) else _extreme(lo, node, ast.Lt())


def _max(lo: Lowering, node: ast.Call) -> Val:
    return aggregates.lower_max(lo, node) if aggregates.of_one(node) else _extreme(lo, node, ast.Gt())


def _extreme(lo: Lowering, node: ast.Call, better: ast.cmpop) -> Val:
    if len(node.args) < 2 or any(isinstance(a, ast.Starred) for a in node.args):
        lo.body.refuse(node, f"{ast.unparse(node.func)} takes two or more values, a list, or a generator")
    if node.keywords:
        lo.body.refuse(node, f"{ast.unparse(node.func)} of several values takes no {node.keywords[0].arg}=")
    total, *rest = [expressions.nullable_value(lo, a) for a in node.args]
    for one in rest:
        test = compare(lo, better, one, total, node)
        total = lo.select(node, f"the arguments of {ast.unparse(node.func)}", test, one, total)
    return total


def _decimal(lo: Lowering, node: ast.Call) -> Val:
    argument = _only(lo, node)
    if (
        isinstance(argument, ast.Constant)
        and isinstance(argument.value, str | int)
        and not isinstance(argument.value, bool)
    ):
        try:
            return names.decimal_constant(lo, Decimal(argument.value), node)
        except ArithmeticError:
            pass
    given = expressions.value(lo, argument)
    if given.type.kind in ("int", "decimal"):
        return to_type(lo, given, given.type if given.type.kind == "decimal" else decimal_type(0), node, "Decimal")
    hint = "; declare the field or column as ps.decimal(18, 2)" if given.type.kind == "float" else ""
    lo.body.refuse(node, f'Decimal takes an int, or a constant, Decimal("0.05"); not {given.type}{hint}')


def _bool(lo: Lowering, node: ast.Call) -> Val:
    return expressions.condition(lo, _only(lo, node))


BUILTINS = (
    Builtin(min, lower=_min, named=True),
    Builtin(max, lower=_max, named=True),
    Builtin(sum, lower=aggregates.lower_sum, named=True),
    Builtin(any, lower=aggregates.lower_any),
    Builtin(all, lower=aggregates.lower_all),
    Builtin(abs, lower=_abs),
    Builtin(
        round,
        ("x", "n"),
        (
            Form(("int",), "int", ""),
            Form(("float",), "int", "round_float_to_int", overflows=True),
            Form(("decimal",), "int", "round_decimal_to_int"),
            Form(("float", "constant"), "float", "round_float"),
            Form(("decimal", "constant"), "decimal", "round_decimal", overflows=True),
        ),
        constants=(-18, 22),  # as far as the kernels are exact
    ),
    Builtin(len, lower=_len),
    Builtin(str, lower=making_texts.of_value),
    Builtin(range, loop=True),
    Builtin(zip, loop=True),
    Builtin(enumerate, loop=True),
    Builtin(divmod, loop=True),
    Builtin(
        int,
        ("x",),
        (
            Form(("int",), "int", ""),
            Form(("float",), "int", "float_to_int", overflows=True),
            Form(("decimal",), "int", "decimal_to_int"),
            Form(("bool",), "int", "bool_to_int"),
        ),
    ),
    Builtin(
        float,
        ("x",),
        (
            Form(("float",), "float", ""),
            Form(("int",), "float", "int_to_float"),
            Form(("decimal",), "float", "decimal_to_float"),
            Form(("bool",), "float", "bool_to_float"),
        ),
    ),
    Builtin(bool, lower=_bool),
    Builtin(Decimal, lower=_decimal),
    Builtin(datetime.timedelta, lower=making_times.span, named=True),
    Builtin(datetime.datetime, lower=making_times.place, named=True),
    Builtin(datetime.date, lower=making_times.place, named=True),
)
