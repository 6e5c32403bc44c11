"""Every fault that these tests know, tried one by one; prints how many there were, and how many went wrong.

python tests/faults/sweep.py                  all of them: about an hour on one core
python tests/faults/sweep.py --share 0.02     a random share of each kind; --seed 7: the same one again
python tests/faults/sweep.py memory           only the kinds whose name has this in it
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import failing_disk
import failing_memory
import test_crash
import test_journal_damage
from bank_job import WAYS, job
from failing_disk import scratch
from faulty import CODES, Counting

# A case that takes this many seconds hangs.
_HANGS_S = 300

Cases = tuple[Sequence[Any], Callable[[Path, Any], object]]


@dataclass(frozen=True, slots=True)
class Sweep:
    """One kind of fault: its cases, and what tries one in an empty folder and raises where it goes wrong."""

    name: str
    cases: Callable[[], AbstractContextManager[Cases]]


@dataclass(frozen=True, slots=True)
class Wrong:
    case: str
    error: BaseException


def sweeps() -> Iterator[Sweep]:
    for way in WAYS:
        yield Sweep(f"kills at every file operation: {way}", partial(_kills, way))
    for code in CODES:
        for how in ("once", "persists", "done"):
            if how != "done" or code == "EIO":
                yield Sweep(f"disk, writing: {code} {how}", partial(_writing, code, how))
    for way in WAYS:
        yield Sweep(f"disk, reading: {way}", partial(_reading, way))
    for error in (MemoryError, KeyboardInterrupt):
        for way, background in (("changes", True), ("input", False), ("held ahead", False)):
            yield Sweep(f"memory, on a directory: {error.__name__}, {way}", partial(_durable, error, way, background))
        yield Sweep(f"memory, in memory: {error.__name__}", partial(_transient, error))
    yield Sweep("damage: files deleted, cut short, a bit flipped in every byte", _damages)


@contextmanager
def _kills(way: str) -> Iterator[Cases]:
    with scratch() as folder:
        disk = Counting()
        job(folder / "state", way, lambda k: None, disk)
    yield range(1, disk.count + 1), lambda folder, at: test_crash.kill(folder, way, at)


@contextmanager
def _writing(code: str, how: str) -> Iterator[Cases]:
    faults = [fault for fault in failing_disk.writing_faults() if (fault.code, fault.how) == (code, how)]
    yield faults, failing_disk.write


@contextmanager
def _reading(way: str) -> Iterator[Cases]:
    with scratch() as folder, failing_disk.reading(folder, way) as reading:
        yield list(failing_disk.reading_faults(reading)), lambda _, case: failing_disk.read(reading, *case)


@contextmanager
def _durable(error: type[BaseException], way: str, background: bool) -> Iterator[Cases]:
    found = failing_memory.durable_faults(error, way, background)
    yield found, lambda folder, case: failing_memory.durable(folder, error, way, background, *case)


@contextmanager
def _transient(error: type[BaseException]) -> Iterator[Cases]:
    yield failing_memory.transient_faults(error), lambda _, case: failing_memory.transient(error, *case)


@contextmanager
def _damages() -> Iterator[Cases]:
    with scratch() as folder:
        finished = test_journal_damage.finish(folder / "state")
        cases = list(test_journal_damage.damages(finished, every_byte=True))
        yield cases, lambda folder, case: test_journal_damage.damage(finished, folder / "state", *case)


def tried(cases: Sequence[Any], attempt: Callable[[Path, Any], object]) -> Iterator[Wrong | None]:
    """Each case in a folder of its own."""
    with scratch() as root:
        for number, case in enumerate(cases):
            folder = root / str(number)
            folder.mkdir()
            try:
                attempt(folder, case)
                yield None
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt | GeneratorExit) and error.args != ("injected",):
                    raise
                yield Wrong(" ".join(map(str, case)) if isinstance(case, tuple) else str(case), error)
            shutil.rmtree(folder)


def share_of(cases: Sequence[Any], share: float, rng: random.Random) -> Sequence[Any]:
    """At least one of each kind."""
    return cases if share >= 1 else rng.sample(cases, max(1, round(len(cases) * share)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", nargs="?", default="")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    given = parser.parse_args()
    rng = random.Random(given.seed)
    print(f"seed {given.seed}, share {given.share}", flush=True)
    total = wrong = 0
    for sweep in sweeps():
        if given.kind not in sweep.name:
            continue
        with sweep.cases() as (cases, attempt):
            picked, begun = share_of(cases, given.share, rng), time.monotonic()
            failed = 0
            for done, result in enumerate(tried(picked, attempt), 1):
                faulthandler.dump_traceback_later(_HANGS_S, exit=True)
                if result is not None:
                    failed += 1
                    print(f"\rWRONG {sweep.name}: {result.case}")
                    traceback.print_exception(result.error)
                if done % (10 if sys.stdout.isatty() else 500) == 0:
                    end = "" if sys.stdout.isatty() else "\n"
                    print(f"\r{sweep.name}: {done} of {len(picked)}, {failed} wrong ", end=end, flush=True)
            faulthandler.cancel_dump_traceback_later()
        said = f"{len(picked):7} of {len(cases):6} tried {failed:4} wrong {time.monotonic() - begun:7.0f} s"
        print(f"\r{sweep.name:75} {said}", flush=True)
        total, wrong = total + len(picked), wrong + failed
    print(f"{'all':75} {total:7} tried {wrong:4} wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
