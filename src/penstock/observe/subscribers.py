"""Who is told of what happens, in this process.

    subscribe(print)             from now on, print(report) after each batch of any database of this process
    subscribe(print, Damage)     and when a scrub finds a damaged file
    unsubscribe(print)           no longer

A callback is called in the thread that ran the batch, once the batch is committed and the database is free again,
so it may read the database; of damage, in the scrub's own thread. What it raises is logged and goes no further: what
it is told of has happened already.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, overload

from penstock.observe import log
from penstock.observe.report import BatchReport, Damage

_mutex = threading.Lock()
_callbacks: list[tuple[Callable[[Any], object], type]] = []


@overload
def subscribe(callback: Callable[[BatchReport], object]) -> Callable[[BatchReport], object]: ...
@overload
def subscribe(callback: Callable[[BatchReport], object], to: type[BatchReport]) -> Callable[[BatchReport], object]: ...
@overload
def subscribe(callback: Callable[[Damage], object], to: type[Damage]) -> Callable[[Damage], object]: ...
def subscribe(callback: Callable[[Any], object], to: type = BatchReport) -> Callable[[Any], object]:
    """Call it with every report of a kind from now on: of batches, or of Damage. Gives it back, so that this may
    decorate."""
    with _mutex:
        if (callback, to) not in _callbacks:
            _callbacks.append((callback, to))
    return callback


def unsubscribe(callback: Callable[[Any], object]) -> None:
    """Call it no more; one that is not subscribed is passed over."""
    with _mutex:
        _callbacks[:] = [found for found in _callbacks if found[0] != callback]


def publish(report: BatchReport | Damage) -> None:
    """Tell the log, and all subscribers to such reports, oldest first. The engine calls this."""
    if isinstance(report, BatchReport):
        log.tell(report)
    with _mutex:
        told = tuple(callback for callback, to in _callbacks if isinstance(report, to))
    for callback in told:
        try:
            callback(report)
        except Exception:
            what = f"batch {report.version}" if isinstance(report, BatchReport) else f"damage of {report.file}"
            logging.getLogger("penstock").exception("a subscriber failed on %s", what)
