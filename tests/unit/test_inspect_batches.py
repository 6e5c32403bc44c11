"""What is told of batches: equal to their outcomes and tables, with the writer's report and without."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import NotRetainedError, StateError
from penstock.inspect.batch import batch
from penstock.inspect.batches import Batches
from penstock.inspect.overview import overview
from penstock.store.reports import SLOT, SLOTS, read_report

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: Decimal = ps.decimal(18, 2, default=0)


@bank.event
class Pay:
    ts: dt.datetime = ps.order()
    id: str = ps.id()
    src: str
    dst: str
    amount: Decimal = ps.decimal(18, 2)


@bank.transaction
def pay(e: Pay):
    src, dst = Account[e.src], Account[e.dst]
    if src.balance < e.amount:
        ps.abort("not enough")
    src.balance -= e.amount
    dst.balance += e.amount
    return {"left": src.balance}


START = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def at(second: int) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


def pays(*some: tuple[int, str, str, str]) -> list[Any]:
    return [Pay(ts=at(s), id=f"p{s}", src=src, dst=dst, amount=Decimal(amount)) for s, src, dst, amount in some]


def opened(path: Path, **options: Any) -> Any:
    db = bank.open(path, **options)
    if not db.version:
        db.load(Account, [{"id": name, "balance": Decimal(10)} for name in "abc"])
    return db


def told_by(outcomes: Any) -> dict[str, Any]:
    rows = outcomes.to_pylist()
    by = Counter(row["status"] for row in rows)
    aborted = Counter(row["reason"] for row in rows if row["status"] == "aborted")
    return {
        "events": len(rows),
        "committed": by["committed"],
        "aborted": dict(aborted),
        "late": by["late"],
        "rejected": by["rejected"],
        "duplicate": by["duplicate"],
    }


@pytest.mark.parametrize("reported", [True, False])
@pytest.mark.parametrize("log", ["changes", "input"])
def test_counts_are_those_of_the_outcomes(tmp_path: Path, *, reported: bool, log: str) -> None:
    state, seen = tmp_path / "bank", []
    with opened(state, log=log) as db:
        for some in ([(1, "a", "b", "3"), (2, "a", "c", "8")], [(3, "b", "a", "1"), (4, "nobody", "a", "1")], []):
            out = db.run(pays(*some))
            seen.append((out, db.last_batch))
    if not reported:
        (state / "reports").unlink()
    found = Batches(state).last()
    assert [one["version"] for one in found] == [3, 2, 1]
    for one, (out, report) in zip(reversed(found), seen, strict=True):
        expected = told_by(out)
        assert {name: one[name] for name in expected} == expected
        if reported or log == "changes":
            assert one["changes"] == report.changes
        assert (one["policy"], one["why"]) == ((report.policy, report.why) if reported else (None, None))
        assert (one["ms_by_stage"] is not None) == reported
        if reported:
            assert list(one["ms_by_stage"]) == ["intake", "order", "encode", "execute", "publish", "commit"]
    assert found[1]["clock"] == at(4) and found[1]["watermark"] is None


def test_the_clock_what_is_held_and_what_is_late(tmp_path: Path) -> None:
    delay = 5_000_000
    with opened(tmp_path / "bank") as db:
        db.run(pays((10, "a", "b", "1"), (1, "a", "b", "1")), watermark=delay)
        db.run(pays((0, "a", "b", "1")), watermark=delay)
    found = Batches(tmp_path / "bank").last()
    told = {one["version"]: (one["clock"], one["highest"], one["held"], one["late"]) for one in found}
    assert told[1] == (at(1), at(10), 1, 0)
    assert told[2] == (at(1), at(10), 1, 1)
    assert found[-1]["watermark"] == dt.timedelta(seconds=5)
    (tmp_path / "bank" / "reports").unlink()
    assert [one["held"] for one in Batches(tmp_path / "bank").last()] == [one["held"] for one in found]


def test_a_report_is_believed_of_its_very_commit(tmp_path: Path) -> None:
    with opened(tmp_path / "bank") as db:
        db.run(pays((1, "a", "b", "3")))
    commits = Batches(tmp_path / "bank").commits
    commit = commits.of_version(1)
    assert read_report(tmp_path / "bank", 1, commit.hash) is not None
    assert read_report(tmp_path / "bank", 1, "0" * 32) is None
    assert read_report(tmp_path / "bank", 1 + SLOTS, commit.hash) is None
    file = tmp_path / "bank" / "reports"
    content = bytearray(file.read_bytes())
    content[SLOT + 40] ^= 1
    file.write_bytes(content)
    assert read_report(tmp_path / "bank", 1, commit.hash) is None
    assert Batches(tmp_path / "bank").one(1)["committed"] == 1


def test_a_report_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "bank") as db:
        (tmp_path / "bank" / "reports").mkdir()
        db.run(pays((1, "a", "b", "3")))
        assert db.version == 1
    assert Batches(tmp_path / "bank").one(1)["policy"] is None


def test_sums_over_the_last_batches(tmp_path: Path) -> None:
    with opened(tmp_path / "bank") as db:
        for second in range(3):
            db.run(pays((second, "a", "b", "4")))
    found = Batches(tmp_path / "bank").last()
    together = overview(found)
    assert (together["batches"], together["events"], together["committed"]) == (3, 3, 2)
    assert together["aborted"] == {"not enough": 1}
    assert set(together["ms_by_stage"]) == set(found[0]["ms_by_stage"])
    assert overview([])["events_per_s"] is None


def test_pages_of_batches_and_what_is_pruned(tmp_path: Path) -> None:
    state = tmp_path / "bank"
    with opened(state, retain=3, snapshot_every=2, background=False) as db:
        for second in range(12):
            db.run(pays((second, "a", "b", "0.01")))
    batches = Batches(state)
    assert [one["version"] for one in batches.last(limit=2)] == [12, 11]
    assert [one["version"] for one in batches.last(limit=2, before=11)] == [10, 9]
    assert [one["version"] for one in batches.last(upto=10, limit=1)] == [10]
    with pytest.raises(NotRetainedError, match=r"version 1 .* is not retained any more"):
        batches.one(1)
    with pytest.raises(StateError, match="has no batch of version 13"):
        batches.one(13)


def test_one_batch_whole(tmp_path: Path) -> None:
    with opened(tmp_path / "bank") as db:
        out = db.run(pays((1, "a", "b", "3"), (2, "a", "c", "8"), (3, "c", "b", "1")))
    told = batch(Batches(tmp_path / "bank"), 1, limit=10, offset=0, status=None)
    assert [row["id"] for row in told["outcomes"]["rows"]] == out.column("id").to_pylist()
    aborted = batch(Batches(tmp_path / "bank"), 1, limit=10, offset=0, status="aborted")["outcomes"]
    assert [(row["place"], row["id"]) for row in aborted["rows"]] == [(1, "p2")] and aborted["of"] == 1
    records = {row["id"]: (row["change"], row["balance"]) for row in told["changes"]["Account"]["records"]}
    assert records == {"a": ("written", Decimal(7)), "b": ("written", Decimal(14)), "c": ("written", Decimal(9))}
