"""The server's routes, asked over a real socket; what they say is what the database, and plain dicts, say."""

from __future__ import annotations

import datetime as dt
import json
import math
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.check.leftovers import leftovers
from penstock.commit import Disk
from penstock.errors import InputError, StateError
from penstock.serve.http.options import Options
from penstock.serve.http.tokens import tokens_of
from serving import Server, key, send, serving, start, stop

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: Decimal = ps.decimal(18, 2, default=0)
    rate: float | None = None
    seen: dt.datetime | None = None


@bank.table
class Stock:
    warehouse: int = ps.key()
    item: str = ps.key()
    quantity: int = 0


@bank.event
class Transfer:
    ts: int = ps.order()
    src: str
    dst: str
    amount: Decimal = ps.decimal(18, 2)


@bank.event
class Close:
    ts: int = ps.order()
    account: str


@bank.transaction
def transfer(e: Transfer) -> None:
    src, dst = Account[e.src], Account[e.dst]
    src.balance -= e.amount
    dst.balance += e.amount


@bank.transaction
def close(e: Close) -> None:
    del Account[e.account]


ODD = ["", "a,b", "a/b", "a b", "%", "%41", "é", "a+b", "..", "history", "?x=1", "a;b", "'", '"', "\n", "#"]


def opened(state: Path) -> Any:
    return bank.open(state, retain=20)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "bank"
    with opened(path) as db:
        db.load(
            Account,
            [{"id": f"a{i:03}", "balance": 100, "rate": [None, 1.5, math.nan, -math.inf][i % 4]} for i in range(250)],
        )
        db.load(Account, [{"id": odd, "seen": dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)} for odd in ODD])
        db.load(Stock, [{"warehouse": w, "item": i, "quantity": w} for w in (-1, 2) for i in ("x", "y,z", "")])
        for n in range(3):
            db.run([Transfer(ts=n, src="a000", dst="a001", amount=Decimal(10))])
        db.run([Close(ts=9, account="a249")])
    return path


@pytest.fixture(scope="module")
def server(state: Path) -> Iterator[Server]:
    with serving(state) as running:
        yield running


def account(id_: str, balance: str = "0.00", rate: Any = None, seen: str | None = None) -> dict[str, Any]:
    return {"id": id_, "balance": balance, "rate": rate, "seen": seen}


# -- records ----------------------------------------------------------------------------------------------------------


def test_a_record_is_as_the_newest_version_has_it(server: Server) -> None:
    status, headers, content = server.raw("/v1/tables/Account/records/a000")
    assert status == 200
    assert json.loads(content) == {"version": 4, "record": account("a000", "70.00")}
    assert headers["x-penstock-version"] == "4"
    assert headers["content-type"] == "application/json"
    assert headers["cache-control"] == "no-store"


def test_what_is_no_number_is_a_text(server: Server) -> None:
    assert server.ask("/v1/tables/Account/records/a002")[1]["record"]["rate"] == "NaN"
    found = server.ask("/v1/get", {"get": {"Account": ["a003", "a001"]}})[1]["records"]["Account"]
    assert [one["rate"] for one in found] == ["-Infinity", 1.5]


@pytest.mark.parametrize("odd", ODD)
def test_whatever_a_key_holds_it_is_found(server: Server, odd: str) -> None:
    wanted = account(odd, seen="2026-03-01T12:00:00Z")
    assert server.ask(f"/v1/tables/Account/records/{key(odd)}") == (200, {"version": 4, "record": wanted})
    history = server.ask(f"/v1/tables/Account/records/{key(odd)}/history")[1]["history"]
    assert history == [{"version": 0, "change": "loaded", **wanted}]


def test_a_composite_key_has_its_parts_in_a_row(server: Server) -> None:
    for parts in ((-1, "x"), (2, "y,z"), (2, "")):
        wanted = {"warehouse": parts[0], "item": parts[1], "quantity": parts[0]}
        assert server.ask(f"/v1/tables/Stock/records/{key(*parts)}")[1]["record"] == wanted
        assert server.ask("/v1/get", {"get": {"Stock": [list(parts)]}})[1]["records"]["Stock"] == [wanted]


def test_a_record_that_is_not_there_is_404(server: Server) -> None:
    says = {"error": "no_record", "says": "table 'Account' has no record 'nobody'", "version": 4}
    assert server.ask("/v1/tables/Account/records/nobody") == (404, says)
    assert server.ask("/v1/tables/Account/records/a249")[0] == 404


def test_many_records_of_several_tables_are_of_one_version(server: Server) -> None:
    status, found = server.ask("/v1/get", {"get": {"Account": ["a001", "nobody", "a000", "a001"], "Stock": [[2, "x"]]}})
    assert status == 200
    first = account("a001", "130.00", 1.5)
    stock = {"warehouse": 2, "item": "x", "quantity": 2}
    assert found == {
        "version": 4,
        "records": {"Account": [first, None, account("a000", "70.00"), first], "Stock": [stock]},
    }


def test_an_older_version_is_as_it_was(server: Server) -> None:
    for version in range(5):
        status, found = server.ask(f"/v1/tables/Account/records/a000?version={version}")
        assert (status, found["version"]) == (200, version)
        assert found["record"]["balance"] == f"{100 - 10 * min(version, 3)}.00"
        several = server.ask(f"/v1/get?version={version}", {"get": {"Account": ["a000", "a249"]}})[1]
        assert several["records"]["Account"][0] == found["record"]
        assert (several["records"]["Account"][1] is None) == (version == 4)


def test_a_version_of_the_future_is_404_and_one_that_does_not_come_503(server: Server) -> None:
    status, said = server.ask("/v1/tables/Account/records/a000?version=5")
    assert (status, said["error"]) == (404, "no_version")
    status, said = server.ask("/v1/tables/Account/records/a000?at_least=5&timeout_ms=20")
    assert (status, said["error"], said["version"]) == (503, "not_yet", 4)
    assert "the newest here is 4" in said["says"]
    assert server.ask("/v1/tables/Account/records/a000?at_least=4&max_age_ms=0")[1]["version"] == 4


def test_the_history_of_a_record_has_every_change(server: Server) -> None:
    found = server.ask("/v1/tables/Account/records/a000/history")[1]
    assert found["version"] == 4
    told = [(one["version"], one["change"], one["balance"]) for one in found["history"]]
    assert told == [(0, "loaded", "100.00"), *((n, "written", f"{100 - 10 * n}.00") for n in (1, 2, 3))]
    gone = server.ask("/v1/tables/Account/records/a249/history")[1]["history"]
    assert [(one["version"], one["change"], one["balance"]) for one in gone] == [
        (0, "loaded", "100.00"),
        (4, "deleted", None),
    ]
    assert server.ask("/v1/tables/Account/records/nobody/history")[1]["history"] == []


# -- pages ------------------------------------------------------------------------------------------------------------


def walk(server: Server, query: str, table: str = "Account") -> list[dict[str, Any]]:
    """All pages, one after the other."""
    found, page = [], ""
    while True:
        status, one = server.ask(f"/v1/tables/{table}/records?{query}{page}")
        assert status == 200, one
        found += one["records"]
        if one["next"] is None:
            return found
        page = f"&page={one['next']}"


@pytest.mark.parametrize("limit", [1, 7, 100, 264, 265, 266, 10_000])
def test_pages_have_each_record_once_in_the_order_of_keys(server: Server, limit: int) -> None:
    found = walk(server, f"limit={limit}")
    assert [one["id"] for one in found] == sorted([*(f"a{i:03}" for i in range(249)), *ODD], key=str.encode)


def test_pages_of_a_composite_key(server: Server) -> None:
    wanted = [(w, i) for w in (-1, 2) for i in ("", "x", "y,z")]
    for limit in (1, 2, 5):
        assert [(one["warehouse"], one["item"]) for one in walk(server, f"limit={limit}", "Stock")] == wanted
    # As many as begin alike.
    assert [one["item"] for one in walk(server, "limit=1&where=warehouse%3D2", "Stock")] == ["", "x", "y,z"]


def test_where_says_which_records(server: Server) -> None:
    where = key("rate = 1.5 and balance >= 100 or id in ('a000', 'a/b')")
    found = walk(server, f"limit=10&where={where}")
    assert [one["id"] for one in found] == ["a/b", "a000", *(f"a{i:03}" for i in range(1, 249, 4))]
    assert server.ask("/v1/tables/Account/records?where=oops")[0] == 400


def test_a_page_goes_on_with_its_own_question_and_version(server: Server) -> None:
    first = server.ask("/v1/tables/Account/records?limit=2&version=1")[1]
    assert first["version"] == 1
    assert server.ask(f"/v1/tables/Account/records?limit=2&page={first['next']}")[1]["version"] == 1
    for other in ("where=rate%3D1", "version=2"):
        status, said = server.ask(f"/v1/tables/Account/records?limit=2&page={first['next']}&{other}")
        assert (status, said["error"]) == (400, "bad_request")
    for broken in ("", "x", first["next"][:-2], "A" + first["next"][1:], "é"):
        assert server.ask(f"/v1/tables/Account/records?page={key(broken)}")[0] == 400


# -- what there is ----------------------------------------------------------------------------------------------------


def test_tables_and_their_columns(server: Server) -> None:
    found = server.ask("/v1/tables")[1]
    assert [table["name"] for table in found["tables"]] == ["Account", "Stock"]
    one = server.ask("/v1/tables/Stock")[1]
    assert one["version"] == 4
    assert one["table"] == found["tables"][1]
    assert one["table"]["key"] == ["warehouse", "item"]
    assert one["table"]["columns"][2] == {"name": "quantity", "type": "int", "key": False, "nullable": False}
    status, said = server.ask("/v1/tables/Nothing")
    assert (status, said["error"]) == (404, "no_table")
    assert said["says"] == "there is no table 'Nothing'; there is Account, Stock"


def test_the_status_needs_no_token_and_names_no_table(server: Server) -> None:
    status, found = server.ask("/v1/status", headers={"Authorization": ""})
    assert status == 200
    assert (found["version"], found["newest"], found["behind_ms"], found["app"]) == (4, 4, 0, "bank")
    assert found["writer"]["is_there"] is False
    assert "Account" not in json.dumps(found)


def test_metrics_are_prometheus_text(server: Server) -> None:
    server.ask("/v1/tables/Account/records/a000")
    _, headers, content = server.raw("/metrics")
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = content.decode().splitlines()
    assert "penstock_version 4" in lines
    assert any(
        line.startswith('penstock_http_requests_total{route="/v1/tables/{table}/records/{key}",status="200"} ')
        for line in lines
    )
    assert all(line.startswith(("# HELP penstock_", "# TYPE penstock_", "penstock_")) for line in lines)
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))


def test_the_document_has_every_route_and_the_page_asks_nobody_else(server: Server) -> None:
    told = server.ask("/openapi.json")[1]
    assert told["openapi"].startswith("3.1")
    operation = told["paths"]["/v1/tables/{table}/records/{key}"]["get"]
    assert [one["name"] for one in operation["parameters"]] == [
        "table",
        "key",
        "version",
        "at_least",
        "max_age_ms",
        "timeout_ms",
    ]
    assert told["paths"]["/v1/get"]["post"]["requestBody"]["required"]
    assert told["paths"]["/v1/status"]["get"]["security"] == []
    for path in ("/docs", "/docs.js", "/docs.css"):
        status, headers, content = server.raw(path)
        assert status == 200
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert b"//" not in content.replace(b"// Shows", b"").replace(b"/* it", b"").replace(b"// A stream", b"")


def test_a_head_request_has_the_head_alone(server: Server) -> None:
    status, headers, content = server.raw("/v1/tables/Account/records/a000", method="HEAD")
    assert (status, content) == (200, b"")
    assert int(headers["content-length"]) > 0


# -- who may ask ------------------------------------------------------------------------------------------------------


def test_a_token_is_needed_and_either_reads(server: Server) -> None:
    path = "/v1/tables/Account/records/a000"
    for given in ("", "Bearer", "Bearer x", "Basic " + server.token(), "Bearer " + server.token()[:-1], server.token()):
        status, said = server.ask(path, headers={"Authorization": given})
        assert (status, said["error"]) == (401, "unauthorized"), given
    for name in ("read", "write"):
        assert server.ask(path, headers={"Authorization": f"bearer {server.token(name)}"})[0] == 200
    for path in ("/docs", "/metrics", "/openapi.json", "/nothing", "/"):
        assert server.ask(path, headers={"Authorization": ""})[0] == 401


def test_tokens_are_the_owners_alone_and_stay_the_same(server: Server, state: Path) -> None:
    for name in ("read.token", "write.token"):
        assert stat.S_IMODE((state / name).stat().st_mode) == 0o600
    assert server.token("read") != server.token("write")
    assert tokens_of(state) == tokens_of(state)
    assert not list(state.glob("*.tmp"))


def test_a_check_knows_what_a_server_leaves(tmp_path: Path) -> None:
    state = tmp_path / "bank"
    with opened(state):
        tokens_of(state)
    assert list(leftovers(Disk(), state)) == []
    (state / "read.token.0a1b2c3d.tmp").touch()
    (found,) = leftovers(Disk(), state)
    assert found.problem == "was left by a server that died"


def test_the_first_visit_leaves_a_cookie(server: Server) -> None:
    status, headers, _ = server.raw(f"/?token={server.token()}", headers={"Authorization": ""})
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    given = {"Authorization": "", "Cookie": f"other=1; {cookie.split(';')[0]}"}
    assert server.ask("/v1/tables", headers=given)[0] == 200
    assert server.raw("/?token=wrong", headers={"Authorization": ""})[0] == 401
    # Only where a page begins: elsewhere a token in a URL is none.
    assert server.ask(f"/v1/tables?token={server.token()}", headers={"Authorization": ""})[0] == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil:7400", "", "[::2]:1"]
)
def test_a_name_that_was_pointed_here_is_refused(server: Server, host: str) -> None:
    for path in ("/v1/status", "/v1/tables", "/"):
        status, said = server.ask(path, headers={"Host": host})
        assert (status, said["error"]) == (403, "forbidden")
    for own in ("localhost", f"127.0.0.1:{server.port}", "LOCALHOST:1", "[::1]:7400"):
        assert server.ask("/v1/tables", headers={"Host": own})[0] == 200


def test_a_page_of_another_site_is_refused(server: Server) -> None:
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        assert server.ask("/v1/tables", headers={"Origin": origin})[0] == 403
    assert server.ask("/v1/tables", headers={"Origin": f"http://127.0.0.1:{server.port}"})[0] == 200
    # What a form of another site can send without asking is no JSON.
    assert server.ask("/v1/get", b'{"get": {}}', headers={"Content-Type": "text/plain"})[0] == 415


def test_without_a_token_every_process_here_may_ask(state: Path) -> None:
    with serving(state, "--no-token") as server:
        assert server.ask("/v1/tables")[0] == 200
        assert server.ask("/v1/tables", headers={"Host": "evil.example"})[0] == 403


def test_tokens_may_be_given(state: Path, tmp_path: Path) -> None:
    read, write = tmp_path / "r", tmp_path / "w"
    for path, text in ((read, "r" * 32), (write, "w" * 32)):
        path.write_text(text + "\n")
        path.chmod(0o600)
    assert tokens_of(tmp_path, read, write).read == b"r" * 32
    with pytest.raises(InputError, match="are the same"):
        tokens_of(tmp_path, read, read)
    write.chmod(0o644)
    with pytest.raises(StateError, match=r"chmod 600"):
        tokens_of(tmp_path, read, write)
    write.chmod(0o600)
    write.write_text("short")
    with pytest.raises(StateError, match="does not hold a token"):
        tokens_of(tmp_path, read, write)
    with pytest.raises(InputError, match="there is no file"):
        tokens_of(tmp_path, read, tmp_path / "nothing")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"listen": "0.0.0.0:0"}, "takes TLS"),
        ({"listen": "[::]:0"}, "takes TLS"),
        ({"listen": "example.org:0"}, "takes TLS"),
        ({"listen": "0.0.0.0:0", "no_token": True}, "--no-token is for 127.0.0.1 only"),
        ({"listen": "7400"}, "is not HOST:PORT"),
        ({"listen": "127.0.0.1:99999"}, "is not HOST:PORT"),
        ({"listen": "127.0.0.1:x"}, "is not HOST:PORT"),
        ({"tls_cert": Path("x")}, "go together"),
        ({"tls_cert": Path("x"), "tls_key": Path("y")}, "there is no file x"),
    ],
)
def test_where_it_may_not_listen(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Options(Path("state"), **options).check()
    for host in ("127.0.0.1:0", "localhost:0", "[::1]:0", "127.9.9.9:7400"):
        Options(Path("state"), host).check()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate")
def test_with_tls_and_a_token_it_may_listen_to_others(state: Path, tmp_path: Path) -> None:
    cert, secret = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*make.split(), "-keyout", secret, "-out", cert], check=True, capture_output=True)
    given = ("--listen", "0.0.0.0:0", "--tls-cert", str(cert), "--tls-key", str(secret))
    with serving(state, *given) as server:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=cert)
        connection = HTTPSConnection("localhost", server.port, context=trusted, timeout=60)
        path = "/v1/tables/Account/records/a000"
        assert json.loads(send(connection, path, headers=server.headers).read())["version"] == 4
        # By whatever name others know it; but never without a token.
        named = server.headers | {"Host": "bank.example:7400"}
        assert send(connection, path, headers=named).status == 200
        connection.close()
        connection = HTTPSConnection("localhost", server.port, context=trusted, timeout=60)
        assert send(connection, path).status == 401
        connection.close()
        answer = send(connection, f"/?token={server.token()}")
        assert "Secure" in answer.getheader("Set-Cookie", "")
        connection.close()


# -- beside a writer --------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_as_soon_as_it_is_asked_for(tmp_path: Path) -> None:
    state = tmp_path / "bank"
    with opened(state) as db:
        db.load(Account, [{"id": "a", "balance": 100}, {"id": "b"}])
        with serving(state) as server:
            for n in range(1, 30):
                version = db.run([Transfer(ts=n, src="a", dst="b", amount=Decimal(1))]).column("version")[0].as_py()
                status, found = server.ask(f"/v1/tables/Account/records/b?at_least={version}")
                assert (status, found["version"], found["record"]["balance"]) == (200, version, f"{n}.00")
            assert server.ask("/v1/tables/Account/records/b?max_age_ms=0")[1]["version"] == 29
            # Who waits is told as it comes, and others are answered meanwhile.
            connection = server.connect()
            answers = []
            waiting = threading.Thread(
                target=lambda: answers.append(
                    json.loads(
                        send(connection, "/v1/tables/Account/records/b?at_least=30", headers=server.headers).read()
                    )
                )
            )
            waiting.start()
            assert server.ask("/v1/status")[1]["writer"]["is_there"] is True
            db.run([Transfer(ts=99, src="a", dst="b", amount=Decimal(1))])
            waiting.join()
            connection.close()
            assert answers[0]["version"] == 30


def test_a_version_that_is_pruned_is_410(tmp_path: Path) -> None:
    state = tmp_path / "bank"
    with bank.open(state, retain=2, snapshot_every=2, background=False) as db:
        db.load(Account, [{"id": "a", "balance": 100}, {"id": "b"}])
        with serving(state) as server:
            page = server.ask("/v1/tables/Account/records?limit=1")[1]
            for n in range(1, 15):
                db.run([Transfer(ts=n, src="a", dst="b", amount=Decimal(1))])
            assert server.ask("/v1/tables/Account/records/a?at_least=14")[0] == 200
            status, said = server.ask("/v1/tables/Account/records/a?version=3")
            assert (status, said["error"]) == (410, "not_retained")
            # The cut of a page that was just given is still there.
            following = server.ask(f"/v1/tables/Account/records?limit=1&page={page['next']}")[1]
            assert (following["version"], following["records"][0]["id"]) == (page["version"], "b")


def test_a_replica_that_stands_still_says_so_and_goes_on_when_it_can(tmp_path: Path) -> None:
    state = tmp_path / "bank"
    with opened(state) as db:
        db.load(Account, [{"id": "a", "balance": 100}, {"id": "b"}])
    broken = state / "log" / "000000000002.seg"
    with serving(state) as server:
        broken.write_bytes(b"no segment")
        while (told := server.ask("/v1/status"))[0] != 503:
            pass
        assert told[1]["error"] == "state"
        status, said = server.ask("/v1/tables/Account/records/a")
        assert (status, said["error"]) == (503, "state")
        assert "000000000002.seg" in said["says"]
        assert b"penstock_replica_broken 1" in server.raw("/metrics")[2]
        broken.unlink()
        while server.ask("/v1/status")[0] != 200:
            pass
        with opened(state) as db:
            db.run([Transfer(ts=1, src="a", dst="b", amount=Decimal(1))])
        assert server.ask("/v1/tables/Account/records/b?at_least=1")[1]["record"]["balance"] == "1.00"


# -- the process ------------------------------------------------------------------------------------------------------


def test_it_ends_when_it_is_told_to(state: Path) -> None:
    server = start(state)
    connection = server.connect()
    assert send(connection, "/v1/status").read()
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(30) == 0
    connection.close()
    stop(server)


def test_a_port_that_is_taken_is_named(state: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(AssertionError, match=r"cannot listen on 127\.0\.0\.1:\d+: Address already in use"):
            start(state, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")


def test_a_directory_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="there is no directory"):
        start(tmp_path / "nothing")
