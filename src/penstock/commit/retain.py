"""What may be deleted, and in which order.

    snapshots     10      20      30      40 (just written)
    version now   40, retain 15:     versions 25 to 40 stay readable, so snapshot 20 is the oldest
    keep          20                 snapshots before 20 go, then segments up to 20

Invariants:
- The versions of the last `retain` batches stay readable.
- The two newest snapshots stay, with the segments after the older one: one damaged snapshot loses
  nothing. As long as there is only one, every segment from the first stays.
- Snapshots go before the segments that follow them, so none is left whose segments are gone; and
  nothing goes before the snapshot that replaces it is durable. Oldest first; cut short anywhere,
  what is left is a longer history than asked for.
"""

from __future__ import annotations

from pathlib import Path

from penstock.commit.disk import Disk
from penstock.commit.identity import LOG, SNAPSHOTS
from penstock.commit.scan import names_in, numbers, segment_path, snapshot_path
from penstock.commit.snapshot import REMOVED, remove_folder, remove_snapshot


def oldest_kept(versions: dict[int, int], version: int, retain: int) -> int:
    """The number of the snapshot to keep as the oldest, or 0 to keep all; `versions` of sound ones by number."""
    if len(versions) < 2:
        return 0
    second = sorted(versions)[-2]
    base = max((seq for seq, held in versions.items() if held <= version - retain), default=0)
    return min(base, second)


def prune(disk: Disk, path: Path, keep: int) -> None:
    for seq in numbers(disk, path / SNAPSHOTS):
        if seq < keep:
            remove_snapshot(disk, snapshot_path(path, seq))
    for seq in numbers(disk, path / LOG, ".seg"):
        if seq <= keep:
            disk.unlink_if_there(segment_path(path, seq))


def remove_unfinished(disk: Disk, path: Path) -> None:
    """What a writer that died was about to make, which was never visible, or to remove. For the next writer only."""
    for name in names_in(disk, path / LOG):
        if name.endswith(".open"):
            disk.unlink_if_there(path / LOG / name)  # A writer that was fenced may be clearing it away itself.
    for name in names_in(disk, path / SNAPSHOTS):
        if name.endswith((".open", REMOVED)):
            remove_folder(disk, path / SNAPSHOTS / name)
