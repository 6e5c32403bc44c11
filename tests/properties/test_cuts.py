"""Sorted input gives the same outcomes, outputs and records however it is cut into batches, with a flush at the end: on
the engine, on the reference, and in whatever order it comes within a watermark."""

from itertools import pairwise
from random import Random
from typing import Any

import programs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from settings import EXAMPLES

NAMES = ("market", "unique_members")
WATERMARK = 2


@pytest.mark.parametrize("name", NAMES)
def test_it_does_not_matter_where_input_is_cut(name: str) -> None:
    case = programs.case(name)
    case.app.open().close()

    # To open an engine takes longer than all that is done with it, so there is one for each example.
    @settings(max_examples=EXAMPLES // 4)
    @given(
        rows=st.fixed_dictionaries({table: some for table, some in case.rows.items()}),
        events=st.lists(case.event.filter(lambda e: abs(e.ts) < 10), min_size=case.size // 2, max_size=2 * case.size),
        chance=st.randoms(use_true_random=True),
    )
    def same(rows: dict[Any, Any], events: list[Any], chance: Random) -> None:
        events = sorted(events, key=_place)
        whole = _ran(case, case.app.reference(), rows, [events])
        assert _ran(case, case.app.reference(), rows, _cut(chance, events)) == whole
        # Those of one time come as they are: of two without an id the first to arrive is the first in order.
        delays = {ts: chance.randrange(WATERMARK + 1) for ts in {e.ts for e in events}}
        jumbled = sorted(events, key=lambda e: e.ts + delays[e.ts])
        assert _ran(case, case.app.reference(), rows, _cut(chance, jumbled), watermark=WATERMARK) == whole
        given_ = chance.choice([(events, {}), (jumbled, {"watermark": WATERMARK})])
        with case.app.open() as db:
            assert _ran(case, db, rows, _cut(chance, given_[0]), **given_[1]) == whole

    same()


def _place(event: Any) -> tuple[Any, ...]:
    """Where an event stands in order, but for its arrival."""
    id_ = event.definition.id
    return event.values[event.definition.order], id_ is not None, event.values[id_] if id_ else 0


def _cut(chance: Random, events: list[Any]) -> list[list[Any]]:
    places = sorted(chance.choices(range(len(events) + 1), k=chance.randrange(5)))
    return [events[a:b] for a, b in pairwise([0, *places, len(events)])]


def _ran(case: Any, side: Any, rows: dict[Any, Any], batches: list[list[Any]], **options: Any) -> Any:
    """What became of all batches, and of a flush behind them, but for the version."""
    for table, some in rows.items():
        side.load(table, some, check=False)
    outcomes: list[Any] = []
    outputs = case.app.program.outputs()
    emitted: dict[str, list[Any]] = {event.name: [] for event in outputs}
    for batch, more in [*((batch, options) for batch in batches), ([], {"flush": True})]:
        outcomes += side.run(batch, **more).drop_columns("version").to_pylist()
        for event in outputs:
            emitted[event.name] += side.emitted(event.name).drop_columns("version").to_pylist()
    tables = [sorted(side.table(t.name).to_pylist(), key=str) for t in case.app.program.tables]
    return outcomes, emitted, tables
