"""From a link into the port: in order, at the port's pace, and acknowledged to the link that a message came by."""

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial

from paho.mqtt.client import MQTTMessage

from fogline.errors import SlowDown
from fogline.event import Arrival, Receipt
from fogline_edge.adapters.mqtt_client.acks import Ticket
from fogline_edge.adapters.mqtt_client.counters import Counters
from fogline_edge.adapters.mqtt_client.intake import Intake
from fogline_edge.adapters.mqtt_client.link import Link
from fogline_edge.adapters.mqtt_client.session import Session
from fogline_edge.adapters.port import Port
from fogline_edge.profiles.profile import Ignored, Learned, Message


@dataclass(frozen=True, slots=True)
class _Place:
    """Whom to acknowledge: the link that a message came by, and its place there (`None` at QoS 0)."""

    link: Link
    ticket: Ticket | None


class Inflow:
    """Puts what comes by `link`, which is set for as long as there is one, as messages of `session`.

    `room` is set while the port takes arrivals; when it does not, the link is paused, and a new one should not be made.
    """

    def __init__(self, port: Port, intake: Intake, counters: Counters, names_key: str) -> None:
        self.link: Link | None = None
        self.session: Session | None = None
        self.room = asyncio.Event()
        self.room.set()
        self._port = port
        self._intake = intake
        self._counters = counters
        self._names_key = names_key
        self._parked: deque[tuple[Arrival, _Place]] = deque()

    def received(self, link: Link, message: MQTTMessage) -> None:
        """Handle a PUBLISH; in the order in which they come, whatever becomes of them."""
        assert self.session is not None
        self._counters.received += 1
        self._counters.again += message.dup
        resend = self.session.came(message.mid, dup=message.dup) if message.qos else None
        place = _Place(link, link.acks.take(message.mid) if message.qos else None)
        reading = self._intake.read(Message(_topic(message), bytes(message.payload), message.retain), resend)
        match reading:
            case Ignored(why):
                self._counters.ignored[why] += 1
                self._settle(place)
            case Learned():
                self._counters.learned += 1
                self._keep(reading.changed, place)
            case Arrival():
                self._put(reading, place)

    def close(self) -> None:
        """Put nothing more. What was not put was not acknowledged."""
        self._parked.clear()

    def _put(self, arrival: Arrival, place: _Place) -> None:
        if self._parked:
            self._parked.append((arrival, place))
            return
        try:
            self._port.put(arrival, partial(self._committed, place))
        except SlowDown:
            self._parked.append((arrival, place))
            self._pause()

    def _committed(self, place: _Place, receipt: Receipt) -> None:
        match receipt:
            case Receipt.STORED:
                self._counters.stored += 1
            case Receipt.DUPLICATE:
                self._counters.duplicate += 1
            case Receipt.DEAD:
                self._counters.dead += 1
        self._settle(place)

    def _settle(self, place: _Place) -> None:
        """Acknowledge to the link that it came by. A later link has its own copy, and may mean another by the packet id."""
        if place.ticket is None:
            return
        due = place.link.acks.settle(place.ticket)
        if place.link.acknowledge(due):
            self._counters.acknowledged += len(due)
        else:
            self._counters.unacknowledged += len(due)

    def _keep(self, changed: dict[str, str | None], place: _Place) -> None:
        """Keep the names that have changed, and acknowledge their list after the last one."""
        if not changed:
            self._settle(place)
            return
        last = next(reversed(changed))
        for name, value in changed.items():
            done = partial(self._settle, place) if name == last else _nothing
            self._port.keep(self._names_key + name, None if value is None else value.encode(), done)
        if self._port.crowded and self.room.is_set():
            self._pause()

    def _pause(self) -> None:
        """Read nothing until the port has room."""
        self._counters.paused += 1
        self.room.clear()
        if self.link is not None:
            self.link.pause()
        self._port.when_room(self._has_room)

    def _has_room(self) -> None:
        while self._parked:
            arrival, place = self._parked[0]
            try:
                self._port.put(arrival, partial(self._committed, place))
            except SlowDown:
                self._port.when_room(self._has_room)
                return
            self._parked.popleft()
        self.room.set()
        if self.link is not None:
            self.link.resume()


def _topic(message: MQTTMessage) -> str:
    """The topic, also where a broker lets one pass that is no UTF-8: then it is not printable, and so refused."""
    try:
        return message.topic
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "surrogateescape")


def _nothing() -> None:
    """One of several names is kept; the last one tells."""
