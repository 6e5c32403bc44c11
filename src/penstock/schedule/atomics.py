"""What threads of native code share: atomic numbers, a lock, a pause, a clock. Each is an instruction or two.

Arrays are shared as numpy arrays of int64. A load that acquires sees all that was written before the store that
released what it loads; `add` does both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from penstock.state.jit import inlined


def _place(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array_type = signature.args[0]
    array = context.make_array(array_type)(context, builder, args[0])
    return cgutils.get_item_pointer(context, builder, array_type, array, [args[1]], wraparound=False)


@intrinsic
def add(typingctx: Any, array: Any, at: Any, value: Any) -> Any:
    """array[at] += value; what was there before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _place(context, builder, signature, args), args[2], "acq_rel")

    return types.int64(array, types.intp, types.int64), codegen


@intrinsic
def lower(typingctx: Any, array: Any, at: Any, value: Any) -> Any:
    """array[at] = min(array[at], value); what was there before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("min", _place(context, builder, signature, args), args[2], "acq_rel")

    return types.int64(array, types.intp, types.int64), codegen


@intrinsic
def swap(typingctx: Any, array: Any, at: Any, value: Any) -> Any:
    """array[at] = value; what was there before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("xchg", _place(context, builder, signature, args), args[2], "acq_rel")

    return types.int64(array, types.intp, types.int64), codegen


@intrinsic
def load(typingctx: Any, array: Any, at: Any) -> Any:
    """array[at], acquiring."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_place(context, builder, signature, args), "acquire", 8)

    return types.int64(array, types.intp), codegen


@intrinsic
def store(typingctx: Any, array: Any, at: Any, value: Any) -> Any:
    """array[at] = value, releasing."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[2], _place(context, builder, signature, args), "release", 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.int64), codegen


@intrinsic
def give_way(typingctx: Any) -> Any:
    """Let another thread have this core: with more threads than cores, whoever is waited for needs it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function_type = ir.FunctionType(ir.IntType(32), [])
        function = cgutils.get_or_insert_function(builder.module, function_type, "sched_yield")
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def cycles(typingctx: Any) -> Any:
    """The processor's own clock."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function_type = ir.FunctionType(ir.IntType(64), [])
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.readcyclecounter")
        return builder.call(function, [])

    return types.int64(), codegen


# So many looks at something that is about to happen before the core is given away.
_LOOKS = 64


@inlined
def pause(looks: Any) -> Any:
    """One more look in vain; how many there were."""
    if looks >= _LOOKS:
        give_way()
    return looks + 1


@inlined
def lock(array: Any, at: Any) -> None:
    looks = 0
    while swap(array, at, 1) != 0:
        looks = pause(looks)


@inlined
def unlock(array: Any, at: Any) -> None:
    store(array, at, 0)


@inlined
def stagger(array: Any, at: Any, odds: Any) -> None:
    """Give the core away for a while, one time in so many. array[at]: what the thread draws its lots from, not 0."""
    x = np.uint64(array[at])
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    array[at] = np.int64(x)
    if (x >> np.uint64(20)) % np.uint64(odds) == np.uint64(0):
        for _ in range(np.int64(x & np.uint64(7))):
            give_way()
