"""The cache of compiled kernels: machine code that the next process need not make again.

    PENSTOCK_CACHE_DIR, or ~/.cache/penstock           this user's alone
      kernel-<digest>.code                             one function of a generated module, for one signature: sealed
      schedule-learned-2-<app>.json                    what graphs cost (schedule/costs.py): taken within bounds

It saves time and decides nothing: whatever is in it, a batch gives what it gives without it.

- Source is never read from it. A module is executed from the text that was generated in this process (modules.py).
- Machine code is a pickle, and to load one is to run it. So no byte is unpickled before its seal holds: a hash, which
  this module wrote in front, of the bytes and of all that they were made from (the source, what the source calls, the
  udfs, the versions, the function, its signature, the processor). Half a file, a flipped bit, another kernel's file or
  an older one's do not hold it. They are passed over, and made anew.
- A seal is no signature: who can write a file can seal it. Against others stand owner and mode. A directory, or a file
  in it, that is not this user's, or that others may write to, is not used. What was checked is what is used: the
  directory and each file are opened first, looked at through the descriptor, and read once.
- Trusted are therefore this user, root, and what is installed: Python, numba, this package.
- Files appear whole, by a rename: two processes may write the same one. A directory that cannot be made, read or
  written means compiling again: nothing of that raises.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numba.core import compiler, serialize
from numba.core.caching import _Cache

_log = logging.getLogger("penstock")
_MAGIC = b"penstock machine code 1\n"
_SEAL = hashlib.sha256().digest_size
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH  # an access list's writers count as the group's
_refused: set[Path] = set()  # directories that a warning was given of


# -- machine code -------------------------------------------------------------------------------


class MachineCode(_Cache):  # type: ignore[misc]
    """What numba asks, in place of its own cache, for a function's machine code, and hands it to be kept."""

    def __init__(self, directory: Path, function: str, made_from: str) -> None:
        self._directory, self._function, self._made_from = directory, function, made_from

    @property
    def cache_path(self) -> str:
        return str(self._directory)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        name, identity = self._named(sig, target_context.codegen())
        sealed = read(self._directory, name)
        if sealed is None:
            return None
        payload = _unsealed(sealed, identity)
        if payload is None:
            _log.info("%s is damaged or another kernel's; it is made anew", self._directory / name)
            return None
        try:
            kept_for, parts = serialize.loads(payload)
            # Two types may have one name; numba tells them apart.
            return compiler.CompileResult._rebuild(target_context, *parts) if kept_for == sig else None
        except Exception:  # whatever numba says: it is sound, but of no use here
            _log.info("%s cannot be loaded; it is made anew", self._directory / name, exc_info=True)
            return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        if cres.library.has_dynamic_globals or any(not lifted.can_cache for lifted in cres.lifted):
            return  # it holds addresses of this process
        name, identity = self._named(sig, cres.codegen)
        try:
            payload = serialize.dumps((sig, cres._reduce()))
        except Exception:  # of a udf's globals, anything
            _log.info("function %s of a kernel cannot be kept", self._function, exc_info=True)
            return
        write(self._directory, name, _sealed(payload, identity))

    def _named(self, sig: Any, codegen: Any) -> tuple[str, bytes]:
        """The file's name, and what the code in it was made from."""
        parts = self._made_from, self._function, str(sig), str(codegen.magic_tuple())
        identity = hashlib.sha256("\0".join(parts).encode()).digest()
        return f"kernel-{identity.hex()[:32]}.code", identity

    def enable(self) -> None: ...

    def disable(self) -> None: ...

    def flush(self) -> None: ...


def _sealed(payload: bytes, identity: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(identity + payload).digest() + payload


def _unsealed(data: bytes, identity: bytes) -> bytes | None:
    """The payload, if this is what was sealed for that identity."""
    payload = data[len(_MAGIC) + _SEAL :]
    return payload if data == _sealed(payload, identity) else None


# -- files --------------------------------------------------------------------------------------


def cache_directory() -> Path | None:
    """Where compiled kernels are kept: PENSTOCK_CACHE_DIR, or the user's cache directory; None: they have none."""
    chosen = os.environ.get("PENSTOCK_CACHE_DIR")
    if chosen:
        return Path(chosen)
    above = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # this user has no home
        return Path(above or Path.home() / ".cache") / "penstock"
    return None


def read(directory: Path, name: str) -> bytes | None:
    """A file's content; None where there is none, or none that is this user's alone."""
    with _opened(directory, name) as place:
        if place is None:
            return None
        try:
            # Not to wait for whoever writes to a pipe of that name.
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
            try:
                found = os.fstat(fd)
                if stat.S_ISREG(found.st_mode) and not _foreign(found):
                    with open(fd, "rb", closefd=False) as file:
                        return file.read()
            finally:
                os.close(fd)
            _log.info("%s is not a file of this user's alone; it is made anew", directory / name)
        except FileNotFoundError:
            pass
        except OSError as error:
            _log.info("%s cannot be read: %s", directory / name, error)
    return None


def write(directory: Path, name: str, data: bytes) -> bool:
    """Keep this under that name, in the place of what is there; False where that cannot be done."""
    with _opened(directory, name, make=True) as place:
        if place is None:
            return False
        temporary = f"{name}.{secrets.token_hex(8)}.tmp"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=place)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(data)
                os.replace(temporary, name, src_dir_fd=place, dst_dir_fd=place)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=place)
                raise
        except OSError as error:
            _log.info("%s cannot be written: %s", directory / name, error)
            return False
    return True


@contextlib.contextmanager
def _opened(directory: Path, name: str, *, make: bool = False) -> Iterator[int | None]:
    """The directory, opened; None where it cannot be, or is not this user's alone."""
    if name != os.path.basename(name) or name in ("", ".", ".."):
        raise ValueError(f"the cache names its files plainly, not {name!r}")
    try:
        if make:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        link = os.lstat(directory)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if make:
            _log.info("cache directory %s cannot be used: %s", directory, error)
        yield None
        return
    try:
        # Who made a symlink may point it elsewhere tomorrow.
        why = _foreign(os.fstat(fd)) or _foreign(link)
        if why:
            _refuse(directory, why)
        yield None if why else fd
    finally:
        os.close(fd)


def _foreign(found: os.stat_result) -> str:
    """Why this is not this user's alone to write; '' where it is."""
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}, not to {os.geteuid()} who runs this"
    # A symlink's own mode means nothing.
    if found.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(found.st_mode):
        return f"may be written to by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def _refuse(directory: Path, why: str) -> None:
    if directory in _refused:
        return
    _refused.add(directory)
    warnings.warn(
        f"cache directory {directory} {why}, so compiled kernels are neither read from it nor kept there; "
        f"make it yours alone (chown, chmod go-w {directory}), or set PENSTOCK_CACHE_DIR to a directory that is",
        RuntimeWarning,
        stacklevel=2,
    )
