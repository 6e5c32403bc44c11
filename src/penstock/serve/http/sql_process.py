"""The process that runs SQL: `python -m penstock.serve.http.sql_process STATE PARENT`. See sql.py.

A fresh connection for each query, which reaches no file, no network and no setting (state/sql.py). And while it runs:

    memory      DuckDB's own limit, and the kernel's on this process, a little above it
    CPU time    the kernel's
    files       none may be written
    5 s         it is interrupted; who does not listen is killed, by the server

It ends with its server: their pipe closes.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.replica.cut import Cut
from penstock.replica.reader import Reader
from penstock.serve.http.answers import Refusal, refusal_of
from penstock.serve.http.cuts import Cuts
from penstock.serve.http.sql import ANSWER_MAX, SECONDS, SIZE
from penstock.serve.http.values import dumps, plain
from penstock.state.sql import Limits, Rows, read_rows

MEMORY = 512 << 20
# Above DuckDB's own: its threads, the rows on their way out, Python.
_MEMORY_BESIDE = 512 << 20
_CPU_S = 30
ARROW_MAX = 64 << 20
_LIMITS = Limits(MEMORY, threads=2, seconds=SECONDS)


def main(state: Path, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's; it ends this one
    # What anything here prints is not to get between the answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.excepthook = lambda _: None
    with Reader(state) as reader:
        cuts = Cuts(reader)
        out.write(b".")
        out.flush()
        while os.getppid() == parent and (question := _received(sys.stdin.buffer)) is not None:
            head, body = _answered(reader, cuts, question)
            told = orjson.dumps(head)
            out.write(SIZE.pack(len(told), len(body)) + told)
            out.write(body)
            out.flush()
            cuts.sweep()


def _received(source: BinaryIO) -> dict[str, Any] | None:
    size = source.read(SIZE.size)
    if len(size) < SIZE.size:
        return None
    found: dict[str, Any] = orjson.loads(source.read(SIZE.unpack(size)[0]))
    return found


def _answered(reader: Reader, cuts: Cuts, question: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    version = None
    try:
        reader.wait(question["at_least"], question["timeout"])
        with cuts.at(question["version"]) as cut:
            version = cut.version
            tables = _mentioned(cut, question["sql"])
            with _limited():
                rows = read_rows(tables, question["sql"], question["limit"], _LIMITS)
            body = _arrow(rows) if question.get("arrow") else _json(version, rows)
        return {"version": version}, body
    except PenstockError as error:
        told = refusal_of(error)
    except Refusal as refusal:
        told = refusal
    except MemoryError:
        told = Refusal(400, "too_large", "the query used more memory than it may; ask for less")
    return {"status": told.status, "error": told.error, "says": told.says, "version": version}, b""


def _mentioned(cut: Cut, sql: str) -> dict[str, pa.Table]:
    """The tables. Of those that the query does not name only the columns: to copy them costs what they hold."""
    text = sql.lower()
    return {
        name: cut.table(name) if name.lower() in text else table.arrow().empty_table()
        for name, table in cut.tables.items()
    }


@contextmanager
def _limited() -> Iterator[None]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limits = {
        resource.RLIMIT_DATA: _data() + MEMORY + _MEMORY_BESIDE,
        resource.RLIMIT_CPU: int(used.ru_utime + used.ru_stime) + _CPU_S,
        resource.RLIMIT_FSIZE: 0,
    }
    before = {which: resource.getrlimit(which) for which in limits}
    try:
        for which, most in limits.items():
            resource.setrlimit(which, (most, before[which][1]))
        yield
    finally:
        for which, both in before.items():
            resource.setrlimit(which, both)


def _data() -> int:
    """What RLIMIT_DATA counts of this process, so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    return 0


def _arrow(rows: Rows) -> bytes:
    """For Arrow Flight. Names may be there twice."""
    if rows.more:
        raise Refusal(413, "too_large", "the answer has more rows than this server gives at once; ask for less")
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        for batch in rows.batches:
            writer.write_batch(batch.rename_columns(rows.names))
            if out.tell() > ARROW_MAX:
                raise Refusal(413, "too_large", f"the answer has more than {ARROW_MAX >> 20} MB; ask for less")
    found: bytes = out.getvalue().to_pybytes()
    return found


def _json(version: int, rows: Rows) -> bytes:
    columns = [{"name": name, "type": kind} for name, kind in zip(rows.names, rows.types, strict=True)]
    huge = {name for name, kind in zip(rows.names, rows.types, strict=True) if kind in ("HUGEINT", "UHUGEINT")}
    parts, size = list[bytes](), 0
    for batch in rows.batches:
        for row in batch.rename_columns(rows.names).to_pylist():
            told = {name: int(v) if name in huge and v is not None else v for name, v in row.items()}
            parts.append(dumps(plain(told)))
            size += len(parts[-1])
            if size > ANSWER_MAX:
                raise Refusal(413, "too_large", f"the answer has more than {ANSWER_MAX >> 20} MB; ask for less")
    more = b"true" if rows.more else b"false"
    return b'{"version":%d,"columns":%b,"rows":[%b],"more":%b}' % (version, dumps(columns), b",".join(parts), more)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
