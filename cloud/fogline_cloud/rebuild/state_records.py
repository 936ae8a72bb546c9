"""Finds the newest records of the registry, the commands and the audit that another Kafka has, and this one lacks."""

from collections.abc import Iterable, Iterator

from fogline_cloud.devices.record import SEEN
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import CommittedRecord, read_committed

STATE_TOPICS = (topics.devices, topics.credentials, topics.commands, topics.audit, topics.crl)
"""The topics beside those of events that a mirror must have brought, but for the marks, which are made anew."""
_SIGHTING = f"{SEEN}/".encode()
"""The key of a record that the next event of a device makes anew begins with this."""


def lacking_state(here: KafkaClients, tenant: str, other: KafkaClients, others_tenant: str) -> dict[str, int]:
    """Return the number of lacking records by topic."""
    lacking = {}
    for name in STATE_TOPICS:
        found, wanted = _read(here, name(tenant)), _read(other, name(others_tenant))
        if count := count_lacking(found, wanted, by_partition=name is topics.audit):
            lacking[name(tenant)] = count
    return lacking


def count_lacking(found: Iterable[CommittedRecord], wanted: Iterable[CommittedRecord], *, by_partition: bool = False) -> int:
    """Return of how many keys `wanted` has a newer record than `found`. What was written here later counts as there.

    `by_partition`: the newest record of each partition counts, as its chain leads to all before it.
    """
    newest = _newest(found, by_partition=by_partition)
    return sum(_lacks(newest.get(key), each) for key, each in _newest(wanted, by_partition=by_partition).items())


def _read(clients: KafkaClients, topic: str) -> Iterator[CommittedRecord]:
    count = clients.topics().get(topic, 0)
    return read_committed(clients, dict.fromkeys((topic, number) for number in range(count)), lean=True)


def _newest(records: Iterable[CommittedRecord], *, by_partition: bool) -> dict[bytes, CommittedRecord]:
    newest: dict[bytes, CommittedRecord] = {}
    for record in records:
        key = b"%d" % record.partition if by_partition else record.key
        former = newest.get(key)
        if not key.startswith(_SIGHTING) and (former is None or _age(former) <= _age(record)):
            newest[key] = record
    return newest


def _age(record: CommittedRecord) -> tuple[int, bool]:
    """Return what orders the records of a key. `topics reshard` writes one and deletes it elsewhere at the same time."""
    return record.time_ms, bool(record.value)


def _lacks(found: CommittedRecord | None, wanted: CommittedRecord) -> bool:
    if found is None:
        return bool(wanted.value)
    return found.value != wanted.value and _age(found) <= _age(wanted)
