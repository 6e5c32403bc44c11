"""Long source, cut into functions of a few hundred lines.

numba's work on a function grows faster than its length: for each name that is assigned twice it goes over every
statement, and for each block over every name. So a kernel that comes out longer than LONG is written once more, and
this time what it runs goes to subroutines (functions.py), which it calls, and what many operations do alike is a
function that they share. Short kernels have none of this: a call hands over a dozen arrays, which small transactions
would feel.

Which names a subroutine takes and gives follows from the source: it shares with the rest the kernel's arguments, what
is assigned around the call, and the values that it was said to make. All else is its own.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.execute.codegen.functions import IMPORTS, Function, Names, names_of, zeros_of
from penstock.execute.codegen.source import IMPORTED, Source, length

Item = TypeVar("Item")

# A kernel of more lines is cut, and of the parts each has about so many: there a line is cheapest to compile. What is
# cut runs up to ten times slower where events are cheap, so a kernel is left whole as long as that costs seconds: 850
# lines take 6 s of one core (7.5 cut), 1,640 lines 12 s (5 cut).
LONG, PART = 1200, 200
_MARK = "CALL_SUB_"
_GLOBAL = IMPORTED | set(dir(builtins))


def cut_if_long(write: Callable[[Cutter], str]) -> str:
    """The source that `write` makes; where that is long, it writes it again, with a cutter that cuts."""
    text = write(Cutter(cutting=False))
    return text if length(text.splitlines()) <= LONG else write(Cutter(cutting=True))


@dataclass(slots=True)
class _Subroutine:
    number: int
    zeros: dict[str, str]  # value that others may need -> the line that defines it, in case the subroutine stops
    body: Source = field(default_factory=lambda: Source(2))
    inner: list[_Subroutine] = field(default_factory=list)
    own: Names = field(default_factory=Names)  # in its own lines
    all: Names = field(default_factory=Names)  # and in those of the subroutines inside it


class Cutter:
    def __init__(self, *, cutting: bool) -> None:
        self.long = self.cutting = cutting
        self._open: list[list[_Subroutine]] = [[]]
        self._count = 0
        self._shared: dict[str, str] = {}  # a function's text -> its name

    # -- writing ----------------------------------------------------------------------------

    def run(
        self,
        out: Source,
        items: Sequence[Item],
        write: Callable[[Source, Sequence[Item]], None],
        zeros: Callable[[Item], Iterable[str]] = lambda item: (),
    ) -> None:
        """Write these in turn. zeros: the lines that define, with a zero, what an item makes for those behind it."""
        if not self.cutting:
            write(out, items)
            return
        for several, lines in self._parts(items, write):
            with self._subroutine(out, (line for item in several for line in zeros(item))) as inner:
                self.cutting = lines > PART
                write(inner, several)
                self.cutting = True

    def whole(self, out: Source, write: Callable[[Source], None], *, always: bool = False) -> None:
        """Write what makes no values for others: one subroutine, or, where it is too long for one, what it runs."""
        if not self.cutting or not (always or self._length(write) <= PART):
            write(out)
            return
        with self._subroutine(out, ()) as inner:
            self.cutting = False
            write(inner)
            self.cutting = True

    def call(
        self, out: Source, write: Callable[[Source], None], zeros: Iterable[str], called: dict[str, str], own: str
    ) -> None:
        """Call what `write` writes; it is one function wherever that is the same.

        own: what its own names begin with; called: what those stand for where it is called.
        """
        body = Source(2)
        write(body)
        names = names_of(body)
        mine = {name for name in names.stores if name.startswith(own)}
        function = Function(body, names.loads - _GLOBAL - mine, names.stores - mine, zeros_of(zeros))
        name = self._shared.setdefault(function.text("op"), f"op{len(self._shared)}")
        for line in function.call(name, called):
            out.line(line)

    def _parts(
        self, items: Sequence[Item], write: Callable[[Source, Sequence[Item]], None]
    ) -> Iterator[tuple[list[Item], int]]:
        several: list[Item] = []
        total = 0
        for item in items:
            lines = self._length(write, [item])
            if several and total + lines > PART:
                yield several, total
                several, total = [], 0
            several.append(item)
            total += lines
        if several:
            yield several, total

    def _length(self, write: Callable[..., None], *items: object) -> int:
        out = Source()
        self.cutting = False
        write(out, *items)
        self.cutting = True
        return length(out.lines)

    @contextmanager
    def _subroutine(self, out: Source, zeros: Iterable[str]) -> Iterator[Source]:
        self._count += 1
        made = _Subroutine(self._count, zeros_of(zeros))
        self._open[-1].append(made)
        self._open.append(made.inner)
        out.line(f"{_MARK}{made.number}")
        yield made.body
        if not length(made.body.lines):
            made.body.line("pass")
        self._open.pop()

    # -- names ------------------------------------------------------------------------------

    def functions(self, arguments: Iterable[str], body: Source) -> str:
        """The source of the functions; the calls are put into `body`, the kernel's, which has these arguments."""
        out, made = Source(), self._open[0]
        if self.long:
            out.text(IMPORTS)
        for text, name in self._shared.items():
            out.text(text.replace("def op(", f"def {name}("))
        for one in reversed(list(_walk(made))):
            one.own = names_of(one.body)
            one.all.add(one.own)
            for inner in one.inner:
                one.all.add(inner.all)
            # What a loop around it makes for its turn is not its own.
            one.zeros = {name: line for name, line in one.zeros.items() if name in one.all.stores}
        if made:
            root = names_of(body)
            _Calls(root, made).write(out, made, {*arguments, *root.stores}, body)
        return str(out) if out.lines else ""


class _Calls:
    """Writes subroutines and their calls, innermost first: numba has to know what it calls."""

    def __init__(self, root: Names, made: list[_Subroutine]) -> None:
        self.values = {name for one in _walk(made) for name in one.zeros}
        self.users: dict[str, int] = {}
        for names in (root, *(one.own for one in _walk(made))):
            for name in names.loads | names.stores:
                self.users[name] = self.users.get(name, 0) + 1

    def write(self, out: Source, several: list[_Subroutine], around: set[str], caller: Source) -> None:
        """around: the names that the callers of these have."""
        calls = {}
        for one in several:
            self.write(out, one.inner, around | one.own.stores | set(one.zeros), one.body)
            zeros = {name: line for name, line in one.zeros.items() if self._needed(name, one)}
            inside = {name for part in _walk([one]) for name in part.zeros}
            taken = (one.all.loads & (around | self.values)) - inside
            state = (one.all.stores & (around | {"c"})) - set(one.zeros)
            function, name = Function(one.body, taken, state, zeros), f"sub{one.number}"
            out.text(function.text(name))
            calls[f"{_MARK}{one.number}"] = function.call(name, {})
        caller.lines = [line for text in caller.lines for line in _put(text, calls)]

    def _needed(self, name: str, one: _Subroutine) -> bool:
        """Whether anyone outside a subroutine uses what it makes."""
        inside = sum(name in part.own.loads | part.own.stores for part in _walk([one]))
        return self.users[name] > inside


def _walk(several: list[_Subroutine]) -> Iterator[_Subroutine]:
    for one in several:
        yield one
        yield from _walk(one.inner)


def _put(line: str, calls: dict[str, list[str]]) -> list[str]:
    """A line, or where it marks a call, that call."""
    indent = line[: len(line) - len(line.lstrip())]
    return [indent + one for one in calls.get(line.strip(), [line.strip()])]
