"""Messages from the broker into the port: in order, at the port's pace, acknowledged on their own connection."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from paho.mqtt.client import MQTTMessage

from fogline.errors import SlowDown
from fogline.events.event import Arrival, Receipt
from fogline_edge.adapters.mqtt_client.connection import BrokerConnection
from fogline_edge.adapters.mqtt_client.intake import BrokerIntake
from fogline_edge.adapters.mqtt_client.session import BrokerAck, BrokerSession
from fogline_edge.adapters.mqtt_client.state import DIGESTS, NAMES
from fogline_edge.adapters.port import Port
from fogline_edge.profiles.profile import BrokerMessage, Ignored, IgnoreReason, Learned


@dataclass(slots=True)
class MqttClientCounters:
    """Counts since the client started. `fogline.process.monitoring.metrics` has their meanings."""

    connections: int = 0
    connected: int = 0
    failures: int = 0
    sessions_lost: int = 0
    received: int = 0
    again: int = 0
    stored: int = 0
    duplicate: int = 0
    dead: int = 0
    learned: int = 0
    ignored: dict[IgnoreReason, int] = field(default_factory=lambda: dict.fromkeys(IgnoreReason, 0))
    acknowledged: int = 0
    unacknowledged: int = 0
    paused: int = 0


@dataclass(frozen=True, slots=True)
class _Origin:
    """The connection that a message came from, and its acknowledgement there (`None` at QoS 0).

    `stored`: called once the arrival is stored.
    """

    connection: BrokerConnection
    ack: BrokerAck | None
    stored: Callable[[], None] = lambda: None


class Inflow:
    """Puts the messages of `session` into the port. `connection` is set while there is one. `parked`: not put yet.

    `keys`: the prefix of the keys of each kind in the port. `room` is set while the port accepts arrivals. Otherwise the
    connection is paused, and a new one should not be made.
    """

    def __init__(self, port: Port, intake: BrokerIntake, counters: MqttClientCounters, keys: Callable[[str], str]) -> None:
        self.connection: BrokerConnection | None = None
        self.session: BrokerSession | None = None
        self.room = asyncio.Event()
        self.room.set()
        self._port = port
        self._intake = intake
        self._counters = counters
        self._keys = keys
        self.parked: deque[tuple[Arrival, _Origin]] = deque()

    def received(self, connection: BrokerConnection, message: MQTTMessage) -> BrokerMessage:
        """Handle a PUBLISH, and return it. Messages are put in the order of their arrival."""
        assert self.session is not None
        self._counters.received += 1
        self._counters.again += message.dup
        retransmission = self.session.received(message.mid, dup=message.dup) if message.qos else None
        origin = _Origin(connection, connection.acks.add(message.mid) if message.qos else None)
        received = BrokerMessage(_topic(message), bytes(message.payload), message.retain)
        reading = self._intake.read(received, retransmission)
        match reading:
            case Ignored(reason):
                self._counters.ignored[reason] += 1
                self._settle(origin)
            case Learned():
                self._counters.learned += 1
                self._describe(reading, connection)
                self._keep(reading.changed, origin)
            case Arrival():
                self._put(reading, origin)
        return received

    def _put(self, arrival: Arrival, origin: _Origin) -> None:
        self.parked.append((arrival, origin))
        if len(self.parked) == 1 and not self._put_parked():
            self._pause()

    def _put_parked(self) -> bool:
        """Put the parked arrivals in order. Returns False if the port has no room for all of them."""
        while self.parked:
            arrival, origin = self.parked[0]
            try:
                self._port.put(arrival, partial(self._committed, origin))
            except SlowDown:
                return False
            self.parked.popleft()
        return True

    def _committed(self, origin: _Origin, receipt: Receipt) -> None:
        if receipt is not Receipt.FILTERED:  # no profile reports on change
            setattr(self._counters, receipt, getattr(self._counters, receipt) + 1)
        origin.stored()
        self._settle(origin)

    def _settle(self, origin: _Origin) -> None:
        """Acknowledge on the message's own connection. On a later one its packet id may mean another message."""
        if origin.ack is None:
            return
        due = origin.connection.acks.settle(origin.ack)
        if origin.connection.acknowledge(due):
            self._counters.acknowledged += len(due)
        else:
            self._counters.unacknowledged += len(due)

    def _describe(self, learned: Learned, connection: BrokerConnection) -> None:
        """Put the events that describe devices. The program's list is retained, so a crash before the commit loses none."""
        key = self._keys(DIGESTS)
        for each in learned.described:
            keep = partial(self._port.keep, key + each.arrival.device, each.digest, lambda: None)
            self._put(each.arrival, _Origin(connection, None, keep))
        for device in learned.gone:
            self._port.keep(key + device, None, lambda: None)

    def _keep(self, changed: dict[str, str | None], origin: _Origin) -> None:
        """Store the changed names, and acknowledge their list after the last one."""
        if not changed:
            self._settle(origin)
            return
        last = next(reversed(changed))
        for name, value in changed.items():
            done = partial(self._settle, origin) if name == last else lambda: None
            self._port.keep(self._keys(NAMES) + name, None if value is None else value.encode(), done)
        if self._port.crowded and self.room.is_set():
            self._pause()

    def _pause(self) -> None:
        self._counters.paused += 1
        self.room.clear()
        if self.connection is not None:
            self.connection.pause()
        self._port.when_room(self._on_room)

    def _on_room(self) -> None:
        if not self._put_parked():
            self._port.when_room(self._on_room)
            return
        self.room.set()
        if self.connection is not None:
            self.connection.resume()


def _topic(message: MQTTMessage) -> str:
    """Return the topic. Invalid UTF-8 that a broker lets pass becomes unprintable text, which the intake refuses."""
    try:
        return message.topic
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "surrogateescape")
