"""The example runs as it stands; and DataFrames of Spark's own Kafka source go on working."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from broker import NoBroker, spark_jars
from test_stream import PATIENCE_S, Transfer, bank, events, state_of

pytest.importorskip("confluent_kafka")
pytestmark = [pytest.mark.spark, pytest.mark.long]
ROOT = Path(__file__).parents[2]

# A session of its own: Spark's Kafka source comes from Maven Central.
OWN_SOURCE = """
    import sys
    from pathlib import Path

    from broker import spark_jars
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from test_stream import Transfer, bank

    root, bootstrap = Path(sys.argv[1]), sys.argv[2]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.jars", ",".join(map(str, spark_jars()))).getOrCreate()
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "own")
    read = read.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40)
    schema = "ts long, id string, src string, dst string, amount decimal(18, 2)"
    frame = read.load().select(F.from_json(F.col("value").cast("string"), schema).alias("e")).select("e.*")
    where = {"state": root / "state", "outcomes": root / "out", "trigger": {"availableNow": True}}
    bank.start({Transfer: frame}, **where).awaitTermination()
"""


def test_the_example_shows_what_it_says(broker: Any, tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "examples" / "kafka.py"),
        broker.bootstrap,
        "--fill",
        "--state",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("t1 committed 10.00\nt2 committed 10.00\nt3 aborted not enough\nNone rejected topic ")
    assert "topic transfers, partition 0, offset 3: it is no JSON object: 'no event'" in done.stdout


def test_a_dataframe_of_sparks_own_source(broker: Any, tmp_path: Path) -> None:
    try:
        spark_jars()
    except NoBroker as error:
        pytest.skip(f"no Kafka source of Spark's: {error}")
    some = [e for e in events(5, 120) if e.definition is Transfer.definition]
    broker.make("own", 2)
    values = [json.dumps(e.values, default=str).encode() for e in some]
    for p in range(2):
        broker.put("own", values[p::2], p)
    state_of(tmp_path)
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(OWN_SOURCE))
    command = [sys.executable, str(script), str(tmp_path), broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, env=dict(os.environ))
    assert done.returncode == 0, done.stderr[-3000:]
    with bank.open(tmp_path / "state") as db:
        assert db.version > 1
        out = [row["id"] for v in range(1, db.version + 1) for row in db.outcomes(v).to_pylist()]
    assert sorted(out) == sorted(e.values["id"] for e in some)
