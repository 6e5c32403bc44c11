"""What may become of an event, as its outcome says: the one table of it."""

from __future__ import annotations

STATUSES = (
    "committed",
    "aborted",  # it ran, and undid itself; the outcome has a reason
    "late",  # it came behind its watermark, and did not run
    "duplicate",  # its id has run already (`ps.id(unique=…)`); the outcome has the version of that one
)
COMMITTED, ABORTED, LATE, DUPLICATE = range(len(STATUSES))
