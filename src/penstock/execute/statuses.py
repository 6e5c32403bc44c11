"""What became of a row that came in: the column `status` of outcomes, one row a status.

Outcomes hold a status as its place in this table; on disk they hold the text, so that a new row may stand anywhere.
"""

from __future__ import annotations

STATUSES = (
    "committed",
    "aborted",
    "late",  # it came behind the watermark, and did not run
    "rejected",  # it cannot be an event (admission.py)
)
COMMITTED, ABORTED, LATE, REJECTED = range(len(STATUSES))
