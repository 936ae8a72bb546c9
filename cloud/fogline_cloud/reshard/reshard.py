"""Raises the number of shards, and moves what belongs to other shards then (docs/decisions/0067).

A gateway's streams go on with their numbers in the partition of its new shard, from the high-water mark of the old partition.
So the change needs nothing from gateways, also from those that are offline through it. Records of events stay where they are.

| step | effect | after a kill in it |
|---|---|---|
| 1 | topics whose partitions are shards get more of them | repeated |
| 2 | the layout names both numbers: no bridge takes a shard any more | the next call goes on from here |
| 3 | each former shard is taken, which fences its owner, and gets a checkpoint of all its records | repeated |
| 4 | state moves to its new shard, in transactions that delete the old entries | the rest is moved |
| 5 | the layout names the new number: bridges with this number serve | - |
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import NewPartitions

from fogline.address import shard_of
from fogline.errors import Misconfigured, Poison, Unreachable
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_cloud.commands.record import decode_record
from fogline_cloud.devices.record import read_key
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients, Partition, mapped, readable
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.kafka.hanging_transactions import MARKERS_LIMIT_S, Markers, find_hanging
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.checkpoint import Layout, ShardOwner, entry_of, gateway_of
from fogline_cloud.shard.producer import ShardProducer
from fogline_cloud.shard.recovery import read_checkpoint, read_layout
from fogline_cloud.shard.shard_writer import ShardWriter
from fogline_cloud.shard.topic_admin import LAYOUT_ID, wait_until_listed

MOVED_RECORDS = 2000
"""Records that one transaction moves."""
_LIMIT_S = 60.0
_PAUSE_S = 0.1
_NOTHING = b"-"  # the key of a tombstone that deletes nothing

HomeOf = Callable[[bytes, bytes], str]
"""Returns the gateway or device to whose shard a record belongs, "" for one that stays. Arguments: key and value."""

_log = logging.getLogger("fogline.shard")


@dataclass(slots=True)
class Resharding:
    """What was done. `moved`: records by the name of their topic."""

    former: int
    shards: int
    moved: Counter[str] = field(default_factory=Counter)


def reshard(settings: CloudSettings) -> Resharding:
    """Change the number of shards to `settings.shards`. Safe to kill: the next call goes on.

    Raises `Misconfigured` if that is not possible, `Unreachable` if Kafka failed or a bridge took a shard meanwhile.
    """
    clients, tenant = KafkaClients(settings.kafka), settings.tenant
    existing = clients.topics()
    topics.require([each.name for each in topics.all_topics(tenant, settings.shards)], existing)
    mover = _Mover(clients, tenant)
    mover.commit_hanging(existing[topics.checkpoint(tenant)])
    layout = read_layout(clients, tenant) or read_checkpoint(clients, tenant, 0).layout
    if layout is None:
        raise Misconfigured(f"{topics.checkpoint(tenant)} holds no layout; run: fogline topics create")
    if layout.former and layout.shards != settings.shards:
        raise Misconfigured(f"a change to {layout.shards} shards has begun; set shards = {layout.shards}, and run it again")
    if settings.shards < layout.shards:
        raise Misconfigured(f"{tenant} has {layout.shards} shards: their number can only grow, and shards = {settings.shards}")
    done = Resharding(layout.former or layout.shards, settings.shards)
    if settings.shards == done.former:
        return done
    _add_partitions(clients, settings, existing)
    crash_point(CrashPoint.BEFORE_LAYOUT)
    moving = Layout(settings.shards, done.former)
    if not layout.former:
        mover.write_layout(moving)
    crash_point(CrashPoint.AFTER_LAYOUT)
    _take_all(clients, tenant, moving)
    for shard in range(done.former):
        done.moved += mover.move(shard, settings.shards)
    mover.write_layout(Layout(settings.shards))
    mover.wait_until_visible()
    return done


def _add_partitions(clients: KafkaClients, settings: CloudSettings, existing: dict[str, int]) -> None:
    """Give each topic whose partitions are shards as many of them as there are shards. An operator may have added some."""
    wanted = [each for each in topics.all_topics(settings.tenant, settings.shards) if each.by_shard]
    counts = {each.name: each.partitions for each in wanted}
    new = [NewPartitions(each.name, each.partitions) for each in wanted if existing[each.name] < each.partitions]
    admin = clients.admin()
    for name, future in admin.create_partitions(new, operation_timeout=30).items() if new else ():
        try:
            future.result(_LIMIT_S)
        except KafkaException as error:
            if clients.topics().get(name, 0) < counts[name]:  # otherwise another run has added them
                raise Misconfigured(f"topic {name} cannot get more partitions: {readable(error)}") from None
    wait_until_listed(clients, counts)


def _take_all(clients: KafkaClients, tenant: str, moving: Layout) -> None:
    """Take every former shard, which fences the bridges, and write its checkpoint up to the end of its records."""
    deadline = time.monotonic() + _LIMIT_S
    while read_layout(clients, tenant) != moving:  # a transaction that a killed bridge has left open may be before it
        if time.monotonic() > deadline:
            raise Unreachable(f"{topics.checkpoint(tenant)}[0]: a transaction before the new layout does not end")
        first = ShardProducer(clients, tenant, 0)
        first.fence()
        first.destroy()
        time.sleep(_PAUSE_S)
    for shard in range(moving.former):
        writer = ShardWriter(clients, ShardProducer(clients, tenant, shard), moving)
        recovered = writer.take(ShardOwner("fogline topics reshard", ""))
        writer.write_entries([*recovered.changes.take_entries(), entry_of(recovered.audit_end)])
        writer.producer.commit()
        while not writer.producer.visible():
            time.sleep(writer.producer.markers.due_s)
        writer.producer.destroy()
        crash_point(CrashPoint.AFTER_FORMER_SHARD_TAKEN)


class _Mover:
    """The producer of the command. A second run of the command fences the first one."""

    def __init__(self, clients: KafkaClients, tenant: str) -> None:
        self._clients = clients
        self._tenant = tenant
        self._producer = clients.producer(topics.transactional_id(tenant, LAYOUT_ID), int(_LIMIT_S * 1000))
        self._ends: dict[Partition, int] = {}
        with mapped("fencing an earlier run"):
            self._producer.init_transactions(_LIMIT_S)

    def commit_hanging(self, shards: int) -> None:
        """Commit what an earlier run has moved, if Kafka has not marked it (docs/decisions/0015).

        An open transaction of a bridge looks the same, and the record that is written beside it means nothing.
        """
        state = [topic(self._tenant) for topic in MOVED_TOPICS]
        hanging = find_hanging(self._clients, [(topic, shard) for topic in state for shard in range(shards)])
        self._commit([(topic, _NOTHING, None, shard) for topic, shard in hanging])

    def write_layout(self, layout: Layout) -> None:
        """Commit the layout."""
        key, value = entry_of(layout)
        self._commit([(topics.checkpoint(self._tenant), key, value, 0)])

    def move(self, shard: int, shards: int) -> Counter[str]:
        """Move what does not belong to a former shard any more. Return the number of records by topic."""
        moved = Counter[str]()
        for name, home_of in MOVED_TOPICS.items():
            topic = name(self._tenant)
            newest = {each.key: each.value for each in read_committed(self._clients, {(topic, shard): None})}
            leaving = list(_leaving(newest, home_of, shard, shards))
            for first in range(0, len(leaving), MOVED_RECORDS):
                part = leaving[first : first + MOVED_RECORDS]
                there = [(topic, key, newest[key], home) for key, home in part]
                here = [(topic, key, None, shard) for key, _ in part]
                self._commit([*there, *here])
                self.wait_until_visible()
                crash_point(CrashPoint.AFTER_MOVE)
            moved[topic] += len(leaving)
        return moved

    def wait_until_visible(self) -> None:
        """Wait until consumers see the last transaction. Raises `Unreachable` if Kafka has forgotten to mark it."""
        markers = Markers(self._clients, self._ends, MARKERS_LIMIT_S)
        while not markers.seen():
            time.sleep(markers.due_s)

    def _commit(self, records: Sequence[tuple[str, bytes, bytes | None, int]]) -> None:
        """Write records (topic, key, value, partition) in one transaction."""
        if not records:
            return
        self._ends = {}
        with mapped("moving shards"):
            self._producer.begin_transaction()
            for topic, key, value, shard in records:
                self._producer.produce(topic, value, key, shard, self._note_end)
                self._producer.poll(0)
            self._producer.commit_transaction(_LIMIT_S)

    def _note_end(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._ends[message.topic(), message.partition()] = message.offset() + 1


def _leaving(newest: Mapping[bytes, bytes], home_of: HomeOf, shard: int, shards: int) -> Iterator[tuple[bytes, int]]:
    """Yield key and new shard of each record that belongs elsewhere, in the order of their first records."""
    for key, value in newest.items():
        try:
            name = home_of(key, value) if value else ""
        except Poison as error:
            _log.warning("shard %d: %s stays where it is: %s", shard, ascii(key)[:100], error)
            continue
        if name and (home := shard_of(name, shards)) != shard:
            yield key, home


def _gateway_of_command(_: bytes, value: bytes) -> str:
    return decode_record(value).gateway


def _home_of_device(key: bytes, _: bytes) -> str:
    return read_key(key).about


def _device_of_keys(key: bytes, _: bytes) -> str:
    return key.decode("utf-8", "replace")


MOVED_TOPICS: dict[Callable[[str], str], HomeOf] = {
    topics.checkpoint: gateway_of,
    topics.commands: _gateway_of_command,
    topics.devices: _home_of_device,
    topics.credentials: _device_of_keys,
}
"""The topics of a tenant whose records move, with what tells the shard of one: those that an owner reads."""
