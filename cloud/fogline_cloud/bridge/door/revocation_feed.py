"""Brings the newest list of revoked certificates to every bridge of a tenant, over the Kafka topic `fogline.crl`.

A bridge whose file is newer than the topic writes it there; one whose file is older replaces it. The authority's signature and
the list's number count, not who wrote the record. While Kafka is away, each bridge keeps the list that it has.
"""

import logging
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from fogline.errors import Misconfigured
from fogline.process.files.tls_files import ReadAgain
from fogline.process.log_throttle import LogThrottle
from fogline_cloud.authority.revocation import RevocationList, read_revocation_list
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients, readable

_KEY = b"crl"
_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's name for it
_SEND_S = 30.0
_MOST = 100

_log = logging.getLogger("fogline.bridge.crl")
_log.addFilter(LogThrottle())


class RevocationFeed:
    """The feed of one bridge. `file` is its list, at the path `crl`; `ca` is the file of its authorities. Never blocks."""

    def __init__(self, clients: KafkaClients, tenant: str, file: ReadAgain[RevocationList], crl: str, ca: str) -> None:
        self._topic = topics.crl(tenant)
        self._file, self._path, self._ca = file, Path(crl), ca
        self._reader = clients.reader()
        self._reader.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
        self._publisher = clients.publisher(lambda error, _: _log.warning("the list is not on Kafka: %s", error.str()), _SEND_S)
        self._on_kafka: RevocationList | None = None
        self._is_read = False  # the topic, up to its end

    def exchange(self) -> None:
        """Take a newer list from Kafka, or write the file's list there if that is newer."""
        try:
            for message in self._reader.consume(_MOST, 0):
                if message.error() is None:
                    self._take(message.value() or b"")
                else:  # the end of the topic, or no broker
                    self._is_read = self._is_read or message.error().code() == _END
            self._publisher.poll(0)
        except KafkaException as error:
            _log.warning("the topic of revoked certificates cannot be read: %s", readable(error))
            return
        own = self._file.get()
        if self._is_read and (self._on_kafka is None or own.is_newer_than(self._on_kafka)):
            self._on_kafka = own
            self._publisher.produce(self._topic, self._path.read_bytes(), _KEY, partition=0)
            _log.info("the list of revoked certificates is written to Kafka for the other bridges")

    def close(self) -> None:
        """Leave Kafka."""
        self._reader.close()
        self._publisher.purge()

    def _take(self, text: bytes) -> None:
        own, beside = self._file.get(), self._path.with_suffix(".received")
        try:
            beside.write_bytes(text)
            received = read_revocation_list(str(beside), self._ca)
            self._on_kafka = received
            if received.is_newer_than(own):
                beside.replace(self._path)
                self._file.get(at_once=True)
                _log.info("a newer list of revoked certificates came from Kafka")
        except (Misconfigured, OSError) as error:
            _log.warning("a list of revoked certificates on Kafka is not used: %s", error)
        finally:
            beside.unlink(missing_ok=True)
