"""From a topic to a topic, through kills of the job and of the broker: no event is lost, and none is there twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest
from broker import Broker, NoBroker
from test_stream import PATIENCE_S, START, Account, Transfer, assert_as_reference, bank, events, state_of

pytest.importorskip("confluent_kafka")
pytestmark = [pytest.mark.spark, pytest.mark.long]

KILLS = int(os.environ.get("PENSTOCK_KAFKA_KILLS", "20"))
PER_BATCH = 20
# Two partitions that are read in equal parts: their events are as far apart as those of a batch.
WATERMARK = 60

JOB = """
    import sys
    from pathlib import Path

    from pyspark.sql import SparkSession

    import penstock as ps
    from test_stream import Transfer, bank

    root, bootstrap, per_batch, watermark = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "ERROR").getOrCreate()
    query = bank.start(
        {Transfer: ps.kafka("in", bootstrap=bootstrap, rows_per_batch=per_batch)},
        state=root / "state",
        outcomes=ps.kafka_sink("out", bootstrap=bootstrap),
        watermark=watermark,
        trigger={"availableNow": True},
        snapshot_every=4,
    )
    query.awaitTermination()
"""


class Job:
    def __init__(self, root: Path, broker: Broker) -> None:
        self._root, script = root, root / "job.py"
        script.write_text(textwrap.dedent(JOB))
        self.said = open(root / "job.said", "a+")
        command = [sys.executable, str(script), str(root), broker.bootstrap, str(PER_BATCH), str(WATERMARK)]
        self.process = subprocess.Popen(command, stdout=self.said, stderr=self.said, start_new_session=True)
        self._before = self.progress

    @property
    def progress(self) -> int:
        """By the numbers of the newest files, as old ones are removed."""
        places = ("state/checkpoint/offsets", "state/checkpoint/commits", "state/log")
        return sum(_newest(self._root / place) for place in places if (self._root / place).is_dir())

    def goes_on(self, steps: int) -> bool:
        """Until it has made so many steps; whether it has not ended before that."""
        before, until = self.progress, time.monotonic() + PATIENCE_S
        while self.process.poll() is None and self.progress < before + steps:
            assert time.monotonic() < until, f"the job does not go on: {self.words()}"
            time.sleep(0.002)
        return self.process.poll() is None

    def words(self) -> str:
        return (self._root / "job.said").read_text()[-3000:]

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.said.close()


def _newest(folder: Path) -> int:
    numbers = (name.partition(".")[0] for name in os.listdir(folder))
    return max((int(number) for number in numbers if number.isdigit()), default=0)


def ids(broker: Broker) -> list[str]:
    return [json.loads(message.value())["id"] for message in broker.get("out")]


def run_with_kills(root: Path, kills: int, seed: int) -> dict[str, int]:
    """Kill the job, the broker or both, until there were so many kills; then let it come to its end."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    some = [e for e in events(seed, 6 * PER_BATCH * kills, disorder=8) if e.definition is Transfer.definition]
    try:
        broker = Broker(root)
    except NoBroker as error:
        pytest.skip(f"no Kafka broker: {error}")
    counts = {"job": 0, "broker": 0, "ended by the broker's absence": 0}
    job = None
    try:
        broker.start()
        broker.wait()
        broker.make("in", 2)
        broker.make("out", 3)
        values = [json.dumps(e.values, default=str).encode() for e in some]
        for p in range(2):
            broker.put("in", values[p::2], p)
        state_of(root)
        job = Job(root, broker)
        while sum((counts["job"], counts["broker"])) < kills:
            if not job.goes_on(chance.randrange(1, 10)):
                said = job.words()
                assert job.process.returncode != 0, "it was over before most of the kills"
                assert "goes on where it was" in said or "are written when the query is started again" in said, said
                counts["ended by the broker's absence"] += 1
                job.kill()
                job = Job(root, broker)
                continue
            time.sleep(chance.uniform(0, 0.05))
            if chance.random() < 0.5:
                broker.kill()
                counts["broker"] += 1
                if chance.random() < 0.2:
                    job.kill()
                    counts["job"] += 1
                time.sleep(chance.uniform(0, 1))
                broker.start()
                broker.wait()
                if job.process.poll() is not None:
                    job = Job(root, broker)
            else:
                job.kill()
                counts["job"] += 1
                job = Job(root, broker)
            if chance.random() < 0.2:
                found = ids(broker)
                assert len(set(found)) == len(found)
        while job.process.wait(PATIENCE_S * 4) != 0:
            said = job.words()
            assert "goes on where it was" in said or "are written when the query is started again" in said, said
            job = Job(root, broker)
        found, wanted = ids(broker), [e.values["id"] for e in some]
        lost, twice = set(wanted) - set(found), len(found) - len(set(found))
        counts |= {"events": len(some), "lost": len(lost), "twice": twice}
        print(counts)
        assert sorted(found) == sorted(wanted)
        assert_same_as_the_log(root, broker)
        assert_as_reference(some, root / "state", None)
    finally:
        if job is not None:
            job.kill()
        broker.kill()
    return counts


def assert_same_as_the_log(root: Path, broker: Broker) -> None:
    """What is in the topic is what became of the events."""
    rows = [json.loads(message.value()) for message in broker.get("out")]
    reference = bank.reference()
    reference.load(Account, START)
    some = [json.loads(message.value()) for message in broker.get("in")]
    wanted = reference.run([Transfer(**{**row, "amount": Decimal(row["amount"])}) for row in some])
    by_id = {row["id"]: row for row in rows}
    for row in wanted.to_pylist():
        assert (by_id[row["id"]]["status"], by_id[row["id"]]["reason"]) == (row["status"], row["reason"])
        assert by_id[row["id"]]["left"] == (None if row["left"] is None else str(row["left"]))


def test_kills_of_the_job_and_the_broker(tmp_path: Path) -> None:
    run_with_kills(tmp_path, KILLS, random.randrange(10**6))
