"""Topic filters of local subscribers (5: 4.7), and the rights to subscribe to them: pure."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from fogline.address import device_identifier
from fogline.errors import Misconfigured, Poison
from fogline_edge.adapters.mqtt.hono.subscriptions import MAX_SUBSCRIPTIONS, refuse_shared
from fogline_edge.adapters.mqtt.protocol.primitives import MalformedPacket, Reason, topic_filter

_EXAMPLE = "for example 'telemetry/#' or 'event/acme/press-7/#'"
_QOS = 0x03


@lru_cache(maxsize=8192)
def covers(wide: str, narrow: str) -> bool:
    """Return True if a filter matches every topic that another filter matches, or if it matches the topic `narrow`."""
    levels = narrow.split("/")
    for index, own in enumerate(wide.split("/")):
        if own == "#":
            return True
        if index >= len(levels) or levels[index] == "#" or (own != "+" and own != levels[index]):
            return False
    return wide.count("/") == narrow.count("/")


class SubscriberRights:
    """A table of the settings: user -> topic filters. Raises `Misconfigured` for an entry that cannot be used.

    `others`: users with rights of devices. A subscriber has none, because it only reads.
    """

    def __init__(self, entries: Mapping[str, Sequence[str]], others: Mapping[str, Sequence[str]] | None = None) -> None:
        self._rights: dict[str, tuple[str, ...]] = {}
        for user, filters in entries.items():
            try:
                name = device_identifier(user, "user")
            except Poison as error:
                raise Misconfigured(f"mqtt.subscribers: {error}") from None
            for each in filters:
                try:
                    topic_filter(each.encode())
                except MalformedPacket:
                    raise Misconfigured(
                        f"mqtt.subscribers: {user} = {each!r} is no topic filter of MQTT: expected {_EXAMPLE}"
                    ) from None
            if not filters:
                raise Misconfigured(f"mqtt.subscribers: {user} may subscribe to nothing: expected topic filters, {_EXAMPLE}")
            if user in (others or {}):
                raise Misconfigured(f"{user} is in mqtt.acl and in mqtt.subscribers: a subscriber only reads; use two users")
            self._rights[name] = tuple(filters)

    def of(self, user: str | None) -> tuple[str, ...] | None:
        """Return the filters of a user, an identifier; None for one who is no subscriber."""
        return None if user is None else self._rights.get(user)


class EventSubscription(msgspec.Struct, frozen=True):
    """A granted subscription to events. `identifier`: the client's Subscription Identifier (5: 3.8.2.1.2), 0 for none."""

    filter: str
    qos: int
    identifier: int = 0


class EventSubscriptions(dict[str, EventSubscription]):
    """The subscriptions of one subscriber by filter. `rights`: the filters that it may subscribe to, or to parts of."""

    def __init__(self, rights: Sequence[str]) -> None:
        super().__init__()
        self._rights = rights

    def grant(self, topic_filter: str, options: int, identifier: int) -> int:
        """SUBSCRIBE to one filter, and return its code for SUBACK: QoS 1 at most, or a refusal. Raises `ProtocolError`."""
        shared = refuse_shared(topic_filter, options)
        if shared is not None:
            return shared
        if not any(covers(each, topic_filter) for each in self._rights):
            return Reason.NOT_AUTHORIZED
        if topic_filter not in self and len(self) >= MAX_SUBSCRIPTIONS:
            return Reason.QUOTA_EXCEEDED
        self[topic_filter] = EventSubscription(topic_filter, min(options & _QOS, 1), identifier)
        return self[topic_filter].qos

    def matching(self, topic: str) -> list[EventSubscription]:
        """Return the subscriptions that match a topic."""
        return [each for each in self.values() if covers(each.filter, topic)]
