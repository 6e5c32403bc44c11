"""Native equals reference: fixed programs that use the whole language, on batches from hypothesis."""

from typing import Any

import programs
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from law import FORMS, agree, in_form
from settings import EXAMPLES

form = st.sampled_from(FORMS)


@pytest.mark.parametrize("name", programs.NAMES)
def test_fixed_program(name: str) -> None:
    case = programs.case(name)
    # What does not compile at all would otherwise be compiled again for each smaller example.
    case.app.open().close()

    @settings(max_examples=EXAMPLES)
    @given(
        rows=st.fixed_dictionaries({table: some for table, some in case.rows.items()}),
        batches=st.lists(st.tuples(case.batch, form), min_size=1, max_size=3),
    )
    def law(rows: dict[Any, Any], batches: list[Any]) -> None:
        note(f"program {name}")
        agree(case.app, rows, [in_form(events, form) for events, form in batches])

    law()


@pytest.mark.parametrize("name", programs.WORKLOADS)
def test_workload(name: str) -> None:
    from penstock.workloads import WORKLOADS, bind

    workload = WORKLOADS[name]
    for keys in workload.keys:
        app = workload.app(keys=keys)
        for size, seed in ((1, 1), (3, 2), (20, 3)):
            rows = bind(app, workload.tables(size=size, keys=keys))
            made = [
                workload.batch(n, seed=seed, first=f, size=size, keys=keys) for n, f in ((300, 0), (0, 300), (50, 300))
            ]
            agree(app, rows, [bind(app, batch) for batch in made])
