"""A durable database survives SIGKILL: at every file operation of a small job (bank_job.py), and at random moments."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bank_job import BATCHES, WAYS, check, job, prefixes
from faulty import Killing

pytestmark = pytest.mark.faults


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> None:
    """Before any fork, and before anything is killed by the clock."""
    for way in WAYS:
        prefixes(way)


class Child:
    """The job in a process of its own, which tells of each batch that it acknowledges."""

    def __init__(self, run: Callable[[Callable[[int], object]], None]) -> None:
        self._told, telling = os.pipe()
        self.acknowledged = 0
        self._process = os.fork()
        if self._process == 0:
            os.close(self._told)
            try:
                run(lambda k: os.write(telling, bytes([k])))
            finally:
                os._exit(0)
        os.close(telling)

    def wait_for(self, batch: int) -> None:
        """Until it has acknowledged this one, or has ended."""
        while self.acknowledged < batch and (told := os.read(self._told, 1)):
            self.acknowledged = told[0]

    def kill(self) -> None:
        os.kill(self._process, signal.SIGKILL)

    def ended(self) -> bool:
        """Whether it was killed; it has ended by now."""
        self.wait_for(BATCHES + 1)
        os.close(self._told)
        _, status = os.waitpid(self._process, 0)
        return os.WIFSIGNALED(status)


def kill(folder: Path, way: str, at: int) -> bool:
    """Kills the job before its at-th file operation, and looks at what is left; whether there was such an operation."""
    path = folder / f"state{at}"
    child = Child(lambda ack: job(path, way, ack, Killing(at)))
    was_killed = child.ended()
    assert was_killed or child.acknowledged == BATCHES
    check(path, way, child.acknowledged)
    shutil.rmtree(path)
    return was_killed


@pytest.mark.parametrize("way", WAYS)
def test_killed_at_every_file_operation(way: str, folder: Path) -> None:
    at = 1
    while kill(folder, way, at):
        at += 1
    # Loads, commits, snapshots, pruning, two openings: fewer operations would mean that the hook missed most.
    assert at > 100


@pytest.mark.parametrize("way", WAYS)
def test_killed_at_random_moments_with_snapshots_in_the_background(way: str, folder: Path) -> None:
    """A moment is a number of acknowledged batches, and a little more time: so it falls into the job on any machine."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    kills = tries = 0
    while kills < 20:
        tries += 1
        path = folder / f"state{tries}"
        child = Child(lambda ack, p=path: job(p, way, ack, background=True))
        child.wait_for(rng.randrange(BATCHES))
        # Where the job is through before that has passed, again with less: in the end none, and then it is not through.
        time.sleep(rng.random() * 0.02 * 0.9 ** (tries - kills))
        child.kill()
        kills += child.ended()
        check(path, way, child.acknowledged)
        shutil.rmtree(path)
