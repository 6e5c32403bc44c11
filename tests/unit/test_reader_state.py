"""A commit is applied a piece at a time, and whoever looks between two pieces sees the version before it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.declare.model import Column, TableDef
from penstock.declare.types import INT, STR
from penstock.replica.changes import Changes
from penstock.replica.state import State

ITEM = TableDef("Item", (Column("id", INT, key=True), Column("note", STR, nullable=True), Column("n", INT)))
MANY = 10_000


def rows(ids: Any, n: int) -> pa.Table:
    ids = list(ids)
    note = [None if k % 3 == 0 else f"note {n}" for k in ids]
    return pa.table({"id": ids, "note": note, "n": [n] * len(ids)}, schema=ITEM.arrow())


def keys(ids: Any) -> pa.Table:
    return pa.table({"id": pa.array(list(ids), pa.int64())})


def changes(version: int, **kinds: pa.Table) -> Changes:
    return Changes(version, {"Item": list(kinds.items())})


class Watched:
    """A lock: whenever it is free, somebody looks."""

    def __init__(self) -> None:
        self.look: Any = lambda: None
        self.looks, self._held = 0, False

    def __enter__(self) -> None:
        assert not self._held
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False
        look, self.look = self.look, lambda: None
        look()
        self.looks += 1
        self.look = look


def nothing(_: BaseException) -> None: ...


def whole(state: State, lock: Any, before: Any) -> dict[int, tuple[Any, int]]:
    return {row["id"]: (row["note"], row["n"]) for row in state.table(lock, "Item", before).to_pylist()}


def content(table: pa.Table) -> dict[int, tuple[Any, int]]:
    return {row["id"]: (row["note"], row["n"]) for row in table.to_pylist()}


def test_between_two_pieces_the_version_before_is_seen() -> None:
    state, lock, seen = State("app", (ITEM,)), Watched(), [0]
    state.apply(changes(1, written=rows(range(MANY), 1)))
    before = content(rows(range(MANY), 1))
    after = content(rows(range(5000, 15_000), 2)) | content(rows(range(5000), 1))
    after = {k: v for k, v in after.items() if not 1000 <= k < 2000}
    step = changes(2, deleted=keys(range(1000, 2000)), written=rows(range(5000, 15_000), 2))
    cut = state.pin()

    def look() -> None:
        expected = after if seen[0] else before
        for k in (0, 1500, 4999, 5000, 9999, 10_000, 14_999, 20_000):
            found = state.one("Item", k, state.newest)
            assert (found and (found["note"], found["n"])) == expected.get(k)
        wanted = [20_000, 14_999, 0, 1999, 5000, 0]
        several = state.many("Item", keys(wanted), state.newest)
        assert [r and (r["note"], r["n"]) for r in several] == [expected.get(k) for k in wanted]
        table, there = state.arrow("Item", keys(wanted), state.newest)
        assert table.column("id").to_pylist() == [k for k in wanted if k in expected]
        assert there.tolist() == [k in expected for k in wanted]
        assert state.many("Item", keys(wanted), cut) == [
            None if k not in before else {"id": k, "note": before[k][0], "n": before[k][1]} for k in wanted
        ]
        if lock.looks == 2:
            assert whole(state, Quiet(), cut) == before

    lock.look = look
    state.go_on(step, lock, lambda: seen.__setitem__(0, 1), nothing)
    assert lock.looks >= 4
    look()
    assert whole(state, Quiet(), cut) == before
    newest = state.pin()
    assert whole(state, Quiet(), newest) == after


class Quiet:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_a_cut_that_opens_in_the_middle_of_a_commit(before: bool, closes: bool) -> None:
    state, lock = State("app", (ITEM,)), Watched()
    state.apply(changes(0, written=rows(range(20_000), 0)))
    oldest = state.pin() if before else None
    state.go_on(changes(1, written=rows(range(9000), 1)), Quiet(), lambda: None, nothing)
    cuts: list[Any] = []

    def look() -> None:
        if lock.looks in (2, 5):
            cuts.append(state.pin())
        if lock.looks == 6 and closes:
            state.unpin(cuts.pop())
            state.unpin(cuts.pop())

    lock.look = look
    state.go_on(changes(2, written=rows(range(4000, 24_000), 2)), lock, lambda: None, nothing)
    assert lock.looks >= 6
    first = content(rows(range(20_000), 0))
    second = first | content(rows(range(9000), 1))
    if oldest is not None:
        assert whole(state, Quiet(), oldest) == first
    for cut in cuts:
        assert whole(state, Quiet(), cut) == second
    assert whole(state, Quiet(), state.pin()) == second | content(rows(range(4000, 24_000), 2))


@pytest.mark.parametrize("pins", [False, True])
def test_a_commit_at_once_where_there_is_no_cut(pins: bool) -> None:
    """Or a cut is taken just before it is there."""
    state = State("app", (ITEM,))
    state.apply(changes(0, written=rows(range(20_000), 0)))
    state = state.copied(changes(1, written=rows(range(10_100), 0)))
    step = changes(1, deleted=keys(range(100)), written=rows(range(15_000, 25_000), 1))
    assert not state.is_cramped(step)
    cuts: list[Any] = []
    entered = Watched.__enter__

    class Pinning(Watched):
        def __enter__(self) -> None:
            entered(self)
            if pins and not cuts:
                cuts.append(state.pin())

    watched = Pinning()
    state.go_on(step, watched, lambda: None, nothing)
    assert (watched.looks == 1) is not pins
    first = content(rows(range(20_000), 0))
    after = {k: v for k, v in first.items() if k >= 100} | content(rows(range(15_000, 25_000), 1))
    for cut in cuts:
        assert whole(state, Quiet(), cut) == first
    assert whole(state, Quiet(), state.pin()) == after


def test_a_copy_forgets_strings_that_nobody_holds() -> None:
    state = State("app", (ITEM,))
    for version in range(5):
        state.apply(changes(version, written=rows(range(10), version)))
    cut = state.pin()
    copied = state.copied()
    assert copied._tables.strings.count < state._tables.strings.count
    assert whole(copied, Quiet(), copied.pin()) == whole(state, Quiet(), cut) == content(rows(range(10), 4))


def test_cuts_close_in_any_order() -> None:
    state, lock = State("app", (ITEM,)), Quiet()
    versions: list[tuple[Any, dict[int, Any]]] = []
    expected: dict[int, tuple[Any, int]] = {}
    for version in range(1, 9):
        written = rows({version, 1, 20 + version % 3}, version)
        gone = keys([version - 1] if version % 2 else [])
        state.go_on(changes(version, deleted=gone, written=written), lock, lambda: None, nothing)
        for k in gone.column("id").to_pylist():
            expected.pop(k, None)
        expected = expected | content(written)
        versions.append((state.pin(), dict(expected)))
    while versions:
        for cut, content_then in versions:
            assert whole(state, lock, cut) == content_then
            for k in range(25):
                found = state.one("Item", k, cut)
                assert (found and (found["note"], found["n"])) == content_then.get(k)
        state.unpin(versions.pop((len(versions) * 5) // 7)[0])
    assert not state._befores


def test_what_fails_half_way_is_told_before_anybody_looks() -> None:
    state, told = State("app", (ITEM,)), list[BaseException]()
    lock, looks = Watched(), list[int]()
    lock.look = lambda: looks.append(len(told))
    with pytest.raises(KeyError):
        state.go_on(changes(1, written=rows([1], 1).drop_columns(["n"])), lock, lambda: None, told.append)
    assert looks == [1]
