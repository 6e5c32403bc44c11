"""The table of operations: what it says of one column agrees with what it says of another, and all of it is used."""

import pytest

from penstock.execute.codegen.emitter import EMIT
from penstock.plan.ir import OPERATIONS, Traits


def test_every_operation_can_be_written_and_every_writer_has_one() -> None:
    assert {traits.emit for traits in OPERATIONS.values() if "{" not in traits.emit} == set(EMIT)


@pytest.mark.parametrize(("code", "traits"), OPERATIONS.items(), ids=OPERATIONS)
def test_a_row_is_sound(code: str, traits: Traits) -> None:
    assert not (traits.pure and traits.writes), "who writes is seen"
    assert not traits.cheap or traits.pure, "who is seen runs only where the program says so"
    assert traits.takes or not set(traits.reads + traits.writes) & {"column", "presence"}, (
        "a record is reached by key or row"
    )
    assert "overflow" in traits.aborts or not traits.fits
    assert not traits.orders or traits.compares
