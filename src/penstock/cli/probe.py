"""Measurements that need a process of their own: `python -m penstock.cli.probe MODE JOB`.

JOB is the Job as JSON; what is printed is one JSON object.

    compile          opens the app and runs one small batch: db.compile_s, imports not counted
    working-memory   the memory that one batch needs beyond what it is given and gives back

        before       resident memory, with tables loaded, a small batch done, the large one at hand
        peak         high-water mark, reset before the large batch and read after it
        bytes/event  (peak - before - bytes of the outcomes) / events

The input is in `before`, so it is not counted; memory that was freed is given back to the system
first, or it would serve the batch and hide its need. Records that a batch inserts are counted.
"""

from __future__ import annotations

import ctypes
import gc
import json
import resource
import sys
from pathlib import Path

import pyarrow as pa

from penstock.cli.job import Job
from penstock.cli.measure import batch_of, loaded, policy
from penstock.workloads import bind


def _compile(job: Job) -> dict[str, float]:
    app, db = loaded(job)
    with db:
        db.run(bind(app, batch_of(job, 10, 0)), policy=policy(job))
        return {"compile_s": db.compile_s}


def _working_memory(job: Job) -> dict[str, float]:
    app, db = loaded(job)
    with db:
        db.run(bind(app, batch_of(job, 1_000, 0)), policy=policy(job))
        events = bind(app, batch_of(job, job.memory_events, 1_000))
        give_back_free_memory()
        before = resident()
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
        outcomes = db.run(events, policy=policy(job))
        peak = _memory("VmHWM")
        beyond = max(0, peak - before - outcomes.nbytes)
    return {
        "bytes_per_event": beyond / job.memory_events,
        "peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def resident() -> int:
    return _memory("VmRSS")


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def give_back_free_memory() -> None:
    """What the generator freed must not serve the batch, or its need would look smaller."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)


MODES = {"compile": _compile, "working-memory": _working_memory}

if __name__ == "__main__":
    print(json.dumps(MODES[sys.argv[1]](Job(**json.loads(sys.argv[2])))))
