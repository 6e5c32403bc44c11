"""Code that stands in no file: cells of a notebook, what is typed in, `python -c`, stdin, exec.

There the same declaration runs again and again, and the newest counts. In a file a name that is declared twice is a
mistake.
"""

from __future__ import annotations

import inspect
import os
import sys
import types
from collections.abc import Callable
from weakref import WeakKeyDictionary

# What a function's source was when it was declared: a cell, or a file, may be another one by now.
_sources: WeakKeyDictionary[Callable[..., object], tuple[str, int]] = WeakKeyDictionary()


def is_cell(code: Callable[..., object] | types.FrameType | None) -> bool:
    """Whether this code is from no file."""
    found = code.f_code if isinstance(code, types.FrameType) else getattr(code, "__code__", None)
    return found is not None and not os.path.isfile(found.co_filename)


def source(function: Callable[..., object]) -> tuple[str, int]:
    """A function's source as it was when this was first asked, and the line that it begins on. OSError where Python has
    not kept it."""
    if function not in _sources:
        lines, first = inspect.getsourcelines(function)
        _sources[function] = "".join(lines), first
    return _sources[function]


def no_source(file: str, error: object) -> str:
    """What to do where a function's source cannot be read."""
    if file.startswith("<"):
        return (
            f"its source cannot be read, as this Python keeps none of {file} (python -c, stdin or exec; Python 3.13 "
            "keeps some): write the app into a file and import it, or declare it in a notebook's cell; for exec, put "
            "the source into linecache.cache under its name first"
        )
    return f"its source cannot be read ({error}); declare it in a file or a notebook's cell"


def note(text: str) -> None:
    """Say something to who sits before it."""
    sys.stderr.write(f"penstock: {text}\n")
