"""What is committed in a shard, read from the records themselves.

Called only after the fence (`init_transactions`), so that nobody else can commit there any more.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from fogline.errors import Poison
from fogline_cloud import topics
from fogline_cloud.bridge.admission import Known, StreamKey
from fogline_cloud.bridge.checkpoint import Checkpoint, read_entries
from fogline_cloud.commands.record import Record, decode_record
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.reading import READ_LIMIT_S, read_committed
from fogline_cloud.records import Place, place_of

_log = logging.getLogger("fogline.shard")


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a shard holds. `position`: by topic, the offset up to which `known` is true. `commands`: the newest of each.

    `unwritten`: the streams of `known` about which records said more than the checkpoint. The next checkpoint must have
    them: its position lies beyond those records, and nobody reads them again.
    """

    known: dict[StreamKey, Known]
    unwritten: dict[StreamKey, Known]
    position: dict[str, int]
    checkpoint: Checkpoint
    commands: list[Record]


def read_commands(clients: KafkaClients, tenant: str, shard: int) -> list[Record]:
    """The newest record of every command of a shard, in the order in which they changed."""
    newest: dict[bytes, Record] = {}
    for stored in read_committed(clients, {(topics.commands(tenant), shard): None}):
        if not stored.value:  # a tombstone
            continue
        try:
            newest[stored.key] = decode_record(stored.value)
        except Poison as error:
            _log.warning("%s[%d] at %d is skipped: %s", stored.topic, shard, stored.offset, error)
    return sorted(newest.values(), key=lambda each: each.changed_ms)


def read_checkpoint(clients: KafkaClients, tenant: str, shard: int, *, stable: bool = False) -> Checkpoint:
    """The checkpoint of one shard; `stable` as of `read_committed`."""
    stored = read_committed(clients, {(topics.checkpoint(tenant), shard): None}, stable=stable)
    return read_entries((record.key, record.value) for record in stored)


def recover(clients: KafkaClients, tenant: str, shard: int, on_record: Callable[[], None] = lambda: None) -> Recovered:
    """Rebuild the knowledge of a shard: the checkpoint, then every record after it, in all the lanes' topics."""
    checkpoint = read_checkpoint(clients, tenant, shard)
    known = dict(checkpoint.streams)
    unwritten: dict[StreamKey, Known] = {}
    starts = {(topic, shard): checkpoint.position.get(topic) for topic in topics.raw_topics(tenant)}
    position = {topic: end for (topic, _), end in clients.stable_ends(starts, READ_LIMIT_S).items()}
    for record in read_committed(clients, starts):
        on_record()
        position[record.topic] = max(position[record.topic], record.offset + 1)
        try:
            place = place_of(record.headers, record.value)
        except Poison as error:
            _log.warning("%s[%d] at %d is skipped: %s", record.topic, shard, record.offset, error)
            continue
        if place is not None:
            entry = learn(known, place)
            unwritten[entry.gateway, entry.stream] = entry
    return Recovered(known, unwritten, position, checkpoint, read_commands(clients, tenant, shard))


def learn(known: dict[StreamKey, Known], place: Place) -> Known:
    """Take one committed record into account; returns its stream. Records below what is known change nothing."""
    entry = known.setdefault((place.gateway, place.stream), Known(gateway=place.gateway, stream=place.stream, lane=place.lane))
    if place.last > entry.hwm:
        entry.landed += place.last - max(entry.hwm, place.first - 1)
        entry.hwm = place.last
    if place.chain is not None and place.last > entry.chain_sequence:
        entry.chain_sequence = place.last
        entry.chain = place.chain.hex()
    return entry
