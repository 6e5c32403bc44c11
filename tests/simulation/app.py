"""A small app, and what it means in plain Python.

    Account(id, balance)   Add(ts, id, amount) makes or changes one, and aborts below 0; Drop(ts, id) deletes one
    Note(n, text)          Mark(ts, n, text) makes or changes one

The model shares no code with Penstock: a state is a few dicts, a batch a list of tuples. A state is never changed; a
batch or load gives a new one, with what it did.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import penstock as ps

app = ps.App("simulated")


@app.table
class Account:
    id: str = ps.key()
    balance: int = 0

    @ps.check("overdrawn")
    def solvent(self):
        return self.balance >= 0


@app.table
class Note:
    n: int = ps.key()
    text: str = ""


@app.event
class Add:
    ts: int = ps.order()
    id: str
    amount: int


@app.event
class Drop:
    ts: int = ps.order()
    id: str


@app.event
class Mark:
    ts: int = ps.order()
    n: int
    text: str


@app.transaction
def add(e: Add):
    account = Account.get(e.id)
    account.balance += e.amount
    return {"left": account.balance}


@app.transaction
def drop(e: Drop):
    del Account[e.id]


@app.transaction
def mark(e: Mark):
    Note.get(e.n).text = e.text


TABLES = {"Account": ("id", "balance"), "Note": ("n", "text")}

Event = tuple[Any, ...]  # ("Add", ts, id, amount), ("Drop", ts, id), ("Mark", ts, n, text)
Records = dict[Any, Any]  # key -> value
Row = tuple[Any, ...]


def events(batch: tuple[Event, ...]) -> list[Any]:
    """The batch as Penstock takes it."""
    made = {"Add": lambda ts, id, amount: Add(ts=ts, id=id, amount=amount)}
    made["Drop"] = lambda ts, id: Drop(ts=ts, id=id)
    made["Mark"] = lambda ts, n, text: Mark(ts=ts, n=n, text=text)
    return [made[kind](*fields) for kind, *fields in batch]


@dataclass(frozen=True, slots=True)
class Stream:
    source: str | None = None
    offsets: str | None = None
    drained: int | None = None
    highest: int | None = None
    frontier: int | None = None
    held: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A batch, or a load of a table, as it is asked for."""

    batch: tuple[Event, ...] = ()
    id: int | None = None
    source: str | None = None
    offsets: str | None = None
    watermark: int | None = None
    flush: bool = False
    load: tuple[str, tuple[Row, ...]] | None = None
    log: str = "changes"


@dataclass(frozen=True, slots=True)
class Commit:
    """The state after a commit, and what the commit did."""

    seq: int = 0
    version: int = 0
    last_id: int | None = None
    tables: dict[str, Records] = field(default_factory=lambda: {name: {} for name in TABLES})
    stream: Stream = Stream()
    asked: BatchRequest = BatchRequest()
    outcomes: tuple[Row, ...] = ()  # transaction, ts, status, reason, version, left
    written: dict[str, frozenset[Any]] = field(default_factory=dict)  # of each table, keys that it left there
    deleted: dict[str, frozenset[Any]] = field(default_factory=dict)

    @property
    def is_load(self) -> bool:
        return self.asked.load is not None

    def after(self, asked: BatchRequest) -> Commit:
        return self._load(asked) if asked.load is not None else self._run(asked)

    def _load(self, asked: BatchRequest) -> Commit:
        assert asked.load is not None
        name, rows = asked.load
        loaded = dict(rows)
        assert not loaded.keys() & self.tables[name].keys()
        tables = {**self.tables, name: {**self.tables[name], **loaded}}
        written = {name: frozenset(loaded)}
        return replace(self, seq=self.seq + 1, tables=tables, asked=asked, outcomes=(), written=written, deleted={})

    def _run(self, asked: BatchRequest) -> Commit:
        version = self.version + 1
        now, stream = _release(self.stream, asked)
        if asked.source is not None and asked.flush:
            stream = replace(stream, source=asked.source, drained=version)
        elif asked.source is not None:
            stream = replace(stream, source=asked.source, offsets=asked.offsets)
        tables = {name: dict(records) for name, records in self.tables.items()}
        touched: dict[str, set[Any]] = {name: set() for name in TABLES}
        outcomes = []
        for late, event in sorted(now, key=lambda one: one[1][1]):  # stable: by ts, then as they came
            status, reason, left = ("late", None, None) if late else _transaction(tables, touched, event)
            outcomes.append((event[0].lower(), event[1], status, reason, version, left))
        written = {name: frozenset(k for k in keys if k in tables[name]) for name, keys in touched.items()}
        deleted = {name: frozenset(k for k in keys if k not in tables[name]) for name, keys in touched.items()}
        last_id = self.last_id if asked.id is None else asked.id
        return Commit(self.seq + 1, version, last_id, tables, stream, asked, tuple(outcomes), written, deleted)

    def rows(self, table: str) -> list[Row]:
        return sorted(self.tables[table].items())


def _release(stream: Stream, asked: BatchRequest) -> tuple[list[tuple[bool, Event]], Stream]:
    """What runs now, and whether it is late; what the stream keeps."""
    tops = [event[1] for event in asked.batch] + ([] if stream.highest is None else [stream.highest])
    highest = max(tops, default=None)
    now, held, done = [], [], [] if stream.frontier is None else [stream.frontier]
    judged = asked.flush or asked.watermark is not None
    for is_new, event in [(False, e) for e in stream.held] + [(True, e) for e in asked.batch]:
        ts = event[1]
        late = judged and is_new and stream.frontier is not None and ts <= stream.frontier
        runs = highest is not None and ts <= highest - (0 if asked.flush else asked.watermark or 0)
        if late or runs:
            now.append((late, event))
        else:
            held.append(event)
        if runs and not late:
            done.append(ts)
    return now, replace(stream, highest=highest, frontier=max(done, default=None), held=tuple(held))


def _transaction(tables: dict[str, Records], touched: dict[str, set[Any]], event: Event) -> tuple[str, Any, Any]:
    kind, _, key, *rest = event
    accounts, notes = tables["Account"], tables["Note"]
    if kind == "Add":
        balance = accounts.get(key, 0) + rest[0]
        if balance < 0:
            return "aborted", "overdrawn", None
        accounts[key] = balance
        touched["Account"].add(key)
        return "committed", None, balance
    if kind == "Drop":
        if key not in accounts:
            return "aborted", "missing Account", None
        del accounts[key]
        touched["Account"].add(key)
        return "committed", None, None
    notes[key] = rest[0]
    touched["Note"].add(key)
    return "committed", None, None
