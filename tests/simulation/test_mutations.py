"""What the simulator is worth: it finds Penstock broken on purpose, each way within so many histories."""

from __future__ import annotations

import pytest

from simulation.driver import Driver
from simulation.history import Focus
from simulation.machine import Weather
from simulation.mutations import MUTATIONS
from simulation.shrink import alike, shrink
from simulation.sweep import sweep
from simulation.writer import Writer

pytestmark = pytest.mark.faults

HISTORIES = 500
# What is rare among all histories, and less so among some.
FOCUS = {
    "a_history_begins_with_the_version_that_is_the_oldest_when_it_is_written_down": Focus(Weather()),
    "opening_does_not_sync_what_a_dead_writer_left": Focus(Weather(kill=40, power=80, crashes_max=6), Writer),
    "the_writers_token_is_ignored": Focus(Weather(), Writer, intruders=True),
    "outcome_files_of_a_dead_driver_are_not_synced": Focus(Weather(kill=40, power=80, crashes_max=6), Driver),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_it_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    found = sweep(range(1, HISTORIES + 1), FOCUS.get(name))
    print(found)
    assert found.wrong, f"{name}: not one of {HISTORIES} histories is wrong"


def test_a_wrong_history_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS["a_commit_is_acknowledged_before_its_name_is_synced"](monkeypatch)
    # From a seed on whose history has much that does not matter.
    first = sweep(range(21, HISTORIES + 21)).wrong[0]
    small = shrink(first, runs_max=100)
    assert small.wrong is not None
    assert alike(small, first)
    assert small.counts.operations < first.counts.operations / 2
    assert any("the power is lost" in line for line in small.trace)
