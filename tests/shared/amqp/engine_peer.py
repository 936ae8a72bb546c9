"""A peer of the engine that sends frames made by hand, each field as the test likes."""

from fogline.amqp.engine import Engine
from fogline.amqp.events import Closed, ConnectionOpened, LinkClosed, LinkRequested, Received
from fogline.amqp.outcome import ACCEPTED, Condition
from fogline.amqp.security import ServerSecurity
from fogline_lab import amqp_bytes as raw

NULL = raw.NULL
FIELDS = {"open": 10, "begin": 8, "attach": 14, "flow": 11, "transfer": 11, "disposition": 6, "detach": 3, "end": 1, "close": 1}
CODES = {**dict(zip(FIELDS, range(0x10, 0x19), strict=True))}
TERMINUS = {"source": (raw.SOURCE, 11), "target": (raw.TARGET, 7)}


def fields_of(what, at, value):
    """A performative's fields as they should be, but one."""
    good = {
        "open": [raw.text("odd"), raw.text("host")],
        "begin": [NULL, raw.uint(0), raw.uint(1000), raw.uint(1000)],
        "attach": [
            raw.text("l"),
            raw.uint(0),
            b"\x42",
            NULL,
            NULL,
            terminus("source"),
            terminus("target"),
            NULL,
            NULL,
            raw.uint(0),
        ],
        "flow": [raw.uint(0), raw.uint(1000), raw.uint(0), raw.uint(1000), raw.uint(0), raw.uint(0), raw.uint(1)],
        "transfer": [raw.uint(0), raw.uint(0), b"\xa0\x01a", raw.uint(0), b"\x42", b"\x42"],
        "disposition": [b"\x41", raw.uint(0), raw.uint(0), b"\x41", raw.described(0x24, b"\x45")],
        "detach": [raw.uint(0), b"\x41"],
    }.get(what, [])
    fields = [*good, *[NULL] * (FIELDS[what] - len(good))]
    fields[at] = value
    return fields


def terminus(which, at=0, value=None):
    code, size = TERMINUS[which]
    fields = [raw.text("event/t"), *[NULL] * (size - 1)]
    if value is not None:
        fields[at] = value
    return raw.described(code, raw.listed(*fields))


def performative(what, at=0, value=NULL, payload=b""):
    return raw.frame(CODES[what], *fields_of(what, at, value), payload=payload)


def attach(name, handle=0, channel=0):
    return on_channel(channel, raw.frame(CODES["attach"], *changed("attach", {0: raw.text(name), 1: raw.uint(handle)})))


def detach(handle=0):
    return raw.frame(CODES["detach"], *changed("detach", {0: raw.uint(handle)}))


def transfer(number, handle=0, *, payload=b"", more=False, aborted=False):
    """The first, or only, part of a delivery."""
    fields = {0: raw.uint(handle), 1: raw.uint(number), 5: b"\x41" if more else b"\x42"}
    return raw.frame(CODES["transfer"], *changed("transfer", fields | ({9: b"\x41"} if aborted else {})), payload=payload)


def on_channel(channel, frame):
    return frame[:6] + channel.to_bytes(2, "big") + frame[8:]


def changed(what, fields):
    found = fields_of(what, 0, fields.get(0, NULL))
    return [fields.get(at, field) for at, field in enumerate(found)]


START = (
    raw.opening("odd"),
    performative("begin"),
    performative("attach"),
    performative("transfer", payload=b"\x00\x53\x75\xa0\x01x"),
)


class Peer:
    """The server's engine and what its owner did with what came: everything is accepted."""

    def __init__(self, *, settles=True, **engine):
        self.settles = settles
        self.engine = Engine("server", **{"security": ServerSecurity(), **engine})
        self.links = []
        self.link_ends = []
        self.messages = 0
        self.ended = None
        self.sent = b""

    def take(self, data):
        self.engine.receive_data(data)
        for event in self.engine.events():
            match event:
                case ConnectionOpened():
                    self.engine.open()
                case LinkRequested(link):
                    self.links.append(link)
                    self.engine.links.accept(link, credit=10)
                case LinkClosed(link, condition):
                    self.link_ends.append(condition)
                case Received(delivery):
                    self.messages += 1
                    if self.settles:
                        self.engine.links.settle(delivery, ACCEPTED)
                case Closed(condition):
                    self.ended = condition or Condition("closed")
        while data := self.engine.data_to_send():
            self.sent += data

    def release(self):
        self.engine.release()
        assert [link.native for link in self.links] == [None] * len(self.links)
        assert all(link.closed for link in self.links)
