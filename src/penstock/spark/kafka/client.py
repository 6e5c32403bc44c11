"""What is asked of a Kafka cluster: which partitions a topic has, and how far they reach.

Only what is decided counts: an end is the last stable offset, below which every transaction has committed or aborted.
So what lies between two offsets is the same for ever, unless the topic itself forgets it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.errors import InputError

T = TypeVar("T")

# How long a cluster may be away before a query fails: a broker that restarts needs some seconds.
PATIENCE_S = 60.0
_ASK_S, _PAUSE_S = 5.0, 0.2
_INSTALL = "ps.kafka needs the Kafka client: pip install 'penstock[kafka]'"


def confluent() -> Any:
    """The client library, which only who uses Kafka has."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise InputError(_INSTALL) from error
    return confluent_kafka


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where it is, and the client's own options for it, such as those of its security."""

    bootstrap: str
    options: tuple[tuple[str, str], ...] = ()

    def conf(self, **more: Any) -> dict[str, Any]:
        named = {name.replace("_", "."): value for name, value in more.items()}
        quiet = {"logger": logging.getLogger("penstock.kafka"), "allow.auto.create.topics": False}
        return {"bootstrap.servers": self.bootstrap, **dict(self.options), **named, **quiet}


def cluster_of(who: str, topic: Any, bootstrap: Any, options: Mapping[str, str] | None) -> Cluster:
    """Of what a user gives for it beside a topic; InputError where either names nothing."""
    if not isinstance(topic, str) or not topic:
        raise InputError(f"{who}: give the name of one topic")
    if not isinstance(bootstrap, str) or not bootstrap:
        raise InputError(f"{who}: bootstrap={bootstrap!r} names no broker; give one, such as 'localhost:9092'")
    return Cluster(bootstrap, tuple(sorted((str(name), str(text)) for name, text in (options or {}).items())))


def need_choice(who: str, name: str, choice: Any, known: Collection[str]) -> None:
    if choice not in known:
        raise InputError(f"{who}: {name}={choice!r} is not one of {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as it is now. A topic that was deleted and made again has another id."""

    id: str
    partitions: tuple[int, ...]


class Client:
    def __init__(self, cluster: Cluster, topic: str, who: str, patience_s: float = PATIENCE_S) -> None:
        """who: opens what is said of it, "event 'Transfer'"."""
        self._kafka = confluent()
        self.topic, self._cluster, self._who, self._patience_s = topic, cluster, who, patience_s
        conf = cluster.conf()
        del conf["allow.auto.create.topics"]
        try:
            self._admin = self._kafka.admin.AdminClient(conf)
        except self._kafka.KafkaException as error:
            raise InputError(f"{who}: the client refuses its options: {said(error)}") from error

    def state(self) -> TopicState:
        names = self._kafka.TopicCollection([self.topic])
        found = self._ask(lambda: self._admin.describe_topics(names, request_timeout=_ASK_S)[self.topic].result())
        return TopicState(str(found.topic_id), tuple(sorted(p.id for p in found.partitions)))

    def ends(self, partitions: tuple[int, ...], *, decided: bool = True) -> dict[int, int]:
        """Behind the last record of each that is decided; or behind the last one."""
        return self._offsets(partitions, self._kafka.admin.OffsetSpec.latest(), decided)

    def begins(self, partitions: tuple[int, ...]) -> dict[int, int]:
        """The first record of each that is still there."""
        return self._offsets(partitions, self._kafka.admin.OffsetSpec.earliest())

    def _offsets(self, partitions: tuple[int, ...], spec: Any, decided: bool = True) -> dict[int, int]:
        wanted = {self._kafka.TopicPartition(self.topic, p): spec for p in partitions}
        level = self._kafka.IsolationLevel
        level = level.READ_COMMITTED if decided else level.READ_UNCOMMITTED

        def ask() -> dict[int, int]:
            found = self._admin.list_offsets(wanted, isolation_level=level, request_timeout=_ASK_S)
            return {place.partition: future.result().offset for place, future in found.items()}

        return self._ask(ask) if wanted else {}

    def _ask(self, question: Callable[[], T]) -> T:
        """The answer; asked again while the cluster cannot give one."""
        return patiently(question, self._never, self._patience_s)

    def _never(self, error: Any) -> InputError:
        code = error.args[0].code()
        if code == self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
            return InputError(f"{self._who}: there is no topic '{self.topic}' at {self._cluster.bootstrap}; create it")
        return unreachable(self._who, self.topic, self._cluster, error)


def patiently(question: Callable[[], T], never: Callable[[Any], InputError], patience_s: float = PATIENCE_S) -> T:
    """An answer; or, when what may pass has not passed for so long, or cannot pass, what `never` makes of it."""
    kafka, until = confluent(), time.monotonic() + patience_s
    while True:
        try:
            return question()
        except kafka.KafkaException as error:
            if not may_pass(error.args[0]) or time.monotonic() > until:
                raise never(error) from error
        time.sleep(_PAUSE_S)


def may_pass(error: Any) -> bool:
    """Whether waiting may help: the broker restarts, or a topic that was just made has no leader yet."""
    code = confluent().KafkaError
    passing = {
        *(code._TRANSPORT, code._ALL_BROKERS_DOWN, code._TIMED_OUT, code._RESOLVE, code._WAIT_COORD, code._STATE),
        *(code.LEADER_NOT_AVAILABLE, code.NOT_LEADER_FOR_PARTITION, code.REQUEST_TIMED_OUT, code.BROKER_NOT_AVAILABLE),
        *(code.COORDINATOR_LOAD_IN_PROGRESS, code.COORDINATOR_NOT_AVAILABLE, code.NOT_COORDINATOR),
        *(code.NETWORK_EXCEPTION, code.OFFSET_NOT_AVAILABLE, code.REPLICA_NOT_AVAILABLE, code._TIMED_OUT_QUEUE),
        *(code.CONCURRENT_TRANSACTIONS, code.UNSTABLE_OFFSET_COMMIT, code.KAFKA_STORAGE_ERROR),
    }
    return error.code() in passing or error.retriable()


def unreachable(who: str, topic: str, cluster: Cluster, error: Any) -> InputError:
    return InputError(
        f"{who}: topic '{topic}' at {cluster.bootstrap} cannot be reached: {said(error)}; start the query again when "
        "it can: it goes on where it was"
    )


def said(error: Any) -> str:
    found = error.args[0] if error.args else error
    return found.str() if hasattr(found, "str") else str(found)
