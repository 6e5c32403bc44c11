"""Feed: the changes of each version, for all streams at once.

    replica ──follow──> Item, Item, … (the newest few) ──> every stream takes them from there
    log     ──────────> what a stream missed: after a reconnection, or where it fell behind

One thread decodes each commit, once, however many streams there are. An Item holds what a version changed; the feed
keeps the newest of them, so many and so large. A stream that needs older ones reads the log until it has caught up.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import NotRetainedError, PenstockError
from penstock.replica.directory import Directory

if TYPE_CHECKING:
    from penstock.replica.reader import Reader
    from penstock.serve.http.site import Site

_ITEMS_MAX = 512
_BYTES_MAX = 64 << 20
BEAT_S = 15.0
# Versions of the log that are read at a time.
_STEP = 16


@dataclass(slots=True)
class Item:
    number: int  # one above that of the item before
    version: int
    tables: dict[str, pa.Table]
    size: int
    told: dict[str, list[bytes]] = field(default_factory=dict)  # a table's changes as they go out, made once


class Feed:
    def __init__(self, site: Site) -> None:
        self._site, self._reader = site, site.reader
        self._items: deque[Item] = deque()
        self._size = 0
        self._next = 0
        self._since: int | None = None  # all that changed after this version is, or will be, an item
        self._changed = asyncio.Event()
        self._begun: asyncio.Future[None] | None = None
        self._failed: PenstockError | None = None
        self.streams = 0

    async def begin(self) -> None:
        """From the first stream on, there are items."""
        if self._failed is not None:
            self._begun = self._failed = None
        if self._begun is None:
            loop = asyncio.get_running_loop()
            self._begun = loop.create_future()
            args = self._reader, loop, self._begun
            threading.Thread(target=self._follow, args=args, name="penstock-feed", daemon=True).start()
        await asyncio.shield(self._begun)

    async def check(self, after: int) -> None:
        """Raises where what follows this version is not retained."""
        await self.begin()
        assert self._since is not None
        if after < self._since:
            await self._site.in_thread(lambda: Directory(self._reader.path).span(after + 1))

    async def after(self, table: str, version: int, where: dict[str, list[Any]] | None) -> AsyncIterator[Item | None]:
        """What changes after a version: one of the feed, or of the log with this table alone, and these records; None
        where nothing has for a while. What was loaded behind that version may come again."""
        await self.begin()
        while True:
            assert self._since is not None
            upto, number = self._since, self._next - len(self._items)
            while version < upto:
                step = min(version + _STEP, upto)
                for found in await self._site.in_thread(self._logged, table, version, step, where):
                    yield found
                version = step
            while number >= self._next - len(self._items):
                if number < self._next:
                    item = self._items[number - self._next]
                    number += 1
                    if item.version > version or (item.version == version and _loads(item)):
                        yield item
                        version = item.version
                    continue
                if self._failed is not None:
                    raise self._failed
                changed = self._changed
                try:
                    async with asyncio.timeout(BEAT_S):
                        await changed.wait()
                except TimeoutError:
                    yield None

    def _logged(self, table: str, after: int, upto: int, where: dict[str, list[Any]] | None) -> list[Item]:
        directory = Directory(self._reader.path)
        try:
            first, last = directory.span(after, upto)  # with what was loaded behind it
        except NotRetainedError:
            first, last = directory.span(after + 1, upto)
        by_version: dict[int, list[pa.Table]] = {}
        for changes in directory.changes_between(table, first.commit, last.commit, where, upto):
            if changes.num_rows and (changes["version"][0].as_py() > after or changes["change"][0].as_py() == "loaded"):
                by_version.setdefault(changes["version"][0].as_py(), []).append(changes.drop_columns(["version"]))
        return [Item(-1, version, {table: pa.concat_tables(rows)}, 0) for version, rows in by_version.items()]

    def _follow(self, reader: Reader, loop: asyncio.AbstractEventLoop, begun: asyncio.Future[None]) -> None:
        with suppress(RuntimeError):  # The loop is closed: the server has ended.
            try:
                changes = reader.follow()
                loop.call_soon_threadsafe(self._start, reader.version, begun)
                for version, tables in changes:
                    loop.call_soon_threadsafe(self._add, version, tables)
            except PenstockError as error:
                logging.getLogger("penstock").error("changes cannot be followed: %s", error)
                loop.call_soon_threadsafe(self._fail, error, begun)

    def _start(self, version: int, begun: asyncio.Future[None]) -> None:
        self._items.clear()
        self._size, self._since = 0, version
        if not begun.done():
            begun.set_result(None)

    def _add(self, version: int, tables: dict[str, pa.Table]) -> None:
        assert self._since is not None
        size = sum(table.nbytes for table in tables.values())
        self._items.append(Item(self._next, version, tables, size))
        self._next += 1
        self._size += size
        while len(self._items) > _ITEMS_MAX or (self._size > _BYTES_MAX and len(self._items) > 1):
            gone = self._items.popleft()
            self._size -= gone.size
            self._since = max(self._since, gone.version)
        self._wake()

    def _fail(self, error: PenstockError, begun: asyncio.Future[None]) -> None:
        self._failed = error
        if not begun.done():
            begun.set_exception(error)
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _loads(item: Item) -> bool:
    return any("loaded" in table.column("change").unique().to_pylist() for table in item.tables.values())


def chunks(rows: pa.Table, count: int) -> Iterator[pa.Table]:
    for start in range(0, rows.num_rows, count):
        yield rows.slice(start, count)
