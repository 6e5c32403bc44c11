"""Outcomes on disk: in the log in fewer bytes, in files as any reader takes them, of which each is known for what it
should be."""

import datetime as dt
import os
import shutil
import stat
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.commit.identity import IDENTITY
from penstock.commit.sealed import seal
from penstock.declare.model import TEXT
from penstock.errors import StateError
from penstock.publish.files import OutcomeFiles, plain
from penstock.publish.manifest import MANIFEST, check_outcomes
from penstock.spark.outcome_writer import OutcomeWriter
from penstock.store.outcome_codec import from_log, to_log


def some_outcomes(ts: pa.Array, texts: int = 2) -> pa.Table:
    n = len(ts)
    status = pa.DictionaryArray.from_arrays(
        pa.array([i % texts for i in range(n)], pa.int32()), [*map(str, range(texts))]
    )
    reason = pa.array([None if i % 3 else "no" for i in range(n)], pa.string()).dictionary_encode()
    columns = {
        "transaction": pa.array(["pay"] * n, pa.string()).dictionary_encode(),
        "ts": ts,
        "id": pa.array([f"e{i}" for i in range(n)], pa.string()),
        "status": status,
        "reason": reason,
        "version": pa.array([7] * n, pa.int64()),
        "left": pa.array([Decimal(i) / 100 if i % 2 else None for i in range(n)], pa.decimal128(18, 2)),
        "at": pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * n, pa.timestamp("us", "UTC")),
        "day": pa.array([dt.date(2026, 1, 1)] * n, pa.date32()),
        "name": pa.array(["a", None] * (n // 2) + ["a"] * (n % 2), pa.string()),
        "good": pa.array([True] * n, pa.bool_()),
        "share": pa.array([0.5] * n, pa.float64()),
    }
    return pa.table(columns)


INTS = pa.array(range(5), pa.int64())
TIMES = pa.array([dt.datetime(2026, 1, 1)] * 5, pa.timestamp("us"))
NONE = pa.array([], pa.int64())


@pytest.mark.parametrize("texts", [1, 127, 128, 40_000])
@pytest.mark.parametrize("ts", [INTS, TIMES, NONE], ids=["ints", "times", "none"])
def test_what_the_log_keeps_comes_back_as_it_was(ts: pa.Array, texts: int) -> None:
    out = some_outcomes(ts, texts)
    kept = to_log(out)
    assert "version" not in kept.column_names
    back = from_log(kept, 7)
    assert back.schema == out.schema
    assert back.schema.field("status").type == TEXT
    assert back.equals(out)


@pytest.mark.parametrize("ts", [INTS, TIMES], ids=["ints", "times"])
def test_a_file_of_outcomes_has_plain_types(ts: pa.Array, tmp_path: Path) -> None:
    out = some_outcomes(ts)
    OutcomeFiles(str(tmp_path)).write(out)
    back = pq.read_table(tmp_path / "version-000000000007.parquet")
    assert back.schema.equals(plain(out).schema)
    assert back.equals(plain(out))


def test_a_failure_behind_is_told_to_whoever_waits() -> None:
    def fail() -> None:
        raise StateError("no room")

    behind = OutcomeWriter()
    behind.put(fail)
    for tell in (behind.wait, behind.wait, lambda: behind.put(fail), behind.close):
        with pytest.raises(StateError, match="no room"):
            tell()


# --- the manifest -------------------------------------------------------------------------------


def version(number: int) -> pa.Table:
    """Outcomes of that version; they differ from those of others."""
    return pa.table({"ts": [number, number + 1], "id": ["a", "b"], "version": [number, number]})


def name(number: int) -> str:
    return f"version-{number:012d}.parquet"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Three versions."""
    path = tmp_path / "made" / "out"
    files = OutcomeFiles(str(path))
    for number in (1, 2, 3):
        files.write(version(number))
    return path


def write_again(path: Path, number: int) -> None:
    """As a query does that starts again."""
    OutcomeFiles(str(path)).write(version(number))


def rows(path: Path) -> list[int]:
    found = pa.concat_tables(pq.read_table(f) for f in sorted(path.glob("version-*.parquet")))
    return list(found["ts"].to_pylist())


ALL = [1, 2, 2, 3, 3, 4]


def test_files_as_they_were_written_give_no_findings(out: Path) -> None:
    assert list(check_outcomes(out)) == []
    written = {f: f.stat().st_mtime_ns for f in out.iterdir()}
    write_again(out, 3)
    assert {f: f.stat().st_mtime_ns for f in out.iterdir()} == written


def test_readers_pass_over_the_manifest(out: Path) -> None:
    assert (out / MANIFEST).exists()
    assert sorted(pq.read_table(out)["ts"].to_pylist()) == ALL
    found = duckdb.sql(f"select ts from '{out}/*.parquet' order by ts").fetchall()
    assert [ts for (ts,) in found] == ALL


def test_pages_have_checksums(out: Path) -> None:
    data = bytearray((out / name(2)).read_bytes())
    column = pq.ParquetFile(out / name(2)).metadata.row_group(0).column(1)
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    (out / name(2)).write_bytes(data)
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(out / name(2), page_checksum_verification=True)


@pytest.mark.parametrize("how", ["missing", "damaged", "empty", "another version's", "cut"])
def test_a_file_that_is_not_what_was_written_is_found_and_the_newest_written_anew(out: Path, how: str) -> None:
    for number in (2, 3):
        file = out / name(number)
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        if how == "missing":
            file.unlink()
        elif how == "another version's":
            shutil.copy(out / name(1), file)
        else:
            file.write_bytes({"damaged": data, "empty": b"", "cut": data[:-9]}[how])
    older, newest = check_outcomes(out)
    said = "is missing" if how == "missing" else "is damaged: it is not what was written"
    assert f"{name(2)} {said}; restore it from a backup; outcomes(2) of the database" in older
    assert f"{name(3)} {said}; the next start of the query writes it" in newest
    write_again(out, 3)
    (left,) = check_outcomes(out)
    assert left == older
    write_again(out, 2)
    assert list(check_outcomes(out)) == []
    assert rows(out) == ALL


def test_a_file_that_nobody_wrote_here_is_found(out: Path) -> None:
    shutil.copy(out / name(1), out / name(9))
    shutil.copy(out / name(1), out / "copy of version 1.parquet")
    (out / ".hidden.parquet").touch()
    (out / "readme.txt").touch()
    copy, nine = check_outcomes(out)
    assert "copy of version 1.parquet is none of the files written here; remove it" in copy
    assert f"{name(9)} is none of the files written here; remove it" in nine


def test_a_manifest_that_is_damaged_is_named(out: Path) -> None:
    data = (out / MANIFEST).read_bytes()
    (out / MANIFEST).write_bytes(data.replace(b'"version":2', b'"version":4'))
    (said,) = check_outcomes(out)
    assert f"{MANIFEST} is damaged in line 3: its checksum does not hold; restore it from a backup, or remove" in said
    with pytest.raises(StateError, match=rf"outcomes of version 4 cannot be written to .*: .*{MANIFEST} is damaged"):
        write_again(out, 4)
    (out / MANIFEST).unlink()
    (said,) = check_outcomes(out)
    assert f"{out} has no {MANIFEST}" in said
    write_again(out, 4)
    assert list(check_outcomes(out)) == []


def test_outcomes_of_another_state_directory_are_refused(tmp_path: Path) -> None:
    states = [tmp_path / "one", tmp_path / "two"]
    for number, state in enumerate(states):
        state.mkdir()
        (state / IDENTITY).write_bytes(seal({"app": "bank", "directory": f"9f3{number}", "log": "changes"}))
    path = tmp_path / "out"
    OutcomeFiles(str(path), str(states[0])).write(version(1))
    with pytest.raises(StateError, match=r"_outcomes.list is the list of another directory: '9f30', not '9f31'; put"):
        OutcomeFiles(str(path), str(states[1])).write(version(2))
    assert list(check_outcomes(path, "9f30")) == []
    (said,) = check_outcomes(path, "9f31")
    assert "is the list of another directory" in said


# --- a directory that older versions have written to ---------------------------------------------


@pytest.fixture
def older(out: Path) -> Path:
    (out / MANIFEST).unlink()
    return out


def test_an_older_directory_goes_on(older: Path) -> None:
    written = {f: f.stat().st_mtime_ns for f in older.iterdir()}
    write_again(older, 3)
    assert {f: f.stat().st_mtime_ns for f in written} == written
    assert list(check_outcomes(older)) == []
    write_again(older, 4)
    assert rows(older) == [*ALL, 4, 5]
    assert list(check_outcomes(older)) == []
    (older / name(1)).write_bytes(b"PAR1 and nothing else")
    (older / name(3)).write_bytes(b"")
    three, one = check_outcomes(older)
    assert f"{name(3)} is damaged: it is not what was written" in three
    assert f"{name(1)} is damaged: it cannot be read" in one


def test_a_torn_file_of_an_older_directory_is_written_anew(older: Path) -> None:
    os.truncate(older / name(3), 40)
    write_again(older, 3)
    assert rows(older) == ALL
    assert list(check_outcomes(older)) == []


def test_outcomes_of_somebody_else_are_not_overwritten(older: Path) -> None:
    before = (older / name(3)).read_bytes()
    with pytest.raises(StateError, match=r"version-000000000003.parquet holds other outcomes .* another state dir"):
        OutcomeFiles(str(older)).write(version(4).set_column(2, "version", pa.array([3, 3])))
    assert (older / name(3)).read_bytes() == before and not (older / MANIFEST).exists()


def test_a_torn_manifest_header_is_no_manifest(older: Path) -> None:
    (older / MANIFEST).write_bytes(b'["0b6f')
    write_again(older, 4)
    assert list(check_outcomes(older)) == []


# --- modes --------------------------------------------------------------------------------------


def modes(path: Path) -> tuple[int, set[int]]:
    return stat.S_IMODE(path.stat().st_mode), {stat.S_IMODE(f.stat().st_mode) for f in path.iterdir()}


def test_a_directory_that_is_made_is_its_owners_alone(out: Path) -> None:
    assert modes(out) == (0o700, {0o600})
    assert modes(out.parent) == (0o700, {0o700})


@pytest.mark.parametrize(("given", "files"), [(0o755, 0o644), (0o750, 0o640), (0o2770, 0o660), (0o700, 0o600)])
def test_a_directory_that_is_there_says_who_may_read(tmp_path: Path, given: int, files: int) -> None:
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(given)
    umask = os.umask(0o077)
    try:
        write_again(out, 1)
    finally:
        os.umask(umask)
    assert modes(out) == (given, {files})
