"""A PUBLISH, and who sent it, to an `Arrival`: pure, and never an error. What can never be taken becomes a dead letter."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from fogline.address import check_identifier, shown
from fogline.dead import dead_letter
from fogline.errors import Poison
from fogline.event import Arrival, parse_rfc3339
from fogline.identity import Retransmission, UniqueId
from fogline.media_type import is_media_type
from fogline_edge.adapters.mqtt.counters import Counters
from fogline_edge.adapters.mqtt.packets import Publish
from fogline_edge.adapters.mqtt.properties import NONE, Properties
from fogline_edge.adapters.mqtt.topics import Target, Topics
from fogline_edge.adapters.mqtt.wire import Reason
from fogline_edge.profiles.names import device_identifier

ADAPTER = "mqtt"
JSON = "application/json"
OCTETS = "application/octet-stream"

_CODES = {
    "bad-topic": Reason.TOPIC_NAME_INVALID,
    "bad-identifier": Reason.TOPIC_NAME_INVALID,
    "foreign-tenant": Reason.NOT_AUTHORIZED,
    "not-authorised": Reason.NOT_AUTHORIZED,
    "reserved-content-type": Reason.NOT_AUTHORIZED,
    "bad-status": Reason.TOPIC_NAME_INVALID,
}
_JSON_BEGINS = (b"{", b"[")
_CACHED = 4096
_MAX_TIME_NS = 2**63 - 1
_CLOUD_EVENT = frozenset({"specversion", "id", "time"})
"""The user properties that are read as a CloudEvent's attributes."""
MAX_PROPERTIES = 4096
"""The most characters that an event's `properties` may have."""


class Client(msgspec.Struct, frozen=True):
    """Who publishes. `name`: the device as whom it logged in, `None` where nobody has to; `id`: its client id."""

    id: str
    name: str | None = None
    for_others: bool = False

    @property
    def slot(self) -> bytes:
        """What a resend of this client would carry again, before the packet id. Neither part can hold U+0000."""
        return f"{ADAPTER}\0{self.name or ''}\0{self.id}\0".encode()


class Meaning(NamedTuple):
    """What a topic means from a client: for whom it speaks, what the topic stands for, the media type that it declares."""

    device: str
    target: Target
    content_type: str | None


class Intake:
    """Turns PUBLISH packets of one gateway's clients into arrivals. Counts `properties_dropped` in `counters`."""

    def __init__(self, tenant: str, gateway: str, topics: Topics, counters: Counters | None = None) -> None:
        self.tenant = tenant
        self.gateway = gateway
        self._topics = topics
        self._counters = counters or Counters()
        self._meanings: dict[tuple[bytes, str], Meaning] = {}

    def client(self, client_id: str, username: str | None, publish_for_others: Sequence[str]) -> Client:
        """Who a client is. `username`: as it logged in (`device` or Hono's `device@tenant`), `None`: nobody logs in.

        Raises `Poison` (`foreign-tenant`, `bad-identifier`) for a name that no device of this gateway has.
        """
        if username is None:
            return Client(client_id)
        name, at, tenant = username.rpartition("@")
        if at and tenant != self.tenant:
            raise Poison("foreign-tenant", f"user {shown(username)} is of another tenant than {self.tenant}")
        device = check_identifier(name if at else username, "user")
        return Client(client_id, device, device in publish_for_others or username in publish_for_others)

    def arrival(self, client: Client, publish: Publish, slot: bytes, *, again: bool = False) -> tuple[Arrival, int]:
        """What to store, and the reason code for its PUBACK or PUBREC (5: 3.4.2.1).

        `slot`: whose packet ids these are, empty for a will. `again`: it may have been sent before, whatever its DUP flag says.
        """
        number = publish.packet_id
        retransmission = Retransmission(slot, publish.dup or again, number=number) if number else None
        try:
            if slot and publish.properties is NONE:
                return self._plain(client, publish, slot, retransmission), Reason.SUCCESS
            return self._arrival(client, publish, retransmission), Reason.SUCCESS
        except Poison as error:
            return self.dead(error, client, publish, retransmission)

    def dead(
        self, error: Poison, client: Client, publish: Publish, retransmission: Retransmission | None
    ) -> tuple[Arrival, int]:
        """The dead letter of a message that can never be taken, and its reason code."""
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
        """One without properties: all but its payload was the same the last time. `slot` stands for the client."""
        key = (slot, publish.topic)
        meaning = self._meanings.get(key)
        if meaning is None:
            target = self._topics.resolve(publish.topic)
            meaning = Meaning(device_of(client, target.device), target, media_type(target.content_type))
            if len(self._meanings) >= _CACHED:
                self._meanings.clear()
            self._meanings[key] = meaning
        device, target, content_type = meaning
        payload = publish.payload
        return Arrival(
            device=device,
            channel=target.channel,
            lane=target.lane,
            type=target.type,
            content_type=content_type or (JSON if payload[:1] in _JSON_BEGINS else OCTETS),
            data=payload,
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
            properties=self._beside(target, properties),
        )

    def _beside(self, target: Target, properties: Properties) -> str | None:
        """What the topic and the user properties say beside the payload; nothing if it is too much."""
        read = _CLOUD_EVENT if _attribute(properties, "specversion") else {"time"}
        told = urlencode([each for each in properties.user if each[0] not in read])
        found = "&".join(filter(None, (target.properties, told)))
        if len(found) > MAX_PROPERTIES:
            self._counters.properties_dropped += 1
            return None
        return found or None


def own_device(client: Client) -> tuple[str, ...]:
    """The client's own device, or nothing if its client id cannot name one."""
    try:
        return (device_of(client, None),)
    except Poison:
        return ()


def device_of(client: Client, named: str | None) -> str:
    """For whom the client speaks where a topic names this device (`None`: nobody). Raises `Poison`, if it may not."""
    if named is None:
        return client.name or device_identifier(client.id, "client id")
    if client.name is not None and client.name != named and not client.for_others:
        raise Poison("not-authorised", f"user {client.name} may not publish for device {named}")
    return named


def _content_type(target: Target, told: str | None, payload: bytes) -> str:
    """What the message says (5: 3.3.2.3.9), else what its topic says.

    Hono's default is `application/octet-stream`; 3.1.1 clients cannot say better, and nearly all of them send JSON.
    So where nobody says, the first byte decides between that and JSON. It decides what parsers try, and no more: the
    bytes stay as they are.
    """
    for given in (told, target.content_type):
        if given is not None and is_media_type(given):
            return given
    return JSON if payload[:1] in _JSON_BEGINS else OCTETS


def media_type(given: str | None) -> str | None:
    """`given`, if it is a media type. Raises `Poison('reserved-content-type')` for the gateway's own."""
    return given if given is not None and is_media_type(given) else None


def _evidence(properties: Properties) -> UniqueId | None:
    """The `id` of a CloudEvent in binary mode (CloudEvents MQTT binding 1.0, section 3.1)."""
    event_id = _attribute(properties, "id")
    return UniqueId(event_id.encode()) if event_id and _attribute(properties, "specversion") else None


def _time_ns(properties: Properties) -> int | None:
    """The device's own time. One that cannot be read, or is not between 1970 and 2262, is left out."""
    told = _attribute(properties, "time")
    if told is None:
        return None
    try:
        time_ns = parse_rfc3339(told)
    except (ValueError, OverflowError):
        return None
    return time_ns if 0 <= time_ns <= _MAX_TIME_NS else None


def _attribute(properties: Properties, name: str) -> str | None:
    for key, value in properties.user:
        if key == name:
            return value
    return None
