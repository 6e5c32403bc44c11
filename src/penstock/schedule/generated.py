"""The functions that threads run: generated from the plan, and compiled before a batch needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba as nb

from penstock.execute.codegen.layout import Argument
from penstock.execute.native import Kernel, compiled, numba_type
from penstock.schedule.team import STEP


class Generated:
    def __init__(self, kernel: Kernel, wanted: tuple[Argument, ...], called: tuple[Any, ...]) -> None:
        """wanted: what all the functions take after arguments of their own; called: modules that they call."""
        self._kernel, self._called = kernel, called
        self._wanted = tuple(numba_type(a) for a in wanted)
        self._modules: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Any] = {}

    def function(
        self, module: str, generate: Callable[[], str], name: str, own: tuple[Any, ...], *, step: bool = False
    ) -> Any:
        """A function of a module, compiled for these arguments of its own; generate: the module's source; step: whether
        it is one for a team."""
        found = self._functions.get((module, name))
        if found is None:
            if module not in self._modules:
                self._modules[module] = self._kernel.module(generate(), self._called)
            kinds = (*(STEP if step else ()), *(nb.typeof(a) for a in own), *self._wanted)
            found = self._functions[module, name] = compiled(getattr(self._modules[module], name), kinds)
        return found

    def adopt(self, other: Generated) -> None:
        """Take over what another has compiled."""
        self._modules = self._modules | other._modules
        self._functions = self._functions | other._functions
