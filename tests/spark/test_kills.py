"""A streaming job that is killed again and again loses no event and runs none twice."""

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from test_stream import (
    NOW,
    PATIENCE_S,
    assert_as_reference,
    bank,
    direct,
    events,
    finish,
    frames,
    outcomes_in,
    put_cut,
    state_of,
)

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]

JOB = """
    import sys
    from pathlib import Path

    from pyspark.sql import SparkSession
    from test_stream import Deposit, bank, direct, frames

    root = Path(sys.argv[1])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "ERROR").getOrCreate()
    sources = direct(root)
    if sys.argv[3] == "mixed":
        sources[Deposit] = frames(spark, root)[Deposit]
    query = bank.start(
        sources,
        state=root / "state",
        outcomes=root / "out",
        watermark=20,
        trigger={"availableNow": True},
        log=sys.argv[2],
        snapshot_every=4,
    )
    query.awaitTermination()
"""


def progress(root: Path) -> int:
    """How far the job is, in files: those of Spark, of the engine and of the outcomes."""
    places = ("state/checkpoint/offsets", "state/checkpoint/commits", "state/log", "out")
    return sum(len(os.listdir(root / place)) for place in places if (root / place).is_dir())


def run_and_kill(root: Path, log: str, sources: str, chance: random.Random) -> bool:
    """Run the job, and kill it once it has made some progress; whether it came to its end instead."""
    script = root / "job.py"
    script.write_text(textwrap.dedent(JOB))
    before, steps = progress(root), chance.randrange(1, 14)
    with (
        open(root / "said", "a") as said,
        subprocess.Popen(
            [sys.executable, str(script), str(root), log, sources], stdout=said, stderr=said, start_new_session=True
        ) as job,
    ):
        try:
            end = time.monotonic() + PATIENCE_S
            while job.poll() is None and progress(root) < before + steps:
                assert time.monotonic() < end, (root / "said").read_text()[-3000:]
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.05))
            over = job.poll() is not None
            # With its JVM; or the JVM finds itself alone.
            os.kill(job.pid, signal.SIGKILL) if chance.random() < 0.3 and not over else _kill_all(job.pid)
            job.wait()
        finally:
            _kill_all(job.pid)
    if over:
        assert job.returncode == 0, (root / "said").read_text()[-3000:]
    return over


def _kill_all(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill_loop(root: Path, log: str, sources: str, seed: int, kills: int, files: int) -> None:
    root.mkdir(exist_ok=True)
    print(f"seed {seed}")
    chance, killed = random.Random(seed), 0
    some = events(seed, files * 10, disorder=8)
    put_cut(root, some, files)
    state = state_of(root)
    for _ in range(kills):
        if run_and_kill(root, log, sources, chance):
            break
        killed += 1
        out = outcomes_in(root / "out")
        assert len(set(out["id"].to_pylist())) == out.num_rows
        # Whatever moment it was: the directory opens, and what was written is what the log has.
        with bank.open(state, log=log) as db:
            assert db.version >= (max(out["version"].to_pylist()) if out.num_rows else 0)
    script = root / "job.py"
    command = [sys.executable, str(script), str(root), log, sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr[-3000:]
    out = outcomes_in(root / "out")
    assert sorted(out["id"].to_pylist()) == sorted(e.values["id"] for e in some)
    # Spark's own file source lists a file before it notes the batch: a kill in between puts two into the next batch,
    # and after some of these it is so far ahead of the other source that what comes from there is late.
    late = set(out.filter(pc.equal(out["status"], "late"))["id"].to_pylist())
    assert sources == "mixed" or not late
    ran = [e for e in some if e.values["id"] not in late]
    assert_as_reference(ran, state, out.filter(pc.not_equal(out["status"], "late")))
    print(f"{killed} kills, {len(some)} events, of which {len(late)} were late")
    # Else it was over before most of them.
    assert killed > kills // 2


@pytest.mark.parametrize("sources", ["mixed", "direct"])
def test_kills_at_random_moments(tmp_path: Path, sources: str) -> None:
    kill_loop(tmp_path / "a place", "changes", sources, seed=1, kills=4, files=8)


@pytest.mark.long
@pytest.mark.parametrize(("log", "sources"), [("changes", "mixed"), ("input", "mixed"), ("changes", "direct")])
def test_many_kills_at_random_moments(tmp_path: Path, log: str, sources: str) -> None:
    kill_loop(tmp_path, log, sources, seed=random.randrange(10**6), kills=50, files=120)


def two_runs(spark: Any, root: Path, between: Any, source: Any = direct) -> None:
    """A query that holds events back, something that happens to its files, and the query again."""
    some = events(3, 60, disorder=5)
    state = state_of(root)
    put_cut(root, some[:40], 2)

    def sources() -> Any:
        return frames(spark, root) if source is frames else direct(root)

    query = bank.start(sources(), state=state, outcomes=root / "out", watermark=10)
    query.processAllAvailable()
    query.stop()
    finish(query)
    between(state)
    put_cut(root, some[40:], 1)
    finish(bank.start(sources(), state=state, outcomes=root / "out", watermark=10, trigger=NOW))
    assert_as_reference(some, state, outcomes_in(root / "out"))


def newest(folder: Path) -> Path:
    return max((p for p in folder.iterdir() if not p.name.startswith(".")), key=lambda p: p.name)


@pytest.mark.parametrize("source", [direct, frames])
def test_a_batch_that_spark_has_not_noted_is_sent_again(spark: Any, tmp_path: Path, source: Any) -> None:
    def lose(state: Path) -> None:
        last = newest(state / "checkpoint" / "commits")
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)

    two_runs(spark, tmp_path, lose, source)


@pytest.mark.parametrize("noted", [True, False])
def test_outcomes_that_were_not_written_are_written_at_the_restart(spark: Any, tmp_path: Path, noted: bool) -> None:
    def lose(state: Path) -> None:
        newest(tmp_path / "out").unlink()
        if not noted:
            last = newest(state / "checkpoint" / "commits")
            last.unlink()
            last.with_name(f".{last.name}.crc").unlink(missing_ok=True)

    two_runs(spark, tmp_path, lose)


def test_a_half_written_list_of_files_and_a_half_written_outcome(spark: Any, tmp_path: Path) -> None:
    def tear(state: Path) -> None:
        with open(state / "sources" / "Transfer.list", "a") as file:
            file.write('["5e1f0c2a","part-00')
        shutil.copy(newest(tmp_path / "out"), tmp_path / "out" / ".version-000000000099.parquet.tmp")

    two_runs(spark, tmp_path, tear)


def test_a_first_batch_that_was_never_planned_is_no_obstacle(spark: Any, tmp_path: Path) -> None:
    """Spark itself refuses what a kill leaves of its first file of offsets."""
    some = events(4, 20)
    put_cut(tmp_path, some, 1)
    state = state_of(tmp_path)
    (state / "checkpoint" / "offsets").mkdir(parents=True)
    (state / "checkpoint" / "offsets" / ".0.5bb1.tmp").write_text("v1")
    finish(bank.start(frames(spark, tmp_path), state=state, outcomes=tmp_path / "out", trigger=NOW))
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))
