"""Tokens: who may read, and who may write.

    state/bank/read.token      0600; made when a server starts that is given none
    state/bank/write.token     a write token reads too

They come as `Authorization: Bearer …`, or, from a browser, as a cookie that the first visit (`/?token=…`) sets. Each
comparison takes the same time whatever is compared. Nobody else may read the files: one that others can is refused.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from penstock.commit.identity import READ_TOKEN, WRITE_TOKEN
from penstock.errors import InputError, StateError

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")


@dataclass(frozen=True, slots=True)
class Tokens:
    read: bytes
    write: bytes

    def may_read(self, given: bytes) -> bool:
        # Both are compared, whichever holds.
        return hmac.compare_digest(given, self.read) | hmac.compare_digest(given, self.write)

    def may_write(self, given: bytes) -> bool:
        return hmac.compare_digest(given, self.write)


def tokens_of(state: Path, read_file: Path | None = None, write_file: Path | None = None) -> Tokens:
    """Those in the files that are named; else those of the state directory, which are made where they are not there."""
    read = _given(read_file) if read_file else _kept(state / READ_TOKEN)
    write = _given(write_file) if write_file else _kept(state / WRITE_TOKEN)
    if read == write:
        raise InputError("the read token and the write token are the same; give two, so that who reads cannot write")
    return Tokens(read.encode(), write.encode())


def kept_token(state: Path, name: str = READ_TOKEN) -> str | None:
    """What a server on this machine has made; None where it was given others, or none has run."""
    try:
        return _read(state / name)
    except FileNotFoundError:
        return None


def _given(path: Path) -> str:
    try:
        return _read(path)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}; put a token into it, such as: openssl rand -hex 32") from None


def _kept(path: Path) -> str:
    try:
        return _read(path)
    except FileNotFoundError:
        pass
    # Whole under another name, then linked: two servers that start at once have one token.
    making = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        file = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(file, secrets.token_urlsafe(32).encode() + b"\n")
            os.fsync(file)
        finally:
            os.close(file)
        try:
            os.link(making, path)
        except FileExistsError:
            pass
        finally:
            os.unlink(making)
    except OSError as error:
        raise StateError(
            f"cannot make {path}: {error.strerror}; name files that hold tokens, with --read-token-file and "
            "--write-token-file"
        ) from error
    return _read(path)


def _read(path: Path) -> str:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StateError(f"cannot read {path}: {error.strerror}") from error
    with open(file, "rb") as opened:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise StateError(f"{path} is not a file; put a token into a file")
        if found.st_mode & 0o077:
            raise StateError(f"{path} can be read or written by others than its owner; chmod 600 {path}")
        text = opened.read(1024).decode("ascii", "replace").strip()
    if not _TOKEN.fullmatch(text):
        raise StateError(
            f"{path} does not hold a token: one word of 16 to 512 letters, digits and ._~+/=-; remove it, or write one"
        )
    return text
