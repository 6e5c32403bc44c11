"""What happened, as data: reports of batches, and who is told of them."""

from penstock.observe.report import BatchReport, Damage, Stopwatch
from penstock.observe.subscribers import publish, subscribe, unsubscribe

__all__ = ["BatchReport", "Damage", "Stopwatch", "publish", "subscribe", "unsubscribe"]
