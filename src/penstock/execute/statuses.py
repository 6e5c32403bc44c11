"""What became of a row that came in: the column `status` of outcomes, one row a status.

Outcomes hold a status as its place in this table; on disk they hold the text, so that a new row may stand anywhere.
"""

from __future__ import annotations

STATUSES = (
    "committed",
    "aborted",
    "late",  # it came behind the watermark, and did not run
    "duplicate",  # its id has run already (duplicates.py); the row has the version in which it ran
    "rejected",  # it cannot be an event (admission.py)
)
COMMITTED, ABORTED, LATE, DUPLICATE, REJECTED = range(len(STATUSES))
