"""A core for each thread.

Linux lets a thread wake on the core of who woke it, and takes some milliseconds to see that another one is idle. A
batch that takes no longer has by then run on one core. So a thread that was woken looks where those before it were when
they woke, and leaves their cores; what it may use stays what it was.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from penstock.schedule.atomics import call
from penstock.state.jit import inlined

_LINUX = sys.platform == "linux"
# A set of cores is bits, as many as Linux takes: 1,024.
_WORDS = 16


@intrinsic
def _core(typingctx: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sext(call(builder, ir.IntType(32), "sched_getcpu"), ir.IntType(64))

    return types.int64(), codegen


def _of_this_thread(name: str) -> Any:
    """A call of Linux that reads, or sets, the cores that this thread may use: 0 or more if it could."""

    @intrinsic
    def linux(typingctx: Any, cores: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            number, size = ir.IntType(32), ir.IntType(64)
            array = context.make_array(signature.args[0])(context, builder, args[0])
            function_type = ir.FunctionType(number, [number, size, array.data.type])
            function = cgutils.get_or_insert_function(builder.module, function_type, name)
            return builder.call(function, [number(0), size(8 * _WORDS), array.data])

        return types.int32(cores), codegen

    return linux


_get, _set = _of_this_thread("sched_getaffinity"), _of_this_thread("sched_setaffinity")


@inlined
def core() -> Any:
    """The core that this thread is on; -1 where that cannot be told."""
    if _LINUX:
        return _core()
    return -1


@inlined
def leave(where: Any, me: Any, step: Any) -> None:
    """Leave the cores of the threads before this one, which are at where[0], where[step], …; and say where this is."""
    here, alone = core(), True
    for k in range(me):
        alone = alone and where[k * step] != here
    if _LINUX and not alone:
        _go_elsewhere(where, me, step)
        here = core()
    where[me * step] = here


@inlined
def _go_elsewhere(where: Any, me: Any, step: Any) -> None:
    own = np.zeros(_WORDS, np.int64)
    if _get(own) < 0:
        return
    free = own.copy()
    for k in range(me):
        taken = where[k * step]
        if taken >= 0:
            free[taken >> 6] &= ~(1 << (taken & 63))
    if free.any() and _set(free) >= 0:
        _set(own)
