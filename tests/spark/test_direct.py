"""Direct sources: the engine finds a batch's files by Spark's own notes, and runs no job for them."""

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from test_kills import newest
from test_stream import NOW, assert_as_reference, bank, direct, events, finish, outcomes_in, put_cut, state_of

import penstock as ps
from penstock.database import Database
from penstock.execute.source_files import SourceFile, SourceRows
from penstock.publish.files import OutcomeFiles
from penstock.spark.direct_source import Spans, following, spans
from penstock.spark.files import SourceFiles
from penstock.spark.listing import FileList
from penstock.spark.outcome_writer import OutcomeWriter
from penstock.spark.run_ahead import RunAhead

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]

SOURCES = (SourceFiles("Transfer", "in", "Transfer.list", 1), SourceFiles("Deposit", "in", "Deposit.list", None))
META = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


@pytest.fixture
def no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.classic.dataframe import DataFrame

    def refuse(frame: Any) -> Any:
        raise AssertionError("a job was run for the names of files")

    monkeypatch.setattr(DataFrame, "toArrow", refuse)


@pytest.mark.usefixtures("no_jobs")
@pytest.mark.parametrize("per_batch", [1, 2, None])
def test_no_job_is_run_for_files(spark: Any, tmp_path: Path, per_batch: int | None) -> None:
    root = tmp_path / "a place"
    some = events(1, 60, disorder=5)
    put_cut(root, some, 5)
    state = state_of(root)
    finish(bank.start(direct(root, per_batch), state=state, outcomes=root / "out", watermark=10, trigger=NOW))
    assert_as_reference(some, state, outcomes_in(root / "out"))


@pytest.mark.usefixtures("no_jobs")
def test_a_batch_that_spark_sends_again_has_the_same_files(spark: Any, tmp_path: Path) -> None:
    """Killed after Spark planned the batch and before the engine had it; and more files have come since."""
    root = tmp_path / "a place"
    some = events(2, 90, disorder=5)
    put_cut(root, some[:60], 2)
    state = state_of(root)
    # As it was before the newest batch and what was drained behind it.
    second, before = tmp_path / "second", tmp_path / "again" / "state"
    shutil.copytree(state, before)
    finish(bank.start(direct(root), state=state, outcomes=root / "out", watermark=10, trigger=NOW, retain=1))
    shutil.copytree(state / "sources", before / "sources")
    shutil.copytree(state / "checkpoint", before / "checkpoint")
    for done in (before / "checkpoint" / "commits").iterdir():
        done.unlink()
    for later in [p for p in (before / "checkpoint" / "offsets").iterdir() if p.name.strip(".").split(".")[0] != "0"]:
        later.unlink()
    put_cut(root, some[60:], 1)
    finish(bank.start(direct(root), state=before, outcomes=second, watermark=10, trigger=NOW))
    assert_as_reference(some, before, outcomes_in(second))


def note(checkpoint: Path, batch: int, *lines: str) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))


def test_notes_say_which_files_a_batch_has(tmp_path: Path) -> None:
    note(tmp_path, 0, "v1", META, '{"event": "Transfer", "files": 2}', "-")
    note(tmp_path, 1, "v1", META, '{"event": "Transfer", "files": 2}', '{"event": "Deposit", "files": 3}')
    assert spans(tmp_path, 0, SOURCES[:1]) == {"Transfer": (0, 2)}
    assert spans(tmp_path, 1, SOURCES) == {"Transfer": (2, 2), "Deposit": (0, 3)}


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("v1",),
        ("v2", META, '{"event": "Transfer", "files": 2}'),
        ("v1", META, '{"files": 2}'),
        ("v1", META, '{"event": "Other", "files": 2}'),
        ("v1", META, "2"),
        ("v1", META, '{"event": "Transfer", "fi'),
    ],
)
def test_notes_of_another_make_say_nothing(tmp_path: Path, lines: tuple[str, ...]) -> None:
    note(tmp_path, 0, *lines)
    assert spans(tmp_path, 0, SOURCES[:1]) is None
    assert spans(tmp_path, 1, SOURCES[:1]) is None


def test_a_list_that_lacks_a_file_says_nothing(tmp_path: Path) -> None:
    source = SourceFiles("Transfer", str(tmp_path), str(tmp_path / "Transfer.list"), 1)
    FileList(Path(source.known), "Transfer", None).add(["one.parquet", "two.parquet"])
    os.truncate(source.known, Path(source.known).stat().st_size - 5)
    assert RunAhead().take(bank.program, (source,), {"Transfer": (1, 2)}) is None


@pytest.mark.parametrize(
    ("done", "coming", "coming_if_all_listed"),
    [
        ({"Transfer": (0, 2), "Deposit": (0, 1)}, {"Transfer": (2, 4), "Deposit": (1, 2)}, None),
        ({"Transfer": (2, 4), "Deposit": (1, 2)}, None, {"Transfer": (4, 5), "Deposit": (2, 2)}),
        ({"Transfer": (4, 5), "Deposit": (2, 2)}, None, None),
    ],
)
def test_the_next_batch_where_it_is_certain(
    tmp_path: Path, done: Spans, coming: Spans | None, coming_if_all_listed: Spans | None
) -> None:
    """New files may come before Spark looks, so a share that is not full yet may still become so."""
    sources = []
    for event, share, files in (("Transfer", 2, 5), ("Deposit", 1, 2)):
        sources.append(SourceFiles(event, str(tmp_path), str(tmp_path / f"{event}.list"), share))
        FileList(Path(sources[-1].known), event, None).add([f"{k}.parquet" for k in range(files)])
    assert following(tuple(sources), done, all_listed=False) == coming
    assert following(tuple(sources), done, all_listed=True) == (coming_if_all_listed or coming)
    everything = SourceFiles("Transfer", str(tmp_path), sources[0].known, None)
    assert following((everything,), {"Transfer": (0, 2)}, all_listed=True) is None


@pytest.mark.parametrize("guess", ["right", "wrong"])
def test_the_next_batch_is_run_while_spark_plans(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guess: str
) -> None:
    """And where Spark plans otherwise than was thought, what ran has not happened."""
    some = events(8, 60, disorder=5)
    put_cut(tmp_path, some, 6)
    state = state_of(tmp_path)
    ran, prepared = Database.run_ahead, []

    def run_ahead(database: Database, *args: Any, **named: Any) -> None:
        ran(database, *args, **named)
        prepared.append(database._versions.pending)

    monkeypatch.setattr(Database, "run_ahead", run_ahead)
    if guess == "wrong":
        # The same files once more.
        monkeypatch.setattr("penstock.spark.batch.following", lambda sources, done, **_: done)
    finish(bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", watermark=10, trigger=NOW))
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))
    assert len(prepared) == (5 if guess == "right" else 6) and None not in prepared


def test_without_notes_the_job_is_run(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.spark.direct_source.spans", lambda *_: None)
    some = events(5, 40, disorder=5)
    put_cut(tmp_path, some, 2)
    state = state_of(tmp_path)
    finish(bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", watermark=10, trigger=NOW))
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


@pytest.mark.parametrize("stops", [True, False])
def test_last_outcomes_that_cannot_be_written_are_told_of(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    """They are written behind the batch: Spark has noted it as done by then, and the query has ended well."""
    some = events(6, 20)
    put_cut(tmp_path, some, 1)
    state = state_of(tmp_path)

    def fail(files: OutcomeFiles, outcomes: Any, versions: Any = None) -> None:
        raise ps.StateError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(OutcomeFiles, "write", fail)
        trigger = None if stops else NOW
        query = bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", trigger=trigger)
        if stops:
            with pytest.raises(ps.StateError, match="no room"):
                query.processAllAvailable()
        with pytest.raises(ps.StateError, match="no room"):
            query.stop() if stops else query.awaitTermination(60)
    finish(bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW))
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))
    assert newest(tmp_path / "out").name == "version-000000000001.parquet"


def test_what_goes_wrong_ahead_is_told_when_the_next_batch_is_asked_for() -> None:
    ahead, behind = RunAhead(), OutcomeWriter()

    def run(batch: Any) -> None:
        raise ZeroDivisionError("ahead")

    ahead.start(bank.program, (), {}, run, behind)
    with pytest.raises(ZeroDivisionError, match="ahead"):
        ahead.wait()
    ahead.wait()  # it is told once
    ahead.close()
    behind.close()


def test_a_file_that_becomes_another_while_it_is_read_ahead_is_named_as_it_was(tmp_path: Path) -> None:
    source = SourceFiles("Transfer", str(tmp_path / "Transfer"), str(tmp_path / "Transfer.list"), 1)
    put_cut(tmp_path, events(1, 20), 1)
    (file,) = (tmp_path / "Transfer").glob("*.parquet")
    FileList(Path(source.known), "Transfer", None).add([file.name])
    ahead, behind = RunAhead(), OutcomeWriter()
    before = SourceFile.of(str(file), file.read_bytes())
    ahead.start(bank.program, (source,), {"Transfer": (0, 1)}, lambda batch: None, behind, named=True)
    ahead.wait()
    pq.write_table(pq.read_table(file).slice(1), tmp_path / "other")
    os.replace(tmp_path / "other", file)
    taken = ahead.take(bank.program, (source,), {"Transfer": (0, 1)}, named=True)
    assert taken is not None
    rows = taken["Transfer"]
    assert isinstance(rows, SourceRows)
    assert rows.files == (before,)
    assert rows.table.num_rows == pq.read_table(file).num_rows + 1
    ahead.close()
    behind.close()


def test_with_the_files_as_the_log_a_recovery_reads_them_again(spark: Any, tmp_path: Path) -> None:
    some = events(5, 120, disorder=5)
    put_cut(tmp_path, some, 5)
    state = state_of(tmp_path)
    options: dict[str, Any] = {"watermark": 10, "trigger": NOW, "log": "source", "retain": 100}
    finish(bank.start(direct(tmp_path, 1), state=state, outcomes=tmp_path / "out", **options))
    shutil.rmtree(state / "snapshots")
    (state / "snapshots").mkdir()
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))
    assert not any(b"event:Transfer" in path.read_bytes() for path in (state / "log").iterdir())


def test_a_file_that_changes_behind_its_reading_is_refused_by_a_recovery(tmp_path: Path) -> None:
    """It is read while the batch before runs. What is logged has to name what was read, not what is there by then."""
    first, other = events(5, 40), events(6, 40)
    put_cut(tmp_path, first, 1)
    put_cut(tmp_path / "other", other, 1)
    name = next((tmp_path / "Transfer").glob("*.parquet"))
    source = SourceFiles("Transfer", str(name.parent), str(tmp_path / "Transfer.list"), 1)
    FileList(Path(source.known), "Transfer", None).add([name.name])
    ahead, behind, wanted = RunAhead(), OutcomeWriter(), {"Transfer": (0, 1)}
    ahead.start(bank.program, (source,), wanted, lambda _: None, behind, named=True)
    ahead.wait()
    shutil.copyfile(next((tmp_path / "other" / "Transfer").glob("*.parquet")), name)
    batch = ahead.take(bank.program, (source,), wanted, named=True)
    ahead.close()
    behind.close()
    db = bank.open(tmp_path / "state", log="source")
    db.run(batch)
    db._store.close(None)  # as if killed
    with pytest.raises(ps.StateError, match="is another one by now"):
        bank.open(tmp_path / "state")
