"""Calls over HTTP, and kills of writer, server and clients: what was acknowledged is there, and no id runs twice.

Each id has an account of its own, whose balance counts how often it ran. Clients call until they know what became of
each id; those that are killed leave theirs to the next one, which calls them again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from serving import Server, start, stop

pytestmark = pytest.mark.faults

app = ps.App("wire")


@app.table
class Account:
    id: int = ps.key()
    count: int = 0


@app.event
class Give:
    id: int = ps.id()
    amount: int = 1


@app.transaction
def give(e: Give):
    account = Account.get(e.id)
    account.count += e.amount
    return {"count": account.count}


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> None:
    """Before any fork."""
    with app.open() as db:
        db.call(Give(id=1))


def opened(path: Path) -> Any:
    return app.open(path, retain=100_000, snapshot_every=30, calls=True)


def forked(work: Any) -> int:
    """A process that does this until it is killed; once it has said that it began."""
    ready, readies = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(lambda: os.write(readies, b"."))
        finally:
            os._exit(1)
    os.close(readies)
    with os.fdopen(ready, "rb") as pipe:
        assert pipe.read(1) == b"."
    return child


def killed(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


class World:
    """A writer and a server, either of which is killed now and then, and comes again."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.writer = self._write()
        self.server: Server = start(state)
        self.url = self.server.url

    def _write(self) -> int:
        def work(begun: Any) -> None:
            with opened(self.state):
                begun()
                signal.pause()

        return forked(work)

    def kill_writer(self) -> None:
        killed(self.writer)
        self.writer = self._write()

    def kill_server(self) -> None:
        self.server.process.kill()
        self.server.process.wait()
        assert self.server.process.stdout is not None
        self.server.process.stdout.close()
        self.server = start(self.state, "--listen", f"127.0.0.1:{self.server.port}")

    def end(self) -> None:
        stop(self.server)
        killed(self.writer)


def client(url: str, number: int, count: int, told: Path, begun: Any) -> None:
    """Threads that call; each notes what it was told. Ids that were noted already were answered."""
    known = noted(told)
    since = threading.Lock()
    with ps.connect(url, timeout=120) as there, open(told, "a") as file:
        begun()

        def work(thread: int) -> None:
            rng = random.Random(number * 100 + thread)
            wanted = [id for id in range(number * count, (number + 1) * count) if id % 4 == thread and id not in known]
            while wanted:
                size = rng.choice([1, 1, 1, 5])
                some, wanted = wanted[:size], wanted[size:]
                if len(some) == 1:
                    found = [there.call(Give(id=some[0]))]
                else:
                    found = there.call_many([Give(id=id) for id in some])
                with since:
                    for row in found:
                        file.write(json.dumps([row["id"], row["count"], row["version"]]) + "\n")
                    file.flush()

        with ThreadPoolExecutor(4) as pool:
            for one in [pool.submit(work, thread) for thread in range(4)]:
                one.result()


def noted(told: Path) -> dict[int, tuple[int, int]]:
    found = {}
    if told.exists():
        for line in told.read_text().splitlines():
            with suppress(ValueError):  # half a line, of one that was killed
                id, count, version = json.loads(line)
                found[id] = count, version
    return found


def kills(folder: Path, times: int, clients: int, count: int) -> None:
    rng = random.Random(times)
    world = World(folder / "state")
    try:
        told = [folder / f"told {number}" for number in range(clients)]

        def begin(number: int) -> int:
            return forked(lambda begun: client(world.url, number, count, told[number], begun))

        running = {number: begin(number) for number in range(clients)}
        for _ in range(times):
            answered, target = -1, sum(len(noted(one)) for one in told) + rng.randrange(1, count // 4)
            while answered < target and any(len(noted(one)) < count for one in told):
                time.sleep(0.01)
                answered = sum(len(noted(one)) for one in told)
            which = rng.choice(["writer", "server", "client"])
            if which == "client":
                number = rng.randrange(clients)
                killed(running[number])
                running[number] = begin(number)
            else:
                {"writer": world.kill_writer, "server": world.kill_server}[which]()
        end = time.monotonic() + 240
        while any(len(noted(one)) < count for one in told):
            assert time.monotonic() < end, [len(noted(one)) for one in told]
            time.sleep(0.02)
        for child in running.values():
            killed(child)
    finally:
        world.end()
    with opened(folder / "state") as db:
        counts = {row["id"]: row["count"] for row in db.table(Account).to_pylist()}
        answers = {id: said for one in told for id, said in noted(one).items()}
        assert counts == dict.fromkeys(range(clients * count), 1), "lost, or twice"
        assert {count for count, _ in answers.values()} == {1}
        for id in rng.sample(sorted(answers), 20):
            assert db.call(Give(id=id))["version"] == answers[id][1]


def test_kills_lose_no_acknowledged_call_and_run_none_twice(tmp_path: Path) -> None:
    kills(tmp_path, times=4, clients=2, count=60)


@pytest.mark.long
def test_many_kills_lose_no_acknowledged_call_and_run_none_twice(tmp_path: Path) -> None:
    kills(tmp_path, times=40, clients=3, count=800)
