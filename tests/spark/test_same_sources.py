"""A query that is started again: Spark knows its sources by their places alone, so these have to be the same."""

from pathlib import Path
from typing import Any

import pyarrow as pa
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
    put,
    put_cut,
    state_of,
    tables_of,
)

import penstock as ps
from penstock.spark.check import check_beside
from penstock.spark.checkpoint import extend_plans, noted_offsets, read_note
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


def of(some: list[Any], kind: Any) -> list[Any]:
    return [event for event in some if event.definition is kind.definition]


def test_a_direct_source_comes_and_goes_and_comes_again(spark: Any, tmp_path: Path) -> None:
    every, files = [], direct(tmp_path)
    where = {"state": state_of(tmp_path), "outcomes": tmp_path / "out", "trigger": NOW}
    given = ((Transfer,), (Deposit, Transfer), (Transfer,), (Transfer, Deposit))
    for turn, kinds in enumerate(given):
        some = [e for kind in kinds for e in of(events(turn, 24, first=100 * turn), kind)]
        every += some
        for kind in kinds:
            put(tmp_path / kind.definition.name, tables_of(some)[kind])
        finish(bank.start({kind: files[kind] for kind in kinds}, **where))
    assert_as_reference(every, where["state"], outcomes_in(tmp_path / "out"))
    assert noted_events(where["state"]) == ["Transfer", "Deposit"]
    assert not [found for found in check_beside(where["state"]) if found.problem]


def test_a_direct_source_comes_to_a_dataframe(spark: Any, tmp_path: Path) -> None:
    where = {"state": state_of(tmp_path), "outcomes": tmp_path / "out", "trigger": NOW}
    first, then = of(events(6, 20), Transfer), events(7, 20, first=100)
    put(tmp_path / "Transfer", tables_of(first)[Transfer])
    (tmp_path / "Deposit").mkdir()
    sources = {Transfer: frames(spark, tmp_path)[Transfer]}
    finish(bank.start(sources, **where))
    put_cut(tmp_path, then, 1)
    finish(bank.start({Deposit: direct(tmp_path)[Deposit], **sources}, **where))
    assert_as_reference([*first, *then], where["state"], outcomes_in(tmp_path / "out"))


def test_a_source_that_comes_waits_for_what_was_planned_without_it(spark: Any, tmp_path: Path) -> None:
    some, both, state = events(8, 20), direct(tmp_path), state_of(tmp_path)
    put_cut(tmp_path, some, 1)

    def away(frame: Any, batch_id: int) -> None:
        raise RuntimeError("the other side is away")

    fails(bank.start({Transfer: both[Transfer]}, state=state, outcomes=away, trigger=NOW), "away")
    where = {"state": state, "outcomes": tmp_path / "out", "trigger": NOW}
    with pytest.raises(ps.InputError, match=r"Deposit cannot come to .* batch 0 was planned without, .* then add it"):
        bank.start(both, **where)
    finish(bank.start({Transfer: both[Transfer]}, **where))
    finish(bank.start(both, **where))
    with bank.open(state) as database:
        batches = [database.outcomes(version).column("id").to_pylist() for version in (1, 2)]
    assert batches == [[e.values["id"] for e in of(some, kind)] for kind in (Transfer, Deposit)]


def test_a_crash_between_the_two_plans_is_mended(tmp_path: Path) -> None:
    checkpoint, one, two = tmp_path / "checkpoint", '{"event": "A", "files": 1}', '{"event": "B", "files": 0}'
    note(checkpoint, 0, "v1", META, one)
    note(checkpoint, 1, "v1", META, one)
    note(checkpoint, 2, "v1", META, one, two)
    extend_plans(str(tmp_path), ["A", "B"])
    lines = [read_note(checkpoint / "offsets" / str(n)).decode().splitlines()[2:] for n in range(3)]
    assert lines == [[one], [one, two], [one, two]]


def test_a_wrong_first_start_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    """As long as no batch has come to the engine."""
    some, state = events(10, 40), state_of(tmp_path)
    put_cut(tmp_path, some, 2)
    for _ in range(2):
        put(tmp_path / "wrong", pa.table({"nothing": [1]}))
    where = {"state": state, "outcomes": tmp_path / "out", "trigger": NOW}
    wrong = ps.parquet(tmp_path / "wrong")
    fails(bank.start({Transfer: wrong}, **where), "has no column")
    fails(bank.start({Transfer: wrong, Deposit: wrong}, **where), "has no column")
    finish(bank.start(frames(spark, tmp_path), **where))
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


def test_another_watermark_goes_on_with_what_is_held(spark: Any, tmp_path: Path) -> None:
    """Longer, shorter, none: nothing is lost or doubled, and nothing that kept to the shortest is late."""
    some, state = events(11, 120, disorder=5), state_of(tmp_path)
    for turn, watermark in enumerate((20, 60, 6)):
        put_cut(tmp_path, some[40 * turn : 40 * turn + 40], 1)
        query = bank.start(frames(spark, tmp_path), state=state, outcomes=tmp_path / "out", watermark=watermark)
        query.processAllAvailable()
        query.stop()
        with bank.open(state) as database:
            assert database.held > 0
    finish(bank.start(frames(spark, tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW))
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


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


def noted_events(state: Path) -> list[str | None] | None:
    noted = noted_offsets(str(state))
    return None if noted is None else [None if offset is None else str(offset["event"]) for offset in noted]


def test_notes_say_which_event_each_source_was_of(tmp_path: Path) -> None:
    assert noted_events(tmp_path) is None
    checkpoint = tmp_path / "checkpoint"
    note(checkpoint, 9, "v1", META, '{"event": "Deposit", "files": 2}', '{"event": "Transfer", "files": 2}')
    assert noted_events(tmp_path) == ["Deposit", "Transfer"]
    note(checkpoint, 10, "v1", META, '{"event": "Deposit", "files": 2}', "-", '{"logOffset": 3}', "7")
    assert noted_events(tmp_path) == ["Deposit", None, None, None]
    note(checkpoint, 11, "v2", "other")
    assert noted_events(tmp_path) is None
