"""Commands to one client (5: 3.3 to 3.7, 4.3, 4.4, 4.9): pure.

A device never runs a command twice. So a command sent at QoS 0 or 1 is not sent again: without its PUBACK it is lost, and the
journal decides about it. At QoS 2 the exchange continues with the session, which is stored before each step that a restarted
gateway must know (docs/decisions/0021).

A device never runs a command late. A device may begin at PUBLISH or at PUBREL, so the deadline decides before each of them. An
exchange that is not complete at its deadline ends with its connection and its session: the server must not leave an exchange
of a session unfinished, so the client must see that the session is over (5: 3.2.2.1.1, 4.3.3).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from fogline.commands.command import Command
from fogline.events.codec import Beacon
from fogline_edge.adapters.mqtt.hono.subscriptions import Subscription
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Publish, ServerPacket
from fogline_edge.adapters.mqtt.protocol.primitives import V5, PacketType, ProtocolError, Reason
from fogline_edge.adapters.mqtt.protocol.properties import NONE, Properties
from fogline_edge.adapters.mqtt.session.effects import (
    Abort,
    CloseReason,
    Continuation,
    DeliveryResult,
    Effect,
    ReportDelivery,
    Send,
)
from fogline_edge.adapters.mqtt.session.inflight import DeliveryPhase, InflightCommand, InflightCommands


class ClientLimits(NamedTuple):
    """Limits of one connection, and the gateway's clock. `receive_maximum`: of QoS 1 and 2 in flight (5: 3.1.2.11.3)."""

    version: int
    receive_maximum: int
    maximum_packet_bytes: int | None
    now: Callable[[], Beacon]

    def send(self, packet: ServerPacket) -> list[Effect]:
        """Send a packet, or nothing if it is too large for the client [MQTT-3.1.2-24]."""
        data = packet.encode(self.version)
        return [Send(data)] if self.maximum_packet_bytes is None or len(data) <= self.maximum_packet_bytes else []


Save = Callable[[Continuation | None], list[Effect]]
"""Store the session, then continue. A session that ends with its connection continues at once."""


class OutboundCommands:
    """The commands of one session. `paused`: the client does not read, so no command is begun.

    `broken`: an exchange cannot be completed any more, so the session must end with its connection.
    """

    def __init__(self, save: Save, inflight: InflightCommands | None = None) -> None:
        self.inflight = inflight or InflightCommands()
        self.paused = False
        self.broken = False
        self._save = save
        self._queue: dict[str, InflightCommand] = {}
        self._client: ClientLimits | None = None

    def may_resume(self, client: ClientLimits) -> bool:
        """Return True if a new connection can complete all exchanges: in time, and with packets that the client takes."""
        if self.broken:
            return False
        now = client.now()
        begun = (each for each in self.inflight.kept().values() if each.phase is not DeliveryPhase.KEEPING)
        return all(
            each.deadline.left_ms(now) > 0 and (each.phase >= DeliveryPhase.ACCEPTED or bool(client.send(each.publish)))
            for each in begun
        )

    def begin(self, client: ClientLimits) -> list[Effect]:
        """Continue the commands in flight on a new connection (5: 4.4), for which `may_resume` is True."""
        self._client, self.paused = client, False
        effects: list[Effect] = []
        for packet_id, command in list(self.inflight.by_packet_id.items()):
            if command.phase >= DeliveryPhase.ACCEPTED:
                release = partial(self._release, packet_id)
                effects += release() if command.phase is DeliveryPhase.RELEASED else self._save(release)
            else:
                command.phase = DeliveryPhase.AGAIN
                command.publish = msgspec.structs.replace(command.publish, dup=True)
        return effects + self.advance()

    def end(self, *, persistent: bool) -> list[Effect]:
        """Report the commands that end with the connection. `persistent`: the session outlives it."""
        self._client = None
        effects = self.withdraw(lambda _: True)
        inflight = self.inflight.by_packet_id
        for packet_id, command in list(inflight.items()):
            if command.phase is DeliveryPhase.KEEPING:
                effects.append(ReportDelivery(DeliveryResult.NOT_SENT, inflight.pop(packet_id).command_id))
            elif command.publish.qos == 1 or not persistent:
                detail = "it was sent, but not acknowledged"
                effects.append(ReportDelivery(DeliveryResult.LOST, inflight.pop(packet_id).command_id, detail))
        if not persistent:
            self._save = lambda _: []  # the ended session must not be stored again, and leaves no reference cycle
        return effects

    def execute(self, command: Command, subscriptions: Sequence[Subscription], *, persistent: bool) -> list[Effect]:
        """Send a command by the last of the subscriptions to its device, or queue it until the client may get it."""
        own = [each for each in subscriptions if each.device == command.device]
        if not own or self._client is None:
            return [ReportDelivery(DeliveryResult.NOT_SENT, command.id)]
        if self.carries(command.id):
            return []
        topic = own[-1].topic(command)
        matching = [each for each in subscriptions if each.matches(topic)]
        qos = max(each.qos for each in matching)
        if qos == 2 and persistent and not self.inflight.has_room(len(command.data)):
            qos = 1
        properties = _properties(command, own[-1], matching, self._client.now()) if self._client.version == V5 else NONE
        publish = Publish(topic=topic, payload=command.data, qos=qos, packet_id=1 if qos else 0, properties=properties)
        if not self._client.send(publish):
            return [ReportDelivery(DeliveryResult.REFUSED, command.id, "the device accepts no packet of this size")]
        self._queue[command.id] = InflightCommand(command.id, command.device, command.deadline, publish)
        return self.advance()

    def carries(self, command_id: str) -> bool:
        """Return True if the command is queued or in flight here."""
        return command_id in self._queue or self.inflight.packet_id_of(command_id) is not None

    def abandon(self, command_id: str) -> list[Effect]:
        """Give up a command whose deadline passed: no byte of it is sent any more."""
        if command_id in self._queue:
            return self.withdraw(lambda each: each.command_id == command_id)
        packet_id = self.inflight.packet_id_of(command_id)
        if packet_id is None:
            return []
        command = self.inflight.by_packet_id[packet_id]
        if command.phase is DeliveryPhase.KEEPING:
            del self.inflight.by_packet_id[packet_id]
            return [ReportDelivery(DeliveryResult.NOT_SENT, command_id), *self._save(None), *self.advance()]
        return self._break(f"command {command_id} is not acknowledged at its deadline", session=command.publish.qos == 2)

    def withdraw(self, selected: Callable[[InflightCommand], bool]) -> list[Effect]:
        """Remove the selected commands from the queue: no byte of them was sent."""
        withdrawn = [command_id for command_id, each in self._queue.items() if selected(each)]
        return [ReportDelivery(DeliveryResult.NOT_SENT, self._queue.pop(each).command_id) for each in withdrawn]

    def acknowledged(self, kind: PacketType, packet_id: int, code: int) -> list[Effect]:
        """Handle a PUBACK, PUBREC or PUBCOMP. Raises `ProtocolError` if the packet id does not wait for it."""
        command = self.inflight.by_packet_id.get(packet_id)
        if command is None and kind is PacketType.PUBREC:
            self.broken = True  # the client may hold a forgotten command, and a PUBREL of any code would let it begin
            raise ProtocolError(f"PUBREC of packet {packet_id}, which is not in use")
        if command is None:
            return []
        if (kind is PacketType.PUBACK) != (command.publish.qos == 1) or command.phase < DeliveryPhase.SENT:
            raise ProtocolError(f"packet {packet_id} does not wait for {kind.name}")
        if kind is PacketType.PUBREC and code < Reason.UNSPECIFIED:
            return self._received(packet_id, command)
        if kind is PacketType.PUBCOMP and command.phase is not DeliveryPhase.RELEASED:
            raise ProtocolError(f"PUBCOMP before PUBREL of packet {packet_id}")
        del self.inflight.by_packet_id[packet_id]
        report = ReportDelivery(DeliveryResult.TAKEN, command.command_id)
        if code >= Reason.UNSPECIFIED and kind is not PacketType.PUBCOMP:
            report = ReportDelivery(DeliveryResult.REFUSED, command.command_id, f"the device refused it (0x{code:02x})")
        return [report, *(self._save(None) if command.publish.qos == 2 else ()), *self.advance()]

    def advance(self) -> list[Effect]:
        """Send as much as the client may get: first retransmissions, in their order (5: 4.6), then the queue."""
        client, effects = self._client, list[Effect]()
        if client is None or self.paused:
            return effects
        busy = self.inflight.busy
        for command in self.inflight.by_packet_id.values():
            if command.phase is DeliveryPhase.AGAIN and busy < client.receive_maximum:
                if command.deadline.left_ms(client.now()) <= 0:
                    return [*effects, *self._break(f"command {command.command_id} is past its deadline")]
                command.phase = DeliveryPhase.SENT
                effects.append(Send(_with_time_left(command, client).encode(client.version), command.deadline))
                busy += 1
        while self._queue and (busy < client.receive_maximum or not next(iter(self._queue.values())).publish.qos):
            command = self._queue.pop(next(iter(self._queue)))
            busy += command.publish.qos > 0
            effects += self._send(command, client)
        return effects

    def _send(self, command: InflightCommand, client: ClientLimits) -> list[Effect]:
        command.publish = _with_time_left(command, client)
        if command.publish.properties.message_expiry_s == 0 or command.deadline.left_ms(client.now()) <= 0:
            return [ReportDelivery(DeliveryResult.NOT_SENT, command.command_id, "its deadline passed")]
        if not command.publish.qos:
            sent = Send(command.publish.encode(client.version), command.deadline)
            return [sent, ReportDelivery(DeliveryResult.TAKEN, command.command_id)]
        self.inflight.add(command)
        return self._send_kept(command) if command.publish.qos == 1 else self._save(partial(self._send_kept, command))

    def _send_kept(self, command: InflightCommand) -> list[Effect]:
        """Send a command that is stored (or need not be), unless it was given up meanwhile."""
        current = self.inflight.by_packet_id.get(command.publish.packet_id) is command
        if not current or command.phase is not DeliveryPhase.KEEPING or self._client is None:
            return []
        if command.deadline.left_ms(self._client.now()) <= 0:
            return self.abandon(command.command_id)
        command.phase = DeliveryPhase.SENT
        return [Send(command.publish.encode(self._client.version), command.deadline)]

    def _received(self, packet_id: int, command: InflightCommand) -> list[Effect]:
        """Handle PUBREC. PUBRELs go in the order of PUBRECs [MQTT-4.6.0-4], so the command moves to the end."""
        if command.phase is DeliveryPhase.RELEASED:
            return self._release(packet_id)
        if command.phase is DeliveryPhase.ACCEPTED:
            return []
        command.phase = DeliveryPhase.ACCEPTED
        command.publish = msgspec.structs.replace(command.publish, payload=b"", properties=NONE)  # it is never sent again
        self.inflight.by_packet_id[packet_id] = self.inflight.by_packet_id.pop(packet_id)
        return self._save(partial(self._release, packet_id))

    def _release(self, packet_id: int) -> list[Effect]:
        command, client = self.inflight.by_packet_id.get(packet_id), self._client
        if command is None or client is None or command.phase < DeliveryPhase.ACCEPTED or self.broken:
            return []
        if command.deadline.left_ms(client.now()) <= 0:
            return self._break(f"command {command.command_id} is past its deadline")
        command.phase = DeliveryPhase.RELEASED
        return [Send(Ack(kind=PacketType.PUBREL, packet_id=packet_id).encode(client.version), command.deadline)]

    def _break(self, why: str, *, session: bool = True) -> list[Effect]:
        """End the connection, and the `session` with it or at the next CONNECT."""
        self.broken = self.broken or session
        return [Abort(CloseReason.STALLED_COMMAND, why)] if self._client is not None else []


def _with_time_left(command: InflightCommand, client: ClientLimits) -> Publish:
    """Return the PUBLISH with the rest of its Message Expiry Interval [MQTT-3.3.2-6]."""
    publish = command.publish
    if publish.properties.message_expiry_s is None:
        return publish
    left_s = max(0, command.deadline.left_ms(client.now()) // 1000)
    properties = msgspec.structs.replace(publish.properties, message_expiry_s=left_s)
    return msgspec.structs.replace(publish, properties=properties)


def _properties(command: Command, own: Subscription, matching: Sequence[Subscription], now: Beacon) -> Properties:
    left_s = command.deadline.left_ms(now) // 1000
    return Properties(
        content_type=command.content_type,
        correlation_data=command.id.encode() if command.reply else None,
        response_topic=own.response_topic(command) if command.reply else None,
        message_expiry_s=left_s if 0 < left_s < 2**32 else None,
        subscription_id=tuple(each.identifier for each in matching if each.identifier),
    )
