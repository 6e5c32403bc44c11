"""A segment says what was written, or that it is damaged."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.commit.disk import Disk
from penstock.commit.log import encode, read_contents, read_segment
from penstock.errors import StateError

HEADER = {"seq": 1, "kind": "batch", "id": 7, "note": "é"}


def parts() -> dict[str, pa.Table]:
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.int32()), pa.array(["a", "bc"]))
    other = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int32()), pa.array(["x", "a"]))
    return {
        "changes": pa.table({"k": [1, 2, 3], "v": ["x", None, "z"]}),
        "empty": pa.table({"k": pa.array([], pa.int64())}),
        "words": pa.table({"w": pa.chunked_array([words, other])}),
        "slice": pa.table({"k": list(range(100)), "l": [[i] for i in range(100)]}).slice(3, 5),
    }


def write_segment(path: Path, header: dict[str, Any], parts: dict[str, pa.Table]) -> None:
    Disk().write_new(path, encode(header, parts).pieces)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "one.seg"
    write_segment(path, HEADER, parts())
    return path


def test_what_was_written_is_read(path: Path) -> None:
    segment = read_segment(Disk(), path)
    assert segment.header == HEADER == read_contents(Disk(), path).header
    assert {name: table.to_pylist() for name, table in segment.parts.items()} == {
        name: table.to_pylist() for name, table in parts().items()
    }
    assert [table.schema for table in segment.parts.values()] == [table.schema for table in parts().values()]


def test_only_the_parts_asked_for_are_read(path: Path) -> None:
    assert list(read_segment(Disk(), path, only={"words", "absent"}).parts) == ["words"]
    assert read_segment(Disk(), path, only=()).parts == {}


def test_no_parts_and_a_long_header(tmp_path: Path) -> None:
    header = {"names": ["x" * 100] * 1000}
    write_segment(tmp_path / "a.seg", header, {})
    assert read_segment(Disk(), tmp_path / "a.seg").header == header


def test_a_segment_is_private_and_never_overwritten(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        write_segment(path, HEADER, {})


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"gone\.seg is missing"):
        read_segment(Disk(), tmp_path / "gone.seg")


def test_every_flipped_bit_is_noticed(path: Path) -> None:
    sound = path.read_bytes()
    chosen = random.Random(1).sample(range(len(sound) * 8), 300)
    for bit in [*range(8 * 16), *chosen]:
        data = bytearray(sound)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with pytest.raises(StateError, match=r"one\.seg is damaged"):
            read_segment(Disk(), path)


def test_every_truncation_is_noticed(path: Path) -> None:
    sound = path.read_bytes()
    for length in range(0, len(sound), 7):
        path.write_bytes(sound[:length])
        with pytest.raises(StateError, match=r"one\.seg is damaged"):
            read_contents(Disk(), path)
    path.write_bytes(sound + b"\0")
    with pytest.raises(StateError, match=r"one\.seg is damaged"):
        read_contents(Disk(), path)


@given(st.dictionaries(st.text(), st.lists(st.integers(-(2**63), 2**63 - 1)), max_size=4))
def test_any_names_and_numbers(tables: dict[str, list[int]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.seg"
        write_segment(path, {}, {name: pa.table({"v": pa.array(v, pa.int64())}) for name, v in tables.items()})
        found = read_segment(Disk(), path).parts
        assert {name: table["v"].to_pylist() for name, table in found.items()} == tables
