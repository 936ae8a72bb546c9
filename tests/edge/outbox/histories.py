"""Devices whose lives are made up, but who know what a gateway can only guess: which reading each transmission carries.

Each has `say(age_s)`: what it transmits at that moment. What no protocol can tell apart they do not do; the guard that
keeps it out says so.
"""

from random import Random
from typing import NamedTuple

import msgspec

from fogline.events.event import Arrival, Lane
from fogline.events.identity import Counter, DeviceTime, Evidence, Retransmission, SessionCounter, UniqueId
from fogline_edge.outbox.memory.memory_expiry import REMEMBER_S
from fogline_edge.outbox.memory.recognition import COUNTER_RESEND_S
from fogline_lab.events import NOW_NS

FIRST, SECOND, BOTH = (0,), (1,), (0, 1)
NEVER = -1


class Sent(NamedTuple):
    """One transmission of one reading. `within_s`: a gateway that stored it no longer ago has to know it again."""

    device: "Device"
    reading: int
    arrival: Arrival
    within_s: int
    heard_by: tuple[int, ...]


class Device:
    """Base class of all devices. `converges`: two gateways give its readings the same ids."""

    converges = False
    radio = True

    def __init__(self, name: str, random: Random):
        self.name = name
        self.random = random
        self.readings = 0
        self.dice = random.random
        self.twice = self.radio and random.random() < 0.5

    def new(self, data: bytes = b"21.5", evidence: Evidence | None = None, sent: Retransmission | None = None) -> Sent:
        """Another reading, however much it looks like a former one."""
        self.readings += 1
        arrival = Arrival(
            device=self.name,
            channel="c",
            lane=Lane.TELEMETRY,
            content_type="text/plain",
            data=data,
            adapter="model",
            evidence=evidence,
            retransmission=sent,
        )
        return Sent(self, self.readings, arrival, NEVER, self.ears())

    def ears(self) -> tuple[int, ...]:
        return self.random.choice((FIRST, SECOND, BOTH)) if self.twice else FIRST

    def other(self) -> bytes:
        """A payload that the device never sent before."""
        return b"%d.5 other" % self.readings


class Named(Device):
    """Tier 1: it names each reading, keeps all of them, and now and then uses a name for something else."""

    converges = True

    def __init__(self, name, random):
        super().__init__(name, random)
        self.said: list[Sent] = []

    def evidence(self) -> Evidence:
        return UniqueId(b"%d" % self.readings)

    def say(self, _age_s):
        dice = self.dice()
        if self.said and dice < 0.3:
            again = self.random.choice(self.said)
            return [again._replace(within_s=REMEMBER_S, heard_by=self.ears())]
        if self.said and dice < 0.4:
            sent = self.new(self.other(), self.said[-1].arrival.evidence)
        else:
            sent = self.new(evidence=self.evidence())
        self.said.append(sent)
        return [sent]


class InSessions(Named):
    """Tier 2: a counter that begins at 0 with every boot; boots have names, which not every device changes."""

    def __init__(self, name, random):
        super().__init__(name, random)
        self.boot = self.counter = 0

    def evidence(self) -> Evidence:
        if self.dice() < 0.2:
            self.boot, self.counter = self.boot + 1, 0
        self.counter += 1
        return SessionCounter(b"%d" % self.boot, self.counter)


class Counting(Device):
    """Tier 3: a bare counter that wraps, has holes, comes late and begins anew, with readings that are mostly equal."""

    def __init__(self, name, random):
        super().__init__(name, random)
        self.width = random.choice((8, 16))
        self.value = random.choice((0, 3, 2**self.width - 2, random.getrandbits(self.width)))
        self.held: Sent | None = None
        self.newest: Sent | None = None
        self.recent: list[tuple[int, int, bytes]] = []

    def say(self, age_s):
        dice = self.dice()
        if self.newest is not None and dice < 0.15:
            return self.sending(self.newest._replace(within_s=COUNTER_RESEND_S), age_s)
        if self.held is not None and dice < 0.3:
            late, self.held, self.newest = self.held, None, None
            return self.sending(late, age_s)
        if dice < 0.42:
            self.value = self.random.choice((-1, self.random.getrandbits(self.width)))
            self.held = None  # what it had not sent is gone with its memory
        elif dice < 0.5:
            self.value += self.random.choice((1, 15, 16, 17, 127, 128, 250, 255, 256))
        self.value = (self.value + 1) % 2**self.width
        sent = self.new(self.distinct(age_s), Counter(self.value, self.width))
        if self.held is None and dice > 0.85:
            self.held = sent
            return []
        self.newest = sent
        return self.sending(sent, age_s)

    def sending(self, sent: Sent, age_s: int) -> list[Sent]:
        self.recent.append((age_s, sent.arrival.evidence.value, sent.arrival.data))
        return [sent]

    def distinct(self, age_s) -> bytes:
        """The same count with the same payload so soon would be a resend for everyone: no device reboots so fast."""
        said = {(value, data) for then_s, value, data in self.recent if age_s - then_s <= COUNTER_RESEND_S}
        if self.held is not None:
            said.add((self.held.arrival.evidence.value, self.held.arrival.data))
        return self.other() if (self.value, b"21.5") in said else b"21.5"


class Timing(Device):
    """Tier 4: it gives the time, with few digits. Either two readings fall on one, or it sends again, not both."""

    converges = True

    def __init__(self, name, random):
        super().__init__(name, random)
        self.twins = random.random() < 0.5
        self.newest: Sent | None = None

    def say(self, age_s):
        if self.newest is not None and not self.twins and self.dice() < 0.3:
            return [self.newest._replace(heard_by=self.ears())]
        evidence = DeviceTime(NOW_NS + (age_s * 10 + self.readings) * 10**8)
        self.newest = sent = self.new(evidence=evidence)
        if self.twins and self.dice() < 0.5:
            return [sent, self.new(evidence=evidence)._replace(heard_by=sent.heard_by)]
        return [sent]


class OverMqtt(Device):
    """Tier 5, QoS 1: packet ids in turn, or few of them, or always the same one; one message on its way at a time.

    Some clients speak for three devices, under the same packet ids.
    """

    radio = False

    def __init__(self, name, random):
        super().__init__(name, random)
        self.ids = random.choice((65_535, 65_535, 2, 1))
        self.speaks_for = random.choice((1, 1, 3))
        self.number = random.randrange(self.ids)
        self.newest: Sent | None = None

    def say(self, _age_s):
        dice = self.dice()
        if self.newest is not None and dice < 0.3:
            return [self.again(self.newest)]
        if self.newest is not None and dice < 0.35:  # connected anew, without a session: nothing marks it
            self.newest = self.newest._replace(arrival=self.numbered(self.newest.arrival))
            return [self.newest]
        if dice < 0.45:  # the first transmission is lost
            sent = self.new(self.other())  # an equal one under the same id could be told from a resend by nobody
            sent = sent._replace(arrival=self.numbered(sent.arrival, again=True))
        elif dice < 0.55:  # QoS 0
            return [self.new()]
        else:
            sent = self.new()
            sent = sent._replace(arrival=self.numbered(sent.arrival))
        self.newest = sent
        return [sent]

    def new(self, data: bytes = b"21.5", evidence: Evidence | None = None, sent: Retransmission | None = None) -> Sent:
        said = super().new(data, evidence, sent)
        if self.speaks_for == 1:
            return said
        device = f"{self.name}-{self.random.randrange(self.speaks_for)}"
        return said._replace(arrival=msgspec.structs.replace(said.arrival, device=device))

    def again(self, sent: Sent) -> Sent:
        marked = msgspec.structs.replace(sent.arrival.retransmission, again=True)
        arrival = msgspec.structs.replace(sent.arrival, retransmission=marked)
        self.newest = sent._replace(arrival=arrival)
        return sent._replace(arrival=arrival, within_s=REMEMBER_S)

    def numbered(self, arrival: Arrival, *, again: bool = False) -> Arrival:
        self.number = self.number % self.ids + 1
        return msgspec.structs.replace(arrival, retransmission=Retransmission(self.name.encode(), again, number=self.number))


class OverCoap(Device):
    """Tier 5: a message id and a token, good for 247 s; then the id, and perhaps the token, is used again."""

    radio = False
    LIFETIME_S = 247

    def __init__(self, name, random):
        super().__init__(name, random)
        self.mid = random.choice((0, 65_534, random.getrandbits(16)))
        self.newest: Sent | None = None
        self.born = 0

    def say(self, age_s):
        dice = self.dice()
        if self.newest is not None and dice < 0.3:
            self.born = age_s if age_s - self.born > self.LIFETIME_S else self.born  # too late: a new message to everyone
            return [self.newest._replace(within_s=self.LIFETIME_S)]
        token = b"" if self.newest is None else self.newest.arrival.retransmission.token
        if self.newest is not None and dice < 0.4:  # the id again: too soon with another token, later with the same
            token = b"%d" % self.readings if age_s - self.born <= self.LIFETIME_S else token
        else:
            self.mid = (self.mid + 1) % 2**16
        sent = Retransmission(self.name.encode(), again=True, window_s=self.LIFETIME_S, number=self.mid, token=token)
        self.newest, self.born = self.new(sent=sent), age_s
        return [self.newest]


KINDS = (Named, InSessions, Counting, Counting, Timing, OverMqtt, OverMqtt, OverCoap)
