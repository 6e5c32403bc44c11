"""Outcomes to a Kafka topic: a consumer with read_committed sees each one once, whatever is killed.

    note: "sending 8, done 7" ──> transaction: the rows of version 8 ──> note: "sending 8, done 8"

One transaction a version. The note is the state directory's, sinks/NAME.topic, and says also where the topic ended for
us. Each message says in a header whose it is, and of which version. So whoever opens the topic first ends what a
producer of this state directory left open (`init_transactions`), and then reads what has come since the note: a message
of version 8 is there, or the version is not. Where a topic has forgotten its records since, that is told, not guessed.
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
from penstock.commit.identity import directory_of
from penstock.errors import InputError, StateError
from penstock.publish.files import plain
from penstock.spark.kafka.client import PATIENCE_S, Client, Cluster, cluster_of, confluent, may_pass, need_choice, said
from penstock.spark.kafka.messages import arrow_messages, json_messages
from penstock.spark.kafka.reader import TopicReader
from penstock.spark.kafka.sink_note import SinkNote, read_sink_note, sink_path, write_sink_note
from penstock.spark.outcome_sink import SinkInput

ENCODERS: dict[str, Callable[[pa.Table, str | None], Any]] = {"json": json_messages, "arrow": arrow_messages}
HEADER = "penstock"  # whose a message is, and of which version
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
    cluster = cluster_of(who, topic, bootstrap, options)
    need_choice(who, "value", value, ENCODERS)
    return TopicOutput(topic, cluster, value, key)


@dataclass(slots=True)
class OutcomeTopic:
    """The topic of one state directory's outcomes, or of what it emits of one event."""

    given: TopicOutput
    what: str
    state: str
    disk: Disk = field(default_factory=Disk)
    patience_s: float = PATIENCE_S
    _producer: Any = field(default=None, init=False, repr=False)
    _done: int = field(default=0, init=False)  # the version up to which the topic has all
    _ends: dict[int, int] = field(default_factory=dict, init=False)  # no message of a later version is before these

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
        producer, topic, ends = self._producer, self.given.topic, dict(self._ends)
        self._note(sending=version)
        header = [(HEADER, f"{self._name}.{version}".encode())]

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                ends[message.partition()] = max(ends.get(message.partition(), 0), message.offset() + 1)

        producer.begin_transaction()
        for key, value in ENCODERS[self.given.value](plain(rows), self.given.key):
            while True:
                try:
                    producer.produce(topic, value, key, headers=header, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        producer.commit_transaction(_ASK_S)
        self._done, self._ends = version, ends
        self._note(sending=version)

    # -- how far the topic is ---------------------------------------------------------------

    def _open(self) -> None:
        kafka, given = confluent(), self.given
        fixed = {"transactional.id": self._name, "enable.idempotence": True}
        try:
            producer = kafka.Producer({**_CONF, **given.cluster.conf(), **fixed})
        except kafka.KafkaException as error:
            raise InputError(f"{self._who}: the client refuses its options: {said(error)}") from error
        client = Client(given.cluster, given.topic, self._who, self.patience_s)
        partitions = client.state().partitions
        producer.init_transactions(_ASK_S)
        note = read_sink_note(self.disk, self._path)
        ends = client.ends(partitions, decided=False)
        if note is None or note.ends is None:
            self._done, self._ends = 0 if note is None else note.done, ends
        else:
            self._done, self._ends = self._find_out(note, client.begins(partitions), ends), ends
        self._producer = producer
        self._note(sending=self._done)

    def _find_out(self, note: SinkNote, begins: dict[int, int], ends: dict[int, int]) -> int:
        """The version up to which the topic has all."""
        where = f"topic '{self.given.topic}' at {self.given.cluster.bootstrap}"
        if note.topic != self.given.topic:
            raise StateError(
                f"{self._path}: {self.what} has gone to topic '{note.topic}', and is now to go to "
                f"'{self.given.topic}'; give the one it went to, or delete that file to begin with the new one"
            )
        assert note.ends is not None
        since = {p: (max(note.ends.get(p, 0), begins[p]), end) for p, end in ends.items()}
        found = max(self._versions_in({p: one for p, one in since.items() if one[0] < one[1]}), default=note.done)
        if found > note.sending:
            raise StateError(
                f"{where} has outcomes up to version {found}, and state directory {self.state} has sent those up to "
                f"{note.done}: one of them is an older copy, or two copies of the directory have written; restore what "
                "belongs together, or give another topic"
            )
        gone = [p for p in ends if begins[p] > note.ends.get(p, 0) or ends[p] < note.ends.get(p, 0)]
        if found == note.done < note.sending and gone:
            raise StateError(
                f"{where} may or may not have had the outcomes of version {note.sending}: the process died while it "
                f"wrote them, and records of partition {gone[0]} are gone since then; write {note.sending} into "
                f"{self._path} if they were there, else {note.done}"
            )
        return max(found, note.done)

    def _versions_in(self, ranges: Mapping[int, tuple[int, int]]) -> set[int]:
        """Of which versions of ours there are messages that have committed."""
        if not ranges:
            return set()
        given, start = self.given, f"{self._name}.".encode()

        def ours(message: Any) -> bytes | None:
            return next((v for name, v in message.headers() or () if name == HEADER and v.startswith(start)), None)

        reader = TopicReader(
            given.cluster, given.topic, self._who, skip_lost=True, patience_s=self.patience_s, keep=ours
        )
        try:
            found = {one for one in reader.read(ranges).values if one is not None}
        finally:
            reader.close()
        return {int(one.removeprefix(start)) for one in found}

    @property
    def _name(self) -> str:
        return f"penstock-{directory_of(self.disk, Path(self.state))}-{self.what}"

    @property
    def _who(self) -> str:
        return f"ps.kafka_sink({self.given.topic!r})"

    @property
    def _path(self) -> Path:
        return sink_path(Path(self.state), self.what)

    def _note(self, sending: int) -> None:
        write_sink_note(self.disk, self._path, SinkNote(self.given.topic, sending, self._done, self._ends))

    def _give_up(self) -> None:
        """Its transaction, if it has one, is ended by the next producer of the same name."""
        producer, self._producer = self._producer, None
        with suppress(Exception):
            if producer is not None:
                producer.purge()


def _is_of_transaction(error: Any) -> bool:
    """What a producer that is made anew may mend."""
    code = confluent().KafkaError
    codes = (code._FENCED, code.INVALID_PRODUCER_EPOCH, code.INVALID_PRODUCER_ID_MAPPING, code.INVALID_TXN_STATE)
    return error.txn_requires_abort() or error.fatal() or error.code() in (*codes, code._STATE, code._PURGE_QUEUE)
