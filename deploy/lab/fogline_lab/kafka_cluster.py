"""Real Kafka cluster on loopback: three nodes, three replicas of each partition, two of which must be in sync for a write."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from fogline.errors import Misconfigured
from fogline_lab.kafka_broker import KafkaBroker, free_port, new_cluster_id

NODES: Final = 3
IN_SYNC_LIMIT_S: Final = 90.0
TRANSACTION_STATE: Final = "__transaction_state"
_PAUSE_S: Final = 0.1
_SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "broker.session.timeout.ms": "3000",  # by default 9 s pass before another node leads the partitions of a killed one
    "broker.heartbeat.interval.ms": "500",
}


class KafkaCluster:
    """Three brokers, each a controller too. A context manager. `brokers`: by node id; each may be killed and started again."""

    def __init__(self, data: Path, *, heap: str = "256m", properties: dict[str, str] | None = None) -> None:
        quorum = {node: free_port() for node in range(1, NODES + 1)}
        shared = {**_SETTINGS, **(properties or {})}
        name = new_cluster_id()
        self.brokers = {
            node: KafkaBroker(data / f"node-{node}", heap=heap, properties=shared, node=node, quorum=quorum, cluster_id=name)
            for node in quorum
        }
        self.bootstrap = ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> Self:
        """Start all nodes side by side, because one alone is no quorum. Raises `Misconfigured`."""
        for broker in self.brokers.values():
            broker.launch()
        for broker in self.brokers.values():
            broker.wait()
        return self

    def stop(self) -> None:
        """End all nodes. They are killed, because a node that stops in order waits for a quorum."""
        self.kill()

    def kill(self) -> None:
        """Kill all nodes at once, as a power cut of the site would."""
        for broker in self.brokers.values():
            broker.process.kill()
        for broker in self.brokers.values():
            broker.process.join()

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the node that leads each partition of a topic; -1 for none. Raises `KafkaException`."""
        found = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(topic, timeout=10).topics[topic].partitions
        return {number: partition.leader for number, partition in found.items()}

    def coordinator(self, transactional_id: str) -> int:
        """Return the node that coordinates the transactions of a producer. Raises `KafkaException`."""
        leaders = self.leaders(TRANSACTION_STATE)
        return leaders[_java_hash(transactional_id) % len(leaders)]

    def wait_in_sync(self, limit_s: float = IN_SYNC_LIMIT_S) -> None:
        """Wait until each partition has a leader and all of its replicas are in sync. Raises `Misconfigured`."""
        deadline = time.monotonic() + limit_s
        while behind := list(self._behind()):
            if time.monotonic() > deadline:
                raise Misconfigured(f"not in sync within {limit_s:.0f} s: {', '.join(behind)}")
            time.sleep(_PAUSE_S)

    def _behind(self) -> Iterator[str]:
        try:
            found = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=5)
        except KafkaException as error:
            yield str(error)
            return
        if len(found.brokers) < NODES:
            yield f"{len(found.brokers)} of {NODES} nodes"
        for name, topic in found.topics.items():
            for number, partition in topic.partitions.items():
                if partition.leader < 0 or len(partition.isrs) < len(partition.replicas):
                    yield f"{name}[{number}]"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def _java_hash(text: str) -> int:
    """Return Java's `String.hashCode` without its sign, by which Kafka chooses the coordinator's partition."""
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF
