"""Modules of generated source: executed from memory, and known by all that they are made from.

Two plans that generate the same source share one module, and so does the next process by way of the cache of machine
code (cache.py). The name of a module is a hash: of the source, in which each udf has its fingerprint, of the source of
every module that it calls, for those are inlined, and of the versions of all that compiles it.
"""

from __future__ import annotations

import hashlib
import linecache
import os
import sys
import threading
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite
import numba as nb
import numpy as np
from numba.core import config, imputils
from numba.core.typing import templates

from penstock._version import __version__
from penstock.execute import cache

_loading = threading.Lock()
_unfinished: list[str] = []  # modules that are being loaded
_unnamed = count()  # modules that no hash tells apart


def load_module(source: str, names: dict[str, Any], helpers: tuple[Any, ...], *, whole: bool = True) -> ModuleType:
    """A generated module. names: what it refers to and does not import; helpers: the modules that it calls.

    whole: whether the source tells all that it compiles to. If not, it is compiled for this caller and not kept.
    """
    digest = hashlib.sha256()
    versions = __version__, nb.__version__, llvmlite.__version__, np.__version__, sys.version, str(config.USING_SVML)
    for text in (source, *versions, *(Path(m.__file__).read_text() for m in helpers)):
        digest.update(hashlib.sha256(text.encode()).digest())
    made_from = digest.hexdigest()
    name = f"penstock_kernel_{made_from[:24]}" + ("" if whole else f"_{next(_unnamed)}")
    with _loading:  # a module that another thread is loading is not whole yet
        return sys.modules.get(name) or _execute(name, source, names, made_from if whole else None)


def numba_is_extended() -> bool:
    """Whether anybody but numba has registered overloads, attributes, methods or their code in this process.

    They change what a udf compiles to, by the types in it and not by its names, so that no fingerprint sees them.
    """
    typing, lowering = templates.builtin_registry, imputils.builtin_registry
    by_name = [t for _, kind in typing.globals for t in getattr(kind, "templates", ())]
    several = [lowering.functions, lowering.getattrs, lowering.setattrs, lowering.casts, lowering.constants]
    return any(map(_foreign, [*typing.functions, *typing.attributes, *by_name])) or any(
        not _of_numba(entry[0]) for entries in several for entry in entries
    )


def _foreign(template: Any) -> bool:
    # numba's decorators make classes that are of "abc", and some of its own overloads from text, of no module.
    overload = getattr(template, "_overload_func", None)
    of = {kind.__module__ for kind in template.__mro__} | {getattr(overload, "__module__", None) or "abc"}
    return any(module.split(".")[0] != "numba" for module in of - {"abc", "builtins"})


def _of_numba(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).split(".")[0] == "numba"


def _execute(name: str, source: str, names: dict[str, Any], made_from: str | None) -> ModuleType:
    directory = cache.cache_directory()

    def cached(dispatcher: Any) -> Any:
        if made_from is not None and directory is not None:
            dispatcher._cache = cache.MachineCode(directory, dispatcher.py_func.__name__, made_from)
        return dispatcher

    module, file = ModuleType(name), f"<{name}>"
    vars(module).update(names, cached=cached)
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file  # for tracebacks
    _unfinished.append(name)
    sys.modules[name] = module  # numba finds a cached function's module by name
    try:
        exec(compile(source, file, "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        _unfinished.remove(name)
    return module


def _after_fork() -> None:
    """The thread that was loading a module, and held the lock, is not in the child."""
    global _loading
    _loading = threading.Lock()
    while _unfinished:
        sys.modules.pop(_unfinished.pop(), None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
