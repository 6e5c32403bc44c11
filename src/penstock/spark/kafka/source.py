"""A Kafka topic as a direct source (direct_source.py).

    Spark's worker      how far the topic reaches   -> an offset {"event": "Transfer", "offsets": {"0": 190, "1": 7}}
    the engine          records between two offsets -> events

An offset of Kafka names the same record for ever, so the offsets of a batch alone say which rows it has. Where the
stream began, and which topic it was, is noted beside the state (topic_note.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.declare.model import EventDef
from penstock.errors import InputError, StateError
from penstock.spark.checkpoint import noted_offset
from penstock.spark.compatibility import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    need_admission,
)
from penstock.spark.direct_source import PIECES, DirectInput, Rows, need_own
from penstock.spark.formats import pieces_of_stream
from penstock.spark.kafka import reader
from penstock.spark.kafka.avro import AvroParser, checked_schema
from penstock.spark.kafka.client import Client, Cluster, TopicState, cluster_of, need_choice
from penstock.spark.kafka.topic_note import (
    TopicNote,
    read_or_write_topic_note,
    read_topic_note,
    topic_note_path,
)
from penstock.spark.kafka.values import Parse, parse_arrow, parse_json, rows
from penstock.spark.workers import is_connect

FORMAT = "penstock_kafka"
_CLIENTS = "kafka."  # how the client's own options are told apart among Spark's
VALUES = ("json", "avro", "arrow")
STARTING, LOST = ("earliest", "latest"), ("fail", "skip")


@dataclass(frozen=True, slots=True)
class Topic(DirectInput):
    """A topic, as a source of events."""

    topic: str
    cluster: Cluster
    value: str = "json"
    starting: str = "earliest"
    rows_per_batch: int | None = None
    lost: str = "fail"
    schema: str | None = None  # of Avro records
    registry: str | None = None

    way: ClassVar[str] = "ps.kafka"
    noted_as: ClassVar[str] = "offsets"

    @property
    def parser(self) -> Parse:
        if self.value == "avro":
            return AvroParser(self.schema, self.registry)
        return parse_json if self.value == "json" else parse_arrow

    def of(self, event: str, state: str) -> TopicSource:
        return TopicSource(event, self, str(topic_note_path(Path(state), event)))


def kafka(
    topic: str,
    *,
    bootstrap: str,
    value: Literal["json", "avro", "arrow"] = "json",
    starting: Literal["earliest", "latest"] = "earliest",
    rows_per_batch: int | None = None,
    lost: Literal["fail", "skip"] = "fail",
    schema: str | dict[str, Any] | None = None,
    registry: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Topic:
    """Events from a Kafka topic that the engine reads itself: no row crosses the JVM.

    Args:
        topic: One topic; each message is an event, or with value="arrow" any number of them.
        bootstrap: Brokers to begin with, "host:9092,other:9092".
        value: What a message holds: "json" (an object whose names are the event's fields; times as ISO 8601, decimals
            as numbers or strings), "avro" (a record, whose schema is given or in a registry) or "arrow" (an IPC
            stream).
        starting: Where the very first batch begins: "earliest" or "latest". Partitions that come later are read whole.
        rows_per_batch: At most so many offsets in a batch, shared by the partitions.
        lost: Where records are gone before they were read: "fail" names them, "skip" goes on with what is there.
        schema: Of Avro records that stand alone: JSON, or a dict.
        registry: Of Avro records that name their schema by number: the address of a Confluent schema registry.
        options: The client's own, such as {"security.protocol": "SASL_SSL", "sasl.username": …}.
    """
    who = f"ps.kafka({topic!r})"
    cluster = cluster_of(who, topic, bootstrap, options)
    for name, choice, known in (("value", value, VALUES), ("starting", starting, STARTING), ("lost", lost, LOST)):
        need_choice(who, name, choice, known)
    if rows_per_batch is not None and (not isinstance(rows_per_batch, int) or rows_per_batch < 1):
        raise InputError(f"{who}: rows_per_batch must be 1 or more, not {rows_per_batch!r}")
    if (value == "avro") != ((schema is None) != (registry is None)):
        raise InputError(f'{who}: value="avro" takes a schema= or a registry=, and no other value does')
    text = None if schema is None else checked_schema(who, schema)
    return Topic(topic, cluster, value, starting, rows_per_batch, lost, text, registry)


def piece(partition: int, start: int, end: int) -> str:
    return json.dumps([partition, start, end])


@dataclass(frozen=True, slots=True)
class TopicSource:
    """A topic where its records are read. Its pieces are ranges of one partition: "[partition, start, end]"."""

    event: str
    given: Topic
    note: str  # where the stream began

    @property
    def who(self) -> str:
        return f"event '{self.event}'"

    def client(self) -> Client:
        return Client(self.given.cluster, self.given.topic, self.who)

    def stream(self, spark: Any) -> DataFrame:
        if not is_connect(spark):
            self.client().state()  # that it is there is told now, and in our words
        given = self.given
        options = {"event": self.event, "note": self.note, "topic": given.topic, "bootstrap": given.cluster.bootstrap}
        options |= {"starting": given.starting, "value": given.value, "lost": given.lost}
        if given.rows_per_batch is not None:
            limit, instead = given.rows_per_batch, "leave it out: a batch then takes all records that are there"
            need_admission(self.who, f"rows_per_batch={limit}", instead)
            options["rows_per_batch"] = str(limit)
        options |= {f"{_CLIENTS}{name}": text for name, text in given.cluster.options}
        return pieces_of_stream(spark, TopicRanges, options)

    def offset(self, noted: dict[str, Any] | None) -> dict[str, int]:
        if noted is None:
            known = read_topic_note(Path(self.note))
            return {} if known is None else {str(p): known.start[p] for p in sorted(known.start)}
        return {str(p): int(offset) for p, offset in noted["offsets"].items()}

    def pieces(self, start: dict[str, int], end: dict[str, int]) -> tuple[str, ...] | None:
        known = read_topic_note(Path(self.note))
        if known is None:
            return None
        behind = {int(p): offset for p, offset in end.items()}
        from_ = {p: start.get(str(p), known.begin(p)) for p in behind}
        return tuple(piece(p, from_[p], behind[p]) for p in sorted(behind) if from_[p] < behind[p])

    def following(self, end: dict[str, int], *, all_listed: bool) -> dict[str, int] | None:
        """It is certain where every partition has its whole share: then nothing that comes changes it."""
        limit, start = self.given.rows_per_batch, {int(p): offset for p, offset in end.items()}
        ends = None if limit is None or not start else self._reader().ends(tuple(start))
        if limit is None or ends is None or any(ends[p] - start[p] < -(-limit // len(start)) for p in start):
            return None
        return {str(p): offset for p, offset in shared(start, ends, limit).items()}

    def read(self, event: EventDef, pieces: Sequence[str], *, named: bool, threads: bool) -> Rows:
        assert not named  # such a log is refused at the start
        ranges = {partition: (start, end) for partition, start, end in map(json.loads, pieces)}
        messages = self._reader().read(ranges)
        parser = self.given.parser
        if isinstance(parser, AvroParser):
            parser.prepare(messages.values)
        return rows(event, messages, parser)

    def _reader(self) -> reader.TopicReader:
        given = self.given
        return reader.opened(
            self.note,
            lambda: reader.TopicReader(given.cluster, given.topic, self.who, skip_lost=given.lost == "skip"),
        )

    def close(self) -> None:
        reader.close(self.note)


def shared(start: Mapping[int, int], ends: Mapping[int, int], limit: int) -> dict[int, int]:
    """Where each partition's part of at most so many offsets ends: equal parts, and what one cannot fill goes to the
    others. Where all can fill theirs, it depends on nothing else."""
    out, left, open_ = dict(start), limit, sorted(p for p in start if start[p] < ends[p])
    while left and open_:
        share, more = divmod(left, len(open_))
        for at, p in enumerate(open_):
            part = min(share + (at < more), ends[p] - out[p])
            out[p] += part
            left -= part
        open_ = [p for p in open_ if out[p] < ends[p]]
    return {p: out[p] for p in sorted(out)}


class TopicRanges(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return PIECES

    def streamReader(self, schema: Any) -> TopicStream:
        options = dict(self.options)
        given = tuple(sorted((n.removeprefix(_CLIENTS), v) for n, v in options.items() if n.startswith(_CLIENTS)))
        limit = options.get("rows_per_batch")
        topic = Topic(
            options["topic"],
            Cluster(options["bootstrap"], given),
            options["value"],
            options["starting"],
            int(limit) if limit else None,
            options["lost"],
        )
        return TopicStream(TopicSource(options["event"], topic, options["note"]))


@dataclass
class _Pieces(InputPartition):
    pieces: tuple[str, ...]


class TopicStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches, in a worker of Spark's."""

    def __init__(self, source: TopicSource) -> None:
        self._source, self._given = source, source.given
        self._client: Client | None = None
        self._available: dict[int, int] | None = None  # with availableNow: the ends when the query started

    def initialOffset(self) -> dict[str, Any]:
        return self._offset(self._look()[0].start)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._given.rows_per_batch
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._available = self._kafka.ends(self._look()[1].partitions)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        if start is None:  # An older Spark does not say it, but has noted it.
            directory = str(Path(self._source.note).parent.parent)
            start = noted_offset(directory, self._source.event) or self.initialOffset()
        before, (note, state) = self._places(start), self._look()
        ends = self._kafka.ends(state.partitions) if self._available is None else self._available
        gone = [p for p in before if p not in ends]
        if gone:
            raise StateError(
                f"{self._where}: partition {gone[0]} is gone; restore it, or begin another state directory"
            )
        # One that is new is counted as soon as it has something: else Spark would plan an empty batch for it.
        begins = {p: before.get(p, note.begin(p)) for p in ends if p in before or ends[p] > note.begin(p)}
        for p, begin in begins.items():
            if ends[p] < begin:
                raise StateError(
                    f"{self._where}, partition {p} ends at offset {ends[p]}, but has been read up to {begin}: it has "
                    "lost records; restore it, or begin another state directory"
                )
        found = {p: ends[p] for p in begins}
        return self._offset(shared(begins, found, limit.max_rows) if isinstance(limit, ReadMaxRows) else found)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._places(start), self._places(end)
        found = self._source.pieces(self._source.offset(start), self._source.offset(end))
        if found is None:
            raise StateError(
                f"{self._source.note} is missing: it says where the stream began; restore it from a backup"
            )
        return [_Pieces(found)] if found else []

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        assert isinstance(partition, _Pieces)
        yield from enumerate(partition.pieces)

    @property
    def _where(self) -> str:
        return f"event '{self._source.event}': topic '{self._given.topic}'"

    def _offset(self, places: Mapping[int, int]) -> dict[str, Any]:
        # Spark compares offsets as texts, so what is equal is to be written alike.
        return {"event": self._source.event, "offsets": {str(p): places[p] for p in sorted(places)}}

    def _places(self, offset: dict[str, Any]) -> dict[int, int]:
        need_own(Topic, self._source.event, offset)
        return {int(p): int(place) for p, place in offset["offsets"].items()}

    @property
    def _kafka(self) -> Client:
        if self._client is None:
            self._client = self._source.client()
        return self._client

    def _look(self) -> tuple[TopicNote, TopicState]:
        """Where the stream began, and the topic now, which has to be that one."""
        state = self._kafka.state()

        def begin() -> TopicNote:
            ask = self._kafka.begins if self._given.starting == "earliest" else self._kafka.ends
            return TopicNote(self._given.topic, state.id, ask(state.partitions))

        note = read_or_write_topic_note(Path(self._source.note), begin)
        if note.topic != self._given.topic:
            raise StateError(
                f"{self._where} is given, but the stream has read topic '{note.topic}'; give that one, or begin "
                "another state directory"
            )
        if note.id != state.id:
            raise StateError(
                f"{self._where} was deleted and made again: its offsets are other records' now; begin another state "
                "directory, or read a topic of another name"
            )
        return note, state
