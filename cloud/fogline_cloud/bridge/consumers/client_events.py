"""Events from any AMQP 1.0 client: `telemetry/{tenant}/{device}` and `event/{tenant}/{device}`.

One message is one event. CloudEvents attributes may be application properties (CloudEvents AMQP binding, binary mode). A
message with an id becomes one row of the tables, however often it is sent; without an id, each copy becomes an event.
"""

import asyncio
import secrets
import time
from functools import partial
from urllib.parse import urlencode

from msgspec.structs import replace

from fogline.address import Address, Reports
from fogline.amqp.events import Delivery, Link
from fogline.amqp.outcome import RELEASED
from fogline.documents.media_type import check_encoding, check_media_type, check_payload, event_type
from fogline.errors import Poison
from fogline.events.event import Event, Lane, TimeQuality, parse_rfc3339, rfc3339
from fogline.events.identity import Dedup, semantic_id
from fogline.message import Message
from fogline.process.loop_calls import call_soon
from fogline.tracing.spans import ExportSpans
from fogline_cloud.access.policy import Action, Policy
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.bridge.peers.forwarding import Forwarder
from fogline_cloud.bridge.peers.peer import LinkHandler, Peer
from fogline_cloud.device_address import device_of
from fogline_cloud.shard.work.land_trace import LandTrace
from fogline_cloud.shard.work.submissions import ClientEvent

CREDIT = 200
"""Messages that a client may have in flight on one link."""
_LANES = {"telemetry": Lane.TELEMETRY, "event": Lane.ALARM}
_TYPES = {Lane.TELEMETRY: "telemetry", Lane.ALARM: "alarm"}
_MAX_TEXT = 256
MAX_PROPERTIES = 4096
"""Longest `properties` of an event, in characters. With longer ones it has none, as an event of MQTT."""
_PREFIXES = ("cloudEvents:", "cloudEvents_")
_OF_EVENT = frozenset({"specversion", "id", "source", "type", "subject", "time", "datacontenttype"})
"""CloudEvents attributes that an event has as such."""


class ClientEventHandler(LinkHandler):
    """Serves `telemetry/` and `event/`. `export`: takes the spans of landed events."""

    def __init__(self, shards: ShardTable, policy: Policy, forwarder: Forwarder, export: ExportSpans | None = None) -> None:
        self._shards = shards
        self._forwarder = forwarder
        self._policy = policy
        self._export = export
        self._loop = asyncio.get_running_loop()

    def attach(self, peer: Peer, link: Link, address: Address) -> None:
        """See `LinkHandler`."""
        peer.accept_link(link, address, CREDIT)

    def received(self, peer: Peer, delivery: Delivery, message: Message, address: Address) -> None:
        """See `LinkHandler`."""
        assert isinstance(address, Reports)
        event = event_of(message, address, time.time_ns())
        own = Reports(address.endpoint, address.tenant, event.device)
        if not self._policy.may(peer.principal, Action.SEND, own):
            raise Poison("not-authorised", f"{peer.principal} may not send events of device {event.device}")
        peer.check_quota()
        peer.count(events=1, size_bytes=len(message.body))
        number = self._shards.number_of(event.device)
        shard = self._shards.ready(number)
        if shard is None and (peer.forwarded or number in self._shards.owned):
            peer.settle(delivery, RELEASED)
            return
        peer.queue(delivery, message)
        if shard is None:
            self._forwarder.send(peer, replace(message, to=str(own)), number, partial(peer.settle, delivery))
            return
        trace = LandTrace(self._export) if self._export is not None else None
        shard.submit(ClientEvent(event, partial(call_soon, self._loop, peer.settle, delivery), trace))


def event_of(message: Message, address: Reports, now_ns: int) -> Event:
    """Return the event in a client's message. Raises `Poison`: as `device_of`, as `media_type`, and `malformed`."""
    device = device_of(message, address)
    lane = _LANES[address.endpoint]
    given = message.content_type or _attribute(message, "datacontenttype")
    check_encoding(message.content_encoding)
    check_payload(given, message.body)
    channel = message.subject or _attribute(message, "subject") or address.endpoint
    own_id = _attribute(message, "id")
    source = _attribute(message, "source") or ""
    if own_id:
        event_id = semantic_id(1, address.tenant, device, channel, source.encode(), own_id.encode())
    else:
        event_id = semantic_id(5, address.tenant, device, channel, secrets.token_bytes(16))
    return Event(
        id=event_id,
        tenant=address.tenant,
        device=device,
        type=_attribute(message, "type") or _TYPES[lane],
        subject=channel[:1024],
        recordedtime=rfc3339(now_ns),
        content_type=check_media_type(event_type(given, None, message.body)),
        data=message.body,
        gateway="",
        stream="",
        sequence=0,
        lane=lane,
        timequality=TimeQuality.SYNCED,
        dedup=Dedup.STRONG if own_id else Dedup.WEAK,
        adapter="amqp",
        time=_event_time(message),
        expirytime=rfc3339(now_ns + message.ttl_ms * 1_000_000) if message.ttl_ms else None,
        properties=_properties(message),
    )


def _properties(message: Message) -> str | None:
    """Return the application properties as one URL query, or None if it is empty or too long.

    Further attributes of CloudEvents, such as `cloudEvents_traceparent`, come last and without their prefix.
    """
    own: list[tuple[str, str]] = []
    attributes: list[tuple[str, str]] = []
    for name, value in message.properties.items():
        if not isinstance(value, str | int | float) or name == "device_id":
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        prefix = next(filter(name.startswith, _PREFIXES), "")
        plain = name.removeprefix(prefix)
        if not prefix:
            own.append((name, text))
        elif plain not in _OF_EVENT:
            attributes.append((plain, text))
    query = urlencode([*own, *attributes])
    return query if 0 < len(query) <= MAX_PROPERTIES else None


def _attribute(message: Message, name: str) -> str | None:
    """Return a CloudEvents attribute (CloudEvents AMQP binding 1.0, section 3.1.3). Raises `Poison`."""
    for prefix in _PREFIXES:
        value = message.properties.get(prefix + name)
        if isinstance(value, str) and value:
            if len(value) > _MAX_TEXT:
                raise Poison("malformed", f"cloudEvents attribute {name} is over {_MAX_TEXT} characters")
            return value
    return None


def _event_time(message: Message) -> str | None:
    text = _attribute(message, "time")
    try:
        return rfc3339(parse_rfc3339(text)) if text is not None else None
    except (ValueError, OverflowError) as error:
        raise Poison("malformed", f"cloudEvents attribute time is not RFC 3339: {error}") from None
