"""A streaming job that is killed before any of its file operations loses no event and runs none twice.

Not only the engine's: also those on the list of files, which a Python worker of Spark's writes, on outcome files and
on the note of the drain. The kill takes all processes of the job at once.
"""

import random
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from killer import environment, kill_session
from test_kills import JOB
from test_stream import PATIENCE_S, assert_as_reference, bank, events, outcomes_in, put_cut, state_of

from penstock.publish.manifest import check_outcomes
from penstock.spark.listing import check_lists

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]

EVENTS = events(7, 120, disorder=8)
FILES = 3
# Operations of a whole run, or a few less: the long test counts. A start of Spark takes seconds, so few are killed.
OPERATIONS = 100
KILLS = 3


def set_up(root: Path) -> Path:
    root.mkdir(parents=True)
    put_cut(root, EVENTS, FILES)
    (root / "job.py").write_text(textwrap.dedent(JOB))
    return state_of(root)


def run(root: Path, at: int) -> int | None:
    """Runs the job up to its at-th operation, or to its end: how many operations it made then, and None if killed."""
    counter = root.parent / f"{root.name}.operations"
    with (
        open(root.parent / f"{root.name}.said", "a+") as said,
        subprocess.Popen(
            [sys.executable, str(root / "job.py"), str(root), "changes", "direct"],
            env=environment(root, counter, at),
            stdout=said,
            stderr=said,
            start_new_session=True,
        ) as job,
    ):
        try:
            job.wait(PATIENCE_S)
        finally:
            kill_session(job.pid)
        said.seek(0)
        operations = counter.read_text().splitlines()
        # A worker that kills first kills the driver; either way the last one noted was not made.
        if at and len(operations) >= at:
            assert job.returncode != 0
            print(f"killed before operation {at}: {operations[at - 1]}")
            return None
        assert job.returncode == 0, said.read()[-3000:]
    return len(operations)


def check_after_a_kill(root: Path) -> None:
    """Whatever moment it was: the directory opens, no outcome is there twice, and what was written is sound."""
    out = outcomes_in(root / "out")
    assert len(set(out["id"].to_pylist())) == out.num_rows
    assert list(check_lists(root / "state")) == []
    with bank.open(root / "state") as db:
        assert db.version >= (max(out["version"].to_pylist()) if out.num_rows else 0)
    findings = list(check_outcomes(root / "out")) if (root / "out").is_dir() else []
    assert all("the next start of the query writes it" in finding for finding in findings), findings


def check_at_the_end(root: Path) -> None:
    assert list(check_lists(root / "state")) == list(check_outcomes(root / "out")) == []
    assert_as_reference(EVENTS, root / "state", outcomes_in(root / "out"))


def test_kills_at_some_file_operations(tmp_path: Path) -> None:
    """One job, killed again and again on its way: what a kill leaves, the next one finds."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    root = tmp_path / "a place"
    set_up(root)
    for _ in range(KILLS):
        if run(root, chance.randrange(1, OPERATIONS // 2)) is not None:
            break
        check_after_a_kill(root)
    run(root, 0)
    check_at_the_end(root)


@pytest.mark.long
def test_a_kill_at_every_file_operation(tmp_path: Path) -> None:
    every = tmp_path / "whole"
    set_up(every)
    total = run(every, 0)
    check_at_the_end(every)
    assert total is not None and total >= OPERATIONS
    for at in range(1, total + 1):
        root = tmp_path / str(at)
        set_up(root)
        # Where threads run beside each other, one run may need an operation more or less than another.
        if run(root, at) is None:
            check_after_a_kill(root)
            run(root, 0)
        check_at_the_end(root)
        shutil.rmtree(root)
