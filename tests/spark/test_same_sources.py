"""A query that is started again: Spark knows its sources by their places alone, so these have to be the same."""

from pathlib import Path
from typing import Any

import pytest
from test_direct import META, note
from test_errors import fails
from test_stream import (
    NOW,
    Deposit,
    Transfer,
    assert_as_reference,
    bank,
    direct,
    events,
    finish,
    frames,
    outcomes_in,
    put_cut,
    state_of,
)

import penstock as ps
from penstock.spark.checkpoint import noted_events
from penstock.spark.compatibility import ReadAllAvailable
from penstock.spark.files import FileNames

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]


def test_direct_sources_may_be_given_in_another_order(spark: Any, tmp_path: Path) -> None:
    """The query stops where Transfer is ahead of Deposit: with their offsets exchanged, files of Transfer would be
    read twice, and some of Deposit never."""
    some = events(1, 120)
    put_cut(tmp_path, some, 6)
    state = state_of(tmp_path)

    def stops(frame: Any, batch_id: int) -> None:
        if batch_id == 3:
            raise RuntimeError("the other side is away")

    def sources() -> dict[Any, Any]:
        shares = {Deposit: 1, Transfer: 2}
        return {kind: ps.parquet(tmp_path / kind.definition.name, shares[kind]) for kind in shares}

    fails(bank.start(sources(), state=state, outcomes=stops, trigger=NOW), "the other side is away")
    taken: list[Any] = []

    def takes(frame: Any, batch_id: int) -> None:
        taken.extend(frame.toArrow().column("id").to_pylist())

    finish(bank.start(dict(reversed(sources().items())), state=state, outcomes=takes, trigger=NOW))
    with bank.open(state) as database:
        every = [i for v in range(1, database.version + 1) for i in database.outcomes(v).column("id").to_pylist()]
    assert sorted(every) == sorted(e.values["id"] for e in some)
    assert len(taken) == len(set(taken))


def test_other_sources_are_refused(spark: Any, tmp_path: Path) -> None:
    some = events(2, 40)
    put_cut(tmp_path, some, 2)
    state = state_of(tmp_path)
    where = {"state": state, "outcomes": tmp_path / "out", "trigger": NOW}
    both = direct(tmp_path)
    finish(bank.start(both, **where))
    before = r"app 'bank': .* reads Transfer, Deposit with ps\.parquet, and is now given "
    with pytest.raises(ps.InputError, match=before + r"Transfer with a DataFrame, Deposit .* as they were"):
        bank.start(frames(spark, tmp_path), **where)
    with pytest.raises(ps.InputError, match=before + r"Transfer with ps\.parquet; .* as they were"):
        bank.start({Transfer: both[Transfer]}, **where)
    finish(bank.start(both, **where))
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


def test_a_new_source_is_refused(spark: Any, tmp_path: Path) -> None:
    put_cut(tmp_path, events(3, 40), 2)
    state = state_of(tmp_path)
    where = {"state": state, "outcomes": tmp_path / "out", "trigger": NOW}
    both = frames(spark, tmp_path)
    finish(bank.start({Transfer: both[Transfer]}, **where))
    with pytest.raises(ps.InputError, match=r"reads 1 source of DataFrames, and is now given Transfer .* Deposit"):
        bank.start(both, **where)


def test_a_direct_source_beside_a_dataframe_keeps_its_place(spark: Any, tmp_path: Path) -> None:
    some = events(4, 60)
    put_cut(tmp_path, some[:40], 2)
    state = state_of(tmp_path)
    mixed = {Transfer: direct(tmp_path)[Transfer], Deposit: frames(spark, tmp_path)[Deposit]}
    where = {"state": state, "outcomes": tmp_path / "out", "trigger": NOW}
    finish(bank.start(mixed, **where))
    put_cut(tmp_path, some[40:], 1)
    finish(bank.start(dict(reversed(mixed.items())), **where))
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


def test_a_direct_source_refuses_an_offset_that_is_not_its_own(tmp_path: Path) -> None:
    """As under Spark Connect, where the client cannot see the checkpoint."""
    put_cut(tmp_path, events(5, 40), 2)
    where = {"event": "Transfer", "path": str(tmp_path / "Transfer"), "list": str(tmp_path / "Transfer.list")}
    reader = FileNames(where).streamReader(None)
    own = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert own == {"event": "Transfer", "files": 2}
    for other in ({"event": "Deposit", "files": 2}, {"logOffset": 1}):
        with pytest.raises(ps.StateError, match=r"event 'Transfer': .* as they were, in the same order"):
            reader.latestOffset(other, ReadAllAvailable())
        with pytest.raises(ps.StateError, match="as they were"):
            reader.partitions(other, own)
        with pytest.raises(ps.StateError, match="as they were"):
            reader.partitions(reader.initialOffset(), other)


def test_notes_say_which_event_each_source_was_of(tmp_path: Path) -> None:
    assert noted_events(str(tmp_path)) is None
    checkpoint = tmp_path / "checkpoint"
    note(checkpoint, 9, "v1", META, '{"event": "Deposit", "files": 2}', '{"event": "Transfer", "files": 2}')
    assert noted_events(str(tmp_path)) == ["Deposit", "Transfer"]
    note(checkpoint, 10, "v1", META, '{"event": "Deposit", "files": 2}', "-", '{"logOffset": 3}', "7")
    assert noted_events(str(tmp_path)) == ["Deposit", None, None, None]
    note(checkpoint, 11, "v2", "other")
    assert noted_events(str(tmp_path)) is None
