"""A directory that 0.1.0 wrote, before commits were chained, is opened, read, and brought to the new format.

The archive holds what `bank` below left in both ways to log: two records loaded, eleven batches of two deposits with a
watermark of 5, and one more record loaded.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

import penstock as ps
from penstock.commit import Disk
from penstock.commit.scan import scan
from penstock.replica.directory import Directory

pytestmark = pytest.mark.faults

ARCHIVE = Path(__file__).parents[1] / "data" / "state-0.1.0.tar.gz"
OPTIONS = {"retain": 4, "snapshot_every": 3, "background": False}

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: int = 0


@bank.event
class Deposit:
    ts: int = ps.order()
    id: str = ps.id()
    account: str
    amount: int


@bank.transaction
def deposit(e: Deposit):
    account = Account[e.account]
    if e.amount < 0:
        ps.abort("negative")
    account.balance += e.amount
    return {"left": account.balance}


LEFT = [{"id": "a", "balance": 55}, {"id": "b", "balance": 5}, {"id": "c", "balance": 7}]


@pytest.fixture(params=["changes", "input"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / str(request.param)


def identity(path: Path) -> dict[str, object]:
    found = json.loads((path / "penstock.json").read_text())
    assert isinstance(found, dict)
    return found


def test_readers_take_it_as_it_is(old: Path) -> None:
    directory = Directory(old)
    assert directory.table("Account").sort_by("id").to_pylist() == LEFT
    assert directory.version == 11
    assert directory.outcomes(10, 11)["id"].to_pylist() == ["e9", "f9", "e10", "f10"]
    assert identity(old)["format"] == 1


def test_it_goes_on_and_is_chained_from_there(old: Path) -> None:
    for opening in range(1, 4):
        with bank.open(old, log=old.name, **OPTIONS) as db:
            assert db.held == (2 if opening == 1 else 1)
            n = 11 + opening
            db.run([Deposit(ts=10 * n, id=f"e{n}", account="a", amount=n)], id=n, watermark=5)
            if old.name == "changes":  # Inputs of another Penstock are not run again.
                assert db.history(Account, "a")["balance"].to_pylist()[-1] == 55 + sum(range(11, n))
        assert identity(old)["format"] == 2
        assert identity(old)["chain"] == 14
    assert Directory(old).version == 14
    found = scan(Disk(), old)
    assert all(found.entry(seq).directory == found.origin.directory for seq in range(14, 17))
    assert found.entry(14).previous == found.entry(13).hash


def test_it_ends_up_without_a_file_of_the_old_format(old: Path) -> None:
    with bank.open(old, log=old.name, **OPTIONS) as db:
        for n in range(12, 30):
            db.run([Deposit(ts=10 * n, id=f"e{n}", account="a", amount=n)], id=n, watermark=5)
    found = scan(Disk(), old)
    assert {entry.directory for entry in map(found.entry, found.segments)} == {found.origin.directory}
    assert {manifest.directory for manifest in found.sound.values()} == {found.origin.directory}


def test_a_commit_of_the_old_format_does_not_come_back(old: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.seg"
    shutil.copy(old / "log" / "000000000013.seg", kept)
    with bank.open(old, log=old.name, **OPTIONS) as db:
        db.run([Deposit(ts=130, id="e13", account="a", amount=1)], id=13, watermark=5)
    shutil.copy(kept, old / "log" / "000000000014.seg")
    with pytest.raises(ps.StateError, match=r"000000000014\.seg is damaged: it holds commit 13"):
        bank.open(old, log=old.name)
