"""What threads of native code share: atomic numbers, a lock, a pause, a clock. Each is an instruction or two.

Arrays are shared as numpy arrays of int64. A load that acquires sees all that was written before the store that
released what it loads; `add` does both.
"""

from __future__ import annotations

import platform
import sys
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
def swap_if(typingctx: Any, array: Any, at: Any, old: Any, new: Any) -> Any:
    """array[at] = new if it is old; whether it was."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature, args)
        return builder.extract_value(builder.cmpxchg(place, args[2], args[3], "acq_rel", "acquire"), 1)

    return types.boolean(array, types.intp, types.int64, types.int64), codegen


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


def call(builder: Any, result: Any, name: str) -> Any:
    """Of a function of libc, or of LLVM, that takes nothing."""
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, []), name)
    return builder.call(function, [])


@intrinsic
def give_way(typingctx: Any) -> Any:
    """Let another thread have this core: with more threads than cores, whoever is waited for needs it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        call(builder, ir.IntType(32), "sched_yield")
        return context.get_dummy_value()

    return types.void(), codegen


# How Linux lets a thread sleep until a number in memory changes: the number of that call, by machine.
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0) if sys.platform == "linux" else 0
_WAIT, _WAKE = 128, 129  # within one process


@intrinsic
def _system_call(typingctx: Any, number: Any, array: Any, at: Any, what: Any, value: Any, time: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        function_type = ir.FunctionType(word, [word], var_arg=True)
        function = cgutils.get_or_insert_function(builder.module, function_type, "syscall")
        array_type = signature.args[1]
        given = context.make_array(array_type)(context, builder, args[1])
        place = cgutils.get_item_pointer(context, builder, array_type, given, [args[2]], wraparound=False)
        limit = context.make_array(signature.args[5])(context, builder, args[5])
        words = [args[0], builder.ptrtoint(place, word), args[3], args[4], builder.ptrtoint(limit.data, word)]
        return builder.call(function, [*words, word(0), word(0)])

    return types.int64(types.int64, array, types.intp, types.int64, types.int64, time), codegen


@inlined
def sleep(array: Any, at: Any, value: Any, time: Any) -> None:
    """Until somebody wakes those who sleep at array[at], if that is still `value`; time: seconds and nanoseconds at
    most. May also end for no reason."""
    if _FUTEX:
        _system_call(_FUTEX, array, at, _WAIT, value & 0xFFFFFFFF, time)
    else:
        give_way()


@inlined
def wake(array: Any, at: Any, time: Any) -> None:
    """All that sleep at array[at]. time: any; it is not used."""
    if _FUTEX:
        _system_call(_FUTEX, array, at, _WAKE, 0x7FFFFFFF, time)


@intrinsic
def fence(typingctx: Any) -> Any:
    """All threads see what was written before as written before what is read after."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def cycles(typingctx: Any) -> Any:
    """The processor's own clock."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return call(builder, ir.IntType(64), "llvm.readcyclecounter")

    return types.int64(), codegen


# The instruction by which a processor is told that it waits for another: less heat, and more for its sibling.
_RELAX = {"x86_64": "llvm.x86.sse2.pause"}.get(platform.machine())


@intrinsic
def _relax(typingctx: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _RELAX is not None:
            call(builder, ir.VoidType(), _RELAX)
        return context.get_dummy_value()

    return types.void(), codegen


# So many looks at something that is about to happen before the core is given away.
_LOOKS = 64


@inlined
def pause(looks: Any) -> Any:
    """One more look in vain; how many there were."""
    if looks >= _LOOKS:
        give_way()
    else:
        _relax()
    return looks + 1


@inlined
def lock(array: Any, at: Any) -> None:
    looks = 0
    while not try_lock(array, at):
        looks = pause(looks)


@inlined
def try_lock(array: Any, at: Any) -> Any:
    """Whether the lock could be had at once. One that another has is only looked at: to write to it, even in vain,
    would take it out of that one's cache."""
    return load(array, at) == 0 and swap(array, at, 1) == 0


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
