"""Serves AMQP consumers of events: Eclipse Hono's receiver links `telemetry/{tenant}` and `event/{tenant}`, fed from Kafka.

An event is sent when the consumer has credit for it. The position in Kafka passes an event when the consumer has settled it.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from fogline.address import Address, Reports, is_identifier
from fogline.amqp.events import Delivery, Link
from fogline.amqp.native import SELECTOR
from fogline.amqp.outcome import (
    INTERNAL_ERROR,
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT,
    UNAUTHORIZED,
    Condition,
    DeliveryState,
    Outcome,
)
from fogline.amqp.scheduler import Share
from fogline.amqp.sending import Sender
from fogline.errors import Poison
from fogline.message import Message
from fogline.process.log_throttle import LogThrottle
from fogline.process.loop_calls import call_soon
from fogline_cloud.access.policy import Action, Policy
from fogline_cloud.bridge.consumers.consumer_feed import ConsumerFeed
from fogline_cloud.bridge.consumers.event_messages import is_event, message_of, properties_of
from fogline_cloud.bridge.peers.audit_trail import AuditTrail
from fogline_cloud.bridge.peers.peer import LinkHandler, Peer
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients, readable
from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.selector import Condition as Selects
from fogline_cloud.selector import read_selector

WINDOW = 32
WINDOW_BYTES = 4 * 1024 * 1024
"""Events, and bytes of them, that a consumer may leave unsettled, even if it has granted more credit."""
RETRY_S = 1.0
"""Time after which an event that was released or modified is sent again. It doubles with each time, up to a minute."""
STOP_S = 5.0
_TOPICS = {"telemetry": topics.telemetry, "event": topics.event}
_REFUSALS = {"bad-selector": INVALID_FIELD, "many": RESOURCE_LIMIT, "name": NOT_ALLOWED}
_DONE = (DeliveryState.ACCEPTED, DeliveryState.REJECTED, DeliveryState.UNKNOWN)

_log = logging.getLogger("fogline.consumers")
_log.addFilter(LogThrottle())


class SelectedEvent(NamedTuple):
    """An event that goes to a consumer."""

    record: CommittedRecord
    message: Message


class EventConsumer:
    """One receiver link. All methods run on the loop, but `select`, which runs on the feed's thread."""

    def __init__(self, peer: Peer, link: Link, address: Reports, policy: Policy, selects: Selects | None) -> None:
        self.peer = peer
        self.link = link
        self.feed: ConsumerFeed[SelectedEvent] | None = None
        self.sender: Sender | None = None
        self._address = address
        self._policy = policy
        self._selects = selects
        self._loop = asyncio.get_running_loop()
        self._delivered = self._unsettled = 0
        self._delivered_bytes = self._unsettled_bytes = 0
        self._waits_for_quota = False

    def select(self, record: CommittedRecord) -> SelectedEvent | None:
        """Return the event of a record, if the consumer wants it and may have it. Raises `Poison` if it may receive no more."""
        principal, address = self.peer.principal, self._address
        if not self._policy.may(principal, Action.RECEIVE, address):
            raise Poison("not-authorised", f"{principal} may not receive at {address} any more")
        properties = properties_of(record)
        try:
            if not is_event(properties) or (self._selects is not None and self._selects(properties) is not True):
                return None
            device = Reports(address.endpoint, address.tenant, str(properties["device_id"]))
            if not self._policy.may(principal, Action.RECEIVE, device):
                return None
            return SelectedEvent(record, message_of(record, properties, str(address)))
        except Exception:  # noqa: BLE001 - as one that AMQP cannot encode: the consumer goes on with the next event
            _log.exception("%s does not get the event at %s[%d] %d", principal, record.topic, record.partition, record.offset)
            return None

    def on_credit(self) -> None:
        """Let the feed read as many events as the consumer takes, and as its quota allows."""
        if self.feed is None or self.sender is None or self._waits_for_quota:
            return
        room, room_bytes = min(WINDOW - self._unsettled, self.sender.room), WINDOW_BYTES - self._unsettled_bytes
        if (use := self.peer.use) is not None:
            owed_s = use.owed_s(time.monotonic())
            if owed_s:
                self._waits_for_quota = True
                self._loop.call_later(owed_s, self._on_quota)
            # At most a second's worth at a time: the debt must not be so high that what the peer sends is refused.
            room = 0 if owed_s else min(room, max(1, int(use.quota.events_s or room)))
            room_bytes = min(room_bytes, max(1, int(use.quota.bytes_s or room_bytes)))
        self.feed.grant(self._delivered + max(0, room), self._delivered_bytes + max(0, room_bytes))

    def _on_quota(self) -> None:
        self._waits_for_quota = False
        self.on_credit()

    def deliver(self, events: Sequence[SelectedEvent]) -> None:
        """Send events."""
        for each in events:
            size_bytes = len(each.message.body)
            self._delivered += 1
            self._delivered_bytes += size_bytes
            self._unsettled += 1
            self._unsettled_bytes += size_bytes
            self.peer.count(events=1, size_bytes=size_bytes)
            self._send(each, 0)
        self.on_credit()

    def _send(self, event: SelectedEvent, failures: int) -> None:
        if self.sender is None or self.sender.closed:
            return
        try:
            outcome = self.sender.send(event.message)
        except (ValueError, OverflowError) as error:  # AMQP cannot encode it, so a retry would fail too
            _log.warning("an event of %s cannot be sent: %s", event.record.key, error)
            self._settle(event)
        else:
            outcome.add_done_callback(partial(self._on_outcome, event, failures))

    def _on_outcome(self, event: SelectedEvent, failures: int, future: "asyncio.Future[Outcome]") -> None:
        if future.cancelled() or future.exception() is not None:
            return  # the link is gone: the event goes to the next consumer of this name
        if future.result().state in _DONE:
            self._settle(event)
        else:
            self._loop.call_later(min(60.0, RETRY_S * 2**failures), self._send, event, min(failures + 1, 10))

    def _settle(self, event: SelectedEvent) -> None:
        assert self.feed is not None
        record = event.record
        self._unsettled -= 1
        self._unsettled_bytes -= len(event.message.body)
        self.feed.settle((record.topic, record.partition), record.offset)
        self.on_credit()


class ConsumerHandler(LinkHandler):
    """Serves the receiver links of events. All methods run on the loop."""

    def __init__(self, clients: KafkaClients, policy: Policy, audit: AuditTrail, most: int) -> None:
        self._clients = clients
        self._policy = policy
        self._audit = audit
        self._most = most
        self._consumers: dict[Link, EventConsumer] = {}
        self._loop = asyncio.get_running_loop()

    def attach(self, peer: Peer, link: Link, address: Address) -> None:
        """See `LinkHandler`."""
        assert isinstance(address, Reports)
        try:
            consumer = self._consumer(peer, link, address)
        except Poison as error:
            peer.links.discard(link)
            peer.connection.refuse_link(link, Condition(_REFUSALS.get(error.reason, NOT_IMPLEMENTED), str(error)))
            return
        selector = link.filters.get(SELECTOR, "")
        subscription = [hashlib.blake2b(selector.encode(), digest_size=8).hexdigest()] if selector else []
        feed = consumer.feed = ConsumerFeed(
            self._clients,
            topics.consumer_group(address.tenant, peer.principal.name, address.endpoint, *subscription),
            _TOPICS[address.endpoint](address.tenant),
            from_beginning=address.endpoint == "event",
            select=consumer.select,
            deliver=partial(call_soon, self._loop, consumer.deliver),
            failed=partial(call_soon, self._loop, self._fail, link),
        )
        self._consumers[link] = consumer
        self._audit.note(peer.principal, "CONSUMER ATTACHED", selector and f"selector {selector}", name=str(address))
        consumer.sender = peer.connection.accept_link(link, share=Share(), on_credit=consumer.on_credit)
        feed.start()
        consumer.on_credit()

    def _consumer(self, peer: Peer, link: Link, address: Reports) -> EventConsumer:
        """Raises `Poison` for a link that cannot be served."""
        if address.device:
            raise Poison("one-device", f"receive at {address.endpoint}/{address.tenant}, with a selector: device_id = '...'")
        if others := sorted(link.filters.keys() - {SELECTOR}):
            raise Poison("filter", f"filter {others[0]} is not supported: only {SELECTOR}")
        if not is_identifier(peer.principal.name):
            raise Poison("name", "a consumer needs a name (container id) of 1 to 64 of A-Z a-z 0-9 . _ : -")
        if len(self._consumers) >= self._most:
            raise Poison("many", f"at most {self._most} links receive events at this bridge (bridge.max_consumers)")
        selector = link.filters.get(SELECTOR)
        return EventConsumer(peer, link, address, self._policy, read_selector(selector) if selector else None)

    def _fail(self, link: Link, error: Exception) -> None:
        """End a link whose events cannot be read, or that may receive none any more."""
        consumer = self._consumers.pop(link, None)
        if consumer is None:
            return
        peer, why = consumer.peer, readable(error)
        if isinstance(error, Poison):
            self._audit.note(peer.principal, "LINK REFUSED", why, name=link.address)
        peer.links.discard(link)
        peer.connection.refuse_link(link, Condition(UNAUTHORIZED if isinstance(error, Poison) else INTERNAL_ERROR, why))

    def received(self, peer: Peer, delivery: Delivery, message: Message, address: Address) -> None:
        """See `LinkHandler`. Nothing is received on these links."""

    def detached(self, link: Link | None) -> None:
        """See `LinkHandler`."""
        for each, consumer in list(self._consumers.items()):
            if each is link or each.closed:
                del self._consumers[each]
                if consumer.feed is not None:
                    consumer.feed.stop()

    async def close(self) -> None:
        """Stop all feeds, after their connections have ended."""
        feeds = [consumer.feed for consumer in self._consumers.values() if consumer.feed is not None]
        self._consumers.clear()
        for feed in feeds:
            feed.stop()
        for feed in feeds:
            await asyncio.to_thread(feed.join, STOP_S)
