"""How kernels are compiled: with the GIL released, and kept on disk where there is a place for it."""

from __future__ import annotations

from typing import Any

import numba as nb


def kernel(function: Any = None, **options: Any) -> Any:
    """numba.njit for a function of this package; where nothing can be cached, each process compiles it again."""
    if function is None:
        return lambda found: kernel(found, **options)
    try:
        return nb.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # neither the package's directory nor the user's cache can be written to
        return nb.njit(nogil=True, **options)(function)
