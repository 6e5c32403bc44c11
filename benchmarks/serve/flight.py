"""Arrow Flight multi-gets: keys a second by DoExchange, from a server process beside a directory of a million records.

python -m benchmarks.serve.flight [--records 1000000] [--keys 10000] [--batches 300]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

import penstock as ps

bank = ps.App("bank")


@bank.table
class Account:
    id: int = ps.key()
    balance: int = 0
    held: int = 0


@bank.event
class Touch:
    ts: int = ps.order()
    id: int


@bank.transaction
def touch(e: Touch) -> None:
    Account.get(e.id).balance += 1


def cpu_s(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def multi_get(place: str, token: str, records: int, keys: int, batches: int) -> float:
    """The seconds that it took; batches are under way together."""
    rng = np.random.default_rng(1)
    several = [pa.record_batch({"id": rng.integers(0, records, keys)}) for _ in range(8)]
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
    with flight.connect(place) as client:
        descriptor = flight.FlightDescriptor.for_command(b'{"get": "Account"}')
        writer, reader = client.do_exchange(descriptor, options)
        with writer:
            writer.begin(several[0].schema)
            under_way = threading.Semaphore(4)

            def send() -> None:
                for number in range(batches):
                    under_way.acquire()
                    writer.write_batch(several[number % len(several)])
                writer.done_writing()

            sender = threading.Thread(target=send)
            begun = time.perf_counter()
            sender.start()
            for _ in range(batches):
                assert reader.read_chunk().data.num_rows == keys
                under_way.release()
            took = time.perf_counter() - begun
            sender.join()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=300)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        with bank.open(state) as db:
            rows: dict[str, Any] = {"id": np.arange(given.records), "balance": np.arange(given.records)}
            db.load(Account, pa.table(rows))
        command = [sys.executable, "-m", "penstock", "serve", str(state), "--json"]
        command += ["--listen", "127.0.0.1:0", "--flight", "127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            told = json.loads(server.stdout.readline())
            token = (state / "read.token").read_text().strip()
            multi_get(told["flight"], token, given.records, given.keys, 10)
            before, own = cpu_s(told["pid"]), time.process_time()
            took = multi_get(told["flight"], token, given.records, given.keys, given.batches)
            used, own = cpu_s(told["pid"]) - before, time.process_time() - own
            keys = given.keys * given.batches
            print(
                json.dumps(
                    {
                        "keys/s": round(keys / took),
                        "keys per second of the server's CPU": round(keys / max(used, 0.01)),
                        "of the client's": round(keys / own),
                        "load": os.getloadavg()[0],
                    },
                    indent=1,
                )
            )
            server.terminate()


if __name__ == "__main__":
    main()
