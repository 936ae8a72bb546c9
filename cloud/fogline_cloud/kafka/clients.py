"""The border to librdkafka: configured clients, and its errors as `FoglineError`s."""

import contextlib
import functools
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import AdminClient

from fogline.errors import Misconfigured, Unreachable
from fogline.process.log_throttle import LogThrottle
from fogline_cloud.kafka.connection_settings import KafkaValue, mechanism_of, read_secrets
from fogline_cloud.kafka.topics import READER_GROUP

TRANSACTION_TIMEOUT_MS = 15_000
LINGER_MS = 1_000
"""Longer than most transactions: a commit sends all lingering records at once. librdkafka's thread polls without rest through
the last millisecond of each linger, so a short linger costs a quarter of the bridge's CPU time."""
BATCH_RECORDS = 500
"""Records that end a linger, so that the broker acknowledges most of a transaction before its end."""
COMPRESSION: Final[Mapping[str, KafkaValue]] = {"compression.type": "gzip", "compression.level": 1}
"""The default for the raw topics: every Kafka client reads gzip, but not every one reads lz4 or zstd (docs/decisions/0018)."""
DERIVED_COMPRESSION: Final[Mapping[str, KafkaValue]] = {"compression.type": "zstd"}
"""The default for derived topics, which Spark reads mostly, and for the list of revoked certificates."""
LEAN: Final[Mapping[str, KafkaValue]] = {
    "queued.max.messages.kbytes": 1024,
    "max.partition.fetch.bytes": 1_048_576,
    "fetch.max.bytes": 2_097_152,
}
"""Settings of a consumer that keeps few records in memory."""
SESSION_TIMEOUT_MS = 6_000
_BY_USER = '"sasl.username", "sasl.password" and "sasl.mechanism"'
_BY_CLIENT = '"sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret" and "https.ca.location"'
LEADER_LIMIT_S = 15.0
_NO_LEADER = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - librdkafka's name for it
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's name for it
}
_AWAY = {
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - librdkafka's name for it
    KafkaError._RESOLVE,  # noqa: SLF001 - librdkafka's name for it
    KafkaError._TIMED_OUT,  # noqa: SLF001 - librdkafka's name for it
    KafkaError._TRANSPORT,  # noqa: SLF001 - librdkafka's name for it
}
_SETTINGS = 'start it, or check "bootstrap.servers" and "security.protocol" in [kafka]'
_REASONS = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - librdkafka's name for it
    KafkaError._RESOLVE,  # noqa: SLF001 - librdkafka's name for it
    KafkaError._SSL,  # noqa: SLF001 - librdkafka's name for it
    KafkaError._TRANSPORT,  # noqa: SLF001 - librdkafka's name for it
}
_DECORATION = re.compile(r"^\w+://\S+: |:? \(after \d+ms in state .*$|, verify that .*$|error:[0-9A-F]+:[^:]*:[^:]*:")

Partition = tuple[str, int]


class TopicFacts(msgspec.Struct, frozen=True):
    """A topic as Kafka knows it. `id`: a new one once it is created again; empty from Kafka before 2.8."""

    id: str
    partitions: int


_log = logging.getLogger("fogline.kafka")
_log.addFilter(LogThrottle())


class KafkaClients:
    """Creates clients from the settings table `[kafka]`. Raises `Misconfigured` for files and settings that cannot be used."""

    def __init__(self, settings: Mapping[str, KafkaValue]) -> None:
        self._bootstrap = str(settings["bootstrap.servers"])
        self._base = {"log_level": 3, **read_secrets(settings)}
        self._has_codec = "compression.type" in settings or "compression.codec" in settings

    def producer(self, transactional_id: str, limit_ms: int = TRANSACTION_TIMEOUT_MS) -> Producer:
        """Return a transactional producer. The caller must call `init_transactions`. `limit_ms`: of each transaction."""
        settings = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": limit_ms,
            "message.timeout.ms": limit_ms,
            "linger.ms": LINGER_MS,
            "batch.num.messages": BATCH_RECORDS,
            "delivery.report.only.error": False,
            "socket.nagle.disable": True,
        }
        return self._make(Producer, settings | self._codec(COMPRESSION))

    def publisher(self, on_failure: Callable[[KafkaError, Any], None], limit_s: float) -> Producer:
        """Return an idempotent producer of derived records, with Java's partitioner.

        `on_failure` gets records not delivered within `limit_s`.
        """
        settings = {
            "enable.idempotence": True,
            "message.timeout.ms": int(limit_s * 1000),
            "linger.ms": 20,
            "partitioner": "murmur2_random",
            "delivery.report.only.error": True,
            "on_delivery": on_failure,
        }
        return self._make(Producer, settings | self._codec(DERIVED_COMPRESSION))

    def reader(self, *, committed: bool = True, lean: bool = False) -> Consumer:
        """Return a consumer for manual assignment, which commits no offsets. A `lean` one keeps few records in memory."""
        settings = {
            "group.id": READER_GROUP,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            **(LEAN if lean else {}),
        }
        return self._make(Consumer, settings)

    def subscriber(self, group: str, *, from_beginning: bool) -> Consumer:
        """Return a consumer of a group, which keeps few records in memory. Its owner commits the offsets."""
        settings = {
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest" if from_beginning else "latest",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 6,
            "fetch.wait.max.ms": 50,
            **LEAN,
        }
        return self._make(Consumer, settings)

    def member(self, group: str, name: str, client_id: str) -> Consumer:
        """Return a member of the group of bridges, assigned the shards that it should take. `client_id` holds its address."""
        settings = {
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
        }
        return self._make(Consumer, settings)

    def admin(self) -> AdminClient:
        """Return a client for topics. The caller must keep a reference while its futures run."""
        return self._make(AdminClient, {})

    @functools.cached_property
    def _offset_reader(self) -> Consumer:
        return self.reader()

    def stable_ends(self, partitions: Iterable[Partition], limit_s: float) -> dict[Partition, int]:
        """Return the last stable offset of each partition, within `limit_s`. Thread-safe. Raises `Unreachable`."""
        wanted = [TopicPartition(topic, partition, OFFSET_END) for topic, partition in partitions]
        reader = self._offset_reader
        try:
            found = reader.offsets_for_times(wanted, timeout=limit_s)
            why = next((str(each.error) for each in found if each.error is not None), "")
        except KafkaException as error:
            found, why = [], readable(error)
        if why:
            if self.__dict__.get("_offset_reader") is reader:  # the client keeps the leaders that it once learned
                self.__dict__.pop("_offset_reader", None)
            raise Unreachable(f"reading the last stable offsets: {why}")
        return {(each.topic, each.partition): int(each.offset) for each in found}

    def bounds(self, partitions: Iterable[Partition], *, committed: bool = False) -> dict[Partition, tuple[int, int]]:
        """Return the first and the end offset of each partition; with `committed`, the last stable offset as the end."""
        reader = self.reader(committed=committed)
        try:
            return {partition: end_offset(reader, *partition) for partition in partitions}
        finally:
            reader.close()

    def topics(self, limit_s: float = 5.0) -> dict[str, int]:
        """Return every topic that this user may see, with its partition count. Raises `Misconfigured` if no broker answers."""
        failures: list[KafkaError] = []
        admin = self._make(AdminClient, {"error_cb": failures.append, "log_level": 0})
        for attempt_s in (limit_s / 5, limit_s * 4 / 5):  # librdkafka tries again for as long, whatever the reason
            try:
                found = admin.list_topics(timeout=attempt_s).topics
                return {name: len(topic.partitions) for name, topic in found.items()}
            except KafkaException as error:
                admin.poll(0)  # calls `error_cb`
                why = next((_plain(each) for each in failures if each.code() in _REASONS), readable(error))
            if refusal := self._refusal(failures):
                raise Misconfigured(f"Kafka at {self._bootstrap}: {refusal} in [kafka]")
        raise Misconfigured(f"Kafka does not answer at {self._bootstrap}: {why}; {_SETTINGS}")

    def describe(self, names: Collection[str], limit_s: float = 10.0) -> dict[str, TopicFacts]:
        """Return id and partitions of each topic, as they are now. Raises `Unreachable`."""
        with mapped("reading the ids of topics"):
            admin = self.admin()
            futures = admin.describe_topics(TopicCollection(list(names)), request_timeout=limit_s)
            found = {name: future.result(limit_s) for name, future in futures.items()}
        unknown = str(Uuid(0, 0))
        ids = {name: str(each.topic_id) for name, each in found.items()}
        return {
            name: TopicFacts("" if ids[name] == unknown else ids[name], len(each.partitions)) for name, each in found.items()
        }

    def _refusal(self, failures: Iterable[KafkaError]) -> str:
        """Return why a broker or this client refuses the connection, and the settings to check; an empty text if none does."""
        for each in failures:
            if each.code() == KafkaError._AUTHENTICATION:  # noqa: SLF001 - librdkafka's name for it
                check = _BY_CLIENT if mechanism_of(self._base) == "OAUTHBEARER" else _BY_USER
            elif each.code() == KafkaError._SSL:  # noqa: SLF001 - librdkafka's name for it
                check = '"ssl.ca.location", "security.protocol" and the host names of "bootstrap.servers"'
            elif "SSL alert" in each.str():
                check = '"ssl.certificate.location" and "ssl.key.location"'
            else:
                continue
            return f"{_plain(each)}; check {check}"
        return ""

    def _codec(self, default: Mapping[str, KafkaValue]) -> dict[str, KafkaValue]:
        return {} if self._has_codec else {key: value for key, value in default.items() if key not in self._base}

    def _make(self, kind: Any, settings: dict[str, Any]) -> Any:
        try:
            return kind({**self._base, **settings}, logger=_log)
        except (KafkaException, TypeError, ValueError) as error:
            raise Misconfigured(f"[kafka]: {readable(error)}") from None


def ids_of(found: Mapping[str, TopicFacts]) -> dict[str, str]:
    """Return the id of each topic that has one."""
    return {name: each.id for name, each in found.items() if each.id}


@contextlib.contextmanager
def mapped(what: str) -> Iterator[None]:
    """Raise `Unreachable` for any Kafka error. The caller must then conclude nothing about the written records."""
    try:
        yield
    except TimeoutError:  # a future of the admin client, before librdkafka's own timeout
        raise Unreachable(f"{what}: Kafka does not answer in time") from None
    except (KafkaException, BufferError) as error:
        raise Unreachable(f"{what}: {readable(error)}") from None


def readable(error: Exception) -> str:
    """Return the text of an exception of librdkafka."""
    inner = error.args[0] if error.args else error
    return str(inner.str()) if isinstance(inner, KafkaError) else str(error)


def _plain(error: KafkaError) -> str:
    """Return librdkafka's reason without the broker, the time and OpenSSL's numbers."""
    return _DECORATION.sub("", error.str())


def end_offset(reader: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """Return the first offset and the high watermark of a partition; from a `read_committed` reader, the last stable offset.

    Waits up to `LEADER_LIMIT_S` for a leader, because a new or moving partition has none. Raises `Unreachable`.
    """
    deadline = time.monotonic() + LEADER_LIMIT_S
    while True:
        try:
            low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=10.0, cached=False)
        except KafkaException as error:
            if time.monotonic() < deadline and error.args[0].code() in _NO_LEADER:
                time.sleep(0.05)
                continue
            why = f"Kafka does not answer; {_SETTINGS}" if error.args[0].code() in _AWAY else readable(error)
            raise Unreachable(f"{topic}[{partition}]: {why}") from None
        return int(low), int(high)
