"""Events from any AMQP 1.0 client: `telemetry/{tenant}/{device}` and `event/{tenant}/{device}`.

One message is one event, its body one Data section (or a string). CloudEvents attributes in application properties
(CloudEvents AMQP binding, binary mode: `cloudEvents:id` or `cloudEvents_id`) are optional. Without an id a message
that is sent again lands again (at least once); with one it is one row of the tables, however often it is sent.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from functools import partial

from fogline import address
from fogline.amqp.events import Delivery, Link
from fogline.amqp.outcome import RELEASED, Outcome
from fogline.errors import Poison
from fogline.event import Event, Lane, TimeQuality, parse_rfc3339, rfc3339
from fogline.identity import Dedup, semantic_id
from fogline.media_type import check_media_type
from fogline.message import Message
from fogline_cloud.bridge.gateways import Shards, ready_shard
from fogline_cloud.bridge.guest import Guest
from fogline_cloud.bridge.work import Report

OCTETS = "application/octet-stream"
CREDIT = 200
"""Messages that a client may have on their way on one link."""
_LANES = {"telemetry": Lane.TELEMETRY, "event": Lane.ALARM}
_TYPES = {Lane.TELEMETRY: "telemetry", Lane.ALARM: "alarm"}
_MAX_TEXT = 256


class ReportDesk:
    """Serves `telemetry/` and `event/`."""

    def __init__(self, shards: Shards, shard_count: int) -> None:
        self._shards = shards
        self._shard_count = shard_count
        self._loop = asyncio.get_running_loop()

    def attach(self, guest: Guest, link: Link, place: address.Address) -> None:
        """See `Desk`."""
        guest.addresses[link] = place
        guest.connection.accept_link(link, credit=CREDIT)

    def received(self, guest: Guest, delivery: Delivery, message: Message, place: address.Address) -> None:
        """See `Desk`."""
        assert isinstance(place, address.Reports)
        event = event_of(message, place, time.time_ns())
        shard = ready_shard(self._shards, address.shard_of(event.device, self._shard_count))
        if shard is None:
            guest.settle(delivery, RELEASED)
            return
        answer: Callable[[Outcome], None] = partial(self._from_thread, guest, delivery)
        guest.queue(delivery, message)
        shard.submit(Report(event, answer))

    def detached(self, guest: Guest, link: Link) -> None:
        """See `Desk`."""

    def gone(self, guest: Guest) -> None:
        """See `Desk`."""

    def _from_thread(self, guest: Guest, delivery: Delivery, outcome: Outcome) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(guest.settle, delivery, outcome)


def event_of(message: Message, place: address.Reports, now_ns: int) -> Event:
    """A client's message as an event. Raises `Poison`.

    Its reason is `bad-identifier`, `bad-content-type`, `reserved-content-type` or `malformed`.
    """
    device = device_of(message, place)
    lane = _LANES[place.endpoint]
    content_type = message.content_type or _attribute(message, "datacontenttype") or OCTETS
    channel = message.subject or _attribute(message, "subject") or place.endpoint
    own_id = _attribute(message, "id")
    source = _attribute(message, "source") or ""
    if own_id:
        event_id = semantic_id(1, place.tenant, device, channel, source.encode(), own_id.encode())
    else:
        event_id = semantic_id(5, place.tenant, device, channel, secrets.token_bytes(16))
    return Event(
        id=event_id,
        tenant=place.tenant,
        device=device,
        type=_attribute(message, "type") or _TYPES[lane],
        subject=channel[:1024],
        recordedtime=rfc3339(now_ns),
        content_type=check_media_type(content_type),
        data=message.body,
        gateway="",
        stream="",
        sequence=0,
        lane=lane,
        timequality=TimeQuality.SYNCED,
        dedup=Dedup.STRONG if own_id else Dedup.WEAK,
        adapter="amqp",
        time=_time(_attribute(message, "time")),
        expirytime=rfc3339(now_ns + message.ttl_ms * 1_000_000) if message.ttl_ms else None,
    )


def device_of(message: Message, place: address.Reports | address.Commands) -> str:
    """The device that a message is about: by its `to`, else the link's address, else the property `device_id`.

    Raises `Poison` (`bad-address`, `bad-identifier`, `not-authorised`).
    """
    told: object = place.device or message.properties.get("device_id")
    if message.to:
        to = address.parse_address(message.to)
        if not isinstance(to, type(place)) or to.tenant != place.tenant or (place.device and to.device != place.device):
            raise Poison("not-authorised", f"a message to {to} on a link for {place}")
        told = to.device or told
    if not isinstance(told, str):
        raise Poison("bad-identifier", "no device: send to .../{tenant}/{device}, or set the property device_id")
    return address.check_identifier(told, "device")


def _attribute(message: Message, name: str) -> str | None:
    """A CloudEvents attribute (CloudEvents AMQP binding 1.0, section 3.1.3)."""
    for prefix in ("cloudEvents:", "cloudEvents_"):
        value = message.properties.get(prefix + name)
        if isinstance(value, str) and value:
            if len(value) > _MAX_TEXT:
                raise Poison("malformed", f"cloudEvents attribute {name} is over {_MAX_TEXT} characters")
            return value
    return None


def _time(told: str | None) -> str | None:
    if told is None:
        return None
    try:
        return rfc3339(parse_rfc3339(told))
    except (ValueError, OverflowError) as error:
        raise Poison("malformed", f"cloudEvents attribute time is not RFC 3339: {error}") from None
