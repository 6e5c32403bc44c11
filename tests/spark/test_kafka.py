"""Kafka topics as direct sources, on a real broker: the offsets of a batch alone say which rows it has."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_stream import (
    NOW,
    Deposit,
    Transfer,
    assert_as_reference,
    bank,
    direct,
    events,
    finish,
    outcomes_in,
    put_cut,
    state_of,
)

import penstock as ps
from penstock.spark.compatibility import ReadAllAvailable, ReadMaxRows
from penstock.spark.kafka.reader import TopicReader
from penstock.spark.kafka.source import TopicStream

pytest.importorskip("confluent_kafka")
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]


@pytest.fixture
def topic(broker: Any, request: pytest.FixtureRequest) -> str:
    """Two partitions, named after the test."""
    return str(broker.make(f"t{zlib.crc32(request.node.nodeid.encode())}", 2))


@pytest.fixture
def stream(broker: Any, topic: str, tmp_path: Path) -> Iterator[Any]:
    """What Spark's worker asks, for a stream of that topic."""
    made = []

    def make(**options: Any) -> TopicStream:
        source = ps.kafka(topic, bootstrap=broker.bootstrap, **options).of("Transfer", str(tmp_path / "state"))
        made.append(source)
        return TopicStream(source)

    (tmp_path / "state").mkdir()
    yield make
    for source in made:
        source.close()


def numbers(stream: Any, start: Any, end: Any) -> list[int]:
    """What is read between two offsets, of records that are numbers."""
    source = stream._source
    pieces = source.pieces(source.offset(start), source.offset(end))
    ranges = {p: (begin, behind) for p, begin, behind in map(json.loads, pieces)}
    return [int(value) for value in source._reader().read(ranges).values]


def texts(first: int, behind: int) -> list[bytes]:
    return [str(i).encode() for i in range(first, behind)]


def put_events(broker: Any, some: list[Any], topics: dict[Any, str], partitions: int = 2) -> None:
    for kind, topic in topics.items():
        values = [json.dumps(e.values, default=str).encode() for e in some if e.definition is kind.definition]
        for p in range(partitions):
            broker.put(topic, values[p::partitions], p)


def test_offsets_say_which_rows_a_batch_has(broker: Any, topic: str, stream: Any) -> None:
    one = stream()
    start = one.initialOffset()
    assert start == {"event": "Transfer", "offsets": {"0": 0, "1": 0}}
    assert one.latestOffset(start, ReadAllAvailable()) == start
    broker.put(topic, texts(0, 5), 0)
    broker.put(topic, texts(10, 13), 1)
    end = one.latestOffset(start, ReadAllAvailable())
    assert end["offsets"] == {"0": 5, "1": 3}
    assert numbers(one, start, end) == [*range(5), *range(10, 13)]
    assert numbers(one, start, end) == [*range(5), *range(10, 13)]  # again
    part = one.latestOffset(start, ReadMaxRows(4))
    assert part["offsets"] == {"0": 2, "1": 2}
    assert numbers(one, start, part) == [0, 1, 10, 11]
    assert numbers(one, part, end) == [2, 3, 4, 12]
    assert numbers(stream(), part, end) == [2, 3, 4, 12]
    one.prepareForTriggerAvailableNow()
    broker.put(topic, texts(5, 9), 0)
    assert one.latestOffset(part, ReadAllAvailable()) == end


def test_the_first_offset_stays_what_it_was(broker: Any, topic: str, stream: Any) -> None:
    broker.put(topic, texts(0, 3))
    latest = stream(starting="latest").initialOffset()
    assert latest["offsets"] == {"0": 3, "1": 0}
    broker.put(topic, texts(3, 6))
    assert stream(starting="latest").initialOffset() == latest


def test_partitions_that_come_later_are_read_whole(broker: Any, topic: str, stream: Any) -> None:
    broker.put(topic, texts(0, 3))
    one = stream(starting="latest")
    start = one.initialOffset()
    broker.widen(topic, 3)
    assert one.latestOffset(start, ReadAllAvailable()) == start  # there is nothing in it yet
    broker.put(topic, texts(20, 22), 2)
    end = one.latestOffset(start, ReadAllAvailable())
    assert end["offsets"] == {"0": 3, "1": 0, "2": 2}
    assert numbers(one, start, end) == [20, 21]


def reached(one: Any, start: Any, wanted: int) -> Any:
    """Its end, once that is where it has to be: a broker writes the marker of a transaction when it gets to it."""
    until = time.monotonic() + 60
    while (end := one.latestOffset(start, ReadAllAvailable()))["offsets"]["0"] != wanted:
        assert time.monotonic() < until and end["offsets"]["0"] < wanted, end
        time.sleep(0.02)
    return end


def test_only_what_has_committed_is_read(broker: Any, topic: str, stream: Any) -> None:
    one = stream()
    start = one.initialOffset()
    broker.transaction(topic, texts(0, 2))
    broker.transaction(topic, texts(100, 105), commit=False)
    open_ = broker.transaction(topic, texts(2, 4), commit=None)
    broker.put(topic, texts(4, 6))
    middle = reached(one, start, 9)  # two and a marker, five and a marker
    assert numbers(one, start, middle) == [0, 1]
    open_.commit_transaction(60)
    end = reached(one, middle, 14)
    assert numbers(one, middle, end) == [2, 3, 4, 5]
    assert numbers(one, start, end) == [*range(6)]
    broker.transaction(topic, texts(100, 105), commit=False)  # nothing but what was aborted
    last = reached(one, end, 20)
    assert numbers(one, end, last) == []


def test_a_topic_that_was_made_again_is_named(broker: Any, topic: str, stream: Any) -> None:
    broker.put(topic, texts(0, 3))
    start = stream().initialOffset()
    broker.delete(topic)
    broker.make(topic, 2)
    with pytest.raises(ps.StateError, match=r"event 'Transfer': topic .* was deleted and made again"):
        stream().latestOffset(start, ReadAllAvailable())


def test_another_topic_and_another_source_are_named(broker: Any, topic: str, stream: Any, tmp_path: Path) -> None:
    one = stream()
    start = one.initialOffset()
    other = broker.make(f"{topic}-other")
    source = ps.kafka(other, bootstrap=broker.bootstrap).of("Transfer", str(tmp_path / "state"))
    with pytest.raises(ps.StateError, match=f"'{other}' is given, but the stream has read topic '{topic}'"):
        TopicStream(source).latestOffset(start, ReadAllAvailable())
    with pytest.raises(ps.StateError, match="another source's offset"):
        one.latestOffset({"event": "Transfer", "files": 3}, ReadAllAvailable())


def test_records_that_are_gone_are_named_or_skipped(broker: Any, topic: str, stream: Any, tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition

    one = stream()
    start = one.initialOffset()
    broker.put(topic, texts(0, 10))
    end = one.latestOffset(start, ReadAllAvailable())
    for future in broker.admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        future.result()
    with pytest.raises(ps.StateError, match="partition 0: records from offset 0 up to 6 are gone before they were"):
        numbers(one, start, end)
    one._source.close()
    assert numbers(stream(lost="skip"), start, end) == [6, 7, 8, 9]


def test_a_reader_beyond_the_end_is_named(broker: Any, topic: str, stream: Any) -> None:
    one = stream()
    broker.put(topic, texts(0, 3))
    beyond = {"event": "Transfer", "offsets": {"0": 7, "1": 0}}
    one.initialOffset()
    with pytest.raises(ps.StateError, match="partition 0 ends at offset 3, but has been read up to 7"):
        one.latestOffset(beyond, ReadAllAvailable())
    with pytest.raises(ps.StateError, match="partition 0 ends at offset 3, but has been read up to 7"):
        numbers(one, beyond, {"event": "Transfer", "offsets": {"0": 9, "1": 0}})


def test_what_waits_for_later_batches_is_bounded(
    broker: Any, topic: str, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a partition that was fetched no further goes on where it was."""
    monkeypatch.setattr("penstock.spark.kafka.reader._AHEAD", 100)
    one = stream(rows_per_batch=40)
    start, found = one.initialOffset(), []
    broker.put(topic, texts(0, 300), 0)
    broker.put(topic, texts(300, 320), 1)
    while True:
        end = one.latestOffset(start, one.getDefaultReadLimit())
        if end == start:
            break
        found += numbers(one, start, end)
        start = end
    assert sorted(found) == [*range(320)]


def test_a_topic_that_is_not_there_and_a_broker_that_is_not(broker: Any, spark: Any, tmp_path: Path) -> None:
    state = state_of(tmp_path)
    where: dict[str, Any] = {"state": state, "outcomes": tmp_path / "out", "trigger": NOW}
    with pytest.raises(ps.InputError, match="event 'Transfer': there is no topic 'nowhere' at 127"):
        bank.start({Transfer: ps.kafka("nowhere", bootstrap=broker.bootstrap)}, **where)
    with pytest.raises(ps.InputError, match=r"event 'Transfer': log=.source. would read ps\.kafka again"):
        bank.start({Transfer: ps.kafka("nowhere", bootstrap=broker.bootstrap)}, log="source", **where)


def test_nothing_comes_from_a_broker_that_is_away(tmp_path: Path) -> None:
    from broker import free_port

    from penstock.spark.kafka.client import Cluster

    reader = TopicReader(Cluster(f"127.0.0.1:{free_port()}"), "t", "event 'Transfer'", patience_s=0.5)
    with pytest.raises(ps.InputError, match=r"partition 0 cannot be read from offset 0 up to 5: .*goes on where"):
        reader.read({0: (0, 5)})
    reader.close()


@pytest.mark.parametrize("per_batch", [pytest.param(None, marks=pytest.mark.long), 30])
def test_two_topics_are_merged_in_event_order(broker: Any, spark: Any, tmp_path: Path, per_batch: int | None) -> None:
    some = events(1, 240, disorder=10)
    topics = {kind: broker.make(f"{kind.definition.name}-{per_batch}", 2) for kind in (Transfer, Deposit)}
    put_events(broker, some, topics)
    state = state_of(tmp_path)
    sources = {
        kind: ps.kafka(topic, bootstrap=broker.bootstrap, rows_per_batch=per_batch) for kind, topic in topics.items()
    }
    # One partition's events are far ahead of the other's where a share of both is taken.
    finish(bank.start(sources, state=state, outcomes=tmp_path / "out", watermark=1000, trigger=NOW))
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


@pytest.mark.long
def test_a_topic_beside_a_directory_of_files(broker: Any, spark: Any, tmp_path: Path) -> None:
    some = events(2, 120, disorder=10)
    put_cut(tmp_path, some, 2)
    topic = broker.make("beside")
    put_events(broker, some, {Transfer: topic}, 1)
    state = state_of(tmp_path)
    sources = {**direct(tmp_path), Transfer: ps.kafka(topic, bootstrap=broker.bootstrap)}
    finish(bank.start(sources, state=state, outcomes=tmp_path / "out", watermark=1000, trigger=NOW))
    assert_as_reference(some, state, outcomes_in(tmp_path / "out"))


@pytest.mark.long
def test_a_message_that_is_no_event_is_told_by_its_place(broker: Any, topic: str, spark: Any, tmp_path: Path) -> None:
    broker.put(topic, [b'{"ts": 1, "id": "a", "src": "a", "dst": "b", "amount": 1}', None], 1)
    state = state_of(tmp_path)
    source = {Transfer: ps.kafka(topic, bootstrap=broker.bootstrap)}
    query = bank.start(source, state=state, outcomes=tmp_path / "out", trigger=NOW, on_bad="fail")
    with pytest.raises(Exception, match=f"topic {topic}, partition 1, offset 1: it has no value"):
        query.awaitTermination()
    finish(bank.start(source, state=state, outcomes=tmp_path / "out", trigger=NOW))
    assert outcomes_in(tmp_path / "out")["status"].to_pylist() == ["committed", "rejected"]
