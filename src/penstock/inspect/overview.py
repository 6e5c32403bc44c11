"""What the last batches come to together: rates and sums over them, and where event time is."""

from __future__ import annotations

from typing import Any

_SUMS = ("events", "committed", "late", "rejected", "duplicate")
# A minute of batches says how it goes now; of one that stands still, the last minute before that.
WINDOW_S = 60.0


def overview(batches: list[dict[str, Any]]) -> dict[str, Any]:
    """batches: as Batches.last gives them, the newest first."""
    if not batches:
        return {"batches": 0, "seconds": 0.0, "events_per_s": None, "aborted": {}, **dict.fromkeys(_SUMS, 0)}
    newest = batches[0]["committed_at"]
    recent = [one for one in batches if (newest - one["committed_at"]).total_seconds() <= WINDOW_S]
    seconds = (newest - recent[-1]["committed_at"]).total_seconds()
    # What the first of them brought came before the span begins.
    counted = sum(one["events"] for one in recent[:-1])
    return {
        "batches": len(recent),
        "seconds": round(seconds, 3),
        "events_per_s": round(counted / seconds, 1) if seconds > 0 else None,
        "aborted": _aborted(recent),
        **{name: sum(one[name] for one in recent) for name in _SUMS},
        "ms_by_stage": _stages(recent),
    }


def _aborted(batches: list[dict[str, Any]]) -> dict[str, int]:
    """By reason, the most frequent first."""
    found: dict[str, int] = {}
    for one in batches:
        for reason, count in one["aborted"].items():
            found[reason] = found.get(reason, 0) + count
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _stages(batches: list[dict[str, Any]]) -> dict[str, float] | None:
    """Of a batch, on average, of those whose writer tells."""
    known = [one["ms_by_stage"] for one in batches if one["ms_by_stage"] is not None]
    if not known:
        return None
    names = dict.fromkeys(name for one in known for name in one)
    return {name: round(sum(one.get(name, 0.0) for one in known) / len(known), 3) for name in names}
