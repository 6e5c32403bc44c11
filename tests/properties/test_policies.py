"""Every policy equals the reference, and says of a batch what the serial one says: on hot records, with aborts."""

from itertools import product
from typing import Any

import programs
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from law import agree
from settings import EXAMPLES

from penstock.schedule.policy import EXPLORE, LOCKING, ON_ABORT, UNITS, Policy

GRAPH = [Policy(explore=e, unit=u, on_abort=a, threads=1) for e, u, a in product(EXPLORE, UNITS, ON_ABORT)]
EXACT = [*GRAPH, *(Policy.locking(scheme, threads=1) for scheme in LOCKING if scheme != "none")]

policies = st.tuples(st.sampled_from(EXACT), st.integers(1, 8)).map(lambda p: p[0].with_threads(p[1]))


@pytest.mark.parametrize("name", programs.NAMES)
def test_fixed_program_under_policies(name: str) -> None:
    case = programs.case(name)

    @settings(max_examples=2 * EXAMPLES)
    @given(
        rows=st.fixed_dictionaries({table: some for table, some in case.rows.items()}),
        batches=st.lists(case.batch, min_size=1, max_size=2),
        policy=policies,
    )
    def law(rows: dict[Any, Any], batches: list[Any], policy: Policy) -> None:
        note(f"program {name}, {policy}")
        agree(case.app, rows, batches, policy)

    law()
