"""Ask for memory before it is needed.

A batch knows its keys before it runs, and their slots lie scattered: without this a kernel waits for
memory at nearly every lookup. Asking for a block of events' slots, and only then running the block,
lets those waits overlap. (Asking for the records behind the slots too was measured: it cost what it won.)
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

# Events (or strings) asked for together: enough to overlap the waits, few enough to stay in the first cache.
BLOCK = 32


@intrinsic
def prefetch(typingctx: Any, array: Any, at: Any) -> Any:
    """Bring array[at] towards the processor; any index is harmless."""
    from llvmlite import ir

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        struct = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = builder.gep(struct.data, [args[1]])
        pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        i32 = ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [pointer.type, i32, i32, i32])
        name = "llvm.prefetch.p0"
        function = builder.module.globals.get(name) or ir.Function(builder.module, function_type, name)
        # For reading, keep it near, data.
        builder.call(function, [pointer, ir.Constant(i32, 0), ir.Constant(i32, 3), ir.Constant(i32, 1)])
        return context.get_dummy_value()

    return types.void(array, types.uint64), codegen
