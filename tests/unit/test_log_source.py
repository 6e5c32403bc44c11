"""log="source": a batch from files is logged by their names, and read again."""

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.execute.source_files import SourceFile, SourceRows, read_named
from penstock.replica.directory import Directory
from penstock.spark.check import check_beside
from penstock.testing import assert_same_outcomes, assert_same_tables

tally = ps.App("tally")


@tally.table
class Count:
    key: str = ps.key()
    times: int = 0
    last: int = 0


@tally.event
class Hit:
    ts: int = ps.order()
    key: str


@tally.event
class Pair:
    ts: int = ps.order()
    key: str


@tally.transaction
def hit(e: Hit) -> dict[str, int]:
    count = Count.get(e.key)
    count.times += 1
    count.last = ps.now()
    ps.require(e.ts % 7 != 3, "unlucky")
    return {"times": count.times}


@tally.transaction(batch=2)
def pair(several: list[Pair]) -> None:
    for one in several:
        Count.get(one.key).times += 100


def _rows(directory: Path, rng: Random, name: str, first: int) -> SourceRows:
    ts = [first + rng.randrange(30) for _ in range(rng.randrange(1, 30))]
    table = pa.table({"ts": ts, "key": pa.array([rng.choice("abcd") for _ in ts])})
    path = directory / f"{name}-{first}.parquet"
    pq.write_table(table, path)
    return SourceRows(table, (SourceFile.of(str(path), path.read_bytes()),))


def _plain(batch: dict[str, SourceRows]) -> dict[str, pa.Table]:
    return {name: rows.table for name, rows in batch.items()}


@pytest.mark.parametrize("seed", range(3))
def test_what_is_read_again_is_what_the_reference_has(seed: int, tmp_path: Path) -> None:
    rng, names = Random(seed), ("Hit", "Pair")
    with tally.reference() as reference:
        for number in range(8):
            batch = {name: _rows(tmp_path, rng, name, 20 * number) for name in rng.sample(names, rng.choice((1, 2)))}
            options: dict[str, Any] = (
                {"watermark": rng.choice((None, 5, 25))} if rng.random() < 0.8 else {"flush": True}
            )
            db = tally.open(tmp_path / "state", log="source", snapshot_every=rng.choice((3, 100)))
            given: Any = _plain(batch) if rng.random() < 0.2 else batch  # not from files: its events are logged
            assert_same_outcomes(db.run(given, **options), reference.run(_plain(batch), **options))
            db._store.close(None)  # without the snapshot that closing makes
            db = tally.open(tmp_path / "state", log="source")
            assert_same_tables(db.table(Count), reference.table(Count), ["key"])
            db._store.close(None)
    segments = "".join(path.read_bytes().decode(errors="ignore") for path in (tmp_path / "state/log").iterdir())
    assert ".parquet" in segments and '"log": "source"' in segments.replace('":"', '": "')


@pytest.fixture
def logged(tmp_path: Path) -> tuple[Path, Path]:
    """A directory with two batches from files, and the second's file."""
    rng = Random(1)
    batches = [{"Hit": _rows(tmp_path, rng, "Hit", first)} for first in (0, 100)]
    db = tally.open(tmp_path / "state", log="source")
    for batch in batches:
        db.run(batch)
    db._store.close(None)
    return tmp_path / "state", Path(batches[1]["Hit"].files[0].path)


def test_a_file_that_is_gone_is_named(logged: tuple[Path, Path]) -> None:
    state, file = logged
    file.rename(file.with_suffix(".gone"))
    with pytest.raises(ps.StateError, match=rf"{file}, which holds events 'Hit' of version 2.*put it back"):
        tally.open(state)
    file.with_suffix(".gone").rename(file)
    with tally.open(state) as db:
        assert db.version == 2


def test_a_file_that_is_another_one_by_now_is_named(logged: tuple[Path, Path]) -> None:
    state, file = logged
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(ps.StateError, match=rf"{file}.*is another one by now.*put back the one that was there"):
        tally.open(state)


def test_a_file_that_changed_behind_its_reading_is_named(tmp_path: Path) -> None:
    """Files are read ahead of their batch: the checksum is of what was read then."""
    path = Path(_rows(tmp_path, Random(1), "Hit", 0).files[0].path)
    rows = read_named(tally.program.events[0], [str(path)])
    _rows(tmp_path, Random(2), "Hit", 0)
    db = tally.open(tmp_path / "state", log="source")
    db.run({"Hit": rows})
    db._store.close(None)
    with pytest.raises(ps.StateError, match=rf"{path}.*is another one by now"):
        tally.open(tmp_path / "state")


def test_behind_a_snapshot_files_may_go(logged: tuple[Path, Path]) -> None:
    state, file = logged
    with tally.open(state, log="source"):
        pass  # closing makes a snapshot
    file.unlink()
    with tally.open(state) as db:
        assert db.version == 2 and db.table(Count).num_rows > 0
    with pytest.raises(ps.StateError, match="was logged as its input"):
        Directory(state).table("Count", 1)


def test_the_check_looks_at_the_files_that_are_the_log(tmp_path: Path) -> None:
    rng, state = Random(1), tmp_path / "state"
    with tally.open(state, log="source", snapshot_every=2, background=False) as db:
        batches = [_rows(tmp_path, rng, "Hit", 100 * number) for number in range(3)]
        for rows in batches:
            db.run({"Hit": rows})
        crashed = Path(shutil.copytree(state, tmp_path / "crashed"))
    old, new = (Path(batches[number].files[0].path) for number in (0, 2))
    found = {finding.file: finding for finding in check_beside(crashed)}
    assert not any(finding.problem for finding in found.values())
    assert {str(old), str(new)} <= found.keys()
    old.unlink()
    new.write_bytes(new.read_bytes()[:-1])
    found = {finding.file: finding for finding in check_beside(crashed)}
    assert found[str(old)].ok
    assert found[str(old)].problem == "cannot be read: no such file or directory"
    assert not found[str(new)].ok
    assert found[str(new)].problem == "is another one by now"
