"""Outcomes to a Kafka topic: a consumer with read_committed sees each one once, whatever is killed.

    note: "sending 8, done 7" ──> transaction: { rows of version 8, "8" as the group's offset } ──> note: "done 8"

One transaction a version. What says how far the topic is, is written in the same transaction: the offset of a consumer
group of our own, which nobody consumes by. So it is never ahead of the rows, nor behind them. Whoever opens the topic
first ends what a producer of this state directory left open (`init_transactions`), and asks for that offset then.

A broker forgets the offsets of a group in time, a week by default. So the state directory has a note of its own,
sinks/NAME.topic: where it says that nothing was on its way, the broker need not be asked, and where the broker has
forgotten what was on its way, that is told and not guessed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.commit.disk import Disk
from penstock.commit.lines import directory_of
from penstock.errors import InputError, StateError
from penstock.publish.files import plain
from penstock.spark.kafka.client import PATIENCE_S, Cluster, confluent, may_pass, said
from penstock.spark.kafka.messages import arrow_messages, json_messages
from penstock.spark.kafka.sink_note import SinkNote, read_note, sink_path, write_note
from penstock.spark.outcome_sink import SinkInput

ENCODERS: dict[str, Callable[[pa.Table, str | None], Any]] = {"json": json_messages, "arrow": arrow_messages}
_ASK_S, _PAUSE_S = 20.0, 0.2
_CONF = {"linger.ms": "5", "queue.buffering.max.messages": "200000", "compression.type": "lz4"}


@dataclass(frozen=True, slots=True)
class TopicOutput(SinkInput):
    """A topic that outcomes go to."""

    topic: str
    cluster: Cluster
    value: str = "json"
    key: str | None = "id"

    def of(self, what: str, state: str) -> OutcomeTopic:
        return OutcomeTopic(self, what, state)

    @property
    def place(self) -> tuple[str, str]:
        return (self.cluster.bootstrap, self.topic)


def kafka_sink(
    topic: str,
    *,
    bootstrap: str,
    value: Literal["json", "arrow"] = "json",
    key: str | None = "id",
    options: Mapping[str, str] | None = None,
) -> TopicOutput:
    """Outcomes, or an event that goes out, as messages of a topic: each once for a consumer with read_committed.

    Args:
        topic: It has to be there.
        bootstrap: Brokers to begin with, "host:9092,other:9092".
        value: What a message is: "json" (a row; decimals as strings, times as ISO 8601) or "arrow" (an IPC stream of
            many rows).
        key: The column that is the key of a row's message, if there is such a column; None for none.
        options: The client's own, such as {"security.protocol": "SASL_SSL", "sasl.username": …}.
    """
    who = f"ps.kafka_sink({topic!r})"
    if not isinstance(topic, str) or not topic:
        raise InputError(f"{who}: give the name of a topic")
    if not isinstance(bootstrap, str) or not bootstrap:
        raise InputError(f"{who}: bootstrap={bootstrap!r} names no broker; give one, such as 'localhost:9092'")
    if value not in ENCODERS:
        raise InputError(f"{who}: value={value!r} is not one of {', '.join(ENCODERS)}")
    given = tuple(sorted((str(name), str(text)) for name, text in (options or {}).items()))
    return TopicOutput(topic, Cluster(bootstrap, given), value, key)


@dataclass(slots=True)
class OutcomeTopic:
    """The topic of one state directory's outcomes, or of what it emits of one event."""

    given: TopicOutput
    what: str
    state: str
    disk: Disk = field(default_factory=Disk)
    patience_s: float = PATIENCE_S
    _producer: Any = field(default=None, init=False, repr=False)
    _group: Any = field(default=None, init=False, repr=False)  # a consumer that never consumes
    _done: int = field(default=0, init=False)  # the version up to which the topic has all

    def written(self) -> list[int]:
        self._patiently(lambda: None, 0)
        return [self._done] if self._done else []

    def write(self, outcomes: pa.Table, versions: pa.Array | None = None) -> None:
        if outcomes.num_rows == 0:
            return
        made = outcomes.column("version") if versions is None else versions
        version = made[-1].as_py()

        def send() -> None:
            rows = outcomes.filter(pc.greater(made, self._done))
            if rows.num_rows:
                self._send(version, rows)

        self._patiently(send, version)

    def _patiently(self, act: Callable[[], None], version: int) -> None:
        """With a producer that knows how far the topic is. Whatever goes wrong with one, the next one finds out what
        became of its transaction."""
        kafka, until = confluent(), time.monotonic() + self.patience_s
        while True:
            try:
                if self._producer is None:
                    self._open()
                return act()
            except kafka.KafkaException as error:
                self._give_up()
                found = error.args[0]
                if time.monotonic() > until or not (_is_of_transaction(found) or may_pass(found)):
                    raise StateError(
                        f"outcomes of version {version} cannot be written to topic '{self.given.topic}' at "
                        f"{self.given.cluster.bootstrap}: {said(error)}; the state directory's log has them, and they "
                        "are written when the query is started again"
                    ) from error
            time.sleep(_PAUSE_S)

    def _send(self, version: int, rows: pa.Table) -> None:
        kafka, producer, topic = confluent(), self._producer, self.given.topic
        self._note(SinkNote(topic, sending=version, done=self._done))
        producer.begin_transaction()
        for key, value in ENCODERS[self.given.value](plain(rows), self.given.key):
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        place = kafka.TopicPartition(topic, 0, version)
        producer.send_offsets_to_transaction([place], self._group.consumer_group_metadata(), _ASK_S)
        producer.commit_transaction(_ASK_S)
        self._done = version
        self._note(SinkNote(topic, sending=version, done=version))

    # -- how far the topic is ---------------------------------------------------------------

    def _open(self) -> None:
        kafka, given = confluent(), self.given
        directory = directory_of(self.disk, Path(self.state))
        name = f"penstock-{directory}-{self.what}"
        conf = {**_CONF, **given.cluster.conf()}
        try:
            producer = kafka.Producer({**conf, "transactional.id": name, "enable.idempotence": True})
            fixed = {"group.id": name, "enable.auto.commit": False, "isolation.level": "read_committed"}
            self._group = kafka.Consumer({**given.cluster.conf(), **fixed})
        except kafka.KafkaException as error:
            raise InputError(f"{self._who}: the client refuses its options: {said(error)}") from error
        self._refuse_missing()
        producer.init_transactions(_ASK_S)
        (place,) = self._group.committed([kafka.TopicPartition(given.topic, 0)], timeout=_ASK_S)
        if place.error is not None:
            raise kafka.KafkaException(place.error)
        note = read_note(self.disk, self._path)
        self._done = self._find_out(note, place.offset if place.offset >= 0 else None)
        self._producer = producer
        if place.offset < 0:
            self._mark()
        if note is None or note.done != self._done or note.sending != self._done:
            self._note(SinkNote(given.topic, sending=self._done, done=self._done))

    def _find_out(self, note: SinkNote | None, known: int | None) -> int:
        """The version up to which the topic has all. known: what the broker says."""
        if note is None:
            return known or 0
        where = f"topic '{self.given.topic}' at {self.given.cluster.bootstrap}"
        if note.topic not in (None, self.given.topic):
            raise StateError(
                f"{self._path}: {self.what} has gone to topic '{note.topic}', and is now to go to "
                f"'{self.given.topic}'; give the one it went to, or delete that file to begin with the new one"
            )
        if known is None and note.sending == note.done:
            return note.done
        if known is None:
            raise StateError(
                f"{where} may or may not have the outcomes of version {note.sending}: the process died while it wrote "
                "them, and the broker has forgotten since what it had; look at the end of the topic, and write "
                f"{note.sending} into {self._path} if they are there, else {note.done}"
            )
        if known not in (note.sending, note.done):
            raise StateError(
                f"{where} has outcomes up to version {known}, and state directory {self.state} has sent those up to "
                f"{note.done}: one of them is an older copy, or two copies of the directory have written; restore what "
                "belongs together, or give another topic"
            )
        return known

    def _mark(self) -> None:
        """Let the broker know how far the topic is, so that from now on no answer means that it has forgotten."""
        self._producer.begin_transaction()
        place = confluent().TopicPartition(self.given.topic, 0, self._done)
        self._producer.send_offsets_to_transaction([place], self._group.consumer_group_metadata(), _ASK_S)
        self._producer.commit_transaction(_ASK_S)

    def _refuse_missing(self) -> None:
        found = self._group.list_topics(self.given.topic, timeout=_ASK_S).topics[self.given.topic]
        if found.error is not None and found.error.code() == confluent().KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise InputError(f"{self._who}: there is no such topic at {self.given.cluster.bootstrap}; create it")

    @property
    def _who(self) -> str:
        return f"ps.kafka_sink({self.given.topic!r})"

    @property
    def _path(self) -> Path:
        return sink_path(Path(self.state), self.what)

    def _note(self, note: SinkNote) -> None:
        write_note(self.disk, self._path, note)

    def _give_up(self) -> None:
        """Its transaction, if it has one, is ended by the next producer of the same name."""
        producer, self._producer, group, self._group = self._producer, None, self._group, None
        with suppress(Exception):
            if producer is not None:
                producer.purge()
        with suppress(Exception):
            if group is not None:
                group.close()


def _is_of_transaction(error: Any) -> bool:
    """What a producer that is made anew may mend."""
    code = confluent().KafkaError
    codes = (code._FENCED, code.INVALID_PRODUCER_EPOCH, code.INVALID_PRODUCER_ID_MAPPING, code.INVALID_TXN_STATE)
    return error.txn_requires_abort() or error.fatal() or error.code() in (*codes, code._STATE, code._PURGE_QUEUE)
