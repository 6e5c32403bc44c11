"""What a stream keeps beside its state, checked without Spark: lists, the note of its end, the checkpoint, outcomes."""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from penstock.cli.commands import app
from penstock.cli.pipeline import app_of
from penstock.commit import Disk
from penstock.commit.identity import directory_of
from penstock.publish.files import OutcomeFiles
from penstock.spark.check import check_beside, check_outcome_files
from penstock.spark.drained import DrainNote
from penstock.spark.listing import FileList, list_path

QUERY = "5f0e8a1c-0000-4000-8000-000000000000"
BATCHES = 4


def hadoop(file: Path, data: bytes, size: int = 16) -> None:
    """A file as Hadoop's local file system leaves it: with its checksums beside it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    sums = [zlib.crc32(data[at : at + size]) for at in range(0, len(data), size)]
    file.with_name(f".{file.name}.crc").write_bytes(b"crc\0" + struct.pack(f">I{len(sums)}I", size, *sums))


def checkpoint(state: Path, offsets: int, commits: int, query: str = QUERY) -> None:
    """As Spark leaves it once it has planned so many batches, and is done with so many."""
    shutil.rmtree(state / "checkpoint", ignore_errors=True)
    hadoop(state / "checkpoint" / "metadata", json.dumps({"id": query}).encode())
    for number in range(offsets):
        hadoop(state / "checkpoint" / "offsets" / str(number), b'v1\n{"batchWatermarkMs":0}\n{"files":%d}' % number)
    for number in range(commits):
        hadoop(state / "checkpoint" / "commits" / str(number), b'v1\n{"nextBatchWatermarkMs":0}')


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    with app_of("penstock.workloads.bank:app").open(root / "state") as db:
        db.load("Account", [{"id": "a", "balance": 10}])
        writer = OutcomeFiles(str(root / "out"), str(root / "state"))
        for n in range(BATCHES):
            batch = {"Deposit": [{"ts": n, "id": f"d{n}", "account": "a", "amount": 1}]}
            writer.write(db.run(batch, id=n, source=QUERY, offsets=str(n)))
        db.load("Account", [{"id": "b"}])  # The newest commit is no batch.
    checkpoint(root / "state", BATCHES, BATCHES)
    known = FileList(list_path(root / "state", "Deposit"), "Deposit", directory_of(Disk(), root / "state"))
    known.add(["one.parquet", "two.parquet"])
    DrainNote(root / "state", Disk()).write(3)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


@pytest.fixture
def state(root: Path) -> Path:
    return root / "state"


def wrong(state: Path) -> dict[str, tuple[bool, str]]:
    return {f.file: (f.ok, f.problem) for f in check_beside(state) if f.problem}


def penstock(*words: Any) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.stdout, result.stderr


def test_all_of_it_is_sound(root: Path, state: Path) -> None:
    assert wrong(state) == {}
    assert {f.file for f in check_beside(state)} == {
        "sources/Deposit.list",
        "checkpoint/metadata",
        *(f"checkpoint/{kind}/{n}" for kind in ("offsets", "commits") for n in range(BATCHES)),
    }
    assert not any(f.problem for f in check_outcome_files(root / "out", state))
    code, out, err = penstock("check", state, "--outcomes", root / "out")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1 and "files, " in out
    assert out.endswith("kB: sound; versions 0 to 4 can be read\n")
    told = json.loads(penstock("check", state, "--outcomes", root / "out", "--json")[1])
    assert (told["sound"], told["versions"], told["findings"]) == (True, [[0, 4]], [])
    assert told["bytes"] > 0 and told["files"] > 20


@pytest.mark.parametrize("name", ["sources/Deposit.list", "drained", "checkpoint/metadata", "checkpoint/offsets/3"])
def test_any_byte_changed(state: Path, name: str) -> None:
    sound = (state / name).read_bytes()
    for place in range(0, len(sound), 3):
        changed = bytearray(sound)
        changed[place] ^= 4
        (state / name).write_bytes(changed)
        assert list(wrong(state)) == [name], place
        assert not wrong(state)[name][0]
    code, out, _ = penstock("check", state, "--json")
    assert code == 1
    (finding,) = json.loads(out)["findings"]
    assert finding["file"] == name and finding["remedy"] and not finding["ok"]


def test_hadoops_checksums(state: Path) -> None:
    for number, needed in ((3, True), (2, True), (1, False), (0, False)):
        sums = state / "checkpoint" / "offsets" / f".{number}.crc"
        sound = sums.read_bytes()
        for bad in (b"", b"crc\0", b"xrc\0" + sound[4:], b"crc\0\0\0\0\0" + sound[8:], sound[:-1], sound + b"\0"):
            sums.write_bytes(bad)
            says = {
                f"checkpoint/offsets/{number}": (not needed, f"is damaged: the checksums in .{number}.crc do not hold")
            }
            assert wrong(state) == says
        sums.unlink()
        assert wrong(state) == {}  # Hadoop believes a file without them.
    (state / "checkpoint" / "commits" / ".3.crc").unlink()
    (state / "checkpoint" / "commits" / "3").write_text("nothing")
    assert wrong(state) == {"checkpoint/commits/3": (False, "is damaged: it does not begin as Spark's notes do")}


@pytest.mark.parametrize(
    ("offsets", "commits", "says"),
    [
        (BATCHES, BATCHES, None),
        (BATCHES, BATCHES - 1, None),  # killed before Spark noted that the last was done
        (BATCHES + 1, BATCHES, None),  # killed before the engine took it
        (BATCHES + 1, BATCHES + 1, "is at batch 5, but the state waits for batch 4"),
        (BATCHES + 2, BATCHES + 1, "is at batch 5, but the state waits for batch 4"),
        (BATCHES - 1, BATCHES - 1, "lacks the plans of batches from 3 on, which the state has run up to 3"),
        (2, 1, "lacks the plans of batches from 1 on, which the state has run up to 3"),
        (0, 0, "lacks the plans of batches from 0 on, which the state has run up to 3"),
    ],
)
def test_the_checkpoint_must_fit_the_state(state: Path, offsets: int, commits: int, says: str | None) -> None:
    checkpoint(state, offsets, commits)
    assert wrong(state) == ({} if says is None else {"checkpoint/offsets": (False, says)})


def test_a_checkpoint_of_another_query_or_none(state: Path) -> None:
    checkpoint(state, BATCHES, BATCHES, query="another")
    says = f"is of query another, but the state was written by query {QUERY}"
    assert wrong(state) == {"checkpoint/metadata": (False, says)}
    (state / "checkpoint" / "metadata").unlink()
    (state / "checkpoint" / ".metadata.crc").unlink()
    assert wrong(state) == {"checkpoint/metadata": (False, "is missing")}
    hadoop(state / "checkpoint" / "metadata", b"[]")
    assert wrong(state) == {"checkpoint/metadata": (False, "is damaged: it does not say which query's it is")}
    shutil.rmtree(state / "checkpoint")
    assert wrong(state) == {"checkpoint": (False, f"is missing, and the state was written by query {QUERY}")}


def test_a_state_that_no_stream_writes_needs_none_of_it(tmp_path: Path) -> None:
    with app_of("penstock.workloads.bank:app").open(tmp_path / "state") as db:
        db.run({"Deposit": []}, id=7)
    assert check_beside(tmp_path / "state") == []
    code, out, _ = penstock("check", tmp_path / "state")
    assert code == 0 and "sound; versions 0 to 1 can be read" in out


def test_outcomes(root: Path, state: Path) -> None:
    out = root / "out"

    def said() -> dict[str, tuple[bool, str]]:
        return {f.file: (f.ok, f.problem) for f in check_outcome_files(out, state) if f.problem}

    first, last = out / "version-000000000001.parquet", out / "version-000000000004.parquet"
    last.unlink()
    assert said() == {str(last): (True, "is missing")}
    first.write_bytes(first.read_bytes()[:-1] + b"x")
    assert said()[str(first)] == (False, "is damaged: it is not what was written")
    code, shown, _ = penstock("check", state, "--outcomes", out)
    assert code == 1 and "1 damaged" in shown
    first.unlink()
    stray = out / "what is this.parquet"
    pa.parquet.write_table(pa.table({"x": [1]}), stray)
    assert said()[str(stray)] == (False, "is none of the files written here")
    assert said()[str(first)] == (False, "is missing")
    (finding,) = check_outcome_files(root / "nowhere", state)
    assert not finding.ok and finding.problem == f"there is no directory {root / 'nowhere'}"


def test_damage_of_the_state_itself_is_shown(state: Path, root: Path) -> None:
    segment = state / "log" / "000000000003.seg"
    segment.write_bytes(segment.read_bytes()[:-1] + b"x")
    code, out, _ = penstock("check", state, "--json")
    told = json.loads(out)
    assert (code, told["sound"], told["versions"]) == (1, False, [[0, 1]])
    assert [finding["file"] for finding in told["findings"]] == ["log/000000000003.seg"]
    code, out, err = penstock("check", state)
    assert (code, err) == (1, "")
    assert "1 damaged; versions 0 to 1 can be read" in out
    (state / "penstock.json").write_text("{}")
    told = json.loads(penstock("check", state, "--outcomes", root / "out", "--json")[1])
    assert [f["file"] for f in told["findings"]] == ["log/000000000003.seg", "penstock.json"]
    assert told["versions"] == []


def test_what_is_no_state_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place, says in {
        tmp_path / "nowhere": "there is no directory",
        tmp_path / "file": "not a directory; a state directory must be a directory",
        tmp_path: "is not a state directory: it has no penstock.json and no log; name one that has",
    }.items():
        code, out, err = penstock("check", place)
        assert (code, out) == (1, "")
        assert says in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "others",
    [b"", b'\n{"event":"Transfer","offsets":{"0":190}}', b'\n{"logOffset":2}\n-'],
    ids=["none", "topic", "frames"],
)
def test_a_list_that_lacks_files_which_have_been_read(made: Path, tmp_path: Path, others: bytes) -> None:
    state = Path(shutil.copytree(made / "state", tmp_path / "state"))
    offsets = b'v1\n{"batchWatermarkMs":0}\n{"event":"Deposit","files":%d}' + others
    newest = state / "checkpoint" / "offsets" / str(BATCHES - 1)
    hadoop(newest, offsets % 2)
    assert not [found for found in check_beside(state) if not found.ok]
    hadoop(newest, offsets % 3)
    (found,) = [found for found in check_beside(state) if not found.ok]
    assert (found.file, found.problem) == ("sources/Deposit.list", "names 2 files, but 3 have been read")
    list_path(state, "Deposit").unlink()
    (found,) = [found for found in check_beside(state) if not found.ok]
    assert (found.file, found.problem) == ("sources/Deposit.list", "is missing")
