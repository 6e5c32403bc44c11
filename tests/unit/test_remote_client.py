"""`ps.connect(url)`: what it reads is what the database has, what it calls runs once, and it sees what it called."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from test_calls import until

import penstock as ps
from penstock.serve.remote import here, web
from penstock.serve.remote.together import Together
from serving import Server, serving, start, stop

shop = ps.App("shop")


@shop.table
class Stock:
    item: str = ps.key()
    count: int = 0
    price: Decimal = ps.decimal(18, 2, default=0)
    seen: dt.datetime | None = None
    weight: float | None = None


@shop.table
class Place:
    hall: int = ps.key()
    shelf: str = ps.key()
    item: str = ""


@shop.event
class Order:
    ts: dt.datetime = ps.order()
    id: str = ps.id()
    item: str
    count: int = 1


@shop.event
class Nudge:
    item: str


@shop.transaction
def order(e: Order) -> dict[str, Any]:
    stock = Stock.get(e.item)
    stock.count += e.count
    stock.seen = e.ts
    return {"count": stock.count, "price": stock.price, "seen": e.ts}


@shop.transaction
def nudge(e: Nudge) -> dict[str, Any]:
    stock = Stock.get(e.item)
    stock.count += 1
    return {"count": stock.count}


SEEN = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
ROWS = [{"item": f"i{k}", "count": k, "price": Decimal(k) / 4, "weight": k / 3} for k in range(50)]
ODD = ["a,b", "a/b", "%", "é b", ""]


def opened(state: Path, **options: Any) -> Any:
    db = shop.open(state, calls=True, **options)
    if db.version == 0 and not db.table(Stock).num_rows:
        db.load(Stock, [*ROWS, *({"item": item, "weight": float("inf")} for item in ODD)])
        db.load(Place, [{"hall": 1, "shelf": "a,b", "item": "i1"}])
        db.run([Order(ts=SEEN, id="first", item="i0")])
    return db


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Server]]:
    state = tmp_path_factory.mktemp("client") / "shop"
    with opened(state, retain=1000) as db, serving(state, "--sql") as server:
        yield db, server


@pytest.fixture
def client(served: Any) -> Iterator[ps.Client]:
    with ps.connect(served[1].url) as client:
        client.get("Stock", "i0", at_least=served[0].version)  # what it is held against
        yield client


def stock(db: Any) -> dict[str, dict[str, Any]]:
    return {row["item"]: row for row in db.table(Stock).to_pylist()}


def test_what_it_reads_is_what_the_database_has(served: Any, client: Any) -> None:
    db, _ = served
    want = stock(db)
    assert (client.app, client.version) == ("shop", db.version)
    for item in ("i0", "i7", *ODD):
        assert client.get("Stock", item) == want[item]
    assert client.get("Stock", "nobody") is None
    assert client.get("Place", (1, "a,b")) == {"hall": 1, "shelf": "a,b", "item": "i1"}
    keys = ["i3", "nobody", *ODD, "i3"]
    assert client.get_many("Stock", keys) == [want.get(key) for key in keys]
    many = [f"i{k % 60}" for k in range(12_000)]
    assert client.get_many("Stock", many) == [want.get(key) for key in many]
    assert client.table("Stock").sort_by("item").equals(db.table(Stock).sort_by("item"))
    assert client.table("Stock", "count >= 48").to_pylist() == [want["i48"], want["i49"]]
    assert client.history("Stock", "i0").equals(db.history(Stock, "i0"))
    with pytest.raises(ps.InputError, match="there is no table 'Nothing'"):
        client.get("Nothing", 1)
    with pytest.raises(ps.InputError, match="key 'item' is str, not 7"):
        client.get("Stock", 7)


def test_sql_and_what_the_answer_is_made_of(served: Any, client: Any) -> None:
    db, _ = served
    query = "select item, count, price, seen, weight, count / 4 as odd from stock order by item"
    found, want = client.sql(query), db.sql(query)
    assert found.to_pylist() == want.to_pylist()
    assert client.sql("select count(*) as n from stock", version=0).to_pylist() == [{"n": len(ROWS) + len(ODD)}]
    with pytest.raises(ps.InputError, match="more than 10000 rows"):
        client.sql("select a.count from stock a, stock b, stock c")
    with pytest.raises(ps.InputError):
        client.sql("drop table stock")


def test_changes_of_a_record_and_of_a_table_each_once_and_over_a_kill_of_the_server(tmp_path: Path) -> None:
    state = tmp_path / "shop"
    with opened(state, retain=1000) as db:
        server = start(state)
        try:
            with ps.connect(server.url) as client:
                told = client.changes("Stock", "i3")
                version, record = next(told)
                assert (version, record) == (1, stock(db)["i3"])
                assert record["price"] == Decimal("0.75")
                every = client.changes("Stock", after=1)
                for k in range(6):
                    if k == 3:
                        server.process.kill()
                        server.process.wait()
                        server.process.stdout.close()
                        server = start(state, "--listen", f"127.0.0.1:{server.port}")
                    want = client.call(Order(id=f"c{k}", item="i3", ts=SEEN))
                    version, record = next(told)
                    assert (version, record) == (want["version"], stock(db)["i3"])
                    version, changes = next(every)
                    assert (version, changes) == (want["version"], [{"change": "written", **stock(db)["i3"]}])
                told.close()
                every.close()
                with pytest.raises(ps.InputError, match="there is no table 'Nothing'"):
                    next(client.changes("Nothing", 1))
        finally:
            stop(server)


def test_gets_of_many_threads_are_few_requests(served: Any, client: Any) -> None:
    db, _ = served
    want, asked, ask = stock(db), [], client._web.ask

    def counted(path: str, *given: Any, **more: Any) -> Any:
        asked.append(path)
        time.sleep(0.02)
        return ask(path, *given, **more)

    client._web.ask = counted
    client.get("Stock", "i0")
    asked.clear()
    with ThreadPoolExecutor(40) as pool:
        found = list(pool.map(lambda k: client.get("Stock", f"i{k % 50}"), range(200)))
        assert found == [want[f"i{k % 50}"] for k in range(200)]
        assert len(asked) < 60
        # One that is wrong is told so, and nobody else.
        futures = [pool.submit(client.get, "Stock", 7 if k == 5 else "i1") for k in range(12)]
        errors = [future.exception() for future in futures]
    assert [type(error) for error in errors] == [type(None)] * 5 + [ps.InputError] + [type(None)] * 6


def test_what_it_calls_is_what_the_database_answers(served: Any, client: Any) -> None:
    db, _ = served
    told = client.call(Order(id="c1", item="i5", count=3))
    assert told == db.call(Order(id="c1", item="i5", count=3))
    assert client.version >= told["version"]
    assert client.get("Stock", "i5")["count"] == told["count"]  # it sees what it has called, at once
    assert client.call("Order", {"id": "c1", "item": "i5", "count": 3}) == told
    with pytest.raises(ps.ConflictError, match="id 'c1' of event 'Order' was called before, with other fields"):
        client.call(Order(id="c1", item="i6"))
    assert client.outcome("c1") == client.outcome("c1", "Order") == [{"event": "Order", "outcome": told}]
    assert client.outcome("nobody") == []
    several = client.call_many([Order(id=f"m{k}", item="i6", count=2) for k in range(9)] + [Nudge(item="i6")])
    assert [one["count"] for one in several] == [6 + 2 * k for k in range(1, 10)] + [25]
    assert client.call_many(Order(id=f"m{k}", item="i6", count=2) for k in range(9)) == several[:9]
    with pytest.raises(ps.ConflictError, match="id 'm4'"):
        client.call_many([Order(id="m3", item="i6", count=2), Order(id="m4", item="i7"), Order(id="n4", item="i7")])
    assert client.outcome("n4") != []
    for wrong in ((Order(id="w", item=5),), ("Order", {"what": 1}), ("Nothing", {}), (7,)):
        with pytest.raises(ps.InputError):
            client.call(*wrong)
    assert client.events()["Order"] == {
        "id": "id",
        "order": "ts",
        "fields": {"ts": "datetime", "id": "str", "item": "str", "count": "int"},
    }


def test_calls_of_many_threads_share_requests_and_each_has_its_own_answer(served: Any, client: Any) -> None:
    db, _ = served
    before = stock(db)["i9"]["count"]

    def work(thread: int) -> list[Any]:
        return [client.call(Order(id=f"t{thread}.{k}", item="i9")) for k in range(8)]

    with ThreadPoolExecutor(16) as pool:
        told = [one for several in pool.map(work, range(16)) for one in several]
        assert sorted(one["count"] for one in told) == list(range(before + 1, before + 129))
        wrong = [pool.submit(client.call, "Order", {"id": f"x{k}", "item": 7 if k % 2 else "i9"}) for k in range(10)]
        errors = [one.exception() for one in wrong]
    assert [type(error) for error in errors] == [type(None), ps.InputError] * 5


def test_reads_never_go_back_and_wait_for_what_was_called(served: Any, client: Any) -> None:
    _, server = served
    seen: list[int] = []
    over = threading.Event()

    def read() -> None:
        last = 0
        while not over.is_set():
            count = client.get("Stock", "i11")["count"]
            seen.append(count)
            assert count >= last
            last = count

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for k in range(30):
                told = client.call(Order(id=f"r{k}", item="i11"))
                assert client.get("Stock", "i11")["count"] == told["count"]
                with ps.connect(server.url) as other:
                    assert other.get("Stock", "i11", at_least=told["version"])["count"] >= told["count"]
        finally:
            over.set()
        for one in readers:
            one.result()
    assert seen


def test_tokens_are_found_on_this_machine_and_only_this_users(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, server = served
    assert here.is_own(server.port) and here.token_of(server.port) == server.token("write")
    monkeypatch.setattr(here, "is_own", lambda port: False)  # somebody else has taken the port
    with ps.connect(server.url) as client, pytest.raises(ps.InputError, match="token"):
        client.get("Stock", "i1")
    with ps.connect(server.url, token=server.token("read")) as client:
        assert client.get("Stock", "i1") is not None
        with pytest.raises(ps.InputError, match="token"):
            client.call(Nudge(item="i1"))
    for wrong in ("127.0.0.1:7400", "ftp://localhost", "http://localhost/v1", "http://"):
        with pytest.raises(ps.InputError, match="is no address of a server"):
            ps.connect(wrong)
    with pytest.raises(ps.StateError, match="does not answer"):
        ps.connect("http://127.0.0.1:1")


def test_a_call_is_sent_again_until_it_is_known_what_became_of_it(tmp_path: Path) -> None:
    state = tmp_path / "shop"
    opened(state).close()
    with serving(state) as server, ps.connect(server.url) as client:
        with pytest.raises(ps.StateError, match="nobody serves calls") as none:
            client.call(Order(id="a", item="i1"), timeout=0.2)
        assert none.value.committed is False
        with ThreadPoolExecutor(3) as pool:
            waiting = [
                pool.submit(client.call, Order(id="a", item="i1")),
                pool.submit(client.call, Nudge(item="i2")),
                pool.submit(client.call_many, [Order(id=f"l{k}", item="i3") for k in range(3)]),
            ]
            time.sleep(0.2)
            assert not any(one.done() for one in waiting)
            with opened(state) as db:
                assert waiting[0].result(60)["count"] == 2
                assert waiting[1].result(60)["count"] == 3
                assert [one["count"] for one in waiting[2].result(60)] == [4, 5, 6]
                assert db.call(Order(id="a", item="i1"))["count"] == 2


def test_where_nobody_knows_only_what_has_an_id_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "shop"
    with opened(state) as db, serving(state) as server, ps.connect(server.url) as client:
        client.events()
        sent = web.Web._sent

        def lost(self: Any, connection: Any, target: str, content: bytes | None) -> Any:
            """The request has come, and its answer is lost."""
            response = sent(self, connection, target, content)
            if target.startswith("/v1/events/"):
                lost_ones.append(target)
                if len(lost_ones) < 3:
                    response.read()
                    raise ConnectionResetError("lost")
            return response

        lost_ones: list[str] = []
        monkeypatch.setattr(web.Web, "_sent", lost)
        before = stock(db)["i1"]["count"]
        assert client.call(Order(id="a", item="i1"))["count"] == before + 1
        assert [target.partition("since=")[2].partition("&")[0] for target in lost_ones] == ["", "1", "1"]
        assert stock(db)["i1"]["count"] == before + 1
        lost_ones.clear()
        told = client.call_many([Order(id=f"b{k}", item="i1") for k in range(3)])
        assert [one["count"] for one in told] == [before + 2, before + 3, before + 4]
        lost_ones.clear()
        with pytest.raises(ps.StateError, match="does not answer") as unknown:
            client.call(Nudge(item="i1"))
        assert unknown.value.committed is None
        assert (len(lost_ones), stock(db)["i1"]["count"]) == (1, before + 5)


def test_what_waits_for_its_time_is_waited_for(tmp_path: Path) -> None:
    state = tmp_path / "shop"
    late = SEEN + dt.timedelta(seconds=100)
    with opened(state) as db, serving(state) as server, ps.connect(server.url) as client:
        db.run([Order(ts=late, id="s", item="i1")], watermark=50_000_000)
        event = Order(ts=late - dt.timedelta(seconds=1), id="w", item="i1")
        with pytest.raises(ps.NotYetError, match="is kept, and its time has not come") as told:
            client.call(event, timeout=0.1)
        assert told.value.committed is True
        assert client.outcome("w") == [{"event": "Order", "outcome": None}]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.call, event)
            time.sleep(0.1)
            (row, *_) = db.run([Order(ts=late + dt.timedelta(seconds=100), id="t", item="i1")], watermark=1).to_pylist()
            assert waiting.result(60) == row


def test_a_server_that_comes_again_is_found_again(tmp_path: Path) -> None:
    state = tmp_path / "shop"
    with opened(state):
        server = start(state)
        try:
            with ps.connect(server.url) as client:
                assert client.get("Stock", "i1")["count"] == 1
                stop(server)
                with pytest.raises(ps.StateError, match="does not answer"):
                    client.get("Stock", "i1")
                server = start(state, "--listen", f"127.0.0.1:{server.port}")
                assert client.get("Stock", "i1")["count"] == 1
                client.call(Order(id="a", item="i1"))
        finally:
            stop(server)
        assert here.token_of(server.port) is None
        with pytest.raises(ps.StateError, match="is closed; connect again"):
            client.get("Stock", "i1")


def test_questions_that_come_meanwhile_go_together() -> None:
    sent: list[list[int]] = []
    goes_on = threading.Event()

    def send(asked: list[int]) -> list[int]:
        sent.append(asked)
        goes_on.wait(60)
        if 13 in asked:
            raise ps.InputError("no thirteen")
        return [2 * one for one in asked]

    together: Together[int, int] = Together(send, most=10, at_once=2)
    with ThreadPoolExecutor(40) as pool:
        first = [pool.submit(together.ask, k) for k in range(2)]
        until(lambda: len(sent) == 2)
        rest = [pool.submit(together.ask, k) for k in range(2, 34)]
        until(lambda: len(together._queue) == 32)
        goes_on.set()
        for k, one in enumerate([*first, *rest]):
            error = one.exception(60)
            assert (error is None and one.result() == 2 * k) or (isinstance(error, ps.InputError) and 13 <= 34)
    assert sorted(one for several in sent for one in several) == list(range(34))
    assert max(map(len, sent)) == 10 and len(sent) <= 2 + 5
    assert sum(one.exception() is not None for one in rest) == len(next(several for several in sent if 13 in several))
    assert together._under_way == 0
