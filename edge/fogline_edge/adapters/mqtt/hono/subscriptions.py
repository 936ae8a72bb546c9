"""Eclipse Hono's topic filters for commands, the right to subscribe to them, and the topics of the commands: pure.

| filter | commands for |
|---|---|
| `command///req/#`, `c///q/#` | the client's own device |
| `command//{device}/req/#`, `command/{tenant}/{device}/req/#`, `c/...` | that device |
| the same with `+` for tenant or device | the client's own device, if the client speaks for no other |

A command's topic has the shape of the filter: a level that the filter leaves empty, or has a `+` for, is empty in the topic.
"""

import msgspec

from fogline.address import device_identifier
from fogline.commands.command import Command
from fogline.errors import Poison
from fogline_edge.adapters.mqtt.hono.intake import Client, device_of
from fogline_edge.adapters.mqtt.protocol.primitives import V5, ProtocolError, Reason

MAX_SUBSCRIPTIONS = 256
"""The most subscriptions of one session."""
REQUESTS = {"command": "req", "c": "q"}
"""The first level of a request topic, and its fourth level."""
RESPONSES = {"command": "res", "c": "s"}
"""The first level of a response topic, and its fourth level."""
_SHARED = "$share/"
_QOS = 0x03
_NO_LOCAL = 0x04


class Subscription(msgspec.Struct, frozen=True, array_like=True):
    """A granted subscription. `identifier`: the client's Subscription Identifier (5: 3.8.2.1.2), 0 for none."""

    filter: str
    device: str
    qos: int
    identifier: int = 0

    def topic(self, command: Command) -> str:
        """Return the topic of a command. A command without a reply has no request id (Hono's one-way command)."""
        return f"{self._stem}/{command.id if command.reply else ''}/{command.name}"

    def response_topic(self, command: Command) -> str:
        """Return the topic of the command's response with status 200; the device may put another status in its place."""
        word, tenant, device, _ = self._stem.split("/")
        return f"{word}/{tenant}/{device}/{RESPONSES[word]}/{command.id}/200"

    def matches(self, topic: str) -> bool:
        """Return True if the filter matches a command's topic (5: 4.7.1)."""
        return all(own in ("+", other) for own, other in zip(self.filter.split("/")[:4], topic.split("/"), strict=False))

    @property
    def _stem(self) -> str:
        return self.filter.removesuffix("/#").replace("+", "")


def grant(client: Client, tenant: str, topic_filter: str, options: int, identifier: int = 0) -> Subscription | Reason:
    """Return the granted subscription, or the reason code of its refusal (5: 3.9.3). Raises `ProtocolError`."""
    shared = refuse_shared(topic_filter, options)
    if shared is not None:
        return shared
    match topic_filter.split("/"):
        case [word, tenant_level, device_level, request, "#"] if REQUESTS.get(word) == request:
            found = _device(client, tenant, tenant_level, device_level)
            return found if isinstance(found, Reason) else Subscription(topic_filter, found, options & _QOS, identifier)
    if "+" in topic_filter or "#" in topic_filter:
        return Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED
    return Reason.TOPIC_FILTER_INVALID


class Subscriptions(dict[str, Subscription]):
    """The subscriptions of one session by filter, the newest last."""

    def add(self, client: Client, tenant: str, topic_filter: str, options: int, identifier: int) -> int:
        """SUBSCRIBE to one filter, and return its code for SUBACK. An existing one is replaced [MQTT-3.8.4-3]."""
        found = grant(client, tenant, topic_filter, options, identifier)
        if not isinstance(found, Subscription):
            return found
        if topic_filter not in self and len(self) >= MAX_SUBSCRIPTIONS:
            return Reason.QUOTA_EXCEEDED
        self.pop(topic_filter, None)
        self[topic_filter] = found
        return found.qos

    def remove(self, topic_filter: str) -> int:
        """UNSUBSCRIBE from one filter, and return its code for UNSUBACK."""
        return Reason.NO_SUBSCRIPTION_EXISTED if self.pop(topic_filter, None) is None else Reason.SUCCESS

    def review(self, client: Client, tenant: str) -> None:
        """Remove subscriptions that the present settings do not grant to the client."""
        for each in list(self.values()):
            if grant(client, tenant, each.filter, each.qos, each.identifier) != each:
                del self[each.filter]


def _device(client: Client, tenant: str, tenant_level: str, device_level: str) -> str | Reason:
    if tenant_level not in ("", "+", tenant):
        return Reason.NOT_AUTHORIZED
    if device_level == "+" and client.others is not None:
        return Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED
    named = None if device_level in ("", "+") else device_level
    try:
        device = device_of(client, None) if named is None else device_identifier(named, "device")
        own = named is None or device == device_of(client, None)
    except Poison:
        return Reason.TOPIC_FILTER_INVALID
    may = own or (client.others is not None and client.speaks_for(device))
    return device if may else Reason.NOT_AUTHORIZED


def refuse_shared(topic_filter: str, options: int) -> Reason | None:
    """Return the refusal of a shared subscription, `$share/{name}/{filter}` (5: 4.8.2), None for another filter.

    Raises `ProtocolError`.
    """
    if not topic_filter.startswith(_SHARED):
        return None
    if options & _NO_LOCAL:
        raise ProtocolError("No Local on a shared subscription [MQTT-3.8.3-4]")
    _, name, rest = (*topic_filter.split("/", 2), "", "")[:3]
    well_formed = name and rest and not set(name) & set("+#")
    return Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED if well_formed else Reason.TOPIC_FILTER_INVALID


def suback_code(code: int, version: int) -> int:
    """Return the code for SUBACK: 3.1.1 has one code for every refusal (3.9.3)."""
    return code if version == V5 or code < Reason.UNSPECIFIED else Reason.UNSPECIFIED
