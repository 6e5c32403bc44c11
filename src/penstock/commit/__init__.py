"""The durable side: a batch is on disk, or it never happened. Read `journal.py` first."""

from penstock.commit.disk import Disk
from penstock.commit.journal import RETAIN, SNAPSHOT_EVERY, Journal
from penstock.commit.log import Segment
from penstock.commit.recover import Recovery
from penstock.commit.snapshot import Snapshot

__all__ = ["RETAIN", "SNAPSHOT_EVERY", "Disk", "Journal", "Recovery", "Segment", "Snapshot"]
