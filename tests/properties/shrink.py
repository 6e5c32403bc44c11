"""Makes a failing trial small: fewer events, then fewer statements and simpler expressions.

`still_fails` decides; a candidate that is refused or fails in another way does not count. Each
try may compile a program, so the search stops when its time is up and gives the smallest so far. A
cut that may leave a loop without an end is not tried.
"""

import ast
import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from bodies import Trial


def shrink(trial: Trial, still_fails: Callable[[Trial], bool], seconds: float) -> Trial:
    end = time.monotonic() + seconds
    trial = _fewer_events(trial, still_fails, end)
    improved = True
    while improved and time.monotonic() < end:
        improved = False
        for source in _smaller(trial.source):
            if time.monotonic() > end:
                break
            smaller = replace(trial, source=source)
            if still_fails(smaller):
                trial, improved = smaller, True
                break
    return _fewer_events(trial, still_fails, end + 10)


def _fewer_events(trial: Trial, still_fails: Callable[[Trial], bool], end: float) -> Trial:
    """Drop batches, halves of batches, … single events, while it still fails."""
    size = max((len(b) for b in trial.batches), default=0)
    while size and time.monotonic() < end:
        for number in range(len(trial.batches)):
            start = 0
            while start < len(trial.batches[number]) and time.monotonic() < end:
                batch = trial.batches[number]
                batches = [*trial.batches]
                batches[number] = batch[:start] + batch[start + size :]
                smaller = replace(trial, batches=batches)
                if still_fails(smaller):
                    trial = smaller
                else:
                    start += size
        size //= 2
    kept = [n for n, b in enumerate(trial.batches) if b]
    fewer = replace(trial, batches=[trial.batches[n] for n in kept], forms=[trial.forms[n] for n in kept])
    return fewer if len(kept) < len(trial.batches) and still_fails(fewer) else trial


def _smaller(source: str) -> Iterator[str]:
    """Every program that one cut makes of this one, the largest cuts first."""
    tree = ast.parse(source)
    count = sum(1 for _ in _cuts(tree))
    sizes = []
    for number in range(count):
        changed = copy.deepcopy(tree)
        next(c for n, c in enumerate(_cuts(changed)) if n == number)()
        if any(isinstance(node, ast.For) and not _ends(node) for node in ast.walk(changed)):
            continue
        text = ast.unparse(ast.fix_missing_locations(changed))
        sizes.append((len(text), number, text))
    whole = len(ast.unparse(tree))
    yield from (text for size, _, text in sorted(sizes) if size < whole)


def _ends(loop: ast.For) -> bool:
    """Whether a loop's own text tells that it takes few turns: it runs over lists, its bounds are small or its step is
    large, or it begins by counting its turns, as bodies.py writes it."""
    if not isinstance(loop.iter, ast.Call) or ast.unparse(loop.iter.func) != "range":
        return True
    *bounds, step = [*loop.iter.args, None] if len(loop.iter.args) < 3 else loop.iter.args
    if all(_is_small(bound) for bound in bounds) or (step is not None and len(ast.unparse(step)) > 18):
        return True
    match loop.body:
        case [ast.AugAssign(target=ast.Name(id=name)), ast.If(test=test, body=[ast.Break()]), *_]:
            return ast.unparse(test).startswith(f"{name} > ")
    return False


def _is_small(bound: ast.expr | None) -> bool:
    mod = isinstance(bound, ast.BinOp) and isinstance(bound.op, ast.Mod)
    return mod or (bound is not None and ast.unparse(bound) in ("-1", "0", "2"))


def _cuts(tree: ast.Module) -> Iterator[Callable[[], object]]:
    for top in tree.body:
        if isinstance(top, ast.FunctionDef):
            yield _dropper(tree.body, top)
            yield from _cuts_in(top)
        elif isinstance(top, ast.ClassDef):
            for part in top.body:
                if isinstance(part, ast.FunctionDef):
                    yield _dropper(top.body, part)
                    yield from _cuts_in(part)


def _cuts_in(function: ast.FunctionDef) -> Iterator[Callable[[], object]]:
    for node in ast.walk(function):
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                for statement in block:
                    if not isinstance(statement, ast.Pass):
                        yield _dropper(block, statement)
                    for inner in ("body", "orelse"):
                        if getattr(statement, inner, None):
                            yield _replacer(block, statement, getattr(statement, inner))
        if not isinstance(node, ast.expr | ast.stmt):
            continue
        for name, child in ast.iter_fields(node):
            if isinstance(child, ast.expr) and isinstance(getattr(child, "ctx", ast.Load()), ast.Load):
                for part in ast.iter_child_nodes(child):
                    if isinstance(part, ast.expr) and not isinstance(part, ast.Constant):
                        yield _setter(node, name, part)
            elif isinstance(child, list):
                for place, one in enumerate(child):
                    if isinstance(one, ast.expr) and isinstance(getattr(one, "ctx", ast.Load()), ast.Load):
                        for part in ast.iter_child_nodes(one):
                            if isinstance(part, ast.expr) and not isinstance(part, ast.Constant):
                                yield _placer(child, place, part)
        if isinstance(node, ast.Dict):
            for place in range(len(node.keys)):
                yield _entry_dropper(node, place)


def _dropper(block: list[ast.stmt], statement: ast.stmt) -> Callable[[], object]:
    def cut() -> None:
        block.remove(statement)
        if not block:
            block.append(ast.Pass())

    return cut


def _replacer(block: list[ast.stmt], statement: ast.stmt, inner: list[ast.stmt]) -> Callable[[], object]:
    def cut() -> None:
        place = block.index(statement)
        block[place : place + 1] = inner

    return cut


def _setter(node: ast.AST, name: str, part: ast.expr) -> Callable[[], object]:
    return lambda: setattr(node, name, part)


def _placer(where: list[ast.expr], place: int, part: ast.expr) -> Callable[[], object]:
    return lambda: where.__setitem__(place, part)


def _entry_dropper(node: ast.Dict, place: int) -> Callable[[], object]:
    def cut() -> None:
        del node.keys[place], node.values[place]

    return cut
