"""A real Kafka broker for tests: one process in KRaft mode, that can be killed and started again where it was.

Its jars come from Maven Central by Ivy, which pyspark brings with it, once: they stay in ~/.cache/penstock-kafka, or
where PENSTOCK_KAFKA_DIR says. How Ivy reaches the registry is for ~/.ivy2/ivysettings.xml to say, if there is one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

VERSION = "4.3.1"
FETCH_S, START_S = 300, 120
JAVA = [
    *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    "-Dslf4j.internal.verbosity=ERROR",
]
CONF = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions=1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.check.interval.ms=500
log.initial.task.delay.ms=100
log.cleaner.backoff.ms=200
log.segment.delete.delay.ms=100
"""


class NoBroker(Exception):
    """Why there can be none on this machine."""


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(f"{home}/bin/java" if home else "java")
    if found is None:
        raise NoBroker("a Kafka broker needs Java 17, and there is no java")
    return found


def cache() -> Path:
    return Path(os.environ.get("PENSTOCK_KAFKA_DIR") or Path.home() / ".cache" / "penstock-kafka")


def jars() -> Path:
    """The folder of the broker's jars, fetched where they are not there yet."""
    return fetched("org.apache.kafka", "kafka_2.13", VERSION)


def spark_jars() -> list[Path]:
    """Those of Spark's own Kafka source: of the same Spark, or of the newest there is."""
    import pyspark

    folders = [jars()]  # the client
    for organisation, artifact, versions in (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", (pyspark.__version__, "4.2.0", "4.0.0")),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", (pyspark.__version__, "4.2.0", "4.0.0")),
        ("org.apache.commons", "commons-pool2", ("2.12.0",)),
    ):
        folders.append(_newest(organisation, artifact, versions))
    clients = ("kafka-clients-", "spark-", "commons-pool2-")
    return sorted(jar for folder in folders for jar in folder.glob("*.jar") if jar.name.startswith(clients))


def _newest(organisation: str, artifact: str, versions: Sequence[str]) -> Path:
    for version in versions:
        try:
            return fetched(organisation, artifact, version, "master")
        except NoBroker as error:
            why = error
    raise why


def fetched(organisation: str, artifact: str, version: str, conf: str = "default") -> Path:
    """The folder of an artifact of Maven Central: with all that it needs, or as the "master" alone."""
    folder = cache() / f"{artifact}-{version}"
    if not (folder / "whole").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with open(cache() / "lock", "w") as lock:  # one process fetches
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "whole").exists():
                _fetch(folder, organisation, artifact, version, conf)
    return folder


def _fetch(folder: Path, organisation: str, artifact: str, version: str, conf: str) -> None:
    import pyspark

    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"), None)
    if ivy is None:
        raise NoBroker(f"{artifact} is fetched by the Ivy of pyspark's jars, and there is none")
    settings = Path.home() / ".ivy2" / "ivysettings.xml"
    command = [java(), "-jar", str(ivy), "-warn", "-cache", str(cache() / "ivy")]
    command += ["-settings", str(settings)] if settings.exists() else []
    command += ["-dependency", organisation, artifact, version, "-confs", conf, "-types", "jar", "bundle"]
    command += ["-retrieve", str(folder / "[artifact]-[revision](-[classifier]).[ext]")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S)
    except subprocess.TimeoutExpired as error:
        raise NoBroker(f"{artifact} {version} did not come from Maven Central within {FETCH_S} s") from error
    if done.returncode or not list(folder.glob(f"{artifact}-*.jar")):
        raise NoBroker(f"{artifact} {version} did not come from Maven Central: {(done.stdout + done.stderr)[-500:]}")
    (folder / "whole").touch()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Broker:
    def __init__(self, root: Path) -> None:
        """root: where its data and what it says are kept."""
        self._root, self._jars = root, jars()
        self._port, controller = free_port(), free_port()
        self.bootstrap = f"127.0.0.1:{self._port}"
        self._conf = root / "server.properties"
        self._conf.write_text(CONF.format(port=self._port, controller=controller, data=root / "data"))
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: Any = None
        self._format()

    def _java(self, *args: str) -> list[str]:
        return [java(), *JAVA, "-cp", str(self._jars / "*"), *args]

    def _format(self) -> None:
        """A new data directory. It is the same for all, so that it is made once: that takes a JVM and seconds."""
        blank = self._jars / "blank"
        if not blank.exists():
            made = self._root / "data"
            command = ["kafka.tools.StorageTool", "format", "-t", "cGVuc3RvY2t0ZXN0czAwMA", "-c", str(self._conf)]
            subprocess.run(self._java(*command), check=True, capture_output=True, timeout=START_S)
            making = self._jars / f".blank-{os.getpid()}"
            shutil.copytree(made, making)
            with suppress(OSError):
                making.rename(blank)
        else:
            shutil.copytree(blank, self._root / "data")

    def start(self) -> None:
        with open(self._root / "said", "ab") as said:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._conf)), stdout=said, stderr=said, start_new_session=True
            )

    def wait(self) -> None:
        """Until it answers."""
        from confluent_kafka import KafkaException

        until = time.monotonic() + START_S
        while True:
            assert self._process is not None and self._process.poll() is None, self.said()
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 0.2):
                break
            assert time.monotonic() < until, self.said()
            time.sleep(0.05)
        while True:
            try:
                self.admin.list_topics(timeout=2)
                return
            except KafkaException:
                assert time.monotonic() < until, self.said()

    @property
    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def said(self) -> str:
        return (self._root / "said").read_text()[-3000:]

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()
        self.wait()

    # -- topics -----------------------------------------------------------------------------

    def make(self, topic: str, partitions: int = 1, **config: str) -> str:
        from confluent_kafka.admin import NewTopic

        named = {name.replace("_", "."): value for name, value in config.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=named)])[topic].result()
        self._settle(topic, partitions)
        return topic

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result()
        self._until(lambda: topic not in self.admin.list_topics(timeout=5).topics)

    def widen(self, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import NewPartitions

        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
        self._settle(topic, partitions)

    def _settle(self, topic: str, partitions: int) -> None:
        def led() -> bool:
            found = self.admin.list_topics(topic, timeout=5).topics[topic].partitions
            return len(found) == partitions and all(p.leader >= 0 for p in found.values())

        self._until(led)

    def _until(self, holds: Any) -> None:
        until = time.monotonic() + START_S
        while not holds():
            assert time.monotonic() < until, self.said()
            time.sleep(0.05)

    def put(self, topic: str, values: Sequence[bytes | None], partition: int = 0, keys: Sequence[bytes] = ()) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0})
        for i, value in enumerate(values):
            producer.produce(topic, value, key=keys[i] if keys else None, partition=partition)
            if i % 1000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0

    def transaction(self, topic: str, values: Sequence[bytes], partition: int = 0, commit: bool = True) -> Any:
        """Records of one transaction, which commits or aborts; with commit=None it stays open, and its producer comes
        back."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": f"t-{time.monotonic_ns()}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        producer.flush(60)
        if commit is None:
            return producer
        producer.commit_transaction(60) if commit else producer.abort_transaction(60)
        return None

    def get(self, topic: str) -> list[Any]:
        """All that a consumer with read_committed sees, a partition behind the other."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        conf = {"group.id": "look", "enable.auto.commit": False, "isolation.level": "read_committed"}
        conf |= {"enable.partition.eof": True, "auto.offset.reset": "earliest", "log_level": 0}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **conf})
        partitions = self.admin.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        out, ended, until = [], set(), time.monotonic() + START_S
        while len(ended) < len(partitions):
            assert time.monotonic() < until, "the topic does not end"
            for message in consumer.consume(1000, 0.1):
                if message.error() is None:
                    out.append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
        consumer.close()
        return sorted(out, key=lambda m: (m.partition(), m.offset()))


@contextmanager
def running(root: Path) -> Iterator[Broker]:
    """A broker that answers; NoBroker where there can be none."""
    broker = Broker(root)
    broker.start()
    try:
        broker.wait()
        yield broker
    finally:
        broker.kill()
