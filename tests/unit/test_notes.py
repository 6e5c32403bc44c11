"""Small files that decide what is run or handed on: Spark's notes, and the note of the last drain."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from penstock.commit import Disk
from penstock.commit.identity import IDENTITY
from penstock.commit.sealed import seal
from penstock.errors import StateError
from penstock.spark.checkpoint import planned, query_id, read_note
from penstock.spark.drained import DRAINED, DrainNote

PLAN = b"v1\n" + b'{"batchWatermarkMs":0}' * 60 + b'\n{"event": "Transfer", "files": 2}'
# As Hadoop wrote them: checkpoint/metadata of a query, and .metadata.crc beside it.
METADATA = b'{"id":"e1d54f04-a6c6-4d3e-bb0d-1a5ce51c1ed0"}'


def with_sums(path: Path, data: bytes, per_sum: int = 512) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    sums = [zlib.crc32(data[at : at + per_sum]) for at in range(0, len(data), per_sum)]
    content = b"crc\0" + struct.pack(f">I{len(sums)}I", per_sum, *sums)
    path.with_name(f".{path.name}.crc").write_bytes(content)


@pytest.mark.parametrize("data", [b"", b"v1", PLAN[:512], PLAN], ids=["none", "few", "one sum", "sums"])
def test_a_note_whose_sums_hold_is_read(tmp_path: Path, data: bytes) -> None:
    with_sums(tmp_path / "7", data)
    assert read_note(tmp_path / "7") == data


def test_a_note_without_sums_is_believed(tmp_path: Path) -> None:
    (tmp_path / "7").write_bytes(PLAN)
    assert read_note(tmp_path / "7") == PLAN
    with pytest.raises(FileNotFoundError):
        read_note(tmp_path / "8")


def test_every_flipped_bit_of_a_note_or_its_sums_is_found(tmp_path: Path) -> None:
    note = tmp_path / "offsets" / "7"
    with_sums(note, PLAN)
    for path in (note, note.with_name(".7.crc")):
        whole = path.read_bytes()
        for at in range(0, len(whole), 1 if len(whole) < 100 else 37):
            broken = bytearray(whole)
            broken[at] ^= 4
            path.write_bytes(broken)
            with pytest.raises(StateError, match=r"offsets/7 is damaged: the checksums in .7.crc do not hold; restore"):
                read_note(note)
        path.write_bytes(whole[:-1])
        with pytest.raises(StateError, match="is damaged"):
            read_note(note)
        path.write_bytes(whole)


def test_damage_is_named_where_the_checkpoint_is_asked(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(StateError, match=r"checkpoint/metadata is missing; restore the checkpoint"):
        query_id(str(tmp_path))
    with pytest.raises(StateError, match=r"checkpoint/offsets/3 is missing; restore the checkpoint"):
        planned(str(tmp_path), 3)
    with_sums(checkpoint / "metadata", METADATA)
    with_sums(checkpoint / "offsets" / "3", PLAN)
    assert query_id(str(tmp_path)).startswith("e1d54f04")
    before = planned(str(tmp_path), 3)
    (checkpoint / "metadata").write_bytes(METADATA.replace(b"e1d5", b"e1d4"))
    (checkpoint / "offsets" / "3").write_bytes(PLAN.replace(b"files", b"filer"))
    with pytest.raises(StateError, match=r"checkpoint/metadata is damaged: the checksums"):
        query_id(str(tmp_path))
    with pytest.raises(StateError, match=r"offsets/3 is damaged: the checksums"):
        planned(str(tmp_path), 3)
    for sums in checkpoint.rglob(".*.crc"):
        sums.unlink()
    assert planned(str(tmp_path), 3) != before
    for data in (b"", b"[]", b"{}", b"\xff"):
        (checkpoint / "metadata").write_bytes(data)
        with pytest.raises(StateError, match=r"metadata is damaged: it does not say which query's it is; restore"):
            query_id(str(tmp_path))


# --- drained ------------------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / IDENTITY).write_bytes(seal({"app": "bank", "directory": "9f3c", "log": "changes"}))
    return tmp_path


def says(state: Path, drained: int, can_repeat: bool = False) -> bool:
    return DrainNote(state, Disk()).says(drained, can_repeat=can_repeat)


def test_a_drain_is_noted(state: Path) -> None:
    assert not says(state, 5)
    DrainNote(state, Disk()).write(5)
    assert says(state, 5) and not says(state, 6)
    DrainNote(state, Disk()).write(6)
    assert says(state, 6) and not says(state, 5)


@pytest.mark.parametrize("text", ["5", "5\n"])
def test_a_bare_number_is_understood(state: Path, text: str) -> None:
    (state / DRAINED).write_text(text)
    assert says(state, 5) and not says(state, 6)


def test_an_empty_note_blocks_only_a_function(state: Path) -> None:
    (state / DRAINED).touch()
    assert not says(state, 5, can_repeat=True)
    with pytest.raises(StateError, match=r"drained is damaged: .* or, if the outcomes .*write 5 into it; .* remove it"):
        says(state, 5)


@pytest.mark.parametrize("can_repeat", [True, False])
def test_a_damaged_note_is_named(state: Path, can_repeat: bool) -> None:
    DrainNote(state, Disk()).write(5)
    whole = (state / DRAINED).read_bytes()
    for broken in (b"5x", b"9" * 5000, b"\0\0", whole[:-4], whole.replace(b'"drained": 5', b'"drained": 4')):
        (state / DRAINED).write_bytes(broken)
        with pytest.raises(StateError, match=r"drained is damaged: .* write 5 into it; .* remove it"):
            says(state, 5, can_repeat)


def test_a_note_of_another_directory_is_refused(state: Path) -> None:
    DrainNote(state, Disk()).write(5)
    (state / IDENTITY).write_bytes(seal({"app": "bank", "directory": "77aa", "log": "changes"}))
    with pytest.raises(StateError, match=r"drained belongs to another state directory, '9f3c', not '77aa'; .*or, if"):
        says(state, 5)
