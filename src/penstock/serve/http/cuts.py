"""Cuts that several requests share: the pages of one answer, and older versions, which are read from the disk.

A cut of the newest version costs nothing to take and what changes while it is open. One of an older version is a copy
of its own, so there is one of these at a time, and it is made once for all who ask for it meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import FutureVersionError

if TYPE_CHECKING:
    from penstock.replica.cut import Cut
    from penstock.replica.reader import Reader

KEPT_S = 30.0
_KEPT_MAX = 4
_OLD_MAX = 1


@dataclass(slots=True)
class _Kept:
    cut: Cut
    until: float
    old: bool  # a copy of its own
    users: int = 0


class Cuts:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._mutex = threading.Lock()
        self._restoring = threading.Lock()
        self._kept: dict[int, _Kept] = {}

    @contextmanager
    def at(self, version: int | None, *, keep: bool = False) -> Iterator[Cut]:
        """A cut of this version, the newest for None. keep: it is likely to be asked for again, by its number."""
        kept = self._taken(version, keep)
        try:
            yield kept.cut
        finally:
            with self._mutex:
                kept.users -= 1
                is_kept = self._kept.get(kept.cut.version) is kept
                if not is_kept and not kept.users:
                    kept.cut.close()

    def _taken(self, version: int | None, keep: bool) -> _Kept:
        if version is None or version == self._reader.version:
            cut = self._reader.cut()
            if version in (None, cut.version):
                return self._entered(cut, old=False) if keep else _Kept(cut, 0.0, False, 1)
            cut.close()
        if version > self._reader.version:
            raise FutureVersionError(f"there is no version {version} yet; the newest here is {self._reader.version}")
        found = self._again(version)
        if found is not None:
            return found
        with self._restoring:
            return self._again(version) or self._entered(self._reader.cut(version=version), old=True)

    def _again(self, version: int) -> _Kept | None:
        with self._mutex:
            found = self._kept.get(version)
            if found is not None:
                found.users += 1
                found.until = time.monotonic() + KEPT_S
            return found

    def _entered(self, cut: Cut, *, old: bool) -> _Kept:
        with self._mutex:
            entered = _Kept(cut, time.monotonic() + KEPT_S, old, 1)
            there = self._kept.get(cut.version)
            if there is not None:
                there.users += 1
                cut.close()
                return there
            self._kept[cut.version] = entered
            self._drop(_OLD_MAX, lambda one: one.old)
            self._drop(_KEPT_MAX, lambda one: True)
            return entered

    def _drop(self, most: int, of: object) -> None:
        assert callable(of)
        several = sorted((v for v, one in self._kept.items() if of(one)), key=lambda v: self._kept[v].until)
        for version in several[: max(len(several) - most, 0)]:
            dropped = self._kept.pop(version)
            if not dropped.users:
                dropped.cut.close()

    def sweep(self, *, all_of_them: bool = False) -> None:
        """Closes what nobody has asked for in a while."""
        now = time.monotonic()
        with self._mutex:
            for version, one in list(self._kept.items()):
                if all_of_them or (one.until < now and not one.users):
                    del self._kept[version]
                    if not one.users:
                        one.cut.close()
