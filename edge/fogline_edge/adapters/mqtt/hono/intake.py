"""Turns a PUBLISH into an `Arrival`: pure, and never an error. An unacceptable message becomes a dead letter."""

import re
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from fogline.address import device_identifier, shown
from fogline.dead_letter import dead_letter
from fogline.documents.media_type import event_type, is_media_type
from fogline.errors import Poison
from fogline.events.event import Arrival, parse_rfc3339
from fogline.events.identity import Retransmission, UniqueId
from fogline_edge.adapters.device_acl import DeviceAcl
from fogline_edge.adapters.mqtt.counters import MqttCounters
from fogline_edge.adapters.mqtt.hono.topics import Topics, TopicTarget
from fogline_edge.adapters.mqtt.protocol.packets import Publish
from fogline_edge.adapters.mqtt.protocol.primitives import Reason
from fogline_edge.adapters.mqtt.protocol.properties import NONE, Properties

ADAPTER = "mqtt"
ClientKey = tuple[str, str]
"""User name (empty without login) and Client Identifier: no user can take over another user's session."""

_CODES = {
    "bad-topic": Reason.TOPIC_NAME_INVALID,
    "bad-identifier": Reason.TOPIC_NAME_INVALID,
    "foreign-tenant": Reason.NOT_AUTHORIZED,
    "not-authorised": Reason.NOT_AUTHORIZED,
    "reserved-content-type": Reason.NOT_AUTHORIZED,
    "bad-status": Reason.TOPIC_NAME_INVALID,
}
_CACHED = 4096
_MAX_TIME_NS = 2**63 - 1
_CLOUD_EVENT = frozenset({"specversion", "id", "time"})  # user properties that are read as a CloudEvent's attributes
MAX_PROPERTIES = 4096
"""The most characters of an event's `properties`."""


class Client(msgspec.Struct, frozen=True):
    """A connected client. `name`: the device that it logged in as. `others`: the names of further ones that it speaks for."""

    id: str
    name: str | None = None
    others: re.Pattern[str] | None = None

    def speaks_for(self, device: str) -> bool:
        """Return True if the client may publish, subscribe and respond for `device`. Without a login it may for any."""
        if self.name is None or device == self.name:
            return True
        return self.others is not None and self.others.fullmatch(device) is not None

    @property
    def key(self) -> ClientKey:
        """The name of this client's session."""
        return self.name or "", self.id

    @property
    def slot(self) -> bytes:
        """The prefix of this client's retransmission slots. U+0000 separates the parts, because no part can contain it."""
        return f"{ADAPTER}\0{self.name or ''}\0{self.id}\0".encode()


class _ResolvedTopic(NamedTuple):
    """A topic as one client uses it."""

    device: str
    target: TopicTarget
    content_type: str | None


class PublishIntake:
    """Turns the PUBLISH packets of one gateway's clients into arrivals. Counts `properties_dropped` in `counters`."""

    def __init__(
        self, tenant: str, gateway: str, topics: Topics, counters: MqttCounters | None = None, acl: DeviceAcl | None = None
    ) -> None:
        self.tenant = tenant
        self.gateway = gateway
        self._topics = topics
        self._acl = acl or DeviceAcl({}, "mqtt.acl")
        self._counters = counters or MqttCounters()
        self._resolved: dict[tuple[bytes, str], _ResolvedTopic] = {}

    def client(self, client_id: str, username: str | None) -> Client:
        """Return the client. `username`: `device` or `device@tenant`. Raises `Poison` (`foreign-tenant`, `bad-identifier`)."""
        if username is None:
            device_identifier(client_id, "client id")
            return Client(client_id)
        name, at, tenant = username.rpartition("@")
        if at and tenant != self.tenant:
            raise Poison("foreign-tenant", f"user {shown(username)} does not belong to tenant {self.tenant}")
        device = device_identifier(name if at else username, "user")
        return Client(client_id, device, self._acl.others(device))

    def arrival(self, client: Client, publish: Publish, slot: bytes, *, again: bool = False) -> tuple[Arrival, int]:
        """Return the arrival to store, and the reason code of its PUBACK or PUBREC (5: 3.4.2.1).

        `slot`: the retransmission slot, empty for a will. `again`: it may be a retransmission even without the DUP flag.
        """
        packet_id = publish.packet_id
        retransmission = Retransmission(slot, publish.dup or again, number=packet_id) if packet_id else None
        try:
            if slot and publish.properties is NONE:
                return self._plain(client, publish, slot, retransmission), Reason.SUCCESS
            return self._arrival(client, publish, retransmission), Reason.SUCCESS
        except Poison as error:
            return self.dead(error, client, publish, retransmission)

    def dead(
        self, error: Poison, client: Client, publish: Publish, retransmission: Retransmission | None
    ) -> tuple[Arrival, int]:
        """Return the dead letter of an unacceptable message, and the reason code of its PUBACK or PUBREC."""
        letter = dead_letter(
            error,
            gateway=self.gateway,
            adapter=ADAPTER,
            sender=client.name or client.id,
            channel=publish.topic,
            data=publish.payload,
            retransmission=retransmission,
        )
        return letter, _CODES.get(error.reason, Reason.IMPLEMENTATION_SPECIFIC)

    def _plain(self, client: Client, publish: Publish, slot: bytes, retransmission: Retransmission | None) -> Arrival:
        """Return the arrival of a message without properties. Everything but its payload is cached by `slot` and topic."""
        key = (slot, publish.topic)
        resolved = self._resolved.get(key)
        if resolved is None:
            target = self._topics.resolve(publish.topic)
            resolved = _ResolvedTopic(device_of(client, target.device), target, media_type(target.content_type))
            if len(self._resolved) >= _CACHED:
                self._resolved.clear()
            self._resolved[key] = resolved
        device, target, content_type = resolved
        return Arrival(
            device=device,
            channel=target.channel,
            lane=target.lane,
            type=target.type,
            content_type=event_type(None, content_type, publish.payload),
            data=publish.payload,
            adapter=ADAPTER,
            retransmission=retransmission,
            properties=target.properties,
        )

    def _arrival(self, client: Client, publish: Publish, retransmission: Retransmission | None) -> Arrival:
        target = self._topics.resolve(publish.topic)
        properties = publish.properties
        return Arrival(
            device=device_of(client, target.device),
            channel=target.channel,
            lane=target.lane,
            type=target.type,
            content_type=_content_type(target, properties.content_type, publish.payload),
            data=publish.payload,
            adapter=ADAPTER,
            time_ns=_time_ns(properties),
            evidence=_evidence(properties),
            retransmission=retransmission,
            expiry_s=properties.message_expiry_s,
            properties=self._extra_properties(target, properties),
        )

    def _extra_properties(self, target: TopicTarget, properties: Properties) -> str | None:
        """Return the property bag and the user properties as one URL query, or `None` if it is empty or too long."""
        read = _CLOUD_EVENT if _attribute(properties, "specversion") else {"time"}
        user = urlencode([each for each in properties.user if each[0] not in read])
        query = "&".join(filter(None, (target.properties, user)))
        if len(query) > MAX_PROPERTIES:
            self._counters.properties_dropped += 1
            return None
        return query or None


def device_of(client: Client, named: str | None) -> str:
    """Return device `named`, or else the client's own. Raises `Poison` (`not-authorised`, `bad-identifier`)."""
    if named is None:
        return client.name or device_identifier(client.id, "client id")
    if not client.speaks_for(named):
        raise Poison("not-authorised", f"{client.name} does not speak for device {named}: mqtt.acl names no such device")
    return named


def _content_type(target: TopicTarget, declared: str | None, payload: bytes) -> str:
    """Return the content type of the message (5: 3.3.2.3.9), or else of its topic. One that is no media type is ignored."""
    return event_type(media_type(declared), media_type(target.content_type), payload)


def media_type(given: str | None) -> str | None:
    """Return `given` if it is a media type, else `None`. Raises `Poison('reserved-content-type')` for the gateway's own."""
    return given if given is not None and is_media_type(given) else None


def _evidence(properties: Properties) -> UniqueId | None:
    """Return the `id` of a CloudEvent in binary mode (CloudEvents MQTT binding 1.0, section 3.1)."""
    event_id = _attribute(properties, "id")
    return UniqueId(event_id.encode()) if event_id and _attribute(properties, "specversion") else None


def _time_ns(properties: Properties) -> int | None:
    """Return the device's own time, or `None` if it is absent, unreadable, or not between 1970 and 2262."""
    time = _attribute(properties, "time")
    if time is None:
        return None
    try:
        time_ns = parse_rfc3339(time)
    except (ValueError, OverflowError):
        return None
    return time_ns if 0 <= time_ns <= _MAX_TIME_NS else None


def _attribute(properties: Properties, name: str) -> str | None:
    return next((value for key, value in properties.user if key == name), None)
