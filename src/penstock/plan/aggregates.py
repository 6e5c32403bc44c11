"""sum, min, max, any and all of a list or a generator expression: the loop that it is, lowered in its place.

    sum(r.votes for r in Account if r.open)     total = 0
                                                for r in Account:
                                                    if r.open:
                                                        total += r.votes

The total starts with the literal 0, or with what is given behind the generator, a constant. Where there is nothing to
take an extreme of, and no default=, the transaction aborts with `empty`, of a scan with `empty Account`.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from penstock.declare.types import BOOL, INT, Type
from penstock.plan import calls, expressions, lists, loops, nullable
from penstock.plan.ir import MEMBERS
from penstock.plan.values import NONE, Iterated, Val

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering

# Names that no body can have.
_ITEM, _FOUND, _EACH = "(item)", "(found)", "(each)"


def of_generator(node: ast.Call) -> bool:
    return bool(node.args) and isinstance(node.args[0], ast.GeneratorExp)


def of_one(node: ast.Call) -> bool:
    """Whether min or max is asked of what one argument gives, and not of its arguments."""
    return len(node.args) == 1 and not isinstance(node.args[0], ast.Starred)


def lower_sum(lo: Lowering, node: ast.Call) -> Val:
    start, given = lo.const(0, INT, literal=0), [*node.args[1:], *(k.value for k in node.keywords)]
    if len(given) > 1 or any(k.arg != "start" for k in node.keywords):
        lo.body.refuse(node, "sum takes a generator and where it starts: sum((r.votes for r in Account), 0)")
    over, made = _generator(lo, node)
    if given:
        start = expressions.value(lo, given[0])
        if lo.ops[-1].id != start.id or lo.ops[-1].code != "const":
            lo.body.refuse(given[0], 'sum starts with a constant: 0, 0.0, Decimal("0.00"), timedelta()')
    name = "sum(…)"
    step = ast.AugAssign(ast.Name(name, ast.Store()), ast.Add(), made.elt)
    return _run(lo, made, over, {name: start}, [step])[name]


def lower_min(lo: Lowering, node: ast.Call) -> Val:
    return _extreme(lo, node, ast.Lt())


def lower_max(lo: Lowering, node: ast.Call) -> Val:
    return _extreme(lo, node, ast.Gt())


def _extreme(lo: Lowering, node: ast.Call, better: ast.cmpop) -> Val:
    name = ast.unparse(node.func)
    over, made = _generator(lo, node)
    if over.window is not None:
        lo.body.refuse(node, f"{name} of a window's rows is asked of a column: w.amount.{name}()")
    default = _default(lo, node)
    best = f"{name}(…)"
    is_better = ast.BoolOp(
        ast.Or(), [ast.UnaryOp(ast.Not(), _load(_FOUND)), ast.Compare(_load(_ITEM), [better], [_load(best)])]
    )
    step: list[ast.stmt] = [
        _set(_ITEM, made.elt),
        ast.If(is_better, [_set(best, _load(_ITEM))], []),
        _set(_FOUND, ast.Constant(True)),
    ]
    not_yet = lo.const(False, BOOL)
    first = nothing(lo, _type_of(lo, made, over))
    after = _run(lo, made, over, {_FOUND: not_yet, best: first}, step)
    if default is not None:
        return lo.select(node, f"what {name} gives, and its default", after[_FOUND], after[best], default)
    none = lo.both(lo.path, lo.negated(after[_FOUND].id))
    reason = "empty" if over.table is None else f"empty {over.table.name}"
    lo.emit("abort", name=reason, node=node, guard=none)
    found: Val = after[best]
    return found


def _default(lo: Lowering, node: ast.Call) -> Val | None:
    """What an extreme of nothing is, if that is said."""
    name = ast.unparse(node.func)
    for keyword in node.keywords:
        if keyword.arg == "key":
            way = "top" if name == "max" else "bottom"
            lo.body.refuse(
                node,
                f"{name}: key= cannot be compiled; loop, and keep the best in a name. Of a table: "
                f"for r in Account.{way}(1, by=…)",
            )
        if keyword.arg != "default":
            lo.body.refuse(node, f"{name} takes a list or a generator, and default=")
    return expressions.nullable_value(lo, node.keywords[0].value) if node.keywords else None


def lower_any(lo: Lowering, node: ast.Call) -> Val:
    return _whether(lo, node, ends=True)


def lower_all(lo: Lowering, node: ast.Call) -> Val:
    return _whether(lo, node, ends=False)


def _whether(lo: Lowering, node: ast.Call, *, ends: bool) -> Val:
    """any, all: the first value that is `ends` ends the loop."""
    over, made = _generator(lo, node, alone=True)
    name = f"{ast.unparse(node.func)}(…)"
    test = made.elt if ends else ast.UnaryOp(ast.Not(), made.elt)
    step = ast.If(test, [_set(name, ast.Constant(ends)), ast.Break()], [])
    return _run(lo, made, over, {name: lo.const(not ends, BOOL)}, [step])[name]


# -- the loop -----------------------------------------------------------------------------------


def _generator(lo: Lowering, node: ast.Call, *, alone: bool = False) -> tuple[Iterated, ast.GeneratorExp]:
    """What a call's list or generator expression runs over, and it: of a list, that gives each item."""
    name = ast.unparse(node.func)
    if node.args and not (alone and (len(node.args) > 1 or node.keywords)):
        of = lists.found(lo, node.args[0])
        if of is not None and of.value.type != MEMBERS:
            turns = ast.comprehension(ast.Name(_EACH, ast.Store()), node.args[0], [], 0)
            return calls.each((of.value,)), ast.copy_location(ast.GeneratorExp(_load(_EACH), [turns]), node)
    if not of_generator(node) or (alone and (len(node.args) > 1 or node.keywords)):
        many = isinstance(node.args[0], ast.ListComp | ast.SetComp) if node.args else False
        bare = ", without the brackets" if many else ""
        lo.body.refuse(node, f"{name} takes a list or a generator{bare}: {name}(r.votes for r in Account if r.open)")
    made = node.args[0]
    assert isinstance(made, ast.GeneratorExp)
    if len(made.generators) > 1:
        lo.body.refuse(made, f"{name} takes a generator with one 'for'; write the loops out")
    return calls.iterable(lo, made.generators[0].iter), made


def _run(
    lo: Lowering, made: ast.GeneratorExp, over: Iterated, state: dict[str, Val], step: list[ast.stmt]
) -> dict[str, Any]:
    """Lower the loop; state: the names that its steps change, and how they start. Gives them behind it."""
    first = made.generators[0]
    if first.ifs:
        test = first.ifs[0] if len(first.ifs) == 1 else ast.BoolOp(ast.And(), first.ifs)
        step = [ast.If(test, step, [])]
    node = ast.copy_location(ast.For(first.target, first.iter, step, []), made)
    ast.fix_missing_locations(node)
    outside = lo.env
    lo.env = {**outside, **state}
    loops.run(lo, node, over, tuple(state))
    after = {name: lo.env[name] for name in state}
    lo.env = outside  # its names are its own
    return after


def _type_of(lo: Lowering, made: ast.GeneratorExp, over: Iterated) -> Type:
    """The type of what a generator gives: it is lowered, and that forgotten."""
    found = list[Type]()

    def look() -> None:
        found.append(expressions.nullable_value(lo, made.elt).type)

    node = ast.copy_location(ast.For(made.generators[0].target, made.generators[0].iter, [], []), made)
    with lo.trial():
        loops.run(lo, node, over, (), look)
    return found[-1]


def nothing(lo: Lowering, type_: Type) -> Val:
    """A value that nobody sees."""
    return nullable.none(lo) if type_ == NONE else lo.const(nullable.zero_of(type_), type_)


def _load(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _set(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)
