"""A real server over a running writer, both killed and started again, while the log is pruned; and several clients.

Which batch makes version k is settled, so plain dicts say what each version holds. Every answer has to be that of the
version that it names: records, sums, pages, histories, SQL, streams. On one connection versions never fall, and
at_least holds, whatever was killed meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from serving import Server, key, send, start, stop

pytestmark = pytest.mark.faults

bank = ps.App("bank")
NAMES = [f"a{n}" for n in range(30)]
EACH = 1000
RETAIN = 40
# While nothing runs there is nothing to be had, and while a writer starts no new version.
GONE = (ConnectionError, HTTPException, TimeoutError, OSError, EOFError)


@bank.table
class Account:
    id: str = ps.key()
    balance: int = 0


@bank.event
class Move:
    ts: int = ps.order()
    src: str
    dst: str
    amount: int


@bank.event
class Close:
    ts: int = ps.order()
    account: str
    heir: str


@bank.transaction
def move(e: Move) -> None:
    src = Account.get(e.src)
    if src.balance < e.amount:
        ps.abort("not enough")
    src.balance -= e.amount
    Account.get(e.dst).balance += e.amount


@bank.transaction
def close(e: Close) -> None:
    account = Account[e.account]
    Account.get(e.heir).balance += account.balance
    del Account[e.account]


def batch(seed: int, k: int) -> list[tuple[str, str, int | None]]:
    """From, to, how much; None: all of it, and the account is closed."""
    choose = random.Random(f"{seed}-{k}")
    found = []
    for _ in range(choose.randrange(1, 12)):
        one, other = choose.sample(NAMES, 2)
        found.append((one, other, None if choose.random() < 0.15 else choose.randrange(1, 400)))
    return found


def events(seed: int, k: int) -> list[Any]:
    return [
        Close(ts=k * 100 + place, account=one, heir=other)
        if amount is None
        else Move(ts=k * 100 + place, src=one, dst=other, amount=amount)
        for place, (one, other, amount) in enumerate(batch(seed, k))
    ]


class Model:
    """What each version holds."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._states: list[dict[str, int]] = [dict.fromkeys(NAMES, EACH)]
        self._mutex = threading.Lock()

    def at(self, version: int) -> dict[str, int]:
        with self._mutex:
            while len(self._states) <= version:
                self._states.append(self._next(dict(self._states[-1]), len(self._states)))
            return self._states[version]

    def _next(self, state: dict[str, int], k: int) -> dict[str, int]:
        for one, other, amount in batch(self._seed, k):
            if amount is None and one in state:
                held = state.pop(one)
                state[other] = state.get(other, 0) + held
            elif amount is not None and state.get(one, 0) >= amount:
                state[one] -= amount
                state[other] = state.get(other, 0) + amount
        return state


def write(state: str, seed: int) -> None:
    """The writer's process: it goes on where the one before it was killed."""
    with bank.open(state, retain=RETAIN, snapshot_every=9) as db:
        if db.version == 0 and not db.table(Account).num_rows:
            db.load(Account, [{"id": name, "balance": EACH} for name in NAMES])
        choose = random.Random(seed)
        while True:
            db.run(events(seed, db.version + 1))
            time.sleep(choose.choice([0, 0.002, 0.02]))


class World:
    """What runs, and what goes wrong with it."""

    def __init__(self, state: Path, seed: int) -> None:
        self.state, self.seed, self.model = state, seed, Model(seed)
        self.answers = self.kills = 0
        self.newest = 0  # the highest that any client was told
        self.failed: BaseException | None = None
        self.over = threading.Event()
        self.writer = self.start_writer()
        while not (state / "snapshots").exists() or not any((state / "log").glob("*.seg")):
            assert self.writer.poll() is None
            time.sleep(0.01)
        self.server = self.start_server()

    def start_writer(self) -> subprocess.Popen[bytes]:
        code = f"import sys; sys.path[:0] = {sys.path!r}; import test_http_kills as test; "
        code += f"test.write({str(self.state)!r}, {self.seed})"
        return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL)

    def start_server(self) -> Server:
        server = start(self.state, "--sql")
        server.headers["Authorization"] = f"Bearer {server.token()}"
        return server

    def kill(self, choose: random.Random) -> None:
        which = choose.randrange(3)
        if which != 1:
            self.writer.kill()
            self.writer.wait()
        if which != 0:
            os.kill(self.server.pid, signal.SIGKILL)
            self.server.process.wait()
            assert self.server.process.stdout is not None
            self.server.process.stdout.close()
            assert "Traceback" not in self.server.said.read_text(), self.server.said.read_text()
        if which != 1:
            self.writer = self.start_writer()
        if which != 0:
            self.server = self.start_server()
        self.kills += 1

    def end(self) -> None:
        self.over.set()
        self.writer.kill()
        self.writer.wait()


class Client:
    """One connection at a time, and what it has seen on it."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.choose = world, random.Random(f"{world.seed}-{number}")
        self.connection: HTTPConnection | None = None
        self.seen = 0
        self.mine = 0

    def run(self) -> None:
        ways: list[Callable[[], None]] = [self.record, self.record, self.several, self.several, self.older, self.pages]
        ways += [self.history, self.sql]
        try:
            while not self.world.over.is_set():
                try:
                    self.choose.choice(ways)()
                except GONE:
                    self.leave()
                    time.sleep(0.02)
        except BaseException as error:
            self.world.failed = error
            self.world.over.set()
            raise
        finally:
            self.leave()

    def leave(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection, self.seen = None, 0

    def ask(self, path: str, body: Any = None, *, old: bool = False) -> dict[str, Any] | None:
        """The answer; None where it is that it cannot be given. old: an older version was asked for."""
        if self.connection is None:
            self.connection = self.world.server.connect(timeout=90)
        least = 0
        if not old and self.choose.random() < 0.3:
            least = self.choose.choice([self.world.newest, self.seen, self.world.newest + 1])
            path += f"{'&' if '?' in path else '?'}at_least={least}&timeout_ms={self.choose.choice([1, 300, 5000])}"
        answer = send(self.connection, path, body, headers=self.world.server.headers)
        told = json.loads(answer.read())
        allowed = {200, 404, 410} if old else {200}
        if least or old or answer.status == 503:
            allowed |= {503}
        if "records/" in path and "get" not in path:
            allowed |= {404}
        assert answer.status in allowed, (path, answer.status, told)
        if answer.status == 503 or "version" not in told:
            assert told["error"] in ("not_yet", "not_retained", "no_version", "state"), told
            return None
        version = told["version"]
        assert int(answer.getheader("X-Penstock-Version", "-1")) == version
        if not old:
            assert version >= self.seen, (path, version, self.seen)
            self.seen = version
            assert version >= least, (path, told)
            self.world.newest = max(self.world.newest, version)
        self.world.answers += 1
        self.mine += 1
        return told

    def record(self) -> None:
        name = self.choose.choice(NAMES)
        told = self.ask(f"/v1/tables/Account/records/{name}")
        if told is not None:
            wanted = self.world.model.at(told["version"]).get(name)
            assert told.get("record") == (None if wanted is None else {"id": name, "balance": wanted}), told

    def several(self) -> None:
        told = self.ask("/v1/get", {"get": {"Account": NAMES}})
        if told is not None:
            self.check(told["version"], [one for one in told["records"]["Account"] if one is not None])

    def older(self) -> None:
        version = max(self.world.newest - self.choose.randrange(RETAIN * 2), 0)
        told = self.ask(f"/v1/get?version={version}", {"get": {"Account": NAMES}}, old=True)
        if told is not None:
            assert told["version"] == version
            self.check(version, [one for one in told["records"]["Account"] if one is not None])

    def pages(self) -> None:
        where = self.choose.choice(["", "&where=" + key("balance >= 500 or id in ('a1', 'a2')")])
        query, found, version = f"limit={self.choose.choice([1, 7, 100])}{where}", list[Any](), None
        page = ""
        while True:
            told = self.ask(f"/v1/tables/Account/records?{query}{page}", old=version is not None)
            if told is None or "records" not in told:
                return
            version = version or told["version"]
            assert told["version"] == version
            found += told["records"]
            if told["next"] is None:
                break
            page = f"&page={told['next']}"
        if where:
            state = self.world.model.at(version)
            wanted = {name: n for name, n in state.items() if n >= 500 or name in ("a1", "a2")}
            assert [(one["id"], one["balance"]) for one in found] == sorted(wanted.items())
        else:
            self.check(version, found)

    def history(self) -> None:
        name = self.choose.choice(NAMES)
        told = self.ask(f"/v1/tables/Account/records/{name}/history")
        if told is not None:
            for change in told["history"]:
                assert change["version"] <= told["version"]
                wanted = self.world.model.at(change["version"]).get(name)
                assert change["balance"] == wanted, (told["version"], change, wanted)

    def sql(self) -> None:
        told = self.ask("/v1/sql", {"sql": "select id, balance from account"})
        if told is not None and "rows" in told:
            self.check(told["version"], told["rows"])

    def check(self, version: int, records: list[dict[str, Any]]) -> None:
        wanted = self.world.model.at(version)
        assert {one["id"]: one["balance"] for one in records} == wanted, version
        assert sum(one["balance"] for one in records) == EACH * len(NAMES)


class Follower(Client):
    """A stream of one record's changes, which goes on where it was cut off."""

    def run(self) -> None:
        name, last = self.choose.choice(NAMES), None
        try:
            while not self.world.over.is_set():
                try:
                    last = self.follow(name, last)
                except GONE as error:
                    last = getattr(error, "last", last)
                    self.leave()
                    time.sleep(0.02)
        except BaseException as error:
            self.world.failed = error
            self.world.over.set()
            raise
        finally:
            self.leave()

    def follow(self, name: str, last: int | None) -> int | None:
        self.connection = self.world.server.connect(timeout=2)  # so that it sees the end of the test
        headers = self.world.server.headers | ({} if last is None else {"Last-Event-ID": str(last)})
        answer = send(self.connection, f"/v1/tables/Account/records/{name}/changes", headers=headers)
        if answer.status != 200:
            told = json.loads(answer.read())
            assert answer.status in (410, 503), told
            self.leave()
            return None if answer.status == 410 else last
        try:
            while not self.world.over.is_set():
                line = answer.readline()
                if not line:
                    raise EOFError
                if not line.startswith(b"data: "):
                    continue
                told = json.loads(line[6:])
                if "error" in told:
                    raise EOFError
                version, state = told["version"], self.world.model.at(told["version"])
                wanted = state.get(name)
                assert told["record"] == (None if wanted is None else {"id": name, "balance": wanted}), told
                if last is not None:
                    assert version > last, (told, last)
                    for between in range(last + 1, version):
                        assert self.world.model.at(between).get(name) == self.world.model.at(last).get(name), (
                            last,
                            between,
                        )
                last = version
                self.world.answers += 1
                self.mine += 1
        except GONE as error:
            error.last = last  # type: ignore[attr-defined]
            raise
        return last


def run(state: Path, seed: int, kills: int, answers: int) -> None:
    world = World(state, seed)
    clients = [Client(world, number) for number in range(4)] + [Follower(world, 100 + number) for number in range(2)]
    threads = [threading.Thread(target=client.run) for client in clients]
    choose = random.Random(seed)
    try:
        for thread in threads:
            thread.start()
        for each in range(1, kills + 2):
            # So many answers between two kills, and from then on a moment of no choice of ours.
            while world.answers < answers * each and not world.over.is_set():
                time.sleep(0.01)
            time.sleep(choose.random() * 0.05)
            if each <= kills and not world.over.is_set():
                world.kill(choose)
    finally:
        world.end()
        for thread in threads:
            thread.join()
        with suppress(ProcessLookupError):
            stop(world.server)
    if world.failed is not None:
        raise AssertionError(f"seed {seed}: {world.failed}") from world.failed
    assert world.kills == kills
    assert world.newest > RETAIN or kills < 3


@pytest.mark.parametrize("seed", [1])
def test_every_answer_is_some_committed_version(tmp_path: Path, seed: int) -> None:
    run(tmp_path / "bank", seed, kills=2, answers=100)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 20))
def test_every_answer_is_some_committed_version_long(tmp_path: Path, seed: int) -> None:
    run(tmp_path / "bank", seed, kills=10, answers=1000)
