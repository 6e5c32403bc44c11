"""drained: the version of the last drain whose outcomes were handed on, in the state directory.

Without it a restart would hand them on again, or not at all: Spark knows nothing of a drain. It is sealed JSON;
older versions wrote a bare number, which is still understood, and which a person may write by hand.

An empty note is what a crash could leave of an older version's. It does not say whether the outcomes were handed on.
Files of outcomes are written again, which leaves them once. A function is not called again unasked: it might pay
twice, so a person has to decide.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from penstock.check.findings import RESTORE
from penstock.commit.disk import Disk
from penstock.commit.identity import DRAINED, directory_of, refuse_foreign
from penstock.commit.sealed import bare_number, seal, unseal
from penstock.errors import StateError


class DrainNote:
    def __init__(self, state: Path, disk: Disk) -> None:
        self._state, self._path, self._disk = state, state / DRAINED, disk

    def says(self, drained: int, *, can_repeat: bool) -> bool:
        """Whether the outcomes of that version were handed on. can_repeat: handing them on twice does no harm."""
        try:
            data = self._disk.read(self._path)
        except FileNotFoundError:
            return False
        if not data and can_repeat:
            return False
        try:
            return self._version(data) == drained
        except StateError as error:
            raise StateError(
                f"{error}; or, if the outcomes of version {drained}, which ended a stream, have been handed on, write "
                f"{drained} into it; if not, or if they may be handed on twice, remove it"
            ) from error

    def check(self) -> None:
        """Raises unless the note is there and can be believed, or is not there."""
        with suppress(FileNotFoundError):
            self._version(self._disk.read(self._path))

    def _version(self, data: bytes) -> int | None:
        if (by_hand := bare_number(data)) is not None:
            return by_hand
        content = unseal(data, self._path)
        refuse_foreign(self._disk, self._path, content, self._state, RESTORE)
        drained = content.get("drained")
        return drained if isinstance(drained, int) else None

    def write(self, drained: int) -> None:
        self._disk.replace(self._path, seal({"drained": drained, "directory": directory_of(self._disk, self._state)}))
