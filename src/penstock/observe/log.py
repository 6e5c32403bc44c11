"""A line of the logger `penstock` for each batch: at INFO; for what calls made, which may be thousands, at DEBUG.

    batch {"app": "bank", "state": "/srv/bank", …, "version": 7, "id": 6, "events": 200000, "committed": 199410, …}

The line is one JSON object behind a word. The log's record has the same as a dict, in its attribute `batch`, for
handlers that write JSON themselves. Where nobody listens at that level, nothing is made.
"""

from __future__ import annotations

import json
import logging

from penstock.observe.report import BatchReport

_log = logging.getLogger("penstock")
_QUIET = ("call", "arrival")


def tell(report: BatchReport) -> None:
    level = logging.DEBUG if report.cause in _QUIET else logging.INFO
    if _log.isEnabledFor(level):
        told = report.line()
        _log.log(level, "batch %s", json.dumps(told, ensure_ascii=False), extra={"batch": told})
