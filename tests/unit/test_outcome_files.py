"""Outcomes on disk: in the log in fewer bytes, in files as any reader takes them."""

import datetime as dt
import os
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.declare.model import TEXT
from penstock.errors import StateError
from penstock.publish.behind import Behind
from penstock.publish.files import OutcomeFiles, plain
from penstock.publish.kept import from_log, to_log


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

    behind = Behind()
    behind.put(fail)
    for tell in (behind.wait, behind.wait, lambda: behind.put(fail), behind.close):
        with pytest.raises(StateError, match="no room"):
            tell()


def test_whoever_the_umask_lets_may_read_a_file_of_outcomes(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        OutcomeFiles(str(tmp_path / "new" / "out")).write(some_outcomes(INTS))
    finally:
        os.umask(before)
    made = tmp_path / "new" / "out"
    assert made.stat().st_mode & 0o777 == 0o755
    assert (made / "version-000000000007.parquet").stat().st_mode & 0o777 == 0o644


def test_outcomes_that_cannot_be_written_are_told_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(StateError, match="outcomes of version 7 cannot be written to .*/out: Not a directory; the state"):
        OutcomeFiles(str(tmp_path / "out")).write(some_outcomes(INTS))
