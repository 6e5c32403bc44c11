"""The source of scalar operations: arithmetic, comparison, conversion, logic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.declare.types import Type
from penstock.execute.codegen import times
from penstock.execute.codegen.source import Source, unfolded
from penstock.plan.ir import COMPARE, Op
from penstock.plan.times import TIMES

if TYPE_CHECKING:
    from penstock.execute.codegen.emitter import Emitter

SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "add": "+", "sub": "-", "mul": "*"}
FLIPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def emit(em: Emitter, out: Source, op: Op) -> None:
    v = em.val(op.id)
    args = [em.val(a) for a in op.args]
    match op.code:
        case "not":
            out.line(f"{v} = not {args[0]}")
        case "and" | "or":
            out.line(f"{v} = {args[0]} {op.code} {args[1]}")
        case "select":
            out.line(f"{v} = {args[1]} if {args[0]} else {args[2]}")
        case "convert":
            convert(em, out, op, v, args[0], em.types[op.args[0]])
        case code if code in COMPARE:
            out.line(f"{v} = {comparison(op.code, args, [em.types[a] for a in op.args])}")
        case "neg" | "abs":
            unary(em, out, op, v, args[0])
        case _:
            arithmetic(em, out, op, v, args, [em.types[a] for a in op.args])


def arithmetic(em: Emitter, out: Source, op: Op, v: str, args: list[str], types: list[Type]) -> None:
    assert op.type is not None
    if any(t in TIMES for t in types):
        times.arithmetic(em, out, op, v, args, types)
    elif op.type.kind == "decimal":
        decimal(em, out, op, v, args, types)
    elif op.type.kind == "float":
        floating(em, out, op, v, args, types)
    elif op.code in ("add", "sub", "mul"):
        em.abort(out, f"k_.{op.code}_lost({args[0]}, {args[1]})", "overflow")
        out.line(f"{v} = {unfolded(args[0])} {SYMBOLS[op.code]} {args[1]}")
    else:
        em.abort(out, f"{args[1]} == 0", "division by zero")
        if op.code == "floordiv":
            em.abort(out, f"{args[1]} == -1 and {args[0]} == -9223372036854775808", "overflow")
        out.line(f"{v} = k_.{'floor_div' if op.code == 'floordiv' else 'floor_mod'}({args[0]}, {args[1]})")


def floating(em: Emitter, out: Source, op: Op, v: str, args: list[str], types: list[Type]) -> None:
    if op.code == "div" and all(t.kind == "int" for t in types):
        em.abort(out, f"{args[1]} == 0", "division by zero")
        out.line(f"{v} = k_.true_div({args[0]}, {args[1]})")
        return
    a, b = (x if t.kind == "float" else f"float({x})" for x, t in zip(args, types, strict=True))
    if op.code in ("add", "sub", "mul"):
        out.line(f"{v} = {a} {SYMBOLS[op.code]} {b}")
        return
    em.abort(out, f"{b} == 0.0", "division by zero")
    function = {"div": "float_div", "floordiv": "float_floor_div", "mod": "float_mod"}[op.code]
    out.line(f"{v} = k_.{function}({a}, {b})")


def unary(em: Emitter, out: Source, op: Op, v: str, a: str) -> None:
    assert op.type is not None
    if op.type.kind == "int":
        em.abort(out, f"{a} == -9223372036854775808", "overflow")
    out.line(f"{v} = {'-' if op.code == 'neg' else 'abs'}({unfolded(a) if op.type.kind == 'int' else a})")


# -- decimals -----------------------------------------------------------------------------------


def decimal(em: Emitter, out: Source, op: Op, v: str, args: list[str], types: list[Type]) -> None:
    assert op.type is not None
    if op.code in ("div", "floordiv", "mod"):
        em.abort(out, f"{args[1]} == 0", "division by zero")
    if op.code == "mul":
        em.abort(out, f"k_.mul_lost({args[0]}, {args[1]})", "overflow")
        out.line(f"{v} = {unfolded(args[0])} * {args[1]}")
        em.abort(out, f"k_.wide({v})", "overflow")
    elif op.code == "div":
        unit = 10 ** (op.type.scale - types[0].scale + types[1].scale)
        out.line(f"{v}, {v}_lost = k_.quotient({args[0]}, {args[1]}, {unit})")
        em.abort(out, f"{v}_lost", "overflow")
    else:
        scale = max(t.scale for t in types)
        a, b = (aligned(em, out, f"{v}_{n}", x, t, scale) for n, x, t in zip("ab", args, types, strict=True))
        if op.code in ("add", "sub") and all(t.kind == "decimal" and t.scale == scale for t in types):
            # Two numbers below 10^18 cannot leave int64.
            out.line(f"{v} = {unfolded(a)} {SYMBOLS[op.code]} {b}")
            em.abort(out, f"k_.wide({v})", "overflow")
        elif op.code in ("add", "sub"):
            em.abort(out, f"k_.{op.code}_lost({a}, {b})", "overflow")
            out.line(f"{v} = {unfolded(a)} {SYMBOLS[op.code]} {b}")
            em.abort(out, f"k_.wide({v})", "overflow")
        else:
            out.line(f"{v} = k_.{'floor_div' if op.code == 'floordiv' else 'floor_mod'}({a}, {b})")
            em.abort(out, f"k_.wide({v})", "overflow")


def aligned(em: Emitter, out: Source, name: str, value: str, type_: Type, scale: int) -> str:
    if type_.scale == scale:
        return value
    unit = 10 ** (scale - type_.scale)
    em.abort(out, f"k_.mul_lost({value}, {unit})", "overflow")
    out.line(f"{name} = {unfolded(value)} * {unit}")
    return name


def convert(em: Emitter, out: Source, op: Op, v: str, a: str, source: Type) -> None:
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


def comparison(code: str, args: list[str], types: list[Type]) -> str:
    a, b = args
    kinds = [t.kind for t in types]
    if kinds == ["int", "float"]:
        return _against_float(code, a, b)
    if kinds == ["float", "int"]:
        return _against_float(FLIPPED[code], b, a)
    if kinds[0] == "str" and code not in ("eq", "ne"):
        return f"compare_text(text_at, text, {a}, {b}) {SYMBOLS[code]} 0"
    if types[0].scale != types[1].scale:
        scale = max(t.scale for t in types)
        up = [10 ** (scale - t.scale) for t in types]
        return f"k_.compare_scaled({a}, {b}, {up[0]}, {up[1]}) {SYMBOLS[code]} 0"
    return f"{a} {SYMBOLS[code]} {b}"


def _against_float(code: str, a: str, b: str) -> str:
    """Exact, int against float: k is -1, 0, 1, or 2 for nan."""
    k = f"k_.compare_int_float({a}, {b})"
    tests = {"eq": f"{k} == 0", "ne": f"{k} != 0", "lt": f"{k} == -1", "le": f"{k} <= 0", "gt": f"{k} == 1"}
    return tests.get(code, f"({k} == 0 or {k} == 1)")


def range_count(out: Source, count: str, start: str, stop: str, step: int) -> None:
    """How many turns a range takes, as uint64: there may be 2^64 - 1."""
    low, high = (start, stop) if step > 0 else (stop, start)
    size = abs(step)
    out.line(f"{count} = np.uint64(0)")
    out.line(f"if {low} < {high}:")
    with out.indented():
        gap = f"(np.uint64(np.int64({high})) - np.uint64(np.int64({low})) - ONE)"
        out.line(f"{count} = {gap} // np.uint64({size}) + ONE")
