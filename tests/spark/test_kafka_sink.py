"""Outcomes to a Kafka topic, on a real broker: each once for a consumer with read_committed."""

from __future__ import annotations

import datetime as dt
import json
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_stream import NOW, Transfer, bank, events, finish, state_of

import penstock as ps
from penstock.commit import Disk
from penstock.spark.kafka import sink_note
from penstock.spark.kafka.messages import arrow_messages, json_messages
from penstock.spark.kafka.sink import ENCODERS, OutcomeTopic

pytest.importorskip("confluent_kafka")
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]


@pytest.fixture
def topic(broker: Any, request: pytest.FixtureRequest) -> str:
    return str(broker.make(f"s{zlib.crc32(request.node.nodeid.encode())}", 2))


def outcomes(first: int, behind: int) -> pa.Table:
    """One row a version, of two."""
    rows = [
        {"ts": v, "id": f"e{v}-{i}", "status": "committed", "version": v} for v in range(first, behind) for i in "ab"
    ]
    return pa.Table.from_pylist(rows)


def opened(broker: Any, topic: str, state: Path, **more: Any) -> OutcomeTopic:
    if not (state / "penstock.json").exists():
        with bank.open(state):
            pass
    given = ps.kafka_sink(topic, bootstrap=broker.bootstrap, **more)
    return given.of("outcomes", str(state))


def seen(broker: Any, topic: str) -> list[str]:
    """Ids, in the order of their versions."""
    rows = [json.loads(message.value()) for message in broker.get(topic)]
    return sorted((row["id"] for row in rows), key=lambda one: (int(one[1:-2]), one))


def ids(first: int, behind: int) -> list[str]:
    return [row["id"] for row in outcomes(first, behind).to_pylist()]


def test_a_version_is_there_once_however_often_it_is_written(broker: Any, topic: str, tmp_path: Path) -> None:
    sink = opened(broker, topic, tmp_path)
    assert sink.written() == []
    for first, behind in ((1, 2), (1, 2), (1, 4), (2, 5)):  # several versions are one transaction
        sink.write(outcomes(first, behind))
    assert sink.written() == [4]
    again = opened(broker, topic, tmp_path)
    assert again.written() == [4]
    again.write(outcomes(3, 6))
    again.write(outcomes(6, 6))
    assert seen(broker, topic) == ids(1, 6)
    keys = {message.key().decode() for message in broker.get(topic)}
    assert keys == set(ids(1, 6))


class Killed(Exception):
    """As a kill would, it leaves everything as it is."""


@pytest.mark.parametrize("at", ["before", "produced", "committed"])
def test_a_kill_in_the_middle_of_a_write(
    broker: Any, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    sink = opened(broker, topic, tmp_path)
    sink.write(outcomes(1, 2))
    written = sink_note.write_sink_note

    def write_note(disk: Disk, path: Path, note: Any) -> None:
        if note.done == 2 or at == "before":
            raise Killed
        written(disk, path, note)

    def messages(rows: pa.Table, key: str | None) -> Any:
        yield from json_messages(rows, key)
        sink._producer.flush(20)
        if at == "produced":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("penstock.spark.kafka.sink.write_sink_note", write_note)
        patch.setitem(ENCODERS, "json", messages)
        with pytest.raises(Killed):
            sink.write(outcomes(2, 3))
    again = opened(broker, topic, tmp_path)
    assert again.written() == [2 if at == "committed" else 1]
    again.write(outcomes(2, 3))
    assert seen(broker, topic) == ids(1, 3)
    # What the dead one left cannot be ended by it any more.
    again.write(outcomes(3, 4))
    assert seen(broker, topic) == ids(1, 4)


def test_who_was_taken_for_dead_writes_nothing_twice(broker: Any, topic: str, tmp_path: Path) -> None:
    """Two that write beside each other, which the lock of a state directory does not allow."""
    one, other = opened(broker, topic, tmp_path), opened(broker, topic, tmp_path)
    one.write(outcomes(1, 2))
    other.write(outcomes(1, 3))
    one.write(outcomes(2, 4))
    other.write(outcomes(3, 5))
    assert seen(broker, topic) == ids(1, 5)


def test_a_topic_that_has_forgotten(broker: Any, topic: str, tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition

    def forget() -> None:
        places = [TopicPartition(topic, p, -1) for p in range(2)]  # all there is
        for future in broker.admin.delete_records(places).values():
            future.result()

    opened(broker, topic, tmp_path).write(outcomes(1, 3))
    forget()
    again = opened(broker, topic, tmp_path)  # nothing was on its way: the note says all
    again.write(outcomes(2, 4))
    assert seen(broker, topic) == ids(3, 4)
    path = sink_note.sink_path(tmp_path, "outcomes")
    sink_note.write_sink_note(Disk(), path, sink_note.SinkNote(topic, sending=4, done=3, ends=again._ends))
    broker.put(topic, [b"another's"])
    forget()
    with pytest.raises(ps.StateError, match=r"may or may not have had the outcomes of version 4: .* are gone since"):
        opened(broker, topic, tmp_path).written()
    path.write_text("3\n")
    told = opened(broker, topic, tmp_path)
    assert told.written() == [3]
    told.write(outcomes(3, 5))
    assert seen(broker, topic) == ids(4, 5)


def test_others_may_write_to_the_topic(broker: Any, topic: str, tmp_path: Path) -> None:
    opened(broker, topic, tmp_path).write(outcomes(1, 2))
    broker.put(topic, [b'{"id": "e9-x"}'], 1)
    open_ = broker.transaction(topic, [b'{"id": "e9-y"}'], commit=None)
    # Until that is decided, nobody sees what is behind it.
    impatient = opened(broker, topic, tmp_path)
    impatient.patience_s = 1
    with pytest.raises(ps.PenstockError, match="cannot be read from offset"):
        impatient.written()
    open_.abort_transaction(60)
    again = opened(broker, topic, tmp_path)
    again.write(outcomes(1, 3))
    assert seen(broker, topic) == [*ids(1, 3), "e9-x"]


def test_copies_that_do_not_belong_together(broker: Any, topic: str, tmp_path: Path) -> None:
    sink = opened(broker, topic, tmp_path)
    sink.write(outcomes(1, 6))
    path = sink_note.sink_path(tmp_path, "outcomes")
    older, sink = path.read_bytes(), opened(broker, topic, tmp_path)
    sink.write(outcomes(6, 8))
    path.write_bytes(older)
    with pytest.raises(ps.StateError, match=r"has outcomes up to version 7, and .* those up to 5: one of"):
        opened(broker, topic, tmp_path).written()
    other = broker.make(f"{topic}-other")
    with pytest.raises(ps.StateError, match=f"outcomes has gone to topic '{topic}', and is now to go to '{other}'"):
        opened(broker, other, tmp_path).written()
    path.write_bytes(path.read_bytes().replace(b'"done": 5', b'"done": 4'))
    with pytest.raises(ps.StateError, match="checksum"):
        opened(broker, topic, tmp_path).written()


def test_a_topic_that_is_not_there(broker: Any, tmp_path: Path) -> None:
    with pytest.raises(ps.InputError, match="there is no topic 'nowhere'"):
        opened(broker, "nowhere", tmp_path).written()


def test_a_broker_that_is_away(tmp_path: Path, broker: Any) -> None:
    from broker import free_port

    sink = opened(broker, "t", tmp_path)
    sink.given = ps.kafka_sink("t", bootstrap=f"127.0.0.1:{free_port()}")
    sink.patience_s = 0
    with pytest.raises(ps.InputError, match=r"topic 't' at .* cannot be reached: .* it goes on where it was"):
        sink.write(outcomes(1, 2))


def test_rows_of_every_type_as_json_and_as_arrow() -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
    row = {"at": at, "day": at.date(), "span": dt.timedelta(seconds=1.5), "money": Decimal("1.50"), "x": float("nan")}
    rows = pa.Table.from_pylist([{**row, "id": 7, "none": None, "ok": True, "text": "é"}])
    ((key, value),) = json_messages(rows, "id")
    assert key == b"7"
    assert json.loads(value) == {
        "at": "2026-01-02T03:04:05.000006+00:00",
        "day": "2026-01-02",
        "span": 1500000,
        "money": "1.50",
        "x": "nan",
        "id": 7,
        "none": None,
        "ok": True,
        "text": "é",
    }
    many = pa.table({"n": range(200_000)})
    streams = [pa.ipc.open_stream(value).read_all() for _, value in arrow_messages(many, None)]
    assert len(streams) == 4
    assert pa.concat_tables(streams).combine_chunks() == many


@pytest.mark.long
def test_from_a_topic_to_a_topic(broker: Any, spark: Any, topic: str, tmp_path: Path) -> None:
    """And on, when it is started again."""
    some = [e for e in events(4, 300, disorder=6) if e.definition is Transfer.definition]
    source, half = broker.make(f"{topic}-in", 2), len(some) // 2
    state = state_of(tmp_path)
    for part in (some[:half], some[half:]):
        values = [json.dumps(e.values, default=str).encode() for e in part]
        for p in range(2):
            broker.put(source, values[p::2], p)
        query = bank.start(
            {Transfer: ps.kafka(source, bootstrap=broker.bootstrap, rows_per_batch=40)},
            state=state,
            outcomes=ps.kafka_sink(topic, bootstrap=broker.bootstrap),
            trigger=NOW,
        )
        finish(query)
    rows = [json.loads(message.value()) for message in broker.get(topic)]
    assert sorted(row["id"] for row in rows) == sorted(e.values["id"] for e in some)
    assert len({row["version"] for row in rows}) > 4
    with bank.open(state) as db:
        wanted = {row["id"]: row for v in range(1, db.version + 1) for row in db.outcomes(v).to_pylist()}
    for row in rows:
        assert (row["status"], row["version"]) == (wanted[row["id"]]["status"], wanted[row["id"]]["version"])


def test_odd_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ps.InputError, match="names no broker"):
        ps.kafka_sink("t", bootstrap="")
    with pytest.raises(ps.InputError, match="value='avro' is not one of json, arrow"):
        ps.kafka_sink("t", bootstrap="b", value="avro")  # type: ignore[arg-type]
