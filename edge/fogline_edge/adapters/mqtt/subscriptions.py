"""Topic filters for commands (Eclipse Hono's), who may have them, and the topics that commands go to: pure.

| filter | stands for |
|---|---|
| `command///req/#`, `c///q/#` | the client's own device |
| `command//{device}/req/#`, `command/{tenant}/{device}/req/#`, `c/...` | that device |
| the same with `+` for tenant or device | the client's own device, if it may have no other |

A command goes to a topic of the same shape: what the filter leaves out, or has a `+` for, is empty in the topic.
"""

import msgspec

from fogline.command import Command
from fogline.errors import Poison
from fogline_edge.adapters.mqtt.intake import Client, device_of
from fogline_edge.adapters.mqtt.wire import V5, ProtocolError, Reason
from fogline_edge.profiles.names import device_identifier

MAX_SUBSCRIPTIONS = 256
"""How many subscriptions one session may have."""
REQUESTS = {"command": "req", "c": "q"}
"""A command topic's first word, and the word for requests that goes with it."""
RESPONSES = {"command": "res", "c": "s"}
_SHARED = "$share/"
_QOS = 0x03
_NO_LOCAL = 0x04


class Subscription(msgspec.Struct, frozen=True, array_like=True):
    """One that was granted. `number`: the client's subscription identifier (5: 3.8.2.1.2), 0 for none."""

    filter: str
    device: str
    qos: int
    number: int = 0

    def topic(self, command: Command) -> str:
        """Where a command goes; one without a reply has no request id (Hono's one-way command)."""
        return f"{self._stem}/{command.id if command.reply else ''}/{command.name}"

    def response_topic(self, command: Command) -> str:
        """Where its answer is awaited: this one says 200, another status may be put in its place."""
        word, tenant, device, _ = self._stem.split("/")
        return f"{word}/{tenant}/{device}/{RESPONSES[word]}/{command.id}/200"

    def matches(self, topic: str) -> bool:
        """Whether the filter takes a command's topic (5: 4.7.1)."""
        return all(own in ("+", other) for own, other in zip(self.filter.split("/")[:4], topic.split("/"), strict=False))

    @property
    def _stem(self) -> str:
        return self.filter.removesuffix("/#").replace("+", "")


def grant(client: Client, tenant: str, topic_filter: str, options: int, number: int = 0) -> Subscription | Reason:
    """The subscription that a client gets, or why it gets none (5: 3.9.3). Raises `ProtocolError`."""
    if topic_filter.startswith(_SHARED):
        if options & _NO_LOCAL:
            raise ProtocolError("No Local on a shared subscription [MQTT-3.8.3-4]")
        return _shared(topic_filter)
    match topic_filter.split("/"):
        case [word, of_tenant, of_device, request, "#"] if REQUESTS.get(word) == request:
            found = _device(client, tenant, of_tenant, of_device)
            if isinstance(found, Reason):
                return found
            return Subscription(topic_filter, found, options & _QOS, number)
    if "+" in topic_filter or "#" in topic_filter:
        return Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED
    return Reason.TOPIC_FILTER_INVALID


class Subscriptions(dict[str, Subscription]):
    """Those of one session, by filter; the newest is the last."""

    def add(self, client: Client, tenant: str, topic_filter: str, options: int, number: int) -> int:
        """SUBSCRIBE to one filter: what SUBACK says of it. One that is there already is replaced [MQTT-3.8.4-3]."""
        found = grant(client, tenant, topic_filter, options, number)
        if not isinstance(found, Subscription):
            return found
        if topic_filter not in self and len(self) >= MAX_SUBSCRIPTIONS:
            return Reason.QUOTA_EXCEEDED
        self.pop(topic_filter, None)
        self[topic_filter] = found
        return found.qos

    def remove(self, topic_filter: str) -> int:
        """UNSUBSCRIBE from one filter: what UNSUBACK says of it."""
        return Reason.NO_SUBSCRIPTION_EXISTED if self.pop(topic_filter, None) is None else Reason.SUCCESS

    def review(self, client: Client, tenant: str) -> None:
        """Drop those that would not be granted today."""
        for each in list(self.values()):
            if grant(client, tenant, each.filter, each.qos, each.number) != each:
                del self[each.filter]


def _device(client: Client, tenant: str, of_tenant: str, of_device: str) -> str | Reason:
    if of_tenant not in ("", "+", tenant):
        return Reason.NOT_AUTHORIZED
    if of_device == "+" and client.for_others:
        return Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED
    named = None if of_device in ("", "+") else of_device
    try:
        device = device_of(client, None) if named is None else device_identifier(named, "device")
        own = named is None or client.for_others or device == device_of(client, None)
    except Poison:
        return Reason.TOPIC_FILTER_INVALID
    return device if own else Reason.NOT_AUTHORIZED


def _shared(topic_filter: str) -> Reason:
    """`$share/{name}/{filter}` (5: 4.8.2) is not given here, and one that is none of those is not well-formed."""
    _, name, rest = (*topic_filter.split("/", 2), "", "")[:3]
    well_formed = name and rest and not set(name) & set("+#")
    return Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED if well_formed else Reason.TOPIC_FILTER_INVALID


def told(code: int, version: int) -> int:
    """A SUBACK's code: 3.1.1 has one for every refusal (3.9.3)."""
    return code if version == V5 or code < Reason.UNSPECIFIED else Reason.UNSPECIFIED
