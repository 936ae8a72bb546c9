"""Publishes committed events, and messages of rules, to the subscribers on the site.

Without a subscriber the outbox reports no event. A subscriber costs its share of the loop and bounded memory; storing an event
waits for none.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from fogline.address import shown
from fogline.errors import Poison
from fogline.events.codec import decode_event
from fogline.events.event import Lane
from fogline.events.large_body import CHUNK_CONTENT_TYPE
from fogline.process.crash_points import CrashPoint, crash_point
from fogline.process.log_throttle import LogThrottle
from fogline_edge.adapters.mqtt.hono.local_events import LocalMessage, event_message, message
from fogline_edge.adapters.mqtt.session.effects import Continuation, EventListener, Listen, ListenMode
from fogline_edge.adapters.port import Port
from fogline_edge.rules.message import RuleMessage

_log = logging.getLogger(__name__)
_log.addFilter(LogThrottle(variable=re.compile(r"\d+ so far")))


class _Carrier(Protocol):
    def resume(self, then: Continuation) -> None:
        """Perform the effects of `then`, if the connection is still open."""


class EventFeed:
    """The subscribers of one listener, and the connection of each that is connected."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._listeners: dict[EventListener, _Carrier | None] = {}

    def open(self) -> None:
        """Publish the messages of rules from now on."""
        self._port.events.publish_by(self._take_messages)

    def close(self) -> None:
        """Publish no more messages of rules."""
        self._port.events.publish_by(None)

    def run(self, effect: Listen, carrier: _Carrier | None) -> None:
        """Perform `Listen`. The outbox reports events as long as there is a listener."""
        session, mode = effect
        some = bool(self._listeners)
        if mode is ListenMode.OFF:
            self._listeners.pop(session, None)
        elif mode is ListenMode.ON:
            self._listeners[session] = carrier
        elif session in self._listeners:
            self._listeners[session] = None
        if some is not bool(self._listeners):
            self._port.events.listen(None if some else self._committed)

    def publish(self, topic: str, payload: bytes, properties: Mapping[str, str], content_type: str | None = None) -> None:
        """Publish a message to the subscribers of its topic, and to no one else. It is not stored.

        `properties`: user properties for MQTT 5. Call it on the loop. Raises `ValueError` for a topic with a wildcard.
        """
        self._deliver(message(topic, payload, properties, content_type))

    def _take_messages(self, messages: Sequence[RuleMessage]) -> None:
        for each in messages:
            properties = {"rule": each.note.rule, "event": each.note.event, "device": each.device}
            self.publish(each.note.topic, each.data, properties, each.content_type)
            crash_point(CrashPoint.AFTER_RULE_MESSAGE_BEFORE_DELETE)
            self._port.keep(each.key, None, lambda: None)

    def _committed(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            try:
                event = decode_event(body)
            except Poison:
                _log.exception("a committed event cannot be read")
                continue
            is_chunk = event.content_type == CHUNK_CONTENT_TYPE
            if event.device != self._port.gateway and event.lane is not Lane.REPLY and not is_chunk:
                self._deliver(event_message(event))

    def _deliver(self, message: LocalMessage) -> None:
        for session, carrier in list(self._listeners.items()):
            before = session.discarded
            effects = session.deliver(message)
            if session.discarded > before:
                text, (user, client) = (
                    "subscriber %s (client %s) is too slow for its events: %d so far were discarded",
                    session.key,
                )
                _log.warning(text, shown(user), shown(client), session.discarded, extra={"reason": "slow-subscriber"})
            if effects and carrier is not None:
                carrier.resume(partial(list, effects))
