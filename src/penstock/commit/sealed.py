"""A small JSON file with its own checksum, for a person to read and a program to trust.

    {"app": "bank", ..., "format": 2, "crc": 2774921813}

The crc is taken over the canonical text of everything else, so a flipped bit changes either the
text's shape (no JSON), a value (another crc) or nothing that matters (a space).

Format 1 knew neither a directory's own identity nor the chain of its commits (chain.py). It is still read; a Penstock
that knows no more than format 1 refuses format 2, and so cannot add commits that are not chained.
"""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

from penstock.commit.disk import Disk
from penstock.errors import StateError

FORMAT = 2
READABLE = (1, FORMAT)


def seal(content: dict[str, Any]) -> bytes:
    content = json.loads(json.dumps({**content, "format": FORMAT}, allow_nan=False))  # As a reader will see it.
    return (json.dumps({**content, "crc": _crc(content)}, indent=1) + "\n").encode()


def unseal(data: bytes, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(data)
        crc = content.pop("crc")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(f"{path} is damaged: not a checksummed JSON object; restore it from a backup") from error
    if crc != _crc(content):
        raise StateError(f"{path} is damaged: its checksum does not hold; restore it from a backup")
    if content.pop("format", None) not in READABLE:
        raise StateError(f"{path} has a format that this Penstock does not know; use the Penstock that wrote it")
    return dict(content)


def read_sealed(disk: Disk, path: Path, *names: str) -> dict[str, Any]:
    """The content, which has these names; FileNotFoundError where there is no such file."""
    content = unseal(disk.read(path), path)
    missing = [name for name in names if name not in content]
    if missing:
        raise StateError(f"{path} is damaged: it is another file, without {missing[0]!r}; restore it from a backup")
    return content


def bare_number(data: bytes) -> int | None:
    """Of a file that an operator has written by hand: a version and nothing else. None: it is no such file."""
    return int(data) if re.fullmatch(rb"\s*[0-9]{1,18}\s*", data) else None


def _crc(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
