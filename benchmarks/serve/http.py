"""The server over HTTP, asked by wrk: one record a request, and a hundred.

    python -m benchmarks.serve.http                              1 M records, keys of both kinds
    python -m benchmarks.serve.http --records 10000000 --keys int --seconds 20 --json http.json

wrk comes from the distribution: apt install wrk. Rates are per second of wall, and per second of the server's own CPU
time: on a shared machine the second says what a core of its own would do. `beside` is measured while another process
runs batches of `--batch` events, `--pause` seconds between two.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.serve.reader import bank

_LUA = """
local asked = {{}}
for line in io.lines("{file}") do asked[#asked + 1] = line end
local place = math.random(#asked)
request = function()
  place = place % #asked + 1
  return wrk.format({method}, {path}, nil, {body})
end
done = function(summary, latency, requests)
  io.write(string.format("\\n@ %d %d %d %d %d %d\\n", summary.requests, summary.duration,
    summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout,
    latency:percentile(50), latency:percentile(99), latency.max))
end
wrk.headers["Authorization"] = "Bearer {token}"
wrk.headers["Content-Type"] = "application/json"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", choices=("int", "str"))
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--pause", type=float, default=0.1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("there is no wrk; apt install wrk")
    found = [measure(kind, options) for kind in ([options.keys] if options.keys else ["int", "str"])]
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2))


def measure(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="penstock-http-") as folder:
        state = Path(folder) / "bank"
        app, account, _ = bank(kind)
        names = np.arange(options.records)
        ids = pa.array(names if kind == "int" else [f"account-{n:08}" for n in names])
        with app.open(state) as db:
            db.load(account, pa.table({"id": ids, "balance": pa.repeat(pa.scalar(1_000), options.records)}))
        told: dict[str, Any] = {"keys": kind, "records": options.records}
        with server(state) as (port, pid, token):
            chosen = random.Random(1).choices(ids.to_pylist(), k=100_000)
            for what, count in (("one key", 1), ("100 keys", 100)):
                told[what] = asked(port, pid, token, chosen, count, options)
                show(kind, what, told[what])
            with writer(kind, state, options):
                for what, count in (("one key, beside a writer", 1), ("100 keys, beside a writer", 100)):
                    told[what] = asked(port, pid, token, chosen, count, options)
                    show(kind, what, told[what])
        return told


def asked(
    port: int, pid: int, token: str, chosen: list[Any], count: int, options: argparse.Namespace
) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="penstock-http-") as folder:
        lines = Path(folder) / "asked"
        if count == 1:
            lines.write_text("\n".join(f"/v1/tables/Account/records/{key}" for key in chosen))
            form = {"method": '"GET"', "path": "asked[place]", "body": "nil"}
        else:
            several = [chosen[i : i + count] for i in range(0, len(chosen) // count * count, count)]
            lines.write_text("\n".join(json.dumps({"get": {"Account": keys}}) for keys in several))
            form = {"method": '"POST"', "path": '"/v1/get"', "body": "asked[place]"}
        script = Path(folder) / "ask.lua"
        script.write_text(_LUA.format(file=lines, token=token, **form))
        run = ["wrk", "-t1", f"-c{options.connections}", "--latency", "-s", str(script), f"http://127.0.0.1:{port}"]
        subprocess.run([*run, "-d1"], check=True, capture_output=True)
        before = cpu_s(pid)
        told = subprocess.run([*run, f"-d{options.seconds:g}"], check=True, capture_output=True, text=True).stdout
        used = cpu_s(pid) - before
    numbers = re.search(r"@ (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", told)
    assert numbers is not None, told
    requests, us, errors, p50, p99, most = map(int, numbers.groups())
    assert not errors, f"{errors} of {requests} requests failed"
    return {
        "requests_per_s": requests / us * 1e6,
        "requests_per_cpu_s": requests / used,
        "keys_per_cpu_s": requests * count / used,
        "p50_ms": p50 / 1000,
        "p99_ms": p99 / 1000,
        "max_ms": most / 1000,
        "load": os.getloadavg()[0],
    }


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def server(state: Path) -> Iterator[tuple[int, int, str]]:
    command = [sys.executable, "-m", "penstock", "serve", str(state), "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        yield int(told["url"].rpartition(":")[2]), told["pid"], (state / "read.token").read_text().strip()
    finally:
        process.terminate()
        process.wait()


@contextmanager
def writer(kind: str, state: Path, options: argparse.Namespace) -> Iterator[None]:
    code = (
        "import sys, time; from benchmarks.serve.http import write; "
        f"write({kind!r}, {str(state)!r}, {options.records}, {options.batch}, {options.pause})"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # the first batch
        yield
    finally:
        process.kill()
        process.wait()


def write(kind: str, state: str, records: int, batch: int, pause: float) -> None:
    import time

    app, _, transfer = bank(kind)
    choose, ts = np.random.default_rng(1), 0
    with app.open(state) as db:
        while True:
            columns: dict[str, Any] = {"ts": np.arange(ts, ts + batch)}
            for name in ("src", "dst"):
                places = choose.integers(0, records, batch)
                columns[name] = places if kind == "int" else [f"account-{n:08}" for n in places]
            columns["amount"] = pa.repeat(pa.scalar(1), batch)
            db.run({transfer: pa.table(columns)})
            if not ts:
                print("running", flush=True)
            ts += batch
            time.sleep(pause)


def show(kind: str, what: str, told: dict[str, float]) -> None:
    print(
        f"{kind} keys, {what}: {told['requests_per_cpu_s']:,.0f} requests and {told['keys_per_cpu_s']:,.0f} keys a CPU "
        f"second, {told['requests_per_s']:,.0f} requests/s; p50 {told['p50_ms']:.2f} ms, p99 {told['p99_ms']:.2f} ms; "
        f"load {told['load']:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
