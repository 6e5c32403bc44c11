"""How kernels are compiled: with the GIL released, and kept on disk where there is a place for it."""

from __future__ import annotations

from typing import Any

import numba as nb
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from penstock._version import __version__


def kernel(function: Any = None, **options: Any) -> Any:
    """numba.njit for a function of this package; where nothing can be cached, each process compiles it again."""
    if function is None:
        return lambda found: kernel(found, **options)
    options = {"nogil": True, **options}
    try:
        made = nb.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package's directory nor the user's cache can be written to
        return nb.njit(**options)(function)
    _tie_to_version(made._cache._cache_file)
    return made


def _tie_to_version(index: Any) -> None:
    """numba looks at the source of a function's module alone, and its files outlive an upgrade of the package: what
    other modules had inlined would stay, and classes that are gone could not be unpickled. Its version it looks at
    before it unpickles anything else."""
    index._version = index._version, __version__
    load = index._load_index

    def load_or_begin_anew() -> Any:
        try:
            return load()
        except (AttributeError, ImportError):  # A class was renamed or moved within a version: by a developer.
            return {}

    index._load_index = load_or_begin_anew


def inlined(function: Any) -> Any:
    """A kernel that is always put in place where it is called: many arrays are dear to hand over."""
    return kernel(function, forceinline=True)


def brief(function: Any) -> Any:
    """A kernel that is done before another thread could run: to let go of the GIL, and wait for it, would cost more."""
    return kernel(function, nogil=False)


@intrinsic
def borrowed(typingctx: Any, several: Any) -> Any:
    """A named tuple's arrays without their owners: kernels need not count who uses them.

    Counting is atomic, so threads that share arrays would spend their time on nothing else. The caller keeps the
    arrays alive.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out = []
        for place, kind in enumerate(several.types):
            value = builder.extract_value(args[0], place)
            if isinstance(kind, types.Array):
                array = context.make_array(kind)(context, builder, value)
                array.meminfo = cgutils.get_null_value(array.meminfo.type)
                array.parent = cgutils.get_null_value(array.parent.type)
                value = array._getvalue()
            out.append(value)
        return context.make_tuple(builder, several, out)

    return several(several), codegen


@intrinsic
def keep(typingctx: Any, *several: Any) -> Any:
    """Nothing, but these are in use until here.

    numba gives an array back at every place after which it is not used, on every path: in long code with many ways
    out that is much to compile.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_dummy_value()

    return types.void(types.StarArgTuple(several)), codegen
