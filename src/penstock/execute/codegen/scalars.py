"""The source of scalar operations that are more than a template: arithmetic, comparison, conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.declare.types import Type
from penstock.execute.codegen import times
from penstock.execute.codegen.source import Source, unfolded
from penstock.plan.ir import Op
from penstock.plan.times import TIMES

if TYPE_CHECKING:
    from penstock.execute.codegen.emitter import Emitter

FLIPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
# What divides, by opcode.
_WHOLE = {"floordiv": "floor_div", "mod": "floor_mod"}
_FLOAT = {"div": "float_div", "floordiv": "float_floor_div", "mod": "float_mod"}


def operator(em: Emitter, out: Source, op: Op) -> None:
    """+, - and *."""
    v, args, types = _operands(em, op)
    if any(t in TIMES for t in types):
        times.arithmetic(em, out, op, v, args, types)
        return
    match _kind(op):
        case "decimal":
            _decimal_operator(em, out, op, v, args, types)
        case "float":
            a, b = _floats(args, types)
            out.line(f"{v} = {a} {op.traits.sign} {b}")
        case _:
            _checked(em, out, op, v, *args)


def division(em: Emitter, out: Source, op: Op) -> None:
    """/, // and %."""
    v, args, types = _operands(em, op)
    if any(t in TIMES for t in types):
        times.arithmetic(em, out, op, v, args, types)
        return
    match _kind(op):
        case "decimal":
            _decimal_division(em, out, op, v, args, types)
        case "float" if all(t.kind == "int" for t in types):
            em.abort(out, f"{args[1]} == 0", "division by zero")
            out.line(f"{v} = k_.true_div({args[0]}, {args[1]})")
        case "float":
            a, b = _floats(args, types)
            em.abort(out, f"{b} == 0.0", "division by zero")
            out.line(f"{v} = k_.{_FLOAT[op.code]}({a}, {b})")
        case _:
            em.abort(out, f"{args[1]} == 0", "division by zero")
            if op.code == "floordiv":
                em.abort(out, f"{args[1]} == -1 and {args[0]} == -9223372036854775808", "overflow")
            out.line(f"{v} = k_.{_WHOLE[op.code]}({args[0]}, {args[1]})")


def unary(em: Emitter, out: Source, op: Op) -> None:
    """- and abs."""
    v, (a,), _ = _operands(em, op)
    if _kind(op) == "int":
        em.abort(out, f"{a} == -9223372036854775808", "overflow")
    out.line(f"{v} = {'-' if op.code == 'neg' else 'abs'}({unfolded(a) if _kind(op) == 'int' else a})")


def call(em: Emitter, out: Source, op: Op) -> None:
    """A built-in function: a kernel of its own."""
    v, args, _ = _operands(em, op)
    kernel = op.name if "." in op.name else f"k_.{op.name}"
    if op.may_abort:
        out.line(f"{v}, {v}_lost = {kernel}({', '.join(args)})")
        em.abort(out, f"{v}_lost", "overflow")
    else:
        out.line(f"{v} = {kernel}({', '.join(args)})")


def _operands(em: Emitter, op: Op) -> tuple[str, list[str], list[Type]]:
    """The names of what an operation makes and takes, and the types of what it takes."""
    return em.val(op.id), [em.val(a) for a in op.args], [em.types[a] for a in op.args]


def _kind(op: Op) -> str:
    assert op.type is not None
    return op.type.kind


def _floats(args: list[str], types: list[Type]) -> list[str]:
    return [x if t.kind == "float" else f"float({x})" for x, t in zip(args, types, strict=True)]


def _checked(em: Emitter, out: Source, op: Op, v: str, a: str, b: str) -> None:
    """a operator b, within int64."""
    em.abort(out, f"k_.{op.code}_lost({a}, {b})", "overflow")
    out.line(f"{v} = {unfolded(a)} {op.traits.sign} {b}")


# -- decimals -----------------------------------------------------------------------------------


def _decimal_operator(em: Emitter, out: Source, op: Op, v: str, args: list[str], types: list[Type]) -> None:
    a, b = args if op.code == "mul" else _aligned(em, out, v, args, types)
    if op.code != "mul" and all(t.kind == "decimal" and t.scale == types[0].scale for t in types):
        # Two numbers below 10^18 cannot leave int64.
        out.line(f"{v} = {unfolded(a)} {op.traits.sign} {b}")
    else:
        _checked(em, out, op, v, a, b)
    em.abort(out, f"k_.wide({v})", "overflow")


def _decimal_division(em: Emitter, out: Source, op: Op, v: str, args: list[str], types: list[Type]) -> None:
    assert op.type is not None
    em.abort(out, f"{args[1]} == 0", "division by zero")
    if op.code == "div":
        unit = 10 ** (op.type.scale - types[0].scale + types[1].scale)
        out.line(f"{v}, {v}_lost = k_.quotient({args[0]}, {args[1]}, {unit})")
        em.abort(out, f"{v}_lost", "overflow")
    else:
        a, b = _aligned(em, out, v, args, types)
        out.line(f"{v} = k_.{_WHOLE[op.code]}({a}, {b})")
        em.abort(out, f"k_.wide({v})", "overflow")


def _aligned(em: Emitter, out: Source, v: str, args: list[str], types: list[Type]) -> list[str]:
    """Both at the larger scale."""
    scale = max(t.scale for t in types)
    return [aligned(em, out, f"{v}_{n}", x, t, scale) for n, x, t in zip("ab", args, types, strict=True)]


def aligned(em: Emitter, out: Source, name: str, value: str, type_: Type, scale: int) -> str:
    if type_.scale == scale:
        return value
    unit = 10 ** (scale - type_.scale)
    em.abort(out, f"k_.mul_lost({value}, {unit})", "overflow")
    out.line(f"{name} = {unfolded(value)} * {unit}")
    return name


def convert(em: Emitter, out: Source, op: Op) -> None:
    v, (a,), (source,) = _operands(em, op)
    target = op.type
    assert target is not None
    if target.kind == "float":
        out.line(f"{v} = float({a})")
        return
    if target.scale < source.scale:
        out.line(f"{v} = k_.scale_down({a}, {10 ** (source.scale - target.scale)})")
    elif target.scale > source.scale:
        unit = 10 ** (target.scale - source.scale)
        em.abort(out, f"k_.mul_lost({a}, {unit})", "overflow")
        out.line(f"{v} = {unfolded(a)} * {unit}")
    else:
        out.line(f"{v} = {a}")
    limit = 10**target.precision
    em.abort(out, f"{v} >= {limit} or {v} <= -{limit}", "overflow")


# -- comparison ---------------------------------------------------------------------------------


def comparison(em: Emitter, out: Source, op: Op) -> None:
    v, args, types = _operands(em, op)
    out.line(f"{v} = {_compared(op, args, *types)}")


def _compared(op: Op, args: list[str], left: Type, right: Type) -> str:
    a, b = args
    kinds, sign = [left.kind, right.kind], op.traits.sign
    if kinds == ["int", "float"]:
        return _against_float(op.code, a, b)
    if kinds == ["float", "int"]:
        return _against_float(FLIPPED[op.code], b, a)
    if left.kind == "str" and op.traits.orders:
        return f"compare_text(text_at, text, {a}, {b}) {sign} 0"
    if left.scale != right.scale:
        up = [10 ** (max(left.scale, right.scale) - t.scale) for t in (left, right)]
        return f"k_.compare_scaled({a}, {b}, {up[0]}, {up[1]}) {sign} 0"
    return f"{a} {sign} {b}"


def _against_float(code: str, a: str, b: str) -> str:
    """Exact, int against float: k is -1, 0, 1, or 2 for nan."""
    k = f"k_.compare_int_float({a}, {b})"
    tests = {"eq": f"{k} == 0", "ne": f"{k} != 0", "lt": f"{k} == -1", "le": f"{k} <= 0", "gt": f"{k} == 1"}
    return tests.get(code, f"({k} == 0 or {k} == 1)")


EMIT = {
    "call": call,
    "comparison": comparison,
    "convert": convert,
    "division": division,
    "operator": operator,
    "unary": unary,
}


def range_count(out: Source, count: str, start: str, stop: str, step: int) -> None:
    """How many turns a range takes, as uint64: there may be 2^64 - 1."""
    low, high = (start, stop) if step > 0 else (stop, start)
    size = abs(step)
    out.line(f"{count} = np.uint64(0)")
    out.line(f"if {low} < {high}:")
    with out.indented():
        gap = f"(np.uint64(np.int64({high})) - np.uint64(np.int64({low})) - ONE)"
        out.line(f"{count} = {gap} // np.uint64({size}) + ONE")
