"""The border to librdkafka: clients as we configure them, its errors as ours."""

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import AdminClient

from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.settings import Scalar
from fogline_cloud.sparse import Sparse

TRANSACTION_TIMEOUT_MS = 15_000
LINGER_MS = 1_000
"""Until a transaction's end: a commit sends what lingers at once. librdkafka's thread polls without rest through the last
millisecond of each linger, so that a short one costs a quarter of the bridge's CPU time."""
SENT_AT = 500
"""Records that are sent without lingering, so that most of a transaction is answered before its end."""
COMPRESSION: Final[Mapping[str, Scalar]] = {"compression.type": "gzip", "compression.level": 1}
"""Unless `[kafka]` says otherwise: every Kafka client reads gzip, not every one reads lz4 or zstd (docs/decisions/0018)."""
SESSION_TIMEOUT_MS = 6_000
LEADER_LIMIT_S = 15.0
_NO_LEADER = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - librdkafka's name for it
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's name for it
}

Partition = tuple[str, int]

_log = logging.getLogger("fogline.kafka")
_log.addFilter(Sparse())


class KafkaClients:
    """Makes clients from the settings' `[kafka]` table."""

    def __init__(self, settings: dict[str, Scalar]) -> None:
        self.where = str(settings["bootstrap.servers"])
        self._base = {"log_level": 3, **settings}
        named = "compression.type" in settings or "compression.codec" in settings
        self._compression = {} if named else {**COMPRESSION, **{key: settings[key] for key in COMPRESSION if key in settings}}

    def producer(self, transactional_id: str) -> Producer:
        """A transactional producer; `init_transactions` is still to be called."""
        return self._make(
            Producer,
            {
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": LINGER_MS,
                "batch.num.messages": SENT_AT,
                "delivery.report.only.error": False,
                **self._compression,
                "socket.nagle.disable": True,
            },
        )

    def publisher(self, on_failure: Callable[[KafkaError, Any], None], limit_s: float) -> Producer:
        """An idempotent producer without transactions. `on_failure` is told of what was not delivered in `limit_s`, only.

        Keys are spread as Java's clients do.
        """
        return self._make(
            Producer,
            {
                "enable.idempotence": True,
                "message.timeout.ms": int(limit_s * 1000),
                "linger.ms": 20,
                **self._compression,
                "partitioner": "murmur2_random",
                "delivery.report.only.error": True,
                "on_delivery": on_failure,
            },
        )

    def reader(self, *, committed: bool = True) -> Consumer:
        """A consumer that is assigned by hand and keeps no offsets."""
        return self._make(
            Consumer,
            {
                "group.id": "fogline-reader",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
            },
        )

    def member(self, group: str, name: str, client_id: str) -> Consumer:
        """A member of a group whose assignment hints at who owns which shard; `client_id` says where it listens."""
        return self._make(
            Consumer,
            {
                "group.id": group,
                "group.instance.id": name,
                "client.id": client_id,
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "isolation.level": "read_committed",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 6,
                "max.poll.interval.ms": 120_000,
            },
        )

    def admin(self) -> AdminClient:
        """For topics. Keep a reference while its futures run."""
        return self._make(AdminClient, {})

    @functools.cached_property
    def _asking(self) -> Consumer:
        return self.reader()

    def stable_ends(self, partitions: Iterable[Partition], limit_s: float) -> dict[Partition, int]:
        """Up to where a reader of committed records sees each partition: one question for all; on any thread.

        Waits at most `limit_s`. Raises `Unreachable`.
        """
        wanted = [TopicPartition(topic, partition, OFFSET_END) for topic, partition in partitions]
        asking = self._asking
        try:
            found = asking.offsets_for_times(wanted, timeout=limit_s)
            why = next((str(each.error) for each in found if each.error is not None), "")
        except KafkaException as error:
            found, why = [], readable(error)
        if why:
            if self.__dict__.get("_asking") is asking:  # it keeps to the leaders that it once learned of
                self.__dict__.pop("_asking", None)
            raise Unreachable(f"asking how far committed records can be read: {why}")
        return {(each.topic, each.partition): int(each.offset) for each in found}

    def topics(self, limit_s: float = 5.0) -> dict[str, int]:
        """Every topic with its partition count. Raises `Misconfigured` if no broker answers."""
        try:
            found = self.admin().list_topics(timeout=limit_s).topics
        except KafkaException as error:
            what = f"Kafka does not answer at {self.where}: {readable(error)}"
            raise Misconfigured(f'{what}; start it, or set "bootstrap.servers" in [kafka]') from None
        return {name: len(topic.partitions) for name, topic in found.items()}

    def topic_ids(self, names: Collection[str], limit_s: float = 10.0) -> dict[str, str]:
        """The id that Kafka gave each of these topics when it was made; brokers before 2.8 give none, and it is left out.

        Raises `Unreachable`, also for a topic that is not there.
        """
        with mapped("asking for the ids of topics"):
            admin = self.admin()
            futures = admin.describe_topics(TopicCollection(list(names)), request_timeout=limit_s)
            found = {name: str(future.result(limit_s).topic_id) for name, future in futures.items()}
        return {name: each for name, each in found.items() if each != str(Uuid(0, 0))}

    def _make(self, kind: Any, settings: dict[str, Any]) -> Any:
        try:
            return kind({**self._base, **settings}, logger=_log)
        except (KafkaException, TypeError, ValueError) as error:
            raise Misconfigured(f"[kafka]: {error}") from None


@contextlib.contextmanager
def mapped(what: str) -> Iterator[None]:
    """Any error of Kafka becomes `Unreachable`: whoever gets it must not believe anything about what landed."""
    try:
        yield
    except TimeoutError:  # of a future of the admin client, which comes before librdkafka's own
        raise Unreachable(f"{what}: Kafka does not answer in time") from None
    except (KafkaException, BufferError) as error:
        raise Unreachable(f"{what}: {readable(error)}") from None


def readable(error: Exception) -> str:
    """An exception of librdkafka in words."""
    inner = error.args[0] if error.args else error
    return str(inner.str()) if isinstance(inner, KafkaError) else str(error)


def end_offset(reader: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """First offset and high watermark. `reader` must be read_uncommitted, or the answer is the last stable offset.

    A partition without a leader (it was just made, or moves) is waited for, for a while. Raises `Unreachable`.
    """
    deadline = time.monotonic() + LEADER_LIMIT_S
    while True:
        try:
            low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=10.0, cached=False)
        except KafkaException as error:
            if time.monotonic() < deadline and error.args[0].code() in _NO_LEADER:
                time.sleep(0.05)
                continue
            raise Unreachable(f"{topic}[{partition}]: {readable(error)}") from None
        return int(low), int(high)
