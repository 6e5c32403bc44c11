"""Files written past the page cache hold what was to be written, whatever their size and their file system."""

import errno
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.commit import Disk
from penstock.commit import o_direct as direct

SIZES = [
    0,
    1,
    direct.LEAST - 1,
    direct.LEAST,
    direct.LEAST + 1,
    3 * direct.BUFFER - 5,
    3 * direct.BUFFER + direct.BLOCK,
]


def pieces(size: int) -> list[memoryview]:
    """Of all lengths, none of them aligned."""
    data = bytes(range(251)) * (size // 251 + 1)
    cuts = [0, *(cut for cut in (1, 4095, 70_000, direct.BUFFER + 3) if cut < size), size]
    return [memoryview(data)[a:b] for a, b in pairwise(cuts)]


def check(path: Path, size: int) -> None:
    wanted = pieces(size)
    Disk().write_new(path, wanted)
    assert path.read_bytes() == b"".join(wanted)


@pytest.mark.parametrize("size", SIZES)
def test_every_byte_arrives(tmp_path: Path, size: int) -> None:
    check(tmp_path / "file", size)


@pytest.mark.parametrize("at", [0, 1])
def test_a_file_system_that_takes_no_direct_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Some say so when asked, some only when written to; here, at the first block or after it."""
    calls = []

    def refuse(fd: int, data: Any, offset: int) -> None:
        calls.append(offset)
        if len(calls) > at:
            raise OSError(errno.EINVAL, "Invalid argument")
        os.pwrite(fd, data, offset)

    monkeypatch.setattr(direct, "_write_at", refuse)
    check(tmp_path / "file", SIZES[-1])
    assert len(calls) == at + 1


def test_one_that_says_so_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "_set_direct", lambda fd, on: False)
    check(tmp_path / "file", SIZES[-1])
