"""Spark 4.0 and 4.1, as far as any Spark can show it: what they ask a source for, and what is refused on them. The rest
of this folder runs on them as it is: `make test-spark-4.0`."""

from pathlib import Path
from typing import Any

import pytest
from test_direct import META, note
from test_stream import events, put_cut

import penstock as ps
from penstock.replica.directory import Position
from penstock.spark import compatibility
from penstock.spark.files import FileNames
from penstock.spark.reader import StateDirectory

bank = ps.App("older")


@bank.event
class Deposit:
    ts: int = ps.order()
    account: str
    amount: int


@bank.table
class Account:
    id: str = ps.key()
    balance: int = 0


@bank.transaction
def deposit(e: Deposit):
    Account.get(e.account).balance += e.amount


def test_a_limit_is_refused_where_sources_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = "event 'Deposit'", "files_per_batch=1", "leave it out"
    if compatibility.ADMITS:
        compatibility.need_admission(*refused)
    monkeypatch.setattr(compatibility, "ADMITS", False)
    expected = r"files_per_batch=1 limits .* from Spark 4\.2 on, and this is Spark 4\..*; leave it out, or"
    with pytest.raises(ps.InputError, match=f"event 'Deposit': {expected}"):
        compatibility.need_admission(*refused)


def files(state: Path, folder: Path) -> Any:
    return FileNames({"event": "Transfer", "path": str(folder), "list": str(state / "sources" / "Transfer.list")})


def test_a_direct_source_that_is_not_told_its_start_finds_it_in_the_checkpoint(tmp_path: Path) -> None:
    put_cut(tmp_path, events(5, 40), 2)
    state, folder = tmp_path / "state", tmp_path / "Transfer"
    (state / "sources").mkdir(parents=True)
    source = files(state, folder).streamReader(None)
    two = source.latestOffset()
    assert two == {"event": "Transfer", "files": 2}
    assert [len(part.names) for part in source.partitions(source.initialOffset(), two)] == [2]
    note(state / "checkpoint", 0, "v1", META, '{"event": "Transfer", "files": 2}')
    assert source.latestOffset() == two
    put_cut(tmp_path, events(5, 20), 1)
    assert source.latestOffset()["files"] == 3
    (state / "sources" / "Transfer.list").unlink()
    with pytest.raises(ps.StateError, match=r"of .* 2 have been read: .* restore it"):
        source.latestOffset()
    with pytest.raises(ps.StateError, match=r"of .* 2 have been read: .* restore it"):
        source.partitions(two, source.initialOffset())


def test_a_reader_that_is_not_told_its_start_refuses_another_checkpoint_in_its_partitions(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    with bank.open(path) as database:
        for n in range(3):
            database.run([Deposit(ts=n, account="a", amount=1)], id=n)
    source = StateDirectory({"path": path, "feed": "outcomes"})
    reader = source.streamReader(source.schema())
    newest = reader.latestOffset()
    assert Position(**newest).version == 3
    first, last = reader.partitions(reader.initialOffset(), newest)[0].after, newest["commit"]
    assert (first, last) == (0, 3)
    with pytest.raises(ps.StateError, match=r"has read commit 9 .* only 3: they do not belong together"):
        reader.partitions({"version": 9, "commit": 9}, newest)
