"""Records between two offsets of each partition, in this process: what the engine reads of a topic.

A consumer stays open from batch to batch and fetches ahead; what comes behind a batch's end waits here for the next.
A batch that does not begin where the last one ended is looked up anew.

That a partition has been read up to an offset is known by a record at or behind it, or by the consumer's word that it
has come to the partition's end. Offsets alone do not say: markers of transactions, aborted records and holes that
compaction leaves have offsets and no record.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import InputError, StateError
from penstock.spark.kafka.client import PATIENCE_S, Client, Cluster, confluent, may_pass, said, unreachable
from penstock.spark.kafka.values import Messages

# Bytes of one partition that wait for later batches, before it is fetched no further.
_AHEAD = 64 << 20
_AT_ONCE, _POLL_S = 10_000, 0.1
# The broker answers at once, also at the end of a partition: by default it waits half a second for more.
_FETCH = {"fetch.wait.max.ms": "5", "fetch.queue.backoff.ms": "5", "fetch.error.backoff.ms": "50"}

Ranges = Mapping[int, tuple[int, int]]  # partition -> from this offset up to, but without, that one


@dataclass(slots=True)
class _Partition:
    fetched: int  # all below has been fetched
    offsets: list[int] = field(default_factory=list)  # of records that wait, and their values
    values: list[bytes | None] = field(default_factory=list)
    size: int = 0  # of these, in bytes
    begin: int = 0  # all below has been handed on

    def take(self, end: int) -> tuple[list[int], list[bytes | None]]:
        cut = bisect_left(self.offsets, end)
        offsets, values = self.offsets[:cut], self.values[:cut]
        self.offsets, self.values = self.offsets[cut:], self.values[cut:]
        self.size -= sum(len(value) for value in values if value is not None)
        self.begin = end
        return offsets, values


def _value(message: Any) -> bytes | None:
    value: bytes | None = message.value()
    return value


class TopicReader:
    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        who: str,
        *,
        skip_lost: bool = False,
        patience_s: float = PATIENCE_S,
        keep: Callable[[Any], bytes | None] = _value,
    ) -> None:
        """keep: what is kept of a message."""
        self._kafka = confluent()
        self._cluster, self._topic, self._who = cluster, topic, who
        self._skip_lost, self._patience_s, self._keep = skip_lost, patience_s, keep
        fixed = {
            "group.id": "penstock",  # The client wants one; nothing is ever committed under it.
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
        self._consumer = self._kafka.Consumer({**_FETCH, **cluster.conf(), **fixed})
        self._client: Client | None = None
        self._mutex = threading.Lock()
        self._partitions: dict[int, _Partition] = {}
        self._assigned: set[int] = set()

    def read(self, wanted: Ranges) -> Messages:
        with self._mutex:
            self._begin(wanted)
            self._fetch(wanted)
            out = Messages(self._topic)
            for partition in sorted(wanted):
                out.add(partition, *self._partitions[partition].take(wanted[partition][1]))
            return out

    def ends(self, partitions: tuple[int, ...]) -> dict[int, int] | None:
        """Behind the last record of each; None where the cluster does not say so at once."""
        if self._client is None:
            self._client = Client(self._cluster, self._topic, self._who, patience_s=0)
        try:
            return self._client.ends(partitions)
        except InputError:
            return None

    def close(self) -> None:
        with self._mutex:
            self._consumer.close()

    def _begin(self, wanted: Ranges) -> None:
        known = self._partitions
        moved = {p: _Partition(start, begin=start) for p, (start, _) in wanted.items() if self._begin_of(p) != start}
        known |= moved
        full = [p for p, (_, end) in wanted.items() if p not in self._assigned and known[p].fetched < end]
        if moved or full:
            self._assign(set(wanted) | self._assigned)

    def _begin_of(self, partition: int) -> int | None:
        found = self._partitions.get(partition)
        return None if found is None else found.begin

    def _assign(self, partitions: set[int]) -> None:
        """Fetch these, from where each is; what was on its way is dropped."""
        places = [self._kafka.TopicPartition(self._topic, p, self._partitions[p].fetched) for p in sorted(partitions)]
        self._consumer.assign(places)
        self._assigned = partitions

    def _fetch(self, wanted: Ranges) -> None:
        waited_since, missing = time.monotonic(), self._missing(wanted)
        trouble: Any = None
        while missing:
            first = self._consumer.poll(_POLL_S)
            several = [] if first is None else [first, *self._consumer.consume(_AT_ONCE, 0)]
            for message in several:
                trouble = self._take(message) or trouble
            before, missing = missing, self._missing(wanted)
            if several and (missing != before or any(m.error() is None for m in several)):
                waited_since, trouble = time.monotonic(), None
            elif time.monotonic() > waited_since + self._patience_s:
                raise self._unreadable(wanted, missing, trouble)
        full = {p for p in self._assigned if self._partitions[p].size > _AHEAD}
        if full:
            self._assign(self._assigned - full)

    def _missing(self, wanted: Ranges) -> list[int]:
        return [p for p, (_, end) in wanted.items() if self._partitions[p].fetched < end]

    def _take(self, message: Any) -> Any:
        """A record, or news of a partition; what is the matter, if that may pass."""
        error, code = message.error(), self._kafka.KafkaError
        part = self._partitions.get(message.partition())
        if error is None:
            offset, value = message.offset(), self._keep(message)
            if part is not None and offset >= part.fetched:
                part.offsets.append(offset)
                part.values.append(value)
                part.size += 0 if value is None else len(value)
                part.fetched = offset + 1
        elif error.code() == code._PARTITION_EOF:
            if part is not None:
                part.fetched = max(part.fetched, message.offset())
        elif error.code() in (code._AUTO_OFFSET_RESET, code.OFFSET_OUT_OF_RANGE):
            self._out_of_range(message.partition())
        elif error.fatal() or not (may_pass(error) or error.code() == code.UNKNOWN_TOPIC_OR_PART):
            raise InputError(f"{self._who}: topic '{self._topic}' cannot be read: {said(error)}")
        else:
            return error
        return None

    def _out_of_range(self, partition: int) -> None:
        part = self._partitions[partition]
        place = self._kafka.TopicPartition(self._topic, partition)
        try:
            low, high = self._consumer.get_watermark_offsets(place, timeout=self._patience_s)
        except self._kafka.KafkaException as error:
            raise unreachable(self._who, self._topic, self._cluster, error) from error
        where = f"{self._who}: topic '{self._topic}', partition {partition}"
        if part.fetched > high:
            raise StateError(
                f"{where} ends at offset {high}, but has been read up to {part.fetched}: it has lost records, or is "
                "another one by now; restore it, or begin another state directory"
            )
        if part.fetched < low:
            if not self._skip_lost:
                raise StateError(
                    f"{where}: records from offset {part.fetched} up to {low} are gone before they were read "
                    '(retention, or they were deleted); go on without them with ps.kafka(..., lost="skip")'
                )
            logging.getLogger("penstock").warning(
                "%s: records from offset %d up to %d are gone before they were read, and are skipped",
                *(where, part.fetched, low),
            )
            part.fetched = low
        self._assign(self._assigned)

    def _unreadable(self, wanted: Ranges, missing: list[int], trouble: Any) -> InputError:
        p = missing[0]
        what = "nothing comes" if trouble is None else said(trouble)
        return InputError(
            f"{self._who}: topic '{self._topic}', partition {p} cannot be read from offset "
            f"{self._partitions[p].fetched} up to {wanted[p][1]}: {what}; start the query again when "
            "it can: it goes on where it was"
        )


_mutex = threading.Lock()
_open: dict[str, TopicReader] = {}


def opened(key: str, make: Any) -> TopicReader:
    """This process's reader for a stream, kept from batch to batch."""
    with _mutex:
        if key not in _open:
            _open[key] = make()
        return _open[key]


def close(key: str) -> None:
    with _mutex:
        found = _open.pop(key, None)
    if found is not None:
        found.close()
