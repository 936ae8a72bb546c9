"""Commands on their way to one client (5: 3.3 to 3.7, 4.3, 4.4, 4.9): pure.

A command is never run twice. So what was sent at QoS 0 or 1 is not sent again: without its PUBACK it is lost, which the
commands' side knows how to deal with. At QoS 2 the exchange goes on with the session, and every step that another
incarnation of the gateway must know of is kept before it is taken.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from fogline.codec import Beacon
from fogline.command import Command
from fogline_edge.adapters.mqtt.effects import Effect, Fate, Send, Tell, Then
from fogline_edge.adapters.mqtt.flights import Flight, Flights, Phase
from fogline_edge.adapters.mqtt.packets import Answer, Publish
from fogline_edge.adapters.mqtt.properties import NONE, Properties
from fogline_edge.adapters.mqtt.subscriptions import Subscription
from fogline_edge.adapters.mqtt.wire import V5, Kind, ProtocolError, Reason


class Pipe(NamedTuple):
    """What a connection takes, and a clock. `receive_maximum`: packets at QoS 1 and 2 in flight (5: 3.1.2.11.3)."""

    version: int
    receive_maximum: int
    maximum_packet_bytes: int | None
    now: Callable[[], Beacon]

    def takes(self, publish: Publish) -> bool:
        """Whether a packet is not too large for the client (5: 3.1.2.11.4)."""
        most = self.maximum_packet_bytes
        return most is None or len(publish.encode(self.version)) <= most


Save = Callable[[Then | None], list[Effect]]
"""Keep the session as it is now, then go on: what a session that ends with its connection does at once."""


class Outbound:
    """The commands of one session. `paused`: the client does not read at present, so nothing more is begun."""

    def __init__(self, save: Save, flights: Flights | None = None) -> None:
        self.flights = flights or Flights()
        self.paused = False
        self._save = save
        self._queue: dict[str, Flight] = {}
        self._pipe: Pipe | None = None

    def begin(self, pipe: Pipe) -> list[Effect]:
        """A connection is there: go on with what is under way (5: 4.4). What is past its deadline is given up."""
        self._pipe, self.paused = pipe, False
        effects: list[Effect] = []
        for number, flight in list(self.flights.by_number.items()):
            if flight.phase >= Phase.ACCEPTED:
                release = partial(self._release, number)
                effects += release() if flight.phase is Phase.RELEASED else self._save(release)
                continue
            flight.phase = Phase.AGAIN
            flight.publish = msgspec.structs.replace(flight.publish, dup=True)
            if flight.deadline.left_ms(pipe.now()) <= 0 or not pipe.takes(flight.publish):
                effects += self._retire(number)
        return effects + self.advance()

    def end(self, *, lasting: bool) -> list[Effect]:
        """The connection is gone; `lasting`: the session is not."""
        self._pipe = None
        effects = self.withdraw(lambda _: True)
        under_way = self.flights.by_number
        for number, flight in list(under_way.items()):
            if flight.phase is Phase.KEEPING:
                effects.append(Tell(Fate.NOT_SENT, under_way.pop(number).command_id))
            elif flight.publish.qos == 1 or not lasting:
                effects.append(Tell(Fate.LOST, under_way.pop(number).command_id, "it was sent, and not confirmed"))
        if not lasting:
            self._save = _no_save  # it must not be kept again, and no cycle is left for the garbage collector
        return effects

    def execute(self, command: Command, subscriptions: Sequence[Subscription], *, lasting: bool) -> list[Effect]:
        """Send a command, as the last of these subscriptions to its device has it, as soon as the client may get it."""
        own = [each for each in subscriptions if each.device == command.device]
        if not own or self._pipe is None:
            return [Tell(Fate.NOT_SENT, command.id)]
        if self.carries(command.id):
            return []
        topic = own[-1].topic(command)
        matching = [each for each in subscriptions if each.matches(topic)]
        qos = max(each.qos for each in matching)
        if qos == 2 and lasting and not self.flights.has_room(len(command.data)):
            qos = 1
        properties = _properties(command, own[-1], matching, self._pipe.now()) if self._pipe.version == V5 else NONE
        publish = Publish(topic=topic, payload=command.data, qos=qos, packet_id=1 if qos else 0, properties=properties)
        if not self._pipe.takes(publish):
            return [Tell(Fate.REFUSED, command.id, "the device takes no packet of this size")]
        self._queue[command.id] = Flight(command.id, command.device, command.deadline, publish)
        return self.advance()

    def carries(self, command_id: str) -> bool:
        """Whether a command is under way here."""
        return command_id in self._queue or self.flights.number_of(command_id) is not None

    def abandon(self, command_id: str) -> list[Effect]:
        """Nobody waits for a command any more: what was not sent is not, and what was is not sent again."""
        if command_id in self._queue:
            return self.withdraw(lambda each: each.command_id == command_id)
        number = self.flights.number_of(command_id)
        if number is None:
            return []
        phase = self.flights.by_number[number].phase
        if phase is Phase.KEEPING:
            del self.flights.by_number[number]
            return [Tell(Fate.NOT_SENT, command_id), *self._save(None), *self.advance()]
        if phase is Phase.AGAIN or (phase is Phase.SENT and self._pipe is None):
            return [*self._retire(number), *self._save(None)]
        return []

    def withdraw(self, which: Callable[[Flight], bool]) -> list[Effect]:
        """Those of which not a byte was sent are not sent any more."""
        left = [command_id for command_id, each in self._queue.items() if which(each)]
        return [Tell(Fate.NOT_SENT, self._queue.pop(each).command_id) for each in left]

    def confirmed(self, kind: Kind, number: int, code: int) -> list[Effect]:
        """PUBACK, PUBREC or PUBCOMP came. Raises `ProtocolError` for one that cannot be due."""
        flight = self.flights.by_number.get(number)
        if flight is None:
            return [self._answer(number, Reason.PACKET_IDENTIFIER_NOT_FOUND)] if kind is Kind.PUBREC else []
        if (kind is Kind.PUBACK) != (flight.publish.qos == 1) or flight.phase < Phase.SENT:
            raise ProtocolError(f"{kind.name} is not what packet {number} waits for")
        if kind is Kind.PUBREC and code < Reason.UNSPECIFIED:
            return self._accepted(number, flight)
        if kind is Kind.PUBCOMP and flight.phase is not Phase.RELEASED:
            raise ProtocolError(f"PUBCOMP before PUBREL of packet {number}")
        del self.flights.by_number[number]
        refused = code >= Reason.UNSPECIFIED and kind is not Kind.PUBCOMP
        told = (
            Tell(Fate.REFUSED, flight.command_id, f"the device refused it (0x{code:02x})")
            if refused
            else Tell(Fate.TAKEN, flight.command_id)
        )
        return [told, *(self._save(None) if flight.publish.qos == 2 else ()), *self.advance()]

    def advance(self) -> list[Effect]:
        """Send what may be sent: first what was sent before, in its order (5: 4.6), then what waits."""
        pipe, effects = self._pipe, list[Effect]()
        if pipe is None or self.paused:
            return effects
        busy = self.flights.busy
        for flight in self.flights.by_number.values():
            if flight.phase is Phase.AGAIN and busy < pipe.receive_maximum:
                flight.phase = Phase.SENT
                effects.append(Send(_aged(flight, pipe).encode(pipe.version)))
                busy += 1
        while self._queue and (busy < pipe.receive_maximum or not next(iter(self._queue.values())).publish.qos):
            flight = self._queue.pop(next(iter(self._queue)))
            busy += flight.publish.qos > 0
            effects += self._send(flight, pipe)
        return effects

    def _send(self, flight: Flight, pipe: Pipe) -> list[Effect]:
        flight.publish = _aged(flight, pipe)
        if flight.publish.properties.message_expiry_s == 0:
            return [Tell(Fate.NOT_SENT, flight.command_id, "its deadline passed")]
        if not flight.publish.qos:
            return [Send(flight.publish.encode(pipe.version)), Tell(Fate.TAKEN, flight.command_id)]
        self.flights.add(flight)
        if flight.publish.qos == 1:
            return self._go(flight)
        return self._save(partial(self._go, flight))

    def _go(self, flight: Flight) -> list[Effect]:
        """It is kept (or need not be): now it may be sent, if it still is to be."""
        still = self.flights.by_number.get(flight.publish.packet_id) is flight and flight.phase is Phase.KEEPING
        if not still or self._pipe is None:
            return []
        flight.phase = Phase.SENT
        return [Send(flight.publish.encode(self._pipe.version))]

    def _accepted(self, number: int, flight: Flight) -> list[Effect]:
        """PUBREC. PUBRELs go in the order of PUBRECs [MQTT-4.6.0-4], so the flight moves to the end."""
        if flight.phase is Phase.RELEASED:
            return [self._answer(number)]
        if flight.phase is Phase.ACCEPTED:
            return []
        flight.phase = Phase.ACCEPTED
        self.flights.by_number[number] = self.flights.by_number.pop(number)
        return self._save(partial(self._release, number))

    def _release(self, number: int) -> list[Effect]:
        flight = self.flights.by_number.get(number)
        if flight is None or flight.phase < Phase.ACCEPTED:
            return []
        flight.phase = Phase.RELEASED
        return [self._answer(number)]

    def _retire(self, number: int) -> list[Effect]:
        return [Tell(Fate.LOST, self.flights.retire(number).command_id, "it was sent, and is not sent again")]

    def _answer(self, number: int, code: int = 0) -> Send:
        version = self._pipe.version if self._pipe else V5
        return Send(Answer(kind=Kind.PUBREL, packet_id=number, code=code).encode(version))


def _no_save(then: Then | None) -> list[Effect]:  # noqa: ARG001 (as `Save`)
    return []


def _aged(flight: Flight, pipe: Pipe) -> Publish:
    """The PUBLISH with what is left of its message expiry [MQTT-3.3.2-6]."""
    publish = flight.publish
    if publish.properties.message_expiry_s is None:
        return publish
    left_s = max(0, flight.deadline.left_ms(pipe.now()) // 1000)
    properties = msgspec.structs.replace(publish.properties, message_expiry_s=left_s)
    return msgspec.structs.replace(publish, properties=properties)


def _properties(command: Command, own: Subscription, matching: Sequence[Subscription], now: Beacon) -> Properties:
    left_s = command.deadline.left_ms(now) // 1000
    return Properties(
        content_type=command.content_type,
        correlation_data=command.id.encode() if command.reply else None,
        response_topic=own.response_topic(command) if command.reply else None,
        message_expiry_s=left_s if 0 < left_s < 2**32 else None,
        subscription_id=tuple(each.number for each in matching if each.number),
    )
