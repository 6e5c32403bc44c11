"""Streams of changes: what they tell, put together, is the table; nothing twice, nothing left out."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from serving import Server, key, send, serving

shop = ps.App("shop")


@shop.table
class Item:
    name: str = ps.key()
    count: int = 0
    price: float = 0.0


@shop.event
class Add:
    ts: int = ps.order()
    name: str
    count: int


@shop.event
class Remove:
    ts: int = ps.order()
    name: str


@shop.transaction
def add(e: Add) -> None:
    Item.get(e.name).count += e.count


@shop.transaction
def remove(e: Remove) -> None:
    del Item[e.name]


class Stream:
    """A client of Server-Sent Events."""

    def __init__(self, server: Server, path: str, last: int | None = None) -> None:
        self._connection: HTTPConnection = server.connect()
        headers = dict(server.headers) | ({} if last is None else {"Last-Event-ID": str(last)})
        self._answer = send(self._connection, path, headers=headers)
        self.status = self._answer.status
        self.last = last

    def next(self) -> dict[str, Any]:
        """The next event's data; its id becomes the last."""
        event: dict[str, Any] = {}
        while True:
            line = self._answer.readline().decode().rstrip("\n")
            name, _, value = line.partition(": ")
            if name == "id":
                self.last = int(value)
            elif name == "event":
                event["event"] = value
            elif name == "data":
                event |= json.loads(value)
            elif not line and event:
                return event
            elif not line and not self._answer.fp:
                raise EOFError

    def said(self) -> dict[str, Any]:
        return json.loads(self._answer.read())

    def close(self) -> None:
        self._connection.close()


@dataclass
class Shop:
    db: Any
    server: Server
    left: list[Stream] = field(default_factory=list)  # open when the server ends

    def adds(self, *names: str) -> int:
        """One version."""
        self.db.run([Add(ts=self.db.version, name=name, count=1) for name in names])
        return self.db.version

    def stream(self, path: str, last: int | None = None) -> AbstractContextManager[Stream]:
        return closing(Stream(self.server, path, last))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    state = tmp_path_factory.mktemp("changes") / "shop"
    with shop.open(state, retain=1000) as db:
        db.load(Item, [{"name": "a", "count": 10, "price": float("nan")}])
        with serving(state) as server:
            served = Shop(db, server)
            yield served
        for one in served.left:
            one.close()


def test_a_record_as_it_is_and_then_each_version_that_changes_it(served: Shop) -> None:
    db = served.db
    began = served.adds("a", "b")
    with served.stream(f"/v1/tables/Item/records/a/changes?at_least={began}") as changes:
        first = {"name": "a", "count": 11, "price": "NaN"}
        assert changes.next() == {"version": began, "record": first}
        assert changes.last == began
        second = served.adds("a")
        served.adds("b")
        third = served.adds("a", "a")
        db.run([Remove(ts=db.version, name="a")])
        gone = db.version
        again = served.adds("a")
        assert [changes.next() for _ in range(4)] == [
            {"version": second, "change": "written", "record": first | {"count": 12}},
            {"version": third, "change": "written", "record": first | {"count": 14}},
            {"version": gone, "change": "deleted", "record": None},
            {"version": again, "change": "written", "record": {"name": "a", "count": 1, "price": 0.0}},
        ]
        assert changes.last == again
        db.load(Item, [{"name": "a", "count": 70}], on_conflict="replace")
        assert changes.next() == {
            "version": again,
            "change": "loaded",
            "record": {"name": "a", "count": 70, "price": 0.0},
        }


def test_a_record_that_is_not_there_yet(served: Shop) -> None:
    began = served.adds("b")
    with served.stream(f"/v1/tables/Item/records/{key('n/a')}/changes?at_least={began}") as changes:
        assert changes.next() == {"version": began, "record": None}
        served.adds("n/a")
        assert changes.next()["record"]["count"] == 1


def test_it_goes_on_behind_the_last_event(served: Shop) -> None:
    made = [served.adds("c" if n % 2 else "b") for n in range(60)]
    for place in (0, 1, 20, 57):
        with served.stream("/v1/tables/Item/records/c/changes", made[place]) as changes:
            wanted = [version for n, version in enumerate(made) if n % 2 and n > place]
            assert [changes.next()["version"] for _ in wanted] == wanted
    # What follows comes as it is made, whether or not the stream had to read the log before.
    with served.stream(f"/v1/tables/Item/records/c/changes?after={made[58]}") as changes:
        assert changes.next()["version"] == made[59]
        more = served.adds("c")
        assert changes.next()["version"] == more
    with served.stream(f"/v1/tables/Item/records/c/changes?after={made[3]}", more) as changes:
        more = served.adds("c")
        assert changes.next()["version"] == more


def test_the_changes_of_a_table_make_the_table(served: Shop) -> None:
    held = {}
    began = served.adds("b")
    with served.stream(f"/v1/tables/Item/changes?at_least={began}") as changes:
        assert changes.next() == {"version": began}
        made: list[int] = []
        writer = threading.Thread(
            target=lambda: made.extend(served.adds(*(f"i{k % n}" for n in range(1, 9))) for k in range(80))
        )
        writer.start()
        versions: list[int] = []
        while len(versions) < 80:
            event = changes.next()
            versions.append(event["version"])
            for row in event["changes"]:
                assert row.pop("change") == "written"
                held[row["name"]] = row
        writer.join()
        assert versions == made
        assert held == {row["name"]: row for row in served.db.table(Item).to_pylist() if row["name"].startswith("i")}


def test_a_version_of_many_changes_has_its_id_at_its_end(served: Shop) -> None:
    began = served.adds("b")
    with served.stream(f"/v1/tables/Item/changes?at_least={began}") as changes:
        changes.next()
        made = served.adds(*(f"m{n}" for n in range(2500)))
        sizes = []
        for last in (began, began, made):
            event = changes.next()
            sizes.append(len(event["changes"]))
            assert event.get("more", False) == (last == began)
            assert changes.last == last
        assert sum(sizes) == 2500
    with served.stream("/v1/tables/Item/changes", began) as changes:
        assert sum(len(changes.next()["changes"]) for _ in range(3)) == 2500


def test_what_is_not_retained_is_said(tmp_path: Path) -> None:
    with shop.open(tmp_path / "shop", retain=2, snapshot_every=2, background=False) as db:
        for ts in range(1, 20):
            db.run([Add(ts=ts, name="a", count=1)])
        with serving(tmp_path / "shop") as server:
            served = Shop(db, server)
            for path in ("/v1/tables/Item/records/a/changes", "/v1/tables/Item/changes"):
                with served.stream(path, 1) as changes:
                    assert changes.status == 410
                    assert changes.said()["error"] == "not_retained"
                with served.stream(path + "?at_least=99&timeout_ms=10") as changes:
                    assert changes.status == 503
                with served.stream(path + "?after=99&timeout_ms=10") as changes:
                    assert changes.status == 503
            with served.stream("/v1/tables/Item/records/a/changes", -1) as changes:
                assert changes.status == 400
            with served.stream("/v1/tables/Nothing/changes") as changes:
                assert changes.status == 404


def test_many_streams_and_the_server_ends_all_the_same(served: Shop) -> None:
    began = served.adds("x", "y")
    several = [
        Stream(served.server, f"/v1/tables/Item/records/{'xy'[n % 2]}/changes?at_least={began}") for n in range(40)
    ]
    for one in several:
        assert one.next()["version"] == began
    made = [served.adds("x", "y") for _ in range(10)]
    for one in several:
        assert [one.next()["version"] for _ in made] == made
    (open_,) = (
        line
        for line in served.server.raw("/metrics")[2].decode().splitlines()
        if line.startswith("penstock_http_streams ")
    )
    assert int(open_.split()[1]) >= 40
    for one in several[:20]:
        one.close()
    # The fixture ends the server while twenty are open, and sees that it ends well.
    served.left += several[20:]
