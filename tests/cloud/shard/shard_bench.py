"""A tenant of one shard on a real broker, for tests of the shard's thread."""

import queue
from collections.abc import Callable

from fogline.events.codec import Range
from fogline.events.event import Lane
from fogline.message import Message
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.kafka.records import StreamPosition, position_of
from fogline_cloud.settings import BridgeSettings, CloudSettings
from fogline_cloud.shard.checkpoint import Layout
from fogline_cloud.shard.producer import ShardProducer
from fogline_cloud.shard.recovery import read_checkpoint
from fogline_cloud.shard.shard import Shard, ShardListeners
from fogline_cloud.shard.shard_writer import ShardWriter
from fogline_cloud.shard.topic_admin import create_topics
from fogline_cloud.shard.work.submissions import GatewayBatch
from fogline_lab.events import STREAM, make_batch

LIMIT_S = 60.0


class Bench:
    """A tenant of one shard, and shards on it that are stopped at the end."""

    def __init__(self, kafka, tenant):
        self.tenant = tenant
        self.settings = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": kafka.bootstrap}, shards=1)
        self.clients = KafkaClients(self.settings.kafka)
        self.shards: list[Shard] = []
        create_topics(self.clients, self.settings, 1)

    def shard(
        self, make_writer: Callable[[], ShardWriter] | None = None, issued: Callable[[str], bool] = bool, **settings
    ) -> Shard:
        """A shard that is ready. `issued` returns True for the command ids that a bridge made."""
        changes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        shard = Shard(
            0,
            make_writer or self.writer,
            BridgeSettings(**{"transaction_ms": 5, **settings}),
            ShardListeners(lambda each: changes.put(each.ready)),
            issued=issued,
        )
        self.shards.append(shard)
        shard.start()
        assert changes.get(timeout=LIMIT_S), "the shard was not taken"
        return shard

    def writer(self, kind: type[ShardWriter] = ShardWriter, producer: type[ShardProducer] = ShardProducer) -> ShardWriter:
        """A new writer of the shard."""
        return kind(self.clients, producer(self.clients, self.tenant, 0), Layout(1))

    def positions(self, lane: Lane = Lane.TELEMETRY) -> list[StreamPosition]:
        """The stream positions of the committed records of a lane, in order."""
        records = read_committed(self.clients, {(topics.of_lane(lane, self.tenant), 0): None})
        found = (position_of(record.headers, record.value) for record in records)
        return [each for each in found if each]

    def landed(self, lane: Lane = Lane.TELEMETRY) -> list[tuple[str, int]]:
        """Stream and sequence of every committed record of a lane, in order."""
        return [(each.stream, each.last) for each in self.positions(lane)]

    def checkpoint_position(self) -> int | None:
        """The checkpoint's offset in the telemetry topic."""
        return read_checkpoint(self.clients, self.tenant, 0).position.get(topics.telemetry(self.tenant))


class Answers:
    """Outcomes in the order in which the shard's thread settles."""

    def __init__(self):
        self.queue = queue.SimpleQueue()

    def submit(self, shard: Shard, batch: tuple[Range, Message]):
        shard.submit(GatewayBatch(*batch, self.queue.put))

    def next(self, limit_s=LIMIT_S):
        try:
            return self.queue.get(timeout=limit_s)
        except queue.Empty:
            raise AssertionError(f"no answer in {limit_s} s") from None

    def of(self, shard: Shard, first: int, last: int, **other):
        self.submit(shard, make_batch(first, last, **other))
        return self.next()


def batch_of(bench, first, last, **other):
    return make_batch(first, last, tenant=bench.tenant, **other)


def sequences(count):
    return [(STREAM, sequence) for sequence in range(1, count + 1)]


class StumblesOnce(ShardWriter):
    """Raises an unexpected error the first time that it writes a batch."""

    stumbled = False

    def write_batch(self, batch, span, *headers):
        if not StumblesOnce.stumbled:
            StumblesOnce.stumbled = True
            raise ZeroDivisionError("a bug")
        return super().write_batch(batch, span, *headers)
