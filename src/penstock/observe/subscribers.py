"""Who is told of each batch, in this process.

    subscribe(print)      from now on, print(report) after each batch of any database of this process
    unsubscribe(print)    no longer

A callback is called in the thread that ran the batch, once the batch is committed and the database is free again,
so it may read the database. What it raises is logged and goes no further: the batch has happened already.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.observe.report import BatchReport

Callback = Callable[[BatchReport], object]

_mutex = threading.Lock()
_callbacks: list[Callback] = []


def subscribe(callback: Callback) -> Callback:
    """Call it with the report of every batch from now on. Gives it back, so that this may decorate."""
    with _mutex:
        if callback not in _callbacks:
            _callbacks.append(callback)
    return callback


def unsubscribe(callback: Callback) -> None:
    """Call it no more; one that is not subscribed is passed over."""
    with _mutex:
        if callback in _callbacks:
            _callbacks.remove(callback)


def publish(report: BatchReport) -> None:
    """Tell all subscribers, oldest first. The engine calls this."""
    with _mutex:
        told = tuple(_callbacks)
    for callback in told:
        try:
            callback(report)
        except Exception:
            logging.getLogger("penstock").exception("a subscriber failed on batch %d", report.version)
