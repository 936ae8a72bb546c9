"""Takes the commands that applications write to `hono.command.{tenant}`, as a member of the group of all bridges that do.

The position in Kafka passes a record when its command is committed, or the notification that it cannot be delivered. A record
that is read again is the same command. Commands of one device are taken in the order of their records. Whatever goes wrong at
one record ends that command, with a notification, and the others go on.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from functools import partial

from fogline.address import CommandAddress, is_identifier
from fogline.amqp.outcome import DeliveryState, Outcome
from fogline.commands.command import CommandState, Status
from fogline.errors import Poison
from fogline.process.kernel_clock import wall_clock_ms
from fogline.process.log_throttle import LogThrottle
from fogline.process.loop_calls import call_soon
from fogline_cloud.bridge.commands.operators import OperatorHandler
from fogline_cloud.bridge.consumers.consumer_feed import ConsumerFeed
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.bridge.peers.audit_trail import AuditTrail
from fogline_cloud.bridge.peers.peer import Peer
from fogline_cloud.commands.client.refusals import status_of
from fogline_cloud.commands.kafka_form import failure_event
from fogline_cloud.commands.kafka_request import answerable, read_kafka_command, sender
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients, readable
from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.work.command_changes import FailureNotification

WINDOW = 64
WINDOW_BYTES = 4 * 1024 * 1024
"""Commands, and bytes of them, that are not committed yet."""
RETRY_S = 0.5
STOP_S = 5.0
_STATUS = {"not-authorised": int(Status.FORBIDDEN), "too-big": 413}
_UNEXPECTED = 500

_log = logging.getLogger("fogline.commands.kafka")
_log.addFilter(LogThrottle())


class KafkaCommands:
    """Reads and takes commands. All methods run on the loop. The time to live of a command counts from its record on."""

    def __init__(
        self, clients: KafkaClients, settings: CloudSettings, shards: ShardTable, operators: OperatorHandler, audit: AuditTrail
    ) -> None:
        self._clients = clients
        self._tenant = settings.tenant
        self._shards = shards
        self._operators = operators
        self._audit = audit
        self._ttl_ms = int(settings.commands.direct_ttl_s * 1000)
        self._peer = Peer.of_kafka(sender(settings.tenant))
        self._loop = asyncio.get_running_loop()
        self._feed: ConsumerFeed[CommittedRecord] | None = None
        self._queues: dict[bytes, deque[CommittedRecord]] = {}  # by device, the first one being taken
        self._read = self._read_bytes = self._open = self._open_bytes = 0
        self._closed = False

    def start(self) -> None:
        """Join the group."""
        if self._closed:
            return
        self._queues.clear()
        self._read = self._read_bytes = self._open = self._open_bytes = 0
        self._feed = feed = ConsumerFeed(
            self._clients,
            topics.command_group(self._tenant),
            topics.command(self._tenant),
            from_beginning=True,
            select=lambda record: record,
            deliver=partial(call_soon, self._loop, self._deliver),
            failed=partial(call_soon, self._loop, self._fail),
        )
        feed.start()
        self._grant()

    async def close(self) -> None:
        """Leave the group. What is not committed is read again, by another bridge or later."""
        self._closed = self._peer.closed = True
        if self._feed is not None:
            self._feed.stop()
            await asyncio.to_thread(self._feed.join, STOP_S)

    def _fail(self, error: Exception) -> None:
        _log.warning("commands cannot be read from Kafka: %s", readable(error))
        self._loop.call_later(STOP_S, self.start)

    def _grant(self) -> None:
        if self._feed is not None:
            events, size_bytes = self._read + WINDOW - self._open, self._read_bytes + WINDOW_BYTES - self._open_bytes
            self._feed.grant(events, size_bytes)

    def _deliver(self, records: Sequence[CommittedRecord]) -> None:
        for record in records:
            self._read += 1
            self._read_bytes += len(record.value)
            self._open += 1
            self._open_bytes += len(record.value)
            queue = self._queues.setdefault(record.key, deque())
            queue.append(record)
            if len(queue) == 1:
                self._take(self._feed, record)
        self._grant()

    def _take(self, feed: "ConsumerFeed[CommittedRecord] | None", record: CommittedRecord) -> None:
        """Take a command. `feed`: that of the record; a later one has read the record again."""
        if feed is not self._feed or self._closed:
            return
        left_ms = record.time_ms + self._ttl_ms - wall_clock_ms()
        try:
            if left_ms <= 0:
                self._notify(feed, record, int(Status.OFFLINE), "no bridge could take the command in time")
                return
            message = read_kafka_command(record, self._tenant, min(left_ms, self._ttl_ms))
            address = CommandAddress(self._tenant, "")
            self._operators.take(self._peer, message, address, partial(self._on_outcome, feed, record))
        except Poison as error:
            self._notify(feed, record, _STATUS.get(error.reason, 400), str(error))
        except Exception as error:  # noqa: BLE001 - one record must not stop the position
            _log.exception("an unexpected error at the command at %s", _place(record))
            self._notify(feed, record, _UNEXPECTED, f"the bridge failed at it ({type(error).__name__}); its log says why")

    def _on_outcome(self, feed: "ConsumerFeed[CommittedRecord] | None", record: CommittedRecord, outcome: Outcome) -> None:
        if outcome.state is DeliveryState.ACCEPTED:
            self._done(feed, record)
        elif outcome.state is DeliveryState.REJECTED:
            self._notify(feed, record, status_of(outcome), outcome.description)
        else:
            self._loop.call_later(RETRY_S, self._take, feed, record)

    def _notify(self, feed: "ConsumerFeed[CommittedRecord] | None", record: CommittedRecord, status: int, why: str) -> None:
        """Write that a command was not delivered."""
        command, where = answerable(record, self._tenant), _place(record)
        _log.warning("the command at %s is not delivered: %s", where, why, extra={"device": command.device, "reason": status})
        self._audit.note(self._peer.principal, "MESSAGE REFUSED", f"{where}: {why}", name=command.name)
        shard = next((each for each in self._shards if each.ready), None)
        if not command.correlation or not is_identifier(command.device):
            self._done(feed, record)
        elif shard is None:
            self._loop.call_later(RETRY_S, self._take, feed, record)
        else:
            event = failure_event(command, CommandState.REJECTED, status, why, time.time_ns())
            done = partial(call_soon, self._loop, self._done, feed, record)
            given_up = partial(call_soon, self._loop, self._take, feed, record)
            shard.submit(FailureNotification(event, command.failure_headers, done, given_up))

    def _done(self, feed: "ConsumerFeed[CommittedRecord] | None", record: CommittedRecord) -> None:
        if feed is None or feed is not self._feed:
            return
        self._open -= 1
        self._open_bytes -= len(record.value)
        feed.settle((record.topic, record.partition), record.offset)
        queue = self._queues[record.key]
        queue.popleft()
        if queue:
            self._take(feed, queue[0])
        else:
            del self._queues[record.key]
        self._grant()


def _place(record: CommittedRecord) -> str:
    return f"{record.topic}[{record.partition}] {record.offset}"
