"""Reads the committed state of a shard from the Kafka records, after the fence: no other producer can commit then."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from fogline.errors import Poison
from fogline_cloud.audit.chain import AuditLink, follow
from fogline_cloud.commands.record import CommandRecord, decode_record
from fogline_cloud.devices.own_devices import OwnDevices
from fogline_cloud.devices.record import read_key
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import READ_LIMIT_S, read_committed
from fogline_cloud.kafka.records import StreamPosition, position_of
from fogline_cloud.shard.admission import StreamKey, StreamState
from fogline_cloud.shard.checkpoint import CheckpointChanges, Layout, RouteEntry, ShardCheckpoint, read_entries

_log = logging.getLogger("fogline.shard")


@dataclass(frozen=True, slots=True)
class Recovered:
    """The committed state of a shard."""

    known: dict[StreamKey, StreamState]
    changes: CheckpointChanges  # records after the checkpoint: the next one, whose position lies after them, must have them
    routes: dict[str, RouteEntry]
    commands: list[CommandRecord]  # the newest record of each command
    audit_end: AuditLink
    devices: OwnDevices


def read_commands(clients: KafkaClients, tenant: str, shard: int) -> list[CommandRecord]:
    """Return the newest record of every command of a shard: those that are over, by the time of that; then the open ones.

    The open ones are in the order in which they were accepted, which is that of the log.
    """
    newest: dict[bytes, CommandRecord] = {}
    for stored in read_committed(clients, {(topics.commands(tenant), shard): None}):
        if not stored.value:  # it has moved to another shard, or the key means nothing
            newest.pop(stored.key, None)
            continue
        try:
            newest[stored.key] = decode_record(stored.value)
        except Poison as error:
            _log.warning("%s[%d] at %d is skipped: %s", stored.topic, shard, stored.offset, error)
    return sorted(newest.values(), key=lambda each: each.changed_ms if each.final else math.inf)


def read_own_devices(clients: KafkaClients, tenant: str, shard: int) -> OwnDevices:
    """Return the records of the devices that belong to a shard. What gateways' shards write is passed over."""
    found = OwnDevices()
    for stored in read_committed(clients, {(topics.devices(tenant), shard): None}):
        try:
            found.apply(read_key(stored.key), stored.value)
        except Poison as error:
            _log.warning("%s[%d] at %d is skipped: %s", stored.topic, shard, stored.offset, error)
    for stored in read_committed(clients, {(topics.credentials(tenant), shard): None}):
        found.seal(stored.key.decode("utf-8", "replace"), stored.value)
    return found


def read_checkpoint(clients: KafkaClients, tenant: str, shard: int, *, stable: bool = False) -> ShardCheckpoint:
    """Return the checkpoint of one shard. `stable` is passed to `read_committed`."""
    stored = read_committed(clients, {(topics.checkpoint(tenant), shard): None}, stable=stable)
    return read_entries((record.key, record.value) for record in stored)


def read_layout(clients: KafkaClients, tenant: str) -> Layout | None:
    """Return the number of shards, as far as it is committed before the first open transaction of shard 0."""
    return read_checkpoint(clients, tenant, 0, stable=True).layout


def recover(clients: KafkaClients, tenant: str, shard: int, on_record: Callable[[], None] = lambda: None) -> Recovered:
    """Rebuild the state of a shard from its checkpoint and all later records of the raw topics and of the audit."""
    checkpoint, audit = read_checkpoint(clients, tenant, shard), topics.audit(tenant)
    known = dict(checkpoint.streams)
    changed: dict[StreamKey, StreamState] = {}
    audit_end = checkpoint.audit_end
    starts = {(topic, shard): checkpoint.position.get(topic) for topic in (*topics.raw_topics(tenant), audit)}
    position = {topic: end for (topic, _), end in clients.stable_ends(starts, READ_LIMIT_S).items()}
    for record in read_committed(clients, starts):
        on_record()
        position[record.topic] = max(position[record.topic], record.offset + 1)
        if record.topic == audit:
            audit_end = follow(audit_end, record.value)
            continue
        try:
            found = position_of(record.headers, record.value)
        except Poison as error:
            _log.warning("%s[%d] at %d is skipped: %s", record.topic, shard, record.offset, error)
            continue
        if found is not None:
            state = learn(known, found)
            changed[state.gateway, state.stream] = state
    changes = CheckpointChanges(changed, position, moved=position != checkpoint.position)
    commands, devices = read_commands(clients, tenant, shard), read_own_devices(clients, tenant, shard)
    return Recovered(known, changes, checkpoint.routes, commands, audit_end, devices)


def learn(known: dict[StreamKey, StreamState], found: StreamPosition) -> StreamState:
    """Add the position of a committed record to its stream's state, unless the high-water mark covers it. Return the state."""
    state = known.setdefault(
        (found.gateway, found.stream), StreamState(gateway=found.gateway, stream=found.stream, lane=found.lane)
    )
    if found.last > state.hwm:
        state.landed += found.last - max(state.hwm, found.first - 1)
        state.hwm = found.last
    if found.chain is not None and found.last > state.chain_sequence:
        state.chain_sequence = found.last
        state.chain = found.chain.hex()
    return state
