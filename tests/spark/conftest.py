"""One Spark session for all tests of this folder: starting one costs seconds."""

import os
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import InputError
from penstock.spark.compatibility import need_admission

SOURCE = Path(__file__).parents[2] / "src"


def pytest_configure(config: pytest.Config) -> None:
    # Python workers are started as `python3` unless they are told otherwise, and find the package by this path.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    paths = [str(SOURCE), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    if version("pyspark").startswith(("4.0.", "4.1.")):  # it leaves sockets to the garbage collector
        config.addinivalue_line("filterwarnings", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def what_needs_a_newer_spark_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Spark 4.0 and 4.1, in the words in which it is refused."""
    from penstock.spark import files, reader
    from penstock.spark.kafka import source as topics

    def skip_if_refused(*words: str) -> None:
        try:
            need_admission(*words)
        except InputError as refused:
            pytest.skip(str(refused))

    for module in (files, reader, topics):
        monkeypatch.setattr(module, "need_admission", skip_if_refused)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("penstock tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def no_query_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Kafka broker for all tests that kill none."""
    pytest.importorskip("confluent_kafka")
    from broker import NoBroker, running

    try:
        with running(tmp_path_factory.mktemp("kafka")) as one:
            yield one
    except NoBroker as error:
        pytest.skip(f"no Kafka broker: {error}")
