"""What goes wrong on Spark: a message that says what to do, and nothing lost."""

import datetime as dt
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from test_stream import (
    NOW,
    PATIENCE_S,
    START,
    Account,
    Deposit,
    Transfer,
    assert_as_reference,
    bank,
    direct,
    events,
    finish,
    frames,
    needs_limits,
    outcomes_in,
    put,
    put_cut,
    state_of,
    tables_of,
    wait_for,
)

import penstock as ps
from penstock.spark.arguments import span

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]


def fails(query: Any, match: str) -> None:
    with pytest.raises(StreamingQueryException, match=match):
        query.awaitTermination(PATIENCE_S)


# --- refused at the start ---------------------------------------------------------------------


def test_columns_that_do_not_fit_are_all_named(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    frame = spark.readStream.schema("ts string, id string, src string, amount double").parquet(str(tmp_path / "in"))
    with pytest.raises(ps.InputError) as refusal:
        bank.start({Transfer: frame}, state=tmp_path / "state", outcomes=tmp_path / "out")
    for part in ("Transfer", "'ts' is string, not int", "'dst' (str) is missing", "'amount' is double"):
        assert part in str(refusal.value)
    assert not (tmp_path / "state").exists()
    with pytest.raises(ps.InputError, match=r"'dst' .* is missing"):
        bank.apply({Transfer: spark.createDataFrame([(1,)], "ts long")}, state=tmp_path / "state")
    assert not (tmp_path / "state").exists()


def test_sources_that_cannot_be_one(spark: Any, tmp_path: Path) -> None:
    put_cut(tmp_path, events(1, 10), 1)
    where = {"state": tmp_path / "state", "outcomes": tmp_path / "out"}
    static = spark.createDataFrame(tables_of(events(1, 10))[Transfer])
    with pytest.raises(ps.InputError, match="no transaction for event Refund; it has Transfer, Deposit"):
        bank.start({"Refund": static}, **where)
    with pytest.raises(ps.InputError, match="use apply"):
        bank.start({Transfer: static}, **where)
    with pytest.raises(ps.InputError, match="use start"):
        bank.apply({Transfer: frames(spark, tmp_path)[Transfer]}, state=tmp_path / "state")
    with pytest.raises(ps.InputError, match="use start"):
        bank.apply(direct(tmp_path), state=tmp_path / "state")
    with pytest.raises(ps.InputError, match=r"DataFrame, ps\.parquet"):
        bank.start({Transfer: "in/"}, **where)
    with pytest.raises(ps.InputError, match="there is no directory"):
        bank.start({Transfer: ps.parquet(tmp_path / "nowhere")}, **where)
    with pytest.raises(ps.InputError, match="an int, in the unit of its order column"):
        bank.start(direct(tmp_path), watermark="5 seconds", **where)
    with pytest.raises(ps.InputError, match="an int, in the unit of its order column"):
        bank.start(direct(tmp_path), watermark=dt.timedelta(seconds=5), **where)
    with pytest.raises(ps.InputError, match=r"app 'bank': trigger='availableNow' is not a dict, such as .*: True"):
        bank.start(direct(tmp_path), trigger="availableNow", **where)  # type: ignore[arg-type]
    with pytest.raises(ps.InputError, match=r"app 'bank': outcomes=None is not .* or f\(dataframe, batch_id"):
        bank.start(direct(tmp_path), state=tmp_path / "state", outcomes=None)  # type: ignore[arg-type]
    with pytest.raises(ps.InputError, match="give a source"):
        bank.start({}, **where)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("watermark", ["90 seconds", dt.timedelta(seconds=90), 90_000_000])
def test_a_watermark_of_times(watermark: Any) -> None:
    app = ps.App("clock")

    @app.event
    class Tick:
        at: dt.datetime = ps.order()

    assert span(app.program, "watermark", watermark) == 90_000_000
    with pytest.raises(ps.InputError, match="a timedelta or a number of microseconds"):
        span(app.program, "watermark", dt.timedelta(seconds=-1))


def test_one_static_frame_among_streams_is_refused(spark: Any, tmp_path: Path) -> None:
    """It would be read again with every batch."""
    put_cut(tmp_path, events(1, 10), 1)
    sources = direct(tmp_path)
    sources[Deposit] = spark.createDataFrame(tables_of(events(1, 10))[Deposit])
    with pytest.raises(ps.InputError, match="use apply"):
        bank.start(sources, state=tmp_path / "state", outcomes=tmp_path / "out")


def test_two_queries_on_one_directory(spark: Any, tmp_path: Path) -> None:
    some = events(2, 20)
    put_cut(tmp_path, some, 1)
    state = state_of(tmp_path)
    query = bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out")
    with pytest.raises(ps.StateError, match="stop that one first"):
        bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "other")
    with pytest.raises(ps.StateError, match="open for writing"):
        bank.open(state)
    query.processAllAvailable()
    query.stop()
    finish(query)
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


# --- while it runs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "drift", "says"),
    [
        (
            direct,
            "missing",
            r"InputError: event 'Transfer': .*/FILE has no column 'dst'; it has .*; replace the file by",
        ),
        (
            direct,
            "type",
            r"InputError: event 'Transfer', column 'amount' of .*/FILE: needs decimal\(18, 2\), got .*string",
        ),
        (frames, "type", r"reading file .*/FILE. Data type mismatches when reading Parquet column \[amount\]"),
    ],
    ids=["direct-missing", "direct-type", "frames-type"],
)
def test_a_file_that_does_not_fit_stops_the_query_until_it_is_replaced(
    spark: Any, tmp_path: Path, source: Any, drift: str, says: str
) -> None:
    some = events(3, 60)
    state = state_of(tmp_path)
    put_cut(tmp_path, some, 3)
    last = sorted((tmp_path / "Transfer").iterdir())[-1]
    whole = pq.read_table(last)
    text = whole.schema.set(whole.schema.get_field_index("amount"), pa.field("amount", pa.string()))
    pq.write_table(whole.drop("dst") if drift == "missing" else whole.cast(text), last)

    def again() -> Any:
        sources = frames(spark, tmp_path) if source is frames else direct(tmp_path)
        return bank.start(sources, state=state, outcomes=tmp_path / "out", watermark=100, trigger=NOW)

    for _ in range(2):
        fails(again(), says.replace("FILE", last.name))
    pq.write_table(whole, last)
    finish(again())
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


def test_a_column_that_a_dataframe_lacks_in_one_file_is_null_there(spark: Any, tmp_path: Path) -> None:
    """Spark fills it, as the DataFrame's schema says that it is there; each outcome says which field was null."""
    some = events(3, 40)
    state = state_of(tmp_path)
    put_cut(tmp_path, some, 2)
    last = sorted((tmp_path / "Transfer").iterdir())[-1]
    whole = pq.read_table(last)
    pq.write_table(whole.drop("dst"), last)
    finish(bank.start(frames(spark, tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW))
    out = outcomes_in(tmp_path / "out")
    assert out.num_rows == len(some)
    assert [r["id"] for r in out.to_pylist() if r["reason"] == "null dst"] == sorted(whole["id"].to_pylist())


def test_a_file_that_is_no_parquet(spark: Any, tmp_path: Path) -> None:
    some = events(4, 30)
    state = state_of(tmp_path)
    put_cut(tmp_path, some, 1)
    bad = sorted((tmp_path / "Transfer").iterdir())[-1]
    whole = bad.read_bytes()
    bad.write_bytes(whole[:50])
    fails(
        bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW),
        rf"InputError.*{bad.name} cannot be read",
    )
    bad.write_bytes(whole)
    finish(bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW))
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


def test_a_null_where_none_may_be_stops_a_query_that_asks_for_it(spark: Any, tmp_path: Path) -> None:
    some = events(5, 20)
    state = state_of(tmp_path)
    table = tables_of(some)[Transfer]
    rows = table.to_pylist()
    put(tmp_path / "Transfer", table.from_pylist([{**rows[0], "ts": None}, *rows[1:]], schema=table.schema))
    (tmp_path / "Deposit").mkdir()
    sources = {Transfer: frames(spark, tmp_path)[Transfer]}
    where = {"state": state, "outcomes": tmp_path / "out", "trigger": NOW}
    fails(bank.start(sources, **where, on_bad="fail"), "InputError.*'ts'.*is null")
    assert_as_reference([], state, outcomes_in(tmp_path / "out"))
    finish(bank.start(sources, **where))  # the same batch, which has not happened
    out = outcomes_in(tmp_path / "out")
    assert [row["reason"] for row in out.to_pylist() if row["status"] == "rejected"] == ["ts: null"]
    assert out.num_rows == len(rows)


@pytest.mark.parametrize("batch", [0, 1])
def test_a_function_that_raises_is_called_again_with_the_same_batch(spark: Any, tmp_path: Path, batch: int) -> None:
    some = events(6, 40)
    state = state_of(tmp_path)
    put_cut(tmp_path, some, 2)
    calls: list[tuple[int, Any]] = []

    def raises(frame: Any, batch_id: int) -> None:
        calls.append((batch_id, frame.toArrow()))
        if batch_id == batch + 1 and len(calls) == batch + 1:
            raise RuntimeError("the other side is away")

    fails(bank.start(direct(tmp_path), state=state, outcomes=raises, trigger=NOW), "the other side is away")
    finish(bank.start(direct(tmp_path), state=state, outcomes=raises, trigger=NOW))
    assert [number for number, _ in calls] == ([1, 1, 2] if batch == 0 else [1, 2, 2])
    assert calls[batch][1].equals(calls[batch + 1][1])
    assert_as_reference(some, state, None)


def test_a_function_that_raises_at_the_end_is_heard_of(spark: Any, tmp_path: Path) -> None:
    some = events(6, 20)
    state = state_of(tmp_path)
    put_cut(tmp_path, some, 1)

    def raises(frame: Any, batch_id: int) -> None:
        if batch_id == 2:  # of what was held
            raise RuntimeError("the other side is away")

    query = bank.start(direct(tmp_path), state=state, outcomes=raises, watermark=100, trigger=NOW)
    with pytest.raises(RuntimeError, match="away"):
        query.awaitTermination(PATIENCE_S)
    assert_as_reference(some, state, None)


@pytest.mark.parametrize("trigger", [NOW, None])
def test_what_was_held_to_the_end_is_sent_again_until_it_is_taken(spark: Any, tmp_path: Path, trigger: Any) -> None:
    some = events(6, 20)
    state = state_of(tmp_path)
    put_cut(tmp_path, some, 1)
    calls: list[tuple[int, Any]] = []
    away = [True, True, False]

    def take(frame: Any, batch_id: int) -> None:
        calls.append((batch_id, frame.toArrow()))
        if batch_id == 2 and away.pop(0):
            raise RuntimeError("the other side is away")

    def again(trigger: Any = NOW) -> Any:
        return bank.start(direct(tmp_path), state=state, outcomes=take, watermark=100, trigger=trigger)

    with pytest.raises(RuntimeError, match="away"):
        finish(again())
    bank.apply({Deposit: spark.createDataFrame(tables_of(events(6, 4, first=900))[Deposit])}, state=state)
    with pytest.raises(RuntimeError, match="away"):
        again()
    query = again(trigger)
    if trigger is None:
        query.processAllAvailable()
        query.stop()
    finish(query)
    finish(again())
    assert [number for number, _ in calls] == [1, 2, 2, 2]
    assert calls[1][1].equals(calls[2][1]) and calls[2][1].equals(calls[3][1])
    assert calls[3][1].num_rows == len(some)


def test_outcomes_that_cannot_be_written_are_written_at_the_restart(spark: Any, tmp_path: Path) -> None:
    some = events(7, 40)
    state = state_of(tmp_path)
    put_cut(tmp_path, some, 2)
    (tmp_path / "out").write_text("a file is in the way")
    fails(bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW), "cannot be written")
    (tmp_path / "out").unlink()
    finish(bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW))
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


# --- a directory and a checkpoint that do not fit ---------------------------------------------


def test_a_checkpoint_that_is_lost(spark: Any, tmp_path: Path) -> None:
    some = events(8, 40)
    state = state_of(tmp_path)
    put_cut(tmp_path, some, 2)
    finish(bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW))
    (state / "checkpoint").rename(tmp_path / "kept")
    fails(
        bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW),
        "StateError.*use the checkpoint that belongs to it",
    )
    shutil.rmtree(state / "checkpoint")
    (tmp_path / "kept").rename(state / "checkpoint")
    more = events(9, 20, first=40)
    put_cut(tmp_path, more, 1)
    finish(bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW))
    assert_as_reference([*some, *more], state, outcomes_in(tmp_path / "out"))


@pytest.mark.parametrize(
    ("source", "lost"),
    [
        (frames, "offsets and commits"),
        (frames, "all but the metadata"),
        (frames, "the last plan"),
        (frames, "two batches"),
        (frames, "a batch"),
        (direct, "offsets and commits"),
        (direct, "a batch"),
    ],
)
def test_a_checkpoint_that_has_lost_its_newest_offsets(spark: Any, tmp_path: Path, source: Any, lost: str) -> None:
    """Batches that Spark plans anew have the numbers of batches that have run, and may hold other events."""
    some = events(12, 80)
    state = state_of(tmp_path)
    checkpoint, older = state / "checkpoint", tmp_path / "older"
    sources = {direct: lambda: direct(tmp_path, None), frames: lambda: frames(spark, tmp_path, 100)}[source]

    def again() -> Any:
        return bank.start(sources(), state=state, outcomes=tmp_path / "out", trigger=NOW)

    for batch in range(3):
        put_cut(tmp_path, some[20 * batch : 20 * batch + 20], 1)
        finish(again())
        if batch == (1 if lost == "a batch" else 0):
            shutil.copytree(checkpoint, older)
    shutil.copytree(checkpoint, tmp_path / "whole")
    put_cut(tmp_path, some[60:], 1)
    if lost == "the last plan":
        for name in ("offsets/2", "offsets/.2.crc", "commits/2", "commits/.2.crc"):
            (checkpoint / name).unlink(missing_ok=True)
    elif lost in ("two batches", "a batch"):
        shutil.rmtree(checkpoint)
        older.rename(checkpoint)
    else:
        for entry in checkpoint.iterdir():
            if entry.name in ("offsets", "commits") or (entry.is_dir() and lost == "all but the metadata"):
                shutil.rmtree(entry)
    fails(again(), "StateError.*checkpoint has lost its newest offsets, or is an older copy; restore the one")
    # The right one goes on, and nothing has been lost meanwhile.
    shutil.rmtree(checkpoint)
    (tmp_path / "whole").rename(checkpoint)
    finish(again())
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


def test_a_directory_whose_batches_were_numbered_by_hand(spark: Any, tmp_path: Path) -> None:
    put_cut(tmp_path, events(12, 20), 1)
    state = state_of(tmp_path)
    with bank.open(state) as db:
        db.run([], id=0)
    fails(
        bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW),
        "StateError.*batches up to 0 that no query sent.*use another state directory",
    )


def test_a_list_of_files_that_cannot_be_written(spark: Any, tmp_path: Path) -> None:
    some = events(13, 60)
    put_cut(tmp_path, some[:40], 2)
    state = state_of(tmp_path)
    finish(bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW))
    kept = state / "sources" / "Transfer.list"
    kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(tmp_path / "elsewhere")
    put_cut(tmp_path, some[40:], 1)
    fails(
        bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW),
        r"StateError: cannot open .*/sources/Transfer.list: too many levels of symbolic links; a symbolic link is",
    )


def test_a_list_of_files_that_is_lost(spark: Any, tmp_path: Path) -> None:
    """Without it the files would be numbered anew, and some taken for others."""
    some = events(13, 60)
    state = state_of(tmp_path)
    put_cut(tmp_path, some[:40], 2)

    def again() -> Any:
        return bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW)

    finish(again())
    kept = state / "sources" / "Transfer.list"
    whole = kept.read_bytes()
    kept.unlink()
    put_cut(tmp_path, some[40:], 1)
    fails(again(), "StateError.*Transfer.list has 0 files.*2 have been read.*restore")
    kept.write_bytes(whole)
    finish(again())
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


def test_an_older_state_directory(spark: Any, tmp_path: Path) -> None:
    state = state_of(tmp_path)
    for seed in range(3):
        if seed == 1:
            shutil.copytree(state, tmp_path / "older")
        put_cut(tmp_path, events(seed, 20, first=20 * seed), 1)
        finish(bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW))
    shutil.rmtree(tmp_path / "older" / "checkpoint")
    shutil.copytree(state / "checkpoint", tmp_path / "older" / "checkpoint")
    shutil.copytree(state / "sources", tmp_path / "older" / "sources", dirs_exist_ok=True)
    with pytest.raises(
        ps.StateError, match="has batch 2 as done, but the state has run batches up to 0: it is an older"
    ):
        bank.start(direct(tmp_path), state=tmp_path / "older", outcomes=tmp_path / "out2", trigger=NOW)
    put_cut(tmp_path, events(3, 20, first=60), 1)
    with pytest.raises(ps.StateError, match="restore the state and the checkpoint from one backup"):
        bank.start(direct(tmp_path), state=tmp_path / "older", outcomes=tmp_path / "out2", trigger=NOW)
    # The directory that does belong to it goes on.
    finish(bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW))
    some = [e for seed in range(4) for e in events(seed, 20, first=20 * seed)]
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


# --- the disk ---------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip("mounting is not permitted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_full_or_read_only(spark: Any, small_disk: Path, tmp_path: Path) -> None:
    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(small_disk)], check=True)

    state = small_disk / "state"
    bank.load(Account, START, state=state)
    some = events(10, 60)
    put_cut(tmp_path, some, 3)

    def again() -> Any:
        return bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", watermark=3, trigger=NOW)

    remount("ro")
    with pytest.raises(ps.StateError, match="read-only"):
        again()
    remount("rw")
    filler = small_disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    with pytest.raises((ps.StateError, StreamingQueryException), match=r"(?i)no space"):
        again().awaitTermination(PATIENCE_S)
    # Some room, so that it fails on the way and not at the start.
    for room in (16, 60, 100):
        os.truncate(filler, max(0, filler.stat().st_size - room * 1024))
        try:
            finish(again())
            break
        except (ps.StateError, StreamingQueryException) as error:
            said = str(error)
        assert "no space" in said.lower(), said
    filler.unlink()
    finish(again())
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


# --- Ctrl-C -----------------------------------------------------------------------------------

WAITING = """
    import sys
    from pathlib import Path

    from pyspark.sql import SparkSession
    from test_stream import bank, direct

    root = Path(sys.argv[1])
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    bank.start(direct(root), state=root / "state", outcomes=root / "out", watermark=5).awaitTermination()
"""


@needs_limits
def test_ctrl_c_leaves_a_directory_that_goes_on(spark: Any, tmp_path: Path) -> None:
    some = events(11, 60)
    state = state_of(tmp_path)
    put_cut(tmp_path, some, 3)
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(WAITING))
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        try:
            wait_for(lambda: outcomes_in(tmp_path / "out").num_rows > 0 or job.poll() is not None)
            # As a terminal does: to all of its processes.
            os.killpg(job.pid, signal.SIGINT)
            _, said = job.communicate(timeout=PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
    assert "KeyboardInterrupt" in said
    finish(bank.start(direct(tmp_path), state=state, outcomes=tmp_path / "out", watermark=5, trigger=NOW))
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))
