"""A client and its state machine without a network: the tests read as transcripts."""

from fogline.codec import Beacon
from fogline_edge.adapters.mqtt.hono.intake import PublishIntake
from fogline_edge.adapters.mqtt.hono.topics import Topics
from fogline_edge.adapters.mqtt.protocol.framing import Framer
from fogline_edge.adapters.mqtt.protocol.packets import Connect, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V5
from fogline_edge.adapters.mqtt.session.client_protocol import ClientProtocol, ProtocolContext
from fogline_edge.adapters.mqtt.session.effects import Close, Forget, Keep, Send
from fogline_edge.settings import MqttSettings
from fogline_lab.mqtt_packets import decode, encode


class Talk:
    """A client and its session, without a network."""

    def __init__(self, version=V5, *, context=None, now=0.0, **settings):
        self.version = version
        self.context = context if context is not None else make_context(**settings)
        self.session = ClientProtocol(self.context, now)
        self.now = now

    def say(self, *packets):
        """Send packets, and return their effects, with bytes decoded."""
        framer = Framer(1_000_000, None)
        for packet in packets:
            framer.feed(packet if isinstance(packet, bytes) else encode(packet, self.version))
        effects = []
        while (packet := framer.next_packet()) is not None:
            effects += self.session.receive(*packet, self.now)
        return [self.read(effect) for effect in effects]

    def read(self, effect):
        if isinstance(effect, Send):
            return packets_of(effect.data, self.version)[0]
        if isinstance(effect, Close):
            return (*packets_of(effect.data, self.version), effect.reason)
        return effect

    def through(self, effects):
        """Return the effects after every commit that they ask for."""
        found = []
        for effect in effects:
            if isinstance(effect, (Keep, Forget)):
                found += self.through([self.read(each) for each in effect.then()] if effect.then else [])
            else:
                found.append(effect)
        return found

    def settled(self, *packets):
        """Send packets, and return their effects after every commit."""
        return self.through(self.say(*packets))

    def execute(self, command):
        """Execute a command, and return its effects before any commit."""
        return [self.read(effect) for effect in self.session.downstream.execute(command)]

    def end(self):
        """Lose the connection, and return the effects except `Keep`."""
        return [each for each in self.session.end(self.now).effects if not isinstance(each, Keep)]

    def connect(self, client_id="d1", **more):
        return self.say(Connect(version=self.version, client_id=client_id, **more))

    def verify(self, ok):
        return [self.read(effect) for effect in self.session.verified(ok=ok, now=self.now)]

    def publish(self, number=0, **more):
        (store,) = self.say(Publish(topic="t", payload=b"x", qos=1 if number else 0, packet_id=number, **more))
        return store

    def acknowledged(self):
        data, count = self.session.ack_order.take()
        answers = packets_of(data, self.version)
        assert len(answers) == count
        return [(each.packet_id, each.code) for each in answers]


def make_context(*, with_users=False, with_commands=False, **settings):
    return ProtocolContext(
        settings=MqttSettings(**settings),
        intake=PublishIntake("acme", "gw-1", Topics("acme", [])),
        with_users=with_users,
        new_client_id=lambda: "made-up",
        with_commands=with_commands,
        now=lambda: Beacon("boot", 0),
    )


def packets_of(data, version):
    framer = Framer(1_000_000, None)
    framer.feed(data)
    found = []
    while (packet := framer.next_packet()) is not None:
        found.append(decode(*packet, version))
    return found
