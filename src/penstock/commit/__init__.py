"""The durable side: a batch is on disk, or it never happened. Read `journal.py` first."""

from penstock.commit.disk import Disk
from penstock.commit.journal import Journal
from penstock.commit.log import Segment
from penstock.commit.recover import Recovery
from penstock.commit.snapshot import Snapshot

__all__ = ["Disk", "Journal", "Recovery", "Segment", "Snapshot"]
