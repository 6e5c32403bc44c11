"""`penstock demo` and `penstock run` on local Spark, as a user starts them."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.cli.payments import payments
from penstock.workloads import bank

pytestmark = pytest.mark.spark

SOURCE = Path(__file__).parents[2] / "src"


def penstock(*words: Any, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "penstock", *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "COLUMNS": "200"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, env=environment, stdout=pipe, stderr=pipe, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


@pytest.fixture
def stream(tmp_path: Path) -> tuple[Any, list[str]]:
    made = payments(seed=3, batches=3, events=200)
    inputs = made.write(tmp_path / "in")
    with bank.app().open(tmp_path / "state") as db:
        db.load("Account", bank.opening())
    words = ["run", "penstock.workloads.bank:app", "--state", "state", "--outcomes", "out", "--files-per-batch", "1"]
    for event, path in inputs.items():
        words += ["--input", f"{event}={path}"]
    return made, words


def test_demo_proves_itself_and_draws_a_picture(tmp_path: Path) -> None:
    words = ("demo", "--batches", 4, "--batch", 500, "--out", "pictures/demo.png", "--json")
    code, out, err = finish(penstock(*words, cwd=tmp_path))
    assert code == 0, err
    report = json.loads(out)
    assert (report["events"], report["batches"], report["killed_after"]) == (2000, 5, 2)
    assert report["committed"] + sum(report["aborted"].values()) + report["late"] == 2000
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert report["picture"] is None
    else:
        assert (tmp_path / "pictures" / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_run_shows_each_batch_and_says_what_it_came_to(stream: tuple[Any, list[str]], tmp_path: Path) -> None:
    made, words = stream
    code, out, err = finish(penstock(*words, "--watermark", made.watermark, cwd=tmp_path))
    assert code == 0, err
    assert [line.split()[0] for line in err.splitlines()] == ["batch", "1", "2", "3", "4"]  # the last is what was held
    assert "events/s, Spark included" in out
    assert pq.read_table(tmp_path / "out").num_rows == made.events
    code, out, err = finish(penstock(*words, "--watermark", made.watermark, "--json", cwd=tmp_path))
    assert (code, err) == (0, "")
    again = json.loads(out)
    assert (again["batches"], again["events"]) == (0, 0)
    code, out, err = finish(penstock("query", "state", "select count(*) as n from account", "--json", cwd=tmp_path))
    assert json.loads(out) == {"version": 4, "rows": [{"n": bank.ACCOUNTS}]}


METER = """
import penstock as ps

app = ps.App("meter")

@app.event
class Read:
    ts: int = ps.order()
    id: int = ps.id()
    amount: int

@app.event
class Alert:
    amount: int

@app.event
class Bill:
    amount: int

@app.transaction
def read(e: Read) -> None:
    if e.amount > 50:
        ps.emit(Alert(amount=e.amount))
    ps.emit(Bill(amount=e.amount))
"""


def test_run_writes_outputs_and_warns_of_those_that_go_nowhere(tmp_path: Path) -> None:
    (tmp_path / "meter.py").write_text(METER)
    (tmp_path / "in").mkdir()
    some = [{"ts": n, "id": n, "amount": 40 + n} for n in range(20)]
    pq.write_table(pa.Table.from_pylist(some), tmp_path / "in" / "0.parquet")
    words = ["run", "meter:app", "--input", "Read=in", "--state", "state", "--outcomes", "out", "--json"]
    code, out, err = finish(penstock(*words, "--output", "Alert=alerts", cwd=tmp_path))
    assert code == 0, err
    assert err == (
        "app 'meter' emits 'Bill', no transaction takes it, and outputs= does not name it: it goes to no file; give "
        "outputs={Bill: DIR} (penstock run: --output Bill=DIR)\n"
    )
    assert json.loads(out)["committed"] == 20
    assert [row["amount"] for row in pq.read_table(tmp_path / "alerts").to_pylist()] == list(range(51, 60))


def test_follow_takes_new_files_until_it_is_told_to_end(stream: tuple[Any, list[str]], tmp_path: Path) -> None:
    made, words = stream
    process = penstock(*words, "--follow", "--json", cwd=tmp_path)
    more = tmp_path / "in" / "Deposit" / "more.parquet"
    try:
        _wait_for(process, lambda: len(list((tmp_path / "out").glob("*.parquet"))) == 3)
        pq.write_table(made.files[0]["Deposit"], more.with_suffix(".tmp"))
        more.with_suffix(".tmp").rename(more)
        _wait_for(process, lambda: len(list((tmp_path / "out").glob("*.parquet"))) == 4)
    finally:
        process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert (code, err) == (0, "")
    assert json.loads(out)["events"] == made.events + made.files[0]["Deposit"].num_rows


def test_in_a_terminal_the_demo_ends_with_a_console(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = ["demo", "--batches", "4", "--batch", "200"]
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "COLUMNS": "200"}
    command = [sys.executable, "-m", "penstock", *words]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    try:
        shown = b""
        while (found := re.search(rb"(http://127\.0\.0\.1:\d+)/\?token=(\S+)\s", shown)) is None:
            part = os.read(ours, 1 << 16)
            assert part, shown.decode()
            shown += part
        url, token = found[1].decode(), found[2].decode()
        asked = urllib.request.Request(f"{url}/v1/batches", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked) as answer:
            told = json.loads(answer.read())
        assert told["version"] == 5 and sum(one["events"] for one in told["batches"]) == 800
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(asked)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_batch_that_cannot_be_taken_is_one_line(stream: tuple[Any, list[str]], tmp_path: Path) -> None:
    made, words = stream
    pq.write_table(made.files[0]["Deposit"].drop_columns("account"), tmp_path / "in" / "Deposit" / "wrong.parquet")
    code, out, err = finish(penstock(*words, "--json", cwd=tmp_path))
    assert (code, out) == (1, "")
    assert "wrong.parquet has no column 'account'" in err
    assert len(err.strip().splitlines()) == 1


def _wait_for(process: subprocess.Popen[str], holds: Any) -> None:
    until = time.monotonic() + 300
    while not holds():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.2)
