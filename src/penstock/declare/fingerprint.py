"""What a udf compiles from, as a hash: its code, and the values of all that it names.

numba takes globals and closed-over values for constants: a rate in an array, a module's attribute, an enum's value are
in the machine code. So code that is kept, or shared, under a fingerprint is good only if each of them counts. A value
whose content cannot be told (an object of a class of the user's, a list) makes a fingerprint that is not whole, and
what is made from it must not outlive the udf. So does a plain function: numba calls one by an overload only, and that
is found in numba, not in the function.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), range)
# numba has a meaning of its own for what these hold, and the name says which. Their versions count where code is kept.
_KNOWN = {"builtins", "cmath", "math", "numba", "numpy", "operator", "random"}


@dataclass(frozen=True, slots=True)
class Fingerprint:
    digest: str
    whole: bool  # whether all that the function compiles from is in the digest


def fingerprint(function: Callable[..., Any]) -> Fingerprint:
    walk = _Walk()
    text = walk.function(function)
    return Fingerprint(hashlib.sha256(text.encode()).hexdigest()[:32], walk.whole)


class _Walk:
    def __init__(self) -> None:
        self.whole = True
        self._begun: dict[int, int] = {}  # functions and modules: they may name each other
        self._numbers = count()

    def value(self, value: Any, names: tuple[str, ...] = ()) -> str:
        """A text that is the same in every process, for equal values only. names: a module is asked for these."""
        match value:
            case enum.Enum():
                return f"{_name(type(value))}.{value.name}={self.value(value.value)}"
            case np.generic() | np.ndarray():
                return self._array(np.asarray(value))
            case np.dtype():
                return f"dtype {value.descr}"
            case tuple():
                return f"{_name(type(value))}{getattr(value, '_fields', '')}({self._several(value)})"
            case frozenset():
                return f"frozenset({sorted(self.value(item) for item in value)})"
            case CodeType():
                return self._code(value)
            case ModuleType():
                return self._module(value, names)
            case FunctionType():
                return self._plain(value)
            case type():
                return self._type(value)
            case BuiltinFunctionType() if value.__self__ is None or isinstance(value.__self__, ModuleType):
                return f"builtin {_name(value)}"
            case np.ufunc() if getattr(np, str(value.__name__), None) is value:
                return f"ufunc {_name(value)}"
        if type(value) in _PLAIN:
            return f"{type(value).__name__} {value!r}"
        if _known(type(value)) and isinstance(getattr(value, "py_func", None), FunctionType):  # under @njit
            return f"{_name(type(value))} {value.targetoptions} {self.function(value.py_func)}"
        if type(value).__module__.startswith("numba.core.types."):  # numba.int64
            return f"{_name(type(value))} {value}"
        return f"known {_name(value)}" if _known(value) else self._unknown(value)

    def _several(self, values: Any) -> str:
        return ", ".join(self.value(item) for item in values)

    def _array(self, array: Any) -> str:
        if array.dtype.hasobject:
            return self._unknown(array)
        content = hashlib.sha256(array.tobytes()).hexdigest()
        return f"array {array.dtype.descr} {array.shape} {array.flags.c_contiguous, array.flags.f_contiguous} {content}"

    def _type(self, kind: type) -> str:
        if issubclass(kind, enum.Enum):
            return f"enum {_name(kind)}({self._several(kind)})"
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return f"named tuple {_name(kind)}{kind._fields}"
        return f"type {_name(kind)}" if _known(kind) else self._unknown(kind)

    def _module(self, module: ModuleType, names: tuple[str, ...]) -> str:
        if module.__name__.split(".")[0] in _KNOWN:
            return f"module {module.__name__}"
        if id(module) in self._begun:
            return f"again {self._begun[id(module)]}"
        self._begun[id(module)] = next(self._numbers)
        held = [f"{name}={self.value(vars(module)[name], names)}" for name in names if name in vars(module)]
        del self._begun[id(module)]  # the next who names it may ask for other names
        return f"module {module.__name__}({', '.join(held)})"

    def _plain(self, function: FunctionType) -> str:
        if _known(function):
            return f"known {_name(function)}"
        self.whole = False
        return f"plain {self.function(function)}"

    def function(self, function: Any) -> str:
        """One that numba compiles: a udf's own, or one under @njit."""
        if id(function) in self._begun:
            return f"again {self._begun[id(function)]}"
        self._begun[id(function)] = next(self._numbers)
        parts = [self._code(function.__code__), self.value(function.__defaults__)]
        parts.append(self._several(sorted((function.__kwdefaults__ or {}).items())))
        names = tuple(dict.fromkeys(_names(function.__code__)))
        parts += [f"{n}={self.value(function.__globals__[n], names)}" for n in names if n in function.__globals__]
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                parts.append(f"{name}={self.value(cell.cell_contents, names)}")
            except ValueError:  # nothing in it yet
                parts.append(f"{name} is empty")
        return "\n".join(parts)

    def _code(self, code: CodeType) -> str:
        shape = code.co_code.hex(), code.co_exceptiontable.hex(), code.co_flags, code.co_argcount
        return f"code {shape} ({self._several(code.co_consts)}) {code.co_names} {code.co_varnames} {code.co_freevars}"

    def _unknown(self, value: Any) -> str:
        self.whole = False
        return f"unknown {_name(type(value))}"


def _names(code: CodeType) -> Iterator[str]:
    """What a function's code names, with the functions and comprehensions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _known(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).split(".")[0] in _KNOWN and hasattr(value, "__qualname__")


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', getattr(value, '__name__', ''))}"
