"""Arrow Flight: what it gives is what the database has, at one version a batch, to whom has a token."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight

import penstock as ps
from penstock.serve.http.options import Options
from serving import Server, serving

bank = ps.App("bank")


@bank.table
class Account:
    id: int = ps.key()
    balance: Decimal = ps.decimal(18, 2, default=0)
    note: str | None = None


@bank.table
class Stock:
    hall: int = ps.key()
    item: str = ps.key()
    count: int = 0


@bank.event
class Deposit:
    ts: int = ps.order()
    id: int
    amount: Decimal = ps.decimal(18, 2)


@bank.transaction
def deposit(e: Deposit) -> None:
    Account.get(e.id).balance += e.amount


COUNT = 5000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Server, str]]:
    state = tmp_path_factory.mktemp("flight") / "bank"
    with bank.open(state, retain=50) as db:
        db.load(Account, [{"id": k, "balance": k, "note": None if k % 3 else f"n{k}"} for k in range(COUNT)])
        db.load(Stock, [{"hall": k % 3, "item": f"i{k}", "count": k} for k in range(30)])
        db.run([Deposit(ts=1, id=1, amount=Decimal(5))])
        db.run([Deposit(ts=2, id=1, amount=Decimal(5))])
        with serving(state, "--flight", "127.0.0.1:0", "--sql") as server:
            assert server.flight is not None
            yield db, server, server.flight


@pytest.fixture
def client(served: Any) -> Iterator[Any]:
    with flight.connect(served[2]) as client:
        yield client


def options(server: Server, token: str | None = None) -> Any:
    value = token if token is not None else server.token()
    return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {value}".encode())], timeout=60)


def exchange(client: Any, given: Any, asked: dict[str, Any], batches: list[pa.RecordBatch]) -> list[Any]:
    descriptor = flight.FlightDescriptor.for_command(json.dumps(asked).encode())
    writer, reader = client.do_exchange(descriptor, given)
    with writer:
        writer.begin(batches[0].schema)
        found = []
        for batch in batches:
            writer.write_batch(batch)
            chunk = reader.read_chunk()
            found.append((chunk.data.to_pylist(), json.loads(chunk.app_metadata.to_pybytes())["version"]))
        writer.done_writing()
        with pytest.raises(StopIteration):
            reader.read_chunk()
    return found


def get(client: Any, given: Any, **asked: Any) -> pa.Table:
    return client.do_get(flight.Ticket(json.dumps(asked).encode()), given).read_all()


def rows(db: Any, table: Any) -> list[dict[str, Any]]:
    return db.table(table).to_pylist()


def test_a_row_for_each_key_in_their_order(served: Any, client: Any) -> None:
    db, server, _ = served
    given = options(server)
    want = {row["id"]: row for row in rows(db, Account)}
    missing = {"id": None, "balance": None, "note": None}
    batches = [np.arange(COUNT), np.array([3, 9999, 3, -1]), np.array([9999]), np.arange(0)]
    found = exchange(client, given, {"get": "Account"}, [pa.record_batch({"k": keys}) for keys in batches])
    for keys, (told, version) in zip(batches, found, strict=True):
        assert version == db.version
        assert told == [{"$found": k in want, **want.get(k, missing)} for k in keys.tolist()]
    stock = {(row["hall"], row["item"]): row for row in rows(db, Stock)}
    keys = pa.record_batch({"item": ["i4", "i5", "i4"], "hall": [1, 0, 2]})
    ((told, _),) = exchange(client, given, {"get": "Stock"}, [keys])
    absent = {"hall": None, "item": None, "count": None}
    assert told == [{"$found": key in stock, **stock.get(key, absent)} for key in [(1, "i4"), (0, "i5"), (2, "i4")]]
    ((told, version),) = exchange(client, given, {"get": "Account", "version": 1}, [pa.record_batch({"k": [1]})])
    assert (told[0]["balance"], version) == (Decimal(6), 1)


def test_tables_and_sql_are_those_of_one_version(served: Any, client: Any) -> None:
    db, server, _ = served
    given = options(server)
    told = get(client, given, table="Account")
    assert told.sort_by("id").to_pylist() == rows(db, Account)
    assert told.schema.metadata == {b"version": b"%d" % db.version}
    assert get(client, given, table="Account", version=1).filter(pa.compute.field("id") == 1).to_pylist()[0][
        "balance"
    ] == Decimal(6)
    query = "select note, sum(balance) as total, count(*) as n from account group by all order by total"
    assert get(client, given, sql=query).to_pylist() == db.sql(query).to_pylist()
    assert get(client, given, sql="select * from account where false").num_rows == 0
    infos = {info.descriptor.path[0].decode(): info for info in client.list_flights(options=given)}
    assert infos.keys() == {"Account", "Stock"}
    info = client.get_flight_info(flight.FlightDescriptor.for_path("Stock"), given)
    assert info.schema.names == ["hall", "item", "count"]
    assert client.do_get(info.endpoints[0].ticket, given).read_all().num_rows == 30


def test_what_is_wrong_is_told_in_words(served: Any, client: Any) -> None:
    db, server, _ = served
    given, version = options(server), db.version
    keys = [pa.record_batch({"k": [1]})]
    ends, late = flight.FlightServerError, flight.FlightTimedOutError
    wrong = (
        (ends, "no table 'Nothing'", lambda: get(client, given, table="Nothing")),
        (ends, "a ticket is", lambda: get(client, given)),
        (ends, "there is no 'what'", lambda: get(client, given, what=1)),
        (ends, "is a whole number", lambda: get(client, given, table="Account", version="x")),
        (ends, "no version 999", lambda: get(client, given, table="Account", version=999)),
        (late, "999", lambda: get(client, given, table="Account", at_least=999, timeout_ms=10)),
        (ends, "is JSON", lambda: client.do_get(flight.Ticket(b"\xff"), given).read_all()),
        (ends, None, lambda: get(client, given, sql="drop table account")),
        (ends, None, lambda: get(client, given, sql="copy account to '/tmp/x'")),
        (ends, "no table 'Nothing'", lambda: exchange(client, given, {"get": "Nothing"}, keys)),
        (ends, "the command of an exchange", lambda: exchange(client, given, {}, keys)),
        (ends, None, lambda: exchange(client, given, {"get": "Account"}, [pa.record_batch({"k": ["a"]})])),
        (ends, None, lambda: exchange(client, given, {"get": "Stock"}, keys)),
        (ends, None, lambda: client.get_flight_info(flight.FlightDescriptor.for_path("No"), given)),
        (ends, "no actions", lambda: list(client.do_action(flight.Action("x", b""), given))),
    )
    for kind, says, ask in wrong:
        with pytest.raises(kind, match=says) as told:
            ask()
        assert "Traceback" not in str(told.value) and "penstock/" not in str(told.value)
        assert json.loads(told.value.extra_info)["status"] in (400, 404, 503), told.value
    assert get(client, given, table="Account").num_rows == COUNT and db.version == version


def test_who_has_no_token_gets_nothing(served: Any, client: Any) -> None:
    _, server, _ = served
    for given in (flight.FlightCallOptions(timeout=60), options(server, "wrong"), options(server, "")):
        for ask in (
            lambda given=given: get(client, given, table="Account"),
            lambda given=given: list(client.list_flights(options=given)),
            lambda given=given: exchange(client, given, {"get": "Account"}, [pa.record_batch({"k": [1]})]),
        ):
            with pytest.raises(flight.FlightUnauthenticatedError, match="give a token"):
                ask()
    assert get(client, options(server, server.token("write")), table="Stock").num_rows == 30


def test_it_listens_to_this_machine_only_unless_it_has_a_certificate(tmp_path: Path) -> None:
    for flight_ in ("0.0.0.0:0", "example.org:1"):
        with pytest.raises(ps.InputError, match=r"--flight .* can be reached from other machines, which takes TLS"):
            Options(tmp_path, flight=flight_).check()
    with pytest.raises(ps.InputError, match="--flight nonsense is not HOST:PORT"):
        Options(tmp_path, flight="nonsense").check()
    given = Options(tmp_path, flight="127.0.0.1:0")
    given.check()
    assert given.command()[-2:] == ["--flight", "127.0.0.1:0"]


def test_batches_are_of_one_version_while_a_writer_writes(served: Any) -> None:
    """Each deposit adds to two accounts at once, so that their sum tells a torn version."""
    db, server, place = served
    over = threading.Event()
    begun = rows(db, Account)
    total = begun[10]["balance"] - begun[11]["balance"]

    def write() -> None:
        ts = 100
        while not over.is_set():
            db.run([Deposit(ts=ts, id=10, amount=Decimal(1)), Deposit(ts=ts, id=11, amount=Decimal(1))])
            ts += 1

    with ThreadPoolExecutor(3) as pool, flight.connect(place) as client:
        writing = pool.submit(write)
        try:

            def read(_: int) -> None:
                last = 0
                keys = pa.record_batch({"k": [10, 11] * 50})
                for told, version in exchange(client, options(server), {"get": "Account"}, [keys] * 60):
                    assert {told[k]["balance"] - told[k + 1]["balance"] for k in range(0, 100, 2)} == {total}
                    assert len({row["balance"] for row in told[::2]}) == 1
                    assert version >= last
                    last = version

            for one in [pool.submit(read, k) for k in range(2)]:
                one.result()
        finally:
            over.set()
        writing.result()
