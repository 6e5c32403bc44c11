"""Native equals reference across batches: with watermarks and without, flushes between them, late events of several
types, the clock set by hand, on and back, timers, rows that cannot be events and times too far ahead, under several
policies, and on a directory that is opened again at any moment."""

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import programs
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from law import FORMS, in_form, same, spoiled, step
from settings import EXAMPLES
from values import DATETIMES

from penstock.errors import StateError
from penstock.execute.request import Admission
from penstock.schedule.policy import Policy
from penstock.store.reset import opened

# The first program is compiled for these elsewhere too; the second one, whose times are datetimes, runs serially; so
# does the third under every policy, for its transactions take several events.
POLICIES: dict[str, list[Policy | None]] = {
    "bank": [Policy.parse(name, 2) for name in ("serial", "ready/transaction/eager", "tstream")],
    "merge": [None],
    "timers": [None],
    "market": [None, Policy.parse("tstream", 2)],
    "unique": [None, Policy.parse("tstream", 2)],
    "unique_members": [None],
}
# For few times near each other and at both ends of an int64; and for a datetime's microseconds.
DELAYS = (0, 0, 1, 2, 3, 10**6, 30 * 10**6, 2**63, 2**65)


@dataclass(frozen=True)
class Step:
    events: list[Any]
    form: str
    watermark: int | None
    flush: bool
    policy: Policy | None
    reopened: bool  # before it
    advance: Any  # behind it: what the clock is set to, or None
    back: Any  # before it, where it is opened again: what the high mark is set back to, or None
    admission: Admission | None
    spoiled: bool  # where there is one: whether rows that cannot be events come with it


def steps(case: programs.Case, policies: list[Policy | None]) -> st.SearchStrategy[list[Step]]:
    ordered = case.app.program.order_type()
    times: tuple[Any, ...] = tuple(DATETIMES) if ordered.kind == "datetime" else (1, 2, 4, 5, 7, 10, 2**63 - 1)

    def as_step(drawn: tuple[Any, ...]) -> Step:
        return Step(*drawn)

    one = st.tuples(
        st.lists(case.event, max_size=6),
        st.sampled_from(FORMS),
        st.one_of(st.none(), st.sampled_from(DELAYS)),
        st.sampled_from((False, False, False, True)),
        st.sampled_from(policies),
        st.booleans(),
        st.one_of(st.none(), st.sampled_from(times)),
        st.one_of(st.none(), st.sampled_from(times)),
        st.one_of(st.none(), st.sampled_from((None, 0, 3, 10**6)).map(lambda ahead: Admission(ahead=ahead, wall=wall))),
        st.booleans(),
    )
    return st.lists(one.map(as_step), min_size=2, max_size=7)


def state(root: str, options: dict[str, Any]) -> dict[str, Any]:
    return {"path": os.path.join(root, "state"), **options} if options else {}


def wall() -> Any:
    return DATETIMES[1]


def set_back(path: str, reference: Any, to: Any) -> None:
    with suppress(StateError), opened(path) as reset:  # StateError: nothing has arrived
        if reset.marks.highest > to:
            reset.do(reset.time_of(str(to)))
            reference.set_back(to)


@pytest.mark.parametrize("name", POLICIES)
def test_batches_one_after_the_other(name: str) -> None:
    case = programs.case(name)
    case.app.open().close()
    durable = st.fixed_dictionaries(
        {"log": st.sampled_from(("changes", "input")), "snapshot_every": st.sampled_from((1, 3, 50))}
    )

    @settings(max_examples=EXAMPLES)
    @given(
        rows=st.fixed_dictionaries({table: some for table, some in case.rows.items()}),
        batches=steps(case, POLICIES[name]),
        options=st.one_of(st.just({}), durable),
    )
    def law(rows: dict[Any, Any], batches: list[Step], options: dict[str, Any]) -> None:
        note(f"program {name}, {options}")
        # In memory where there is such a place: syncs cost, and prove nothing here.
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as root:
            reference, where = case.app.reference(), state(root, options)
            db = case.app.open(**where, background=False)
            try:
                for table, some in rows.items():
                    db.load(table, some, check=False)
                    reference.load(table, some, check=False)
                for one in batches:
                    if one.reopened and where:
                        db.close()
                        if one.back is not None:
                            set_back(where["path"], reference, one.back)
                        db = case.app.open(**where, background=False)
                    batch, how = in_form(one.events, one.form), {"watermark": one.watermark, "flush": one.flush}
                    if one.admission is not None and one.form != "events":
                        batch, how = spoiled(batch) if one.spoiled else batch, how | {"_admission": one.admission}
                    step(case.app, db, reference, batch, one.policy, **how)
                    if one.advance is not None:
                        same(case.app, db, reference, db.advance(one.advance), reference.advance(one.advance))
            finally:
                db.close()

    law()
