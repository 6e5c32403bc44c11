"""Readers beside a writer that is killed, opened again, prunes at once, makes snapshots all the time and changes its
schema: every answer is a version that was committed.

What a batch does follows from its number alone, which the table Clock holds: so each answer can be judged by itself. A
migration makes a version and no batch. Every few batches one writes all records of Wide, which takes several pieces.

    zygote ── forks writers, which are killed, and a process that reads; it has no threads
    test   ── readers in threads; moments are numbers of versions that were acknowledged
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

pytestmark = pytest.mark.faults

IDS = 24
WIDE = 6000  # more than a piece
WIDE_EVERY = 9
GENERATIONS = 4
TOTAL = 100 * IDS // 2


@cache
def bank(generation: int) -> Any:
    app = ps.App("bank")

    @app.table
    class Account:
        id: str = ps.key()
        balance: ps.decimal(18, 2) = 0
        if generation >= 1:
            first: int = 1
        if generation >= 2:
            second: str | None = None
        if generation >= 3:
            third: ps.decimal(10, 3) = 3

    @app.table
    class Clock:
        id: int = ps.key()
        batches: int = 0

    @app.table
    class Wide:
        id: int = ps.key()
        batch: int = 0

    @app.event
    class Move:
        ts: int = ps.order()
        src: str
        dst: str
        amount: ps.decimal(18, 2)

    @app.event
    class Close:
        ts: int = ps.order()
        account: str
        into: str

    @app.event
    class Set:
        ts: int = ps.order()
        id_: int
        batch: int

    @app.event
    class Tick:
        ts: int = ps.order()

    @app.transaction
    def move(e: Move):
        src, dst = Account[e.src], Account.get(e.dst)
        if src.balance < e.amount:
            ps.abort("not enough")
        src.balance -= e.amount
        dst.balance += e.amount

    @app.transaction
    def close(e: Close):
        old, into = Account[e.account], Account[e.into]
        into.balance += old.balance
        del Account[e.account]

    @app.transaction
    def set_(e: Set):
        Wide.get(e.id_).batch = e.batch

    @app.transaction
    def tick(e: Tick):
        Clock.get(0).batches += 1

    return app


ADDED = {"first": 1, "second": None, "third": Decimal("3.000")}


def moves(batch: int) -> list[tuple[str, str, int | None]]:
    """What the batch of this number asks for: from, to, how much; None: all, and then it is closed."""
    rng = random.Random(batch)
    found: list[tuple[str, str, int | None]] = []
    for _ in range(rng.randrange(1, 12)):
        src, dst = rng.sample(range(IDS), 2)
        found.append((f"a{src}", f"a{dst}", None if rng.random() < 0.2 else rng.randrange(1, 120)))
    return found


def events(app: Any, batch: int) -> list[Any]:
    event = {name: app._handles[name] for name in ("Move", "Close", "Set", "Tick")}
    made: list[Any] = [event["Tick"](ts=batch)]
    for src, dst, amount in moves(batch):
        if amount is None:
            made.append(event["Close"](ts=batch, account=src, into=dst))
        else:
            made.append(event["Move"](ts=batch, src=src, dst=dst, amount=amount))
    if batch % WIDE_EVERY == 0:
        made += [event["Set"](ts=batch, id_=k, batch=batch) for k in range(WIDE)]
    return made


def loaded() -> dict[str, int]:
    return {f"a{k}": 100 for k in range(0, IDS, 2)}


class Model:
    """What the tables hold after each number of batches."""

    def __init__(self) -> None:
        self._states = [loaded()]
        self._lock = threading.Lock()

    def accounts(self, batches: int) -> dict[str, int]:
        with self._lock:
            while len(self._states) <= batches:
                state = dict(self._states[-1])
                # In order of ts, then of arrival, as the events are given.
                for src, dst, amount in moves(len(self._states)):
                    if amount is None:
                        if src in state and dst in state:
                            state[dst] += state.pop(src)
                    elif state.get(src, -1) >= amount:
                        state[src] -= amount
                        state[dst] = state.get(dst, 0) + amount
                assert sum(state.values()) == TOTAL
                self._states.append(state)
            return self._states[batches]


MODEL = Model()


def write(path: Path, generation: int, told: int) -> None:
    app = bank(generation)
    with app.open(path, retain=2, snapshot_every=3, scrub=None) as db:
        if db.version == 0 and not db.table("Account").num_rows:
            db.load("Account", [{"id": id_, "balance": balance} for id_, balance in loaded().items()])
        batch = max(db.table("Clock").column("batches").to_pylist(), default=0)
        while True:
            batch += 1
            db.run(events(app, batch))
            os.write(told, f"{db.version} {batch}\n".encode())


# -- what is read ---------------------------------------------------------------------------


class Seen:
    """What one reader was told: versions never fall, and each has one state."""

    def __init__(self) -> None:
        self.version, self.batches = -1, -1
        self.answers = 0

    def add(self, version: int, batches: int) -> None:
        assert version >= self.version
        assert batches >= self.batches
        assert (version == self.version) <= (batches == self.batches)
        assert 0 <= version - batches <= GENERATIONS
        self.version, self.batches = version, batches
        self.answers += 1


def judge_account(record: dict[str, Any], expected: int | None) -> None:
    assert expected is not None
    assert record["balance"] == expected
    assert all(record[name] == ADDED[name] for name in record.keys() - {"id", "balance"})


def batches_of(cut: Any) -> int:
    clock = cut.get("Clock", 0)
    return 0 if clock is None else int(clock["batches"])


def judge(cut: Any, rng: random.Random) -> int:
    """All that a cut says is of one number of batches, which is given back."""
    batches = batches_of(cut)
    expected = MODEL.accounts(batches)
    ways = rng.sample(range(5), 2)
    if 0 in ways:
        table = cut.table("Account").to_pylist()
        assert {row["id"] for row in table} == expected.keys()
        for row in table:
            judge_account(row, expected[row["id"]])
    if 1 in ways:
        ids = [f"a{rng.randrange(IDS)}" for _ in range(10)]
        for id_, record in zip(ids, cut.get_many("Account", ids), strict=True):
            assert (record is None) == (id_ not in expected)
            if record is not None:
                judge_account(record, expected[id_])
    if 2 in ways:
        found = cut.sql("select sum(balance) s, count(*) n from account").to_pylist()
        assert found == [{"s": TOTAL, "n": len(expected)}]
    if 3 in ways:
        last = batches - batches % WIDE_EVERY
        ids = [rng.randrange(WIDE) for _ in range(200)]
        records = cut.get_many("Wide", ids)
        assert {None if r is None else r["batch"] for r in records} == {last or None}
    if 4 in ways:
        wide = cut.table("Wide")
        assert wide.num_rows == (WIDE if batches >= WIDE_EVERY else 0)
        assert set(wide.column("batch").to_pylist()) <= {batches - batches % WIDE_EVERY}
    return batches


def ask(path: Path, rng: random.Random, ends: threading.Event, known: Callable[[], tuple[int, int]]) -> int:
    """Asks until it ends; how often it was answered. known: a version that was acknowledged, and its batches."""
    seen, kept = Seen(), list[Any]()
    with ps.reader(path) as reader, ExitStack() as cuts:
        while not ends.is_set():
            version, batches = known()
            with reader.cut(at_least=version, timeout=120) as cut:
                found = judge(cut, rng)
                seen.add(cut.version, found)
                assert cut.version >= version and found >= batches
            one = reader.get_many("Wide", [0, WIDE - 1, WIDE // 2])
            assert one[0] == one[1] or one[0] is not None and one[0]["batch"] == one[1]["batch"] == one[2]["batch"]
            if rng.random() < 0.2:  # one that stays open, to be judged again
                stays = reader.cut()
                cuts.callback(stays.close)
                kept.append((stays, judge(stays, rng)))
            if kept:
                stays, found = rng.choice(kept)
                assert judge(stays, rng) == found
                if rng.random() < 0.2:
                    stays.close()
                    kept.remove((stays, found))
            if rng.random() < 0.1:
                with suppress(ps.NotRetainedError), reader.cut(version=max(reader.version - 2, 0)) as old:
                    judge(old, rng)
            if rng.random() < 0.1:
                history = reader.history("Clock", 0).to_pylist()
                assert [row["batches"] for row in history] == sorted(row["batches"] for row in history)
    return seen.answers


def follow(path: Path, ends: threading.Event) -> int:
    """Tables made of a cut and the changes behind it are those of each version; how many came."""
    came = 0
    with ps.reader(path) as reader:
        threading.Thread(target=lambda: (ends.wait(), reader.close()), daemon=True).start()
        while not ends.is_set():
            with suppress(ps.NotRetainedError), ExitStack() as stack:
                try:
                    cut = stack.enter_context(reader.cut())
                    tables = {name: {row["id"]: row for row in cut.table(name).to_pylist()} for name in cut.tables}
                    last = cut.version
                    changes = reader.follow(after=last)
                except ps.StateError:
                    if ends.is_set():
                        break
                    raise
                stack.close()
                for version, changed in changes:
                    assert version > last or (version, last) == (0, 0)  # the load comes again
                    last, came = version, came + 1
                    for name, table in changed.items():
                        rows = table.to_pylist()
                        if any(row["change"] == "migrated" for row in rows):
                            tables[name] = {}
                        for row in rows:
                            if row.pop("change") == "deleted":
                                tables[name].pop(row["id"], None)
                            else:
                                tables[name][row["id"]] = row
                    batches = tables["Clock"][0]["batches"] if tables["Clock"] else 0
                    expected = MODEL.accounts(batches)
                    assert tables["Account"].keys() == expected.keys()
                    for id_, row in tables["Account"].items():
                        judge_account(row, expected[id_])
                    assert {row["batch"] for row in tables["Wide"].values()} <= {batches - batches % WIDE_EVERY}
    return came


# -- processes ------------------------------------------------------------------------------


class Zygote:
    """A process without threads, which forks writers, and readers that are alone in theirs."""

    def __init__(self, path: Path) -> None:
        asked, self._asking = os.pipe()
        self.told, telling = os.pipe()
        self.said, saying = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            for mine in (self._asking, self.told, self.said):
                os.close(mine)
            try:
                with os.fdopen(asked) as orders:
                    for order in orders:
                        self._fork(path, order, telling, saying)
            finally:
                os._exit(0)
        os.close(telling), os.close(saying), os.close(asked)
        self._lines = os.fdopen(self.told)
        self._words = os.fdopen(self.said)

    @staticmethod
    def _fork(path: Path, order: str, telling: int, saying: int) -> None:
        kind, number = order.split()
        pid = os.fork()
        if pid:
            os.write(saying, f"pid {pid}\n".encode())
            if kind == "write":
                os.waitpid(pid, 0)
                os.write(saying, b"gone\n")
            return
        word = "done 0"
        try:
            if kind == "write":
                write(path, int(number), telling)
            else:
                stop = threading.Event()
                signal.signal(signal.SIGTERM, lambda *_: stop.set())
                answers = ask(path, random.Random(int(number)), stop, lambda: (0, 0))
                word = f"done {answers}"
        except BaseException as error:
            word = f"failed {error!r}".replace("\n", " ")
        os.write(saying, f"{word}\n".encode())
        os._exit(0)

    def start(self, kind: str, number: int) -> int:
        os.write(self._asking, f"{kind} {number}\n".encode())
        return int(self.word("pid"))

    def word(self, expected: str) -> str:
        kind, _, rest = self._words.readline().strip().partition(" ")
        assert kind == expected, f"{kind} {rest}"
        return rest

    def end(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.word("gone")

    def acknowledged(self) -> tuple[int, int]:
        version, batches = self._lines.readline().split()
        return int(version), int(batches)

    def close(self) -> None:
        os.close(self._asking)
        os.waitpid(self._pid, 0)
        self._lines.close(), self._words.close()


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Before any fork."""
    for generation in range(GENERATIONS):
        with bank(generation).open() as db:
            db.run(events(bank(generation), 1))


@pytest.fixture
def zygote(tmp_path: Path) -> Iterator[Zygote]:
    made = Zygote(tmp_path / "state")
    yield made
    made.close()


def session(path: Path, zygote: Zygote, kills: int, seed: int) -> list[int]:
    """So many writers one after the other, each killed after a few versions, and readers beside them; how often each of
    these was answered."""
    print(f"seed {seed}, {kills} kills")
    rng = random.Random(seed)
    writer = zygote.start("write", 0)
    newest = [zygote.acknowledged()]
    zygote.end(writer)
    alone = zygote.start("read", seed)
    ends, failed, answers = threading.Event(), list[BaseException](), list[int]()

    def working(work: Callable[[], int]) -> threading.Thread:
        def run() -> None:
            try:
                answers.append(work())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    threads = [
        working(lambda: ask(path, random.Random(seed + 1), ends, lambda: newest[0])),
        working(lambda: ask(path, random.Random(seed + 2), ends, lambda: (0, 0))),
        working(lambda: follow(path, ends)),
    ]
    for k in range(kills):
        writer = zygote.start("write", GENERATIONS * k // kills)
        for _ in range(rng.randrange(3, 30)):
            newest[0] = max(newest[0], zygote.acknowledged())
        ends.wait(rng.random() / 50)
        zygote.end(writer)
        if failed:
            break
    ends.set()
    for thread in threads:
        thread.join()
    os.kill(alone, signal.SIGTERM)
    answers.append(int(zygote.word("done")))
    if failed:
        raise failed[0]
    print(f"{newest[0][0]} versions; answers: {answers}")
    return answers


def test_every_answer_is_a_version(tmp_path: Path, zygote: Zygote) -> None:
    assert all(session(tmp_path / "state", zygote, kills=6, seed=random.randrange(1 << 30)))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_every_answer_is_a_version_for_long(seed: int, tmp_path: Path, zygote: Zygote) -> None:
    assert all(session(tmp_path / "state", zygote, kills=40, seed=seed))
