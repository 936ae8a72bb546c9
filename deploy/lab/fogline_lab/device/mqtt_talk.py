"""An MQTT client and its state machine at the gateway, without a network: tests read as transcripts."""

from collections.abc import Iterable
from typing import Any

from fogline.commands.command import Command
from fogline.events.codec import Beacon
from fogline_edge.adapters.mqtt.hono.intake import PublishIntake
from fogline_edge.adapters.mqtt.hono.topics import Topics
from fogline_edge.adapters.mqtt.protocol.framing import Framer
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Connect, Packet, Publish, ServerPacket
from fogline_edge.adapters.mqtt.protocol.primitives import V5
from fogline_edge.adapters.mqtt.session.client_protocol import ClientProtocol, ProtocolContext
from fogline_edge.adapters.mqtt.session.effects import Close, Forget, Keep, Send
from fogline_edge.settings import MqttSettings
from fogline_lab.mqtt_packets import decode, encode


class MqttTalk:
    """A client and its session. `now`: the time of the loop that the session sees, in seconds.

    Effects are those of `fogline_edge.adapters.mqtt.session.effects`; bytes to send are decoded into packets.
    """

    def __init__(self, version: int = V5, *, context: ProtocolContext | None = None, now: float = 0.0, **settings: Any) -> None:
        self.version = version
        self.context = context if context is not None else make_context(**settings)
        self.session = ClientProtocol(self.context, now)
        self.now = now

    def say(self, *packets: Packet | ServerPacket | bytes) -> list[Any]:
        """Send packets, and return their effects."""
        framer = Framer(1_000_000, None)
        for packet in packets:
            framer.feed(packet if isinstance(packet, bytes) else encode(packet, self.version))
        effects: list[Any] = []
        while (received := framer.next_packet()) is not None:
            effects += self.session.receive(*received, self.now)
        return [self.read(effect) for effect in effects]

    def read(self, effect: Any) -> Any:
        """Return an effect with its bytes decoded."""
        if isinstance(effect, Send):
            return packets_of(effect.data, self.version)[0]
        if isinstance(effect, Close):
            return (*packets_of(effect.data, self.version), effect.reason)
        return effect

    def through(self, effects: Iterable[Any]) -> list[Any]:
        """Return the effects after every commit that they ask for."""
        found: list[Any] = []
        for effect in effects:
            if isinstance(effect, (Keep, Forget)):
                found += self.through([self.read(each) for each in effect.then()] if effect.then else [])
            else:
                found.append(effect)
        return found

    def settled(self, *packets: Packet | ServerPacket | bytes) -> list[Any]:
        """Send packets, and return their effects after every commit."""
        return self.through(self.say(*packets))

    def execute(self, command: Command) -> list[Any]:
        """Execute a command, and return its effects before any commit."""
        return [self.read(effect) for effect in self.session.downstream.execute(command)]

    def end(self) -> list[Any]:
        """Lose the connection, and return the effects except `Keep`."""
        return [each for each in self.session.end(self.now).effects if not isinstance(each, Keep)]

    def connect(self, client_id: str = "d1", **more: Any) -> list[Any]:
        """Send CONNECT, and return its effects."""
        return self.say(Connect(version=self.version, client_id=client_id, **more))

    def verify(self, *, ok: bool) -> list[Any]:
        """End the check of the password, and return its effects."""
        return [self.read(effect) for effect in self.session.verified(ok=ok, now=self.now)]

    def publish(self, number: int = 0, **more: Any) -> Any:
        """Send a PUBLISH, at QoS 1 if it has a packet id, and return its only effect."""
        (store,) = self.say(Publish(topic="t", payload=b"x", qos=1 if number else 0, packet_id=number, **more))
        return store

    def acknowledged(self) -> list[tuple[int, int]]:
        """Return packet id and reason code of each acknowledgement that is due now."""
        data, count = self.session.ack_order.take()
        answers = packets_of(data, self.version)
        acks = [each for each in answers if isinstance(each, Ack)]
        assert len(acks) == len(answers) == count
        return [(each.packet_id, each.code) for each in acks]


def make_context(*, with_users: bool = False, with_commands: bool = False, **settings: Any) -> ProtocolContext:
    """Make the context of a listener of tenant `acme`. `settings`: of MQTT."""
    return ProtocolContext(
        settings=MqttSettings(**settings),
        intake=PublishIntake("acme", "gw-1", Topics("acme", [])),
        with_users=with_users,
        new_client_id=lambda: "made-up",
        with_commands=with_commands,
        now=lambda: Beacon("boot", 0),
    )


def packets_of(data: bytes, version: int) -> list[Packet | ServerPacket]:
    """Decode all packets in some bytes."""
    framer = Framer(1_000_000, None)
    framer.feed(data)
    found: list[Packet | ServerPacket] = []
    while (packet := framer.next_packet()) is not None:
        found.append(decode(*packet, version))
    return found
