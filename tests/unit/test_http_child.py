"""A server as a child of whoever writes: it ends with it, however that goes, and disturbs nobody by its own end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

import penstock as ps
from penstock.errors import InputError, StateError
from penstock.serve.http.child import Served
from penstock.serve.http.options import Options
from serving import start

APP = """
import penstock as ps

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: int = 0


@bank.event
class Deposit:
    ts: int = ps.order()
    account: str
    amount: int


@bank.transaction
def deposit(e: Deposit):
    Account.get(e.account).balance += e.amount
"""

PARENT = """
import sys
from penstock.serve.http.child import Served
from penstock.serve.http.options import Options
from pathlib import Path

served = Served(Options(Path(sys.argv[1]), "127.0.0.1:0", no_token=True))
print(served.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With an app to be imported, and a state directory of it."""
    path = tmp_path_factory.mktemp("child")
    (path / "bankapp.py").write_text(APP)
    sys.path.insert(0, str(path))
    try:
        from bankapp import Deposit, bank  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(path))
    with bank.open(path / "bank") as db:
        db.run([Deposit(ts=1, account="a", amount=10)])
    return path


def gone(pid: int) -> bool:
    """Whether the process has ended, though nobody may have asked for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_it_ends_when_it_is_told_to_and_says_how_it_ended(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    served = Served(Options(folder / "bank", "127.0.0.1:0", no_token=True))
    try:
        assert served.alive
        assert served.error is None
        with urlopen(f"{served.url}/v1/status") as answer:
            assert json.load(answer)["version"] == 1
        os.kill(served.pid, signal.SIGKILL)
        while served.alive:
            pass
        assert served.error == "it ended with signal 9"
        assert "signal 9" in repr(served)
        while not any("has gone: it ended with signal 9" in record.message for record in caplog.records):
            pass
    finally:
        served.stop()
    again = Served(Options(folder / "bank", "127.0.0.1:0", no_token=True))
    again.stop()
    assert not again.alive
    assert gone(again.pid)


def test_one_that_cannot_start_says_why(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="the server could not start: there is no directory"):
        Served(Options(tmp_path / "nothing", "127.0.0.1:0"))
    with pytest.raises(InputError, match="takes TLS"):
        Served(Options(folder / "bank", "0.0.0.0:0"))


def test_it_ends_when_its_parent_is_killed(folder: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(folder / "bank")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not gone(pid)
        parent.kill()
    while not gone(pid):
        pass


def test_with_an_app_it_is_the_writer_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{os.environ.get('PYTHONPATH', '')}")
    server = start(folder / "bank", "--app", "bankapp:bank", "--no-token")
    try:
        assert server.ask("/v1/status")[1]["writer"]["is_there"] is True
        assert server.ask("/v1/events/Deposit", {"account": "a", "amount": 5})[0] == 200
        assert server.ask("/v1/tables/Account/records/a")[1]["record"]["balance"] == 15
        with pytest.raises(AssertionError, match=rf"is open for writing by pid {server.process.pid} "):
            start(folder / "bank", "--app", "bankapp:bank")
        # A replica beside it is as welcome as ever.
        beside = ps.reader(folder / "bank")
        assert beside.get("Account", "a") == {"id": "a", "balance": 15}
        beside.close()
    finally:
        server.process.terminate()
        server.process.wait()
        assert server.process.stdout is not None
        server.process.stdout.close()
    assert server.process.returncode == 0, server.said.read_text()
    while not gone(server.pid):
        pass


@pytest.mark.long
def test_the_writer_ends_when_its_server_has_gone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{os.environ.get('PYTHONPATH', '')}")
    server = start(folder / "bank", "--app", "bankapp:bank", "--no-token")
    os.kill(server.pid, signal.SIGKILL)
    assert server.process.wait(60) == 1
    assert server.process.stdout is not None
    server.process.stdout.close()
    assert "has gone: it ended with signal 9" in server.said.read_text()
