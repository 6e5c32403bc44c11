"""Damage to a file beside the log is told by a query, in words that name the file; and what is sound goes on."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_errors import fails
from test_stream import NOW, assert_as_reference, bank, direct, events, finish, outcomes_in, put_cut, state_of

import penstock as ps
from penstock.publish.manifest import check_outcomes
from penstock.spark.checkpoint import query_id, read_note
from penstock.spark.direct_source import spans
from penstock.spark.files import listed
from penstock.spark.listing import check_lists

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]

SOME = events(21, 60)


def started(root: Path, **options: Any) -> Any:
    given = {"outcomes": root / "out", **options}
    return bank.start(direct(root), state=root / "state", watermark=10, trigger=NOW, **given)


def flip(path: Path, at: bytes) -> bytes:
    """Change one bit of a file behind the given words; what it was before."""
    before = path.read_bytes()
    broken = bytearray(before)
    broken[before.index(at) + len(at)] ^= 1
    path.write_bytes(broken)
    return before


def test_a_damaged_list_of_files(spark: Any, tmp_path: Path) -> None:
    """A name that changed would make its file look new, and its events run twice."""
    state = state_of(tmp_path)
    put_cut(tmp_path, SOME[:40], 2)
    finish(started(tmp_path))
    put_cut(tmp_path, SOME[40:], 1)
    kept = state / "sources" / "Transfer.list"
    before = flip(kept, b"part-000")
    fails(started(tmp_path), r"StateError: .*sources/Transfer.list is damaged in line 2: its checksum.*restore it")
    (said,) = check_lists(state)
    assert "Transfer.list is damaged" in said
    kept.write_bytes(before)
    finish(started(tmp_path))
    assert_as_reference(SOME, state, outcomes_in(tmp_path / "out"))
    assert list(check_lists(state)) == list(check_outcomes(tmp_path / "out")) == []
    # Whoever reads a directory of outcomes reads outcomes, and nothing else.
    assert spark.read.parquet(str(tmp_path / "out")).count() == len(SOME)


def test_a_list_of_an_older_version_goes_on(spark: Any, tmp_path: Path) -> None:
    state = state_of(tmp_path)
    put_cut(tmp_path, SOME[:40], 2)
    finish(started(tmp_path))
    for source, event in ((s, e.definition.name) for e, s in direct(tmp_path).items()):
        known = listed(source, event, str(state))
        old = Path(known.known).with_suffix(".jsonl")
        old.write_text("".join(json.dumps(name) + "\n" for name in known.names()) + '"part-00')
        Path(known.known).unlink()
    put_cut(tmp_path, SOME[40:], 1)
    finish(started(tmp_path))
    assert_as_reference(SOME, state, outcomes_in(tmp_path / "out"))
    assert sorted(p.name for p in (state / "sources").iterdir()) == ["Deposit.list", "Transfer.list"]


def test_the_checksums_that_spark_writes_beside_its_notes(spark: Any, tmp_path: Path) -> None:
    state = state_of(tmp_path)
    put_cut(tmp_path, SOME, 2)
    finish(started(tmp_path))
    checkpoint = state / "checkpoint"
    noted = [checkpoint / "metadata", checkpoint / "offsets" / "0", checkpoint / "offsets" / "1"]
    assert all(note.with_name(f".{note.name}.crc").exists() and read_note(note) for note in noted)
    sources = tuple(listed(s, e.definition.name, str(state)) for e, s in direct(tmp_path).items())
    assert spans(checkpoint, 1, sources) == {"Transfer": (1, 2), "Deposit": (1, 2)}
    flip(noted[1], b'"files":')
    with pytest.raises(ps.StateError, match=r"offsets/0 is damaged: the checksums in .0.crc do not hold; restore"):
        spans(checkpoint, 1, sources)
    flip(noted[0], b'"id":"')
    with pytest.raises(ps.StateError, match=r"metadata is damaged: the checksums in .metadata.crc do not hold"):
        query_id(str(state))


def test_a_note_of_the_drain_that_says_nothing(spark: Any, tmp_path: Path) -> None:
    """Whether a function was given the last outcomes is not known: it is not called unasked. Files are written anew."""
    state = state_of(tmp_path)
    put_cut(tmp_path, SOME, 2)
    calls: list[int] = []

    def take(frame: Any, batch_id: int) -> None:
        calls.append(batch_id)

    finish(started(tmp_path, outcomes=take))
    assert calls == [1, 2, 3]
    (state / "drained").write_bytes(b"")
    with pytest.raises(ps.StateError, match=r"state/drained is damaged: .* write 3 into it; .* remove it"):
        started(tmp_path, outcomes=take)
    (state / "drained").write_text("3")
    finish(started(tmp_path, outcomes=take))
    assert calls == [1, 2, 3]
    (state / "drained").unlink()
    finish(started(tmp_path, outcomes=take))
    assert calls == [1, 2, 3, 3]
    (state / "drained").write_bytes(b"")
    finish(started(tmp_path))
    assert [p.name for p in (tmp_path / "out").glob("*.parquet")] == ["version-000000000003.parquet"]


def test_outcomes_that_are_damaged_are_written_anew(spark: Any, tmp_path: Path) -> None:
    state = state_of(tmp_path)
    put_cut(tmp_path, SOME, 2)
    finish(started(tmp_path))
    newest = max((tmp_path / "out").glob("*.parquet"))
    before = flip(newest, b"PAR1")
    (said,) = check_outcomes(tmp_path / "out")
    assert f"{newest.name} is damaged: it is not what was written; the next start of the query writes it" in said
    finish(started(tmp_path))
    assert newest.read_bytes() == before
    assert_as_reference(SOME, state, outcomes_in(tmp_path / "out"))
