"""PUBLISHes of one connection on their way in, at QoS 0, 1 and 2 (5: 3.3, 3.6, 4.3): pure.

QoS 2: PUBREC says that the message is durable, the packet id means the same message until PUBREL, and PUBCOMP says that
the id is durably free. A session that outlives its connection names its slots by its epoch, so that every copy is
recognised whatever its DUP flag says, and nothing of another session is; in one that does not, DUP says it.
"""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from fogline.errors import Poison
from fogline.event import Arrival
from fogline_edge.adapters.mqtt.acknowledgements import ClientAcks
from fogline_edge.adapters.mqtt.counters import Counters
from fogline_edge.adapters.mqtt.effects import Effect, Forget, Respond, Send, Store
from fogline_edge.adapters.mqtt.intake import Client, Intake
from fogline_edge.adapters.mqtt.kept import State
from fogline_edge.adapters.mqtt.packets import Answer, Publish
from fogline_edge.adapters.mqtt.properties import NONE
from fogline_edge.adapters.mqtt.responses import is_response, response
from fogline_edge.adapters.mqtt.window import Ticket, Window
from fogline_edge.adapters.mqtt.wire import V5, Kind, ProtocolError, Reason

TOPIC_ALIASES = 32
"""How many topic aliases a client may have (5: 3.2.2.3.8)."""
MAX_UNRELEASED = 2048
"""How many QoS 2 messages of one session may wait for PUBREL."""


class Inbound:
    """One connection's PUBLISHes and PUBRELs.

    `receive_maximum`: as CONNACK says to a 5 client. `with_commands`: answers to commands are taken. `acks`: of QoS 1.
    """

    def __init__(
        self,
        intake: Intake,
        client: Client,
        state: State,
        window: Window,
        counters: Counters,
        *,
        receive_maximum: int | None,
        acks: ClientAcks,
        with_commands: bool,
    ) -> None:
        self.acks = acks
        self._intake = intake
        self._client = client
        self._state = state
        self._window = window
        self._counters = counters
        self._with_commands = with_commands
        self._receive_maximum = receive_maximum if window.version == V5 else None
        self._slot = client.slot
        self._slot_2 = client.slot + b"q2" + state.epoch
        self._tickets: dict[int, Ticket | None] = {}
        self._early: dict[int, Ticket] = {}
        self._aliases: dict[int, str] = {}

    def publish(self, publish: Publish, now: float) -> Sequence[Effect]:
        """Take one, at `now` of the loop's time. Raises `ProtocolError`."""
        if publish.properties is not NONE:
            publish = self._named(publish, publish.properties.topic_alias)
        window, number = self._window, publish.packet_id
        if self._receive_maximum is not None and number and number not in self._tickets:
            self._check_quota(self._receive_maximum)
        if publish.qos > 1:
            self.acks.free(number)
            return self._publish_2(publish)
        if publish.topic[0] == "c" and self._with_commands and is_response(publish.topic):
            self.acks.free(number)
            return (self._respond(publish, window.admit),)
        arrival, code = self._intake.arrival(self._client, publish, self._slot)
        ticket = window.admit(number, code)
        if number:
            if publish.dup:
                arrival = self._dup(arrival, number, now)
            self.acks.use(ticket, arrival.device)
        return (Store(arrival, ticket),)

    def _check_quota(self, receive_maximum: int) -> None:
        """In flight are messages at QoS 1 without their PUBACK, and at QoS 2 without their PUBCOMP (5: 4.9)."""
        if self._window.numbered - self._window.unreceived_count + len(self._tickets) >= receive_maximum:
            raise ProtocolError(f"more than {receive_maximum} messages in flight", Reason.RECEIVE_MAXIMUM_EXCEEDED)

    def _dup(self, arrival: Arrival, number: int, now: float) -> Arrival:
        """A PUBLISH with DUP set: what is known of the PUBACK of the message that it may repeat goes along."""
        sent = arrival.retransmission
        assert sent is not None
        delivery = self.acks.delivery(number, arrival.device, now)
        return msgspec.structs.replace(arrival, retransmission=msgspec.structs.replace(sent, ack_delivery=delivery))

    def release(self, number: int) -> Sequence[Effect]:
        """PUBREL: its PUBCOMP goes when the id is durably free (5: 3.6, 3.7).

        One that comes before its PUBREC was sent waits for that: the message may not be stored yet.
        """
        ticket = self._tickets.get(number) or self._window.unreceived(number)
        if ticket is not None and not ticket.due:
            self._early[number] = ticket
            return ()
        state = self._state
        device = state.received.get(number)
        if device is None:
            if not state.restored:
                return self._complete(Reason.PACKET_IDENTIFIER_NOT_FOUND, number)
            devices = tuple(state.homes)
        elif device:
            devices = (device,)
        else:
            return self._released(number)
        if number in self._tickets:
            self._tickets[number] = None
        return (Forget(devices, self._slot_2, number, partial(self._released, number)),)

    def release_early(self) -> Sequence[Effect]:
        """PUBRECs were sent: go on with the PUBRELs that waited for them."""
        effects: list[Effect] = []
        for number in [number for number, ticket in self._early.items() if ticket.due]:
            del self._early[number]
            effects += self.release(number)
        return effects

    def _released(self, number: int) -> Sequence[Effect]:
        self._state.received.pop(number, None)
        self._tickets.pop(number, None)
        return (*self._state.save(), *self._complete(Reason.SUCCESS, number))

    def _complete(self, code: int, number: int) -> Sequence[Effect]:
        self._counters.completed += 1
        return (Send(Answer(kind=Kind.PUBCOMP, packet_id=number, code=code).encode(self._window.version)),)

    def _publish_2(self, publish: Publish) -> Sequence[Effect]:
        number, state, window = publish.packet_id, self._state, self._window
        if number in self._tickets:
            return self._once_more(None if number in self._early else self._tickets[number], number)
        if len(state.received) >= MAX_UNRELEASED and number not in state.received:
            raise ProtocolError(f"more than {MAX_UNRELEASED} messages wait for PUBREL", Reason.QUOTA_EXCEEDED)
        if publish.topic[0] == "c" and self._with_commands and is_response(publish.topic):
            effect = self._respond(publish, window.admit_received)
            device = "" if isinstance(effect, Respond) else effect.arrival.device
        else:
            effect = self._store_2(publish)
            device = effect.arrival.device
        if effect.ticket.code >= Reason.UNSPECIFIED and window.version == V5:
            return (effect,)
        self._tickets[number] = effect.ticket
        state.received[number] = device
        kept = state.save() if device and device not in state.homes else ()
        return (*kept, effect)

    def _store_2(self, publish: Publish) -> Store:
        arrival, code = self._intake.arrival(self._client, publish, self._slot_2, again=bool(self._state.epoch))
        if code >= Reason.UNSPECIFIED and self._window.version == V5:  # its PUBREC ends it: no PUBREL will free the id
            arrival, code = self._intake.arrival(self._client, publish, self._slot_2)
        return Store(arrival, self._window.admit_received(publish.packet_id, code))

    def _once_more(self, ticket: Ticket | None, number: int) -> Sequence[Effect]:
        """The same packet id before PUBREL is the same message [MQTT-4.3.3-10]: a PUBREC, and no more."""
        if ticket is None:
            raise ProtocolError(f"PUBLISH before the PUBCOMP of packet {number}", Reason.PACKET_IDENTIFIER_IN_USE)
        if not ticket.committed:
            return ()
        return (Send(Answer(kind=Kind.PUBREC, packet_id=number, code=ticket.code).encode(self._window.version)),)

    def _respond(self, publish: Publish, admit: Callable[[int, int], Ticket]) -> Respond | Store:
        try:
            found = response(self._client, self._intake.tenant, publish)
        except Poison as error:
            arrival, code = self._intake.dead(error, self._client, publish, None)
            return Store(arrival, admit(publish.packet_id, code))
        return Respond(found.device, found.command_id, found.answer, admit(publish.packet_id, Reason.SUCCESS))

    def _named(self, publish: Publish, alias: int | None) -> Publish:
        """Topic aliases (5: 3.3.2.3.4): a topic gives its alias a meaning, an empty one is what the alias means."""
        if publish.properties.subscription_id:
            raise ProtocolError("a client's PUBLISH has no subscription identifier")
        if alias is None:
            return publish
        if alias > TOPIC_ALIASES:
            raise ProtocolError(f"topic alias {alias} is over {TOPIC_ALIASES}", Reason.TOPIC_ALIAS_INVALID)
        if publish.topic:
            self._aliases[alias] = publish.topic
            return publish
        topic = self._aliases.get(alias)
        if topic is None:
            raise ProtocolError(f"topic alias {alias} has no meaning yet")
        return msgspec.structs.replace(publish, topic=topic)
