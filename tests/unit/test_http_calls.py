"""Calls over HTTP: answered when they are durable, safe to send again, and refused in words programs can act on."""

from __future__ import annotations

import datetime as dt
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from test_calls import until

import penstock as ps
from penstock import calls as queue
from serving import Server, serving

shop = ps.App("shop")


@shop.table
class Stock:
    item: str = ps.key()
    count: int = 0


@shop.event
class Order:
    ts: dt.datetime = ps.order()
    id: str = ps.id()
    item: str
    count: int = 1
    price: Decimal = ps.decimal(18, 2, default=0)
    rate: float | None = None
    notes: list[str]


@shop.event
class Ask:
    item: str


@shop.event
class Secret:
    id: str = ps.id()
    item: str


@shop.transaction
def order(e: Order) -> dict[str, Any]:
    stock = Stock[e.item]
    ps.require(stock.count >= e.count, "sold out")
    stock.count -= e.count
    return {"left": stock.count, "price": e.price, "rate": e.rate}


@shop.transaction
def ask(e: Ask) -> dict[str, Any]:
    return {"left": Stock[e.item].count}


@shop.transaction
def secret(e: Secret) -> None:
    Stock.get(e.item).count = 0


START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
ITEMS = {"pen": 1000, "ink": 5}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Server]]:
    state = tmp_path_factory.mktemp("calls") / "shop"
    with opened(state) as db, serving(state, token="write") as server:
        yield db, server


def opened(state: Path, **options: Any) -> Any:
    db = shop.open(state, calls=[Order, Ask], **options)
    if db.version == 0 and not db.table(Stock).num_rows:
        db.load(Stock, [{"item": item, "count": count} for item, count in ITEMS.items()])
    return db


def left(db: Any, item: str) -> int:
    return {row["item"]: row["count"] for row in db.table(Stock).to_pylist()}[item]


def test_a_call_is_answered_with_its_outcome_and_the_version_shows_it(served: Any) -> None:
    db, server = served
    before = left(db, "pen")
    event = {"id": "a1", "ts": "2026-03-01T12:00:00Z", "item": "pen", "count": 2, "price": "1.50", "rate": 0.5}
    status, told = server.ask("/v1/events/Order", event)
    assert status == 200
    assert told["outcome"] == {
        "transaction": "order",
        "ts": "2026-03-01T12:00:00Z",
        "id": "a1",
        "status": "committed",
        "reason": None,
        "version": db.version,
        "left": before - 2,
        "price": "1.50",
        "rate": 0.5,
    }
    assert told["version"] == db.version
    status, found = server.ask(f"/v1/tables/Stock/records/pen?at_least={told['version']}")
    assert (status, found["record"]["count"]) == (200, before - 2)
    again = server.ask("/v1/events/Order", event)
    assert again == (200, told) and left(db, "pen") == before - 2
    status, refused = server.ask("/v1/events/Order", {**event, "count": 3})
    assert (status, refused["error"], refused["committed"]) == (409, "conflict", False)
    assert "id 'a1' of event 'Order' was called before, with other fields" in refused["says"]
    status, aborted = server.ask("/v1/events/Order", {"id": "a2", "item": "ink", "count": 50})
    assert (status, aborted["outcome"]["status"], aborted["outcome"]["reason"]) == (200, "aborted", "sold out")
    version = db.version
    status, told = server.ask("/v1/events/Ask", {"item": "ink"})
    assert (status, told["outcome"]["left"], db.version) == (200, 5, version)


def test_a_list_is_answered_one_by_one_and_its_order_is_kept(served: Any) -> None:
    db, server = served
    before = left(db, "pen")
    events = [{"id": f"l{k}", "item": "pen", "count": k % 3, "notes": ["x", None]} for k in range(40)]
    events.append({"id": "l3", "item": "pen", "count": 3})
    events.append({"id": "l4", "item": "pen", "count": 1, "notes": ["x", None]})
    status, told = server.ask("/v1/events/Order", events)
    assert status == 200
    want, now = [], before
    for k in range(40):
        now -= k % 3
        want.append(now)
    assert [one["left"] for one in told["outcomes"][:40]] == want
    assert told["outcomes"][40]["error"] == "conflict"
    assert told["outcomes"][41] == told["outcomes"][4]
    assert left(db, "pen") == now
    status, none = server.ask("/v1/events/Order", [])
    assert (status, none["outcomes"]) == (200, [])
    for one in told["outcomes"][:3]:
        status, found = server.ask(f"/v1/outcomes/{one['id']}?event=Order")
        assert (status, found["outcomes"]) == (200, [{"event": "Order", "outcome": one}])
    assert server.ask("/v1/outcomes/nobody")[0] == 404


def outcome_of(server: Any, event: dict[str, Any]) -> dict[str, Any]:
    """On a busy machine it may take longer than a request waits: the same id then gets the outcome."""
    end = time.monotonic() + 120
    while True:
        status, told = server.ask("/v1/events/Order", event)
        if status == 200:
            return told["outcome"]
        assert status in (202, 503) and time.monotonic() < end, told


def test_clients_that_call_at_the_same_time_share_messages_and_versions(served: Any) -> None:
    db, server = served
    outcome_of(server, {"id": "first", "item": "pen"})  # what the server has to ask before it can call is asked by now
    before, version = left(db, "pen"), db.version

    def work(thread: int) -> list[dict[str, Any]]:
        events = [{"id": f"t{thread}.{k}", "item": "pen"} for k in range(10)]
        return [outcome_of(server, event) for event in events]

    with ThreadPoolExecutor(16) as pool:
        with db._gate.writing():
            futures = [pool.submit(work, thread) for thread in range(16)]
            until(lambda: db._calls._rows > 0)
        told = [one for future in futures for one in future.result()]
    assert sorted(one["left"] for one in told) == list(range(before - 160, before))
    assert db.version - version < 160
    # One that the writer refuses says so to nobody else.
    with ThreadPoolExecutor(8) as pool:
        with db._gate.writing():
            asked = [pool.submit(server.ask, "/v1/events/Order", {"id": f"w{k}", "item": "pen"}) for k in range(6)]
            asked.append(pool.submit(server.ask, "/v1/events/Order", {"item": "pen"}))
        answers = [one.result() for one in asked]
    assert [status for status, _ in answers] == [200] * 6 + [400]
    assert "every Order needs its id" in answers[-1][1]["says"]


def test_what_cannot_be_called_is_refused(served: Any) -> None:
    db, server = served
    version = db.version
    good = {"id": "r", "item": "pen"}
    for path, body, status, kind in (
        ("Nothing", good, 404, "no_event"),
        ("Secret", good, 404, "no_event"),
        ("Order", {**good, "what": 1}, 400, "bad_request"),
        ("Order", {**good, "count": "1"}, 400, "bad_request"),
        ("Order", {**good, "count": 1.5}, 400, "bad_request"),
        ("Order", {**good, "count": True}, 400, "bad_request"),
        ("Order", {**good, "count": 1 << 63}, 400, "bad_request"),
        ("Order", {**good, "price": 1.5}, 400, "bad_request"),
        ("Order", {**good, "price": "1.555"}, 400, "bad_request"),
        ("Order", {**good, "ts": "yesterday"}, 400, "bad_request"),
        ("Order", {**good, "notes": "x"}, 400, "bad_request"),
        ("Order", {**good, "notes": [1]}, 400, "bad_request"),
        ("Order", {**good, "id": None}, 400, "bad_request"),
        ("Order", [good, 1], 400, "bad_request"),
        ("Order", "pen", 400, "bad_request"),
        ("Order", None, 400, "bad_request"),
        ("Order", [[]], 400, "bad_request"),
        ("Order", [good] * 66_000, 413, "too_large"),
    ):
        found, told = server.ask(f"/v1/events/{path}", json.dumps(body).encode())
        assert (found, told["error"]) == (status, kind), (path, body, told)
    assert db.version == version
    read = {"Authorization": f"Bearer {server.token('read')}"}
    assert server.ask("/v1/events/Order", good, headers=read)[0] == 403
    assert server.ask("/v1/events/Order", good, headers={"Authorization": ""})[0] == 401
    assert server.ask("/v1/outcomes/a1", headers=read)[0] in (200, 404)
    assert server.ask("/v1/events/Order", method="GET")[0] == 405
    assert db.version == version


def test_a_call_that_the_watermark_holds_back_has_its_outcome_later(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as db, serving(tmp_path / "shop", token="write") as server:
        at = [(START + dt.timedelta(seconds=k)) for k in (100, 90, 400)]
        first = [Order(ts=START, id="r", item="pen"), Order(ts=at[0], id="s", item="pen")]
        db.run(first, watermark=50_000_000)
        status, told = server.ask("/v1/events/Order", {"id": "a/b", "ts": at[1].isoformat(), "item": "pen"})
        assert (status, told["waiting"], told["outcome_at"]) == (202, True, "/v1/outcomes/a%2Fb?event=Order")
        status, found = server.ask(told["outcome_at"])
        assert (status, found["outcomes"]) == (202, [{"event": "Order", "waiting": True}])
        events = [{"id": "now", "item": "pen"}, {"id": "c", "ts": at[1].isoformat(), "item": "pen"}]
        status, several = server.ask("/v1/events/Order", events)
        assert status == 202
        assert several["outcomes"][0]["status"] == "committed" and several["outcomes"][1]["waiting"] is True
        (row, *_) = db.run([Order(ts=at[2], id="t", item="pen")], watermark=50_000_000).to_pylist()
        assert row["id"] == "a/b"
        status, found = server.ask(told["outcome_at"])
        assert (status, found["outcomes"][0]["outcome"]["left"]) == (200, row["left"])


def test_a_retry_from_before_what_is_retained_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "shop", retain=3) as db, serving(tmp_path / "shop", token="write") as server:
        for k in range(6):
            assert server.ask("/v1/events/Order", {"id": f"o{k}", "item": "pen"})[0] == 200
        status, told = server.ask("/v1/events/Order?since=0", {"id": "o0", "item": "pen"})
        assert (status, told["error"], told["committed"]) == (410, "not_retained", None)
        status, told = server.ask("/v1/events/Order?since=0", {"id": "o5", "item": "pen"})
        assert (status, told["outcome"]["version"]) == (200, 6)
        assert left(db, "pen") == ITEMS["pen"] - 6


def test_too_many_calls_are_told_to_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "MOST_WAITING", 10)
    with opened(tmp_path / "shop") as db, serving(tmp_path / "shop", token="write") as server:
        events = [{"id": f"o{k}", "item": "pen"} for k in range(9)]
        with ThreadPoolExecutor(1) as pool, db._gate.writing():
            first = pool.submit(server.ask, "/v1/events/Order", events)
            until(lambda: db._calls._rows == 9)
            status, headers, body = server.raw("/v1/events/Order", events[:2])
            assert (status, json.loads(body)["error"], headers["retry-after"]) == (429, "queue_full", "1")
        assert first.result()[0] == 200


def test_without_a_writer_calls_are_refused_and_with_the_next_one_they_are_not(tmp_path: Path) -> None:
    state = tmp_path / "shop"
    opened(state).close()
    with serving(state, token="write") as server:
        event = {"id": "o", "item": "pen"}
        status, told = server.ask("/v1/events/Order", event)
        assert (status, told["error"]) == (503, "no_writer") and "calls=True" in told["says"]
        assert server.ask("/v1/outcomes/o")[0] == 503
        for turn in range(2):
            with opened(state) as db:
                status, told = server.ask("/v1/events/Order", event)
                assert (status, told["outcome"]["version"], db.version) == (200, 1, 1), turn
            assert server.ask("/v1/events/Order", event)[0] == 503


def test_who_has_no_answer_in_time_is_told_that_nobody_knows(served: Any) -> None:
    db, server = served
    with db._gate.writing():
        status, told = server.ask("/v1/events/Order?timeout_ms=50", {"id": "slow", "item": "pen"})
        assert (status, told["error"], told["committed"]) == (503, "unknown", None)
        with socket.create_connection(("127.0.0.1", server.port)) as gone:  # a client that goes away has called
            body = json.dumps({"id": "gone", "item": "pen"}).encode()
            head = "POST /v1/events/Order HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            head += f"Authorization: Bearer {server.token('write')}\r\nContent-Length: {len(body)}\r\n\r\n"
            gone.sendall(head.encode() + body)
            until(lambda: db._calls._rows == 2)
    for id in ("slow", "gone"):
        until(lambda id=id: server.ask(f"/v1/outcomes/{id}")[0] == 200)
        before = left(db, "pen")
        assert server.ask("/v1/events/Order", {"id": id, "item": "pen"})[0] == 200
        assert left(db, "pen") == before


def test_what_is_called_is_counted(served: Any) -> None:
    _, server = served
    _, _, text = server.raw("/metrics")
    assert b'penstock_calls_total{ended="ran"}' in text
    assert b"penstock_calls_waiting 0" in text
    _, document = server.ask("/openapi.json")
    assert document["paths"]["/v1/events/{event}"]["post"]["x-token"] == "write"
