"""What the server tells of batches and events: what the database says of them; and who may run code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.workloads import bank as payments
from penstock.workloads import bind
from serving import Server, serving

APP = "penstock.workloads.bank:app"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    app, path = payments.app(), tmp_path_factory.mktemp("batches") / "bank"
    with app.open(path, log="input") as db:
        db.load("Account", payments.opening())
        for number, events in enumerate((30, 400, 3)):
            db.run(bind(app, payments.payments(7, number, events)))
    return path


@pytest.fixture(scope="module")
def server(state: Path) -> Iterator[Server]:
    with serving(state, "--explain", APP) as found:
        yield found


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    app, path = payments.app(), tmp_path_factory.mktemp("batches") / "bank"
    with app.open(path) as db:
        db.load("Account", payments.opening())
    with serving(path) as found:
        yield found


def test_batches_are_told_newest_first(server: Server, state: Path) -> None:
    status, told = server.ask("/v1/batches")
    assert status == 200 and told["version"] == 3
    assert [(one["version"], one["events"]) for one in told["batches"]] == [(3, 3), (2, 400), (1, 30)]
    with payments.app().open(state, read_only=True) as reader:
        assert reader.version == 3
    assert told["together"]["events"] == 433
    assert [one["version"] for one in server.ask("/v1/batches?limit=1&before=3")[1]["batches"]] == [2]
    assert server.ask("/v1/versions") == (200, {"version": 3, "oldest": 0, "sql": False})


def test_a_batch_an_event_and_what_it_read(server: Server) -> None:
    status, told = server.ask("/v1/batches/1?limit=5&offset=2")
    assert status == 200
    rows = told["outcomes"]["rows"]
    assert [row["place"] for row in rows] == [2, 3, 4, 5, 6] and told["outcomes"]["of"] == 30
    assert server.ask(f"/v1/find?id={rows[0]['id']}")[1]["events"] == [{"version": 1, "place": 2}]
    assert server.ask("/v1/find?id=none")[1]["events"] == []
    status, event = server.ask("/v1/batches/1/events/2")
    assert status == 200 and event["outcome"] == rows[0]
    assert server.ask(f"/v1/trace/{rows[0]['id']}")[1] == event
    status, again = server.ask("/v1/batches/1/events/2/again")
    assert status == 200
    (step,) = again["again"]
    assert step["status"] == rows[0]["status"] and step["fields"]["id"] == rows[0]["id"]
    assert {record["table"] for record in step["records"]} <= {"Account"}


def test_the_graph_and_the_app(server: Server) -> None:
    status, told = server.ask("/v1/batches/1/graph")
    assert status == 200 and told["rounds"] == 30 == len(told["nodes"]) == sum(told["strata"])
    assert all(told["nodes"][e["from"]]["stratum"] < told["nodes"][e["to"]]["stratum"] for e in told["edges"])
    status, told = server.ask("/v1/app")
    assert status == 200 and told["explain"] == payments.app().plan.explain() and "def kernel" in told["source"]


def test_without_the_app_nothing_runs_and_the_server_says_so(plain_server: Server) -> None:
    assert plain_server.ask("/v1/batches")[1]["batches"] == []
    assert "--explain MODULE:APP" in plain_server.ask("/v1/app")[1]["says"]
    assert plain_server.ask("/v1/batches/1/graph")[0] == 404


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/v1/batches/9", 404, "no_version"),
        ("/v1/batches/0", 404, "no_version"),
        ("/v1/batches/x", 400, "bad_request"),
        ("/v1/batches/-1", 400, "bad_request"),
        ("/v1/batches/99999999999999999999", 400, "bad_request"),
        ("/v1/batches?limit=0", 400, "bad_request"),
        ("/v1/batches?limit=501", 400, "bad_request"),
        ("/v1/batches/1?limit=1001", 400, "bad_request"),
        ("/v1/batches/1/events/30", 400, "bad_request"),
        ("/v1/batches/1/events/x/again", 400, "bad_request"),
        ("/v1/find", 400, "bad_request"),
        ("/v1/trace/none", 404, "no_event"),
        ("/v1/trace/%FF", 400, "bad_request"),
    ],
)
def test_what_is_wrong_is_said(server: Server, path: str, status: int, error: str) -> None:
    found, told = server.ask(path)
    assert (found, told["error"]) == (status, error)


def test_every_route_asks_for_the_token(server: Server) -> None:
    for path in ("/v1/batches", "/v1/batches/1", "/v1/find?id=e1", "/v1/trace/e1", "/v1/app", "/v1/batches/1/graph"):
        connection = server.connect()
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 401 and json.loads(answer.read())["error"] == "unauthorized"
        connection.close()


def test_the_console_asks_for_a_token_and_takes_it_once(server: Server) -> None:
    connection = server.connect()
    connection.request("GET", "/", headers={"Accept": "text/html"})
    answer = connection.getresponse()
    page = answer.read().decode()
    assert answer.status == 401 and 'name="token"' in page and "script" not in page.lower()
    connection.request("GET", f"/?token={server.token()}")
    answer = connection.getresponse()
    answer.read()
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    assert answer.status == 303 and answer.headers["Location"] == "/"
    for path, kind in (
        ("/", "text/html"),
        ("/console/main.js", "text/javascript"),
        ("/console/console.css", "text/css"),
    ):
        connection.request("GET", path, headers={"Cookie": cookie})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200 and answer.headers["Content-Type"].startswith(kind)
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    connection.request("GET", "/console/..%2Fconsole.py", headers={"Cookie": cookie})
    answer = connection.getresponse()
    assert answer.status == 404 and b"import" not in answer.read()
    connection.close()
