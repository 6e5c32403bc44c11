"""Generated lines as a function of their own: which names they take and give, its text, and how it is called.

def sub3(d0, nu, p0_v2, t0_c0):                 ended, c, d0, nu, p0_v7 = sub3(d0, nu, p0_v2, t0_c0)
    c = 0                                       if ended:
    p0_v7 = 0                                       break
    stopped = True
    while True:
        ...                                     the lines; where they abort they `break`
        stopped = False
        break
    return stopped, c, d0, nu, p0_v7
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.execute.codegen.source import Source, code_of

IMPORTS = "from penstock.state.jit import keep"
_DECORATOR = (
    '@nb.njit(nogil=True, error_model="numpy", boundscheck=False, no_cfunc_wrapper=True, no_cpython_wrapper=True)'
)


@dataclass(slots=True)
class Names:
    """The names that source loads and stores."""

    loads: set[str] = field(default_factory=set)
    stores: set[str] = field(default_factory=set)

    def add(self, other: Names) -> None:
        self.loads |= other.loads
        self.stores |= other.stores


def names_of(body: Source) -> Names:
    out = Names()
    for line in body.lines:
        out.add(_names(line))
    return out


def zeros_of(lines: Iterable[str]) -> dict[str, str]:
    """Name -> the line that defines it."""
    return {line.split(" = ")[0]: line for line in lines}


class Function:
    def __init__(self, body: Source, taken: set[str], state: set[str], zeros: Mapping[str, str]) -> None:
        """state: what it takes, changes and gives back, but for what it sets anew; zeros: what it makes and gives."""
        self.body = body
        self.aborts = "c" in state
        self.stops = _leaves(body)
        self.zeros = zeros
        self.taken = sorted((taken | state) - set(zeros) - _set_anew(body) - ({"c"} if self.aborts else set()))
        first = [name for name, there in (("stopped", self.stops), ("c", self.aborts)) if there]
        self.given = [*first, *sorted(state - {"c"}), *zeros]

    def text(self, name: str) -> str:
        out = Source()
        out.text(f"\n\n{_DECORATOR}\ndef {name}({', '.join(self.taken)}):")
        with out.indented():
            if self.aborts:
                out.line("c = 0")
            for line in self.zeros.values():
                out.line(line)
            if self.stops:
                out.line("stopped = True")
            out.line("while True:")
            out.lines += self.body.lines
            with out.indented():
                if self.stops:
                    out.line("stopped = False")
                out.line("break")
            out.line(f"keep({', '.join(self.taken)})")
            if self.given:
                out.line(f"return {', '.join(self.given)}")
        return str(out)

    def call(self, name: str, called: Mapping[str, str]) -> list[str]:
        """The lines that call it; called: what its names stand for there, where they are not the same."""
        called = {**called, "stopped": "ended"}  # the caller has a `stopped` of its own
        taken, given = (", ".join(called.get(n, n) for n in several) for several in (self.taken, self.given))
        call = f"{name}({taken})"
        return [f"{given} = {call}" if given else call, *(("if ended:", "    break") if self.stops else ())]


# Generated source has one statement a line, so that its names can be read off the lines.
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_TARGETS = re.compile(r"(\w+(?:, \w+)*) ([-+*/|&]*)= ")
_FOR = re.compile(r"for (\w+) in ")


def _names(line: str) -> Names:
    """What one line loads and stores."""
    text = code_of(line)
    found = _TARGETS.match(text) or _FOR.match(text)
    stores = set(found[1].split(", ")) if found else set()
    augmented = found is not None and found.re is _TARGETS and bool(found[2])
    loads = set(_NAME.findall(text[found.end() :] if found else text)) | (stores if augmented else set())
    return Names({name for name in loads if not keyword.iskeyword(name)}, stores)


def _set_anew(body: Source) -> set[str]:
    """The names that lines set before all else, whatever they were."""
    out: set[str] = set()
    seen: set[str] = set()
    for line in map(code_of, body.lines):
        if line.endswith(":") or line == "break":
            break
        names = _names(line)
        seen |= names.loads
        out |= names.stores - seen
        seen |= names.stores
    return out


def _leaves(body: Source) -> bool:
    """Whether lines that stand in a loop leave it."""
    loops: list[int] = []  # the indents of the loops that a line stands in
    for line in body.lines:
        text = code_of(line)
        if not text:
            continue
        indent = len(line) - len(line.lstrip())
        while loops and indent <= loops[-1]:
            loops.pop()
        if text == "break" and not loops:
            return True
        if text.startswith(("for ", "while ")):
            loops.append(indent)
    return False
