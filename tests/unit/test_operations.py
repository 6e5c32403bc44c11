"""The table of operations: what it says of one column agrees with what it says of another, and all of it is used."""

import pytest

from penstock.execute.codegen.emitter import EMIT
from penstock.plan.ir import OPERATIONS, Operation


def test_every_operation_can_be_written_and_every_writer_has_one() -> None:
    assert {known.emit for known in OPERATIONS.values() if "{" not in known.emit} == set(EMIT)


@pytest.mark.parametrize(("code", "known"), OPERATIONS.items(), ids=OPERATIONS)
def test_a_row_is_sound(code: str, known: Operation) -> None:
    assert not (known.pure and known.writes), "who writes is seen"
    assert not known.cheap or known.pure, "who is seen runs only where the program says so"
    assert known.takes or not set(known.reads + known.writes) & {"column", "presence"}, (
        "a record is reached by key or row"
    )
    assert "overflow" in known.aborts or not known.fits
    assert not known.orders or known.compares
