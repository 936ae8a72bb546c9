"""A client and its session, without a network: tests of the state machine read as transcripts."""

from fogline.codec import Beacon
from fogline_edge.adapters.mqtt.effects import Close, Forget, Keep, Send
from fogline_edge.adapters.mqtt.framing import Framer
from fogline_edge.adapters.mqtt.intake import Intake
from fogline_edge.adapters.mqtt.packets import Connect, Publish, decode
from fogline_edge.adapters.mqtt.session import Border, Session
from fogline_edge.adapters.mqtt.topics import Topics
from fogline_edge.adapters.mqtt.wire import V5
from fogline_edge.settings import MqttSettings


class Talk:
    """A client and its session, without a network."""

    def __init__(self, version=V5, *, border=None, now=0.0, **settings):
        self.version = version
        self.border = border if border is not None else make_border(**settings)
        self.session = Session(self.border, now)
        self.now = now

    def say(self, *packets):
        """Send packets; returns what comes of them, with bytes decoded."""
        framer = Framer(1_000_000, None)
        for packet in packets:
            framer.feed(packet if isinstance(packet, bytes) else packet.encode(self.version))
        effects = []
        while (packet := framer.next_packet()) is not None:
            effects += self.session.receive(*packet, self.now)
        return [self.read(effect) for effect in effects]

    def read(self, effect):
        if isinstance(effect, Send):
            return packets_of(effect.data, self.version)[0]
        if isinstance(effect, Close):
            return (*packets_of(effect.data, self.version), effect.why)
        return effect

    def through(self, effects):
        """What comes of effects once everything is committed that they ask to keep or to forget."""
        found = []
        for effect in effects:
            if isinstance(effect, (Keep, Forget)):
                found += self.through([self.read(each) for each in effect.then()] if effect.then else [])
            else:
                found.append(effect)
        return found

    def settled(self, *packets):
        """Send packets; returns what comes of them after every commit."""
        return self.through(self.say(*packets))

    def execute(self, command):
        """Hand a command over; returns what comes of it, before any commit."""
        return [self.read(effect) for effect in self.session.downstream.execute(command)]

    def end(self):
        """The connection is lost. Returns what comes of it, but for what is kept."""
        return [each for each in self.session.end(self.now).effects if not isinstance(each, Keep)]

    def connect(self, client_id="d1", **more):
        return self.say(Connect(version=self.version, client_id=client_id, **more))

    def verify(self, ok):
        return [self.read(effect) for effect in self.session.verified(ok=ok, now=self.now)]

    def publish(self, number=0, **more):
        (store,) = self.say(Publish(topic="t", payload=b"x", qos=1 if number else 0, packet_id=number, **more))
        return store

    def acknowledged(self):
        data, count = self.session.window.take()
        answers = packets_of(data, self.version)
        assert len(answers) == count
        return [(each.packet_id, each.code) for each in answers]


def make_border(*, with_users=False, with_commands=False, **settings):
    return Border(
        settings=MqttSettings(**settings),
        intake=Intake("acme", "gw-1", Topics("acme", [])),
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
