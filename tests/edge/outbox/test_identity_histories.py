"""A hundred thousand devices tell their stories: no two readings are merged, no marked resend is stored twice.

The devices know what a gateway can only guess: which reading each transmission carries. What no protocol can tell apart
they do not do; those cases stand beside the guard that keeps them out, and in the tests at the end.
"""

from collections import Counter as Tally
from collections import defaultdict
from itertools import islice
from random import Random
from typing import NamedTuple

import msgspec
import pytest

from fogline.event import Arrival, Lane, Receipt
from fogline.identity import Counter, DeviceTime, Evidence, Retransmission, SessionCounter, UniqueId
from fogline.testing.events import NOW_NS
from fogline_edge.outbox.ingest import Ingest, Waiting
from fogline_edge.outbox.queries import SQL
from fogline_edge.outbox.recognition import COUNTER_RESEND_S
from fogline_edge.outbox.schema import open_database
from fogline_edge.outbox.streams import Streams
from fogline_edge.outbox.writer import REMEMBER_S

HISTORIES = 10_000
TOGETHER = 1_000
"""Devices that live at the same time, in one outbox."""
ROUNDS = 5
PAUSES_S = (0, 1, 20, COUNTER_RESEND_S, COUNTER_RESEND_S + 1, 246, 248, 3600, REMEMBER_S + 1)
FIRST, SECOND, BOTH = (0,), (1,), (0, 1)
NEVER = -1


# --- the devices


class Sent(NamedTuple):
    """One transmission of one reading. `within_s`: a gateway that stored it no longer ago has to know it again."""

    device: "Device"
    reading: int
    arrival: Arrival
    within_s: int
    heard_by: tuple[int, ...]


class Device:
    """What all devices have in common. `converges`: two gateways give its readings the same ids."""

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
            return [self.newest._replace(within_s=COUNTER_RESEND_S)]
        if self.held is not None and dice < 0.3:
            late, self.held, self.newest = self.held, None, None
            return [late]
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
        return [sent]

    def distinct(self, age_s) -> bytes:
        """The same count with the same payload so soon would be a resend for everyone: no device reboots so fast."""
        self.recent = [each for each in self.recent if age_s - each[0] <= COUNTER_RESEND_S]
        said = any((value, data) == (self.value, b"21.5") for _, value, data in self.recent)
        data = self.other() if said else b"21.5"
        self.recent.append((age_s, self.value, data))
        return data


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
    """Tier 5, QoS 1: packet ids in turn, or few of them, or always the same one; one message on its way at a time."""

    radio = False

    def __init__(self, name, random):
        super().__init__(name, random)
        self.ids = random.choice((65_535, 65_535, 2, 1))
        self.number = random.randrange(self.ids)
        self.newest: Sent | None = None
        self.slots: dict[int, bytes] = {}

    def say(self, _age_s):
        dice = self.dice()
        if self.newest is not None and dice < 0.3:
            return [self.again(self.newest)]
        if self.newest is not None and dice < 0.35:  # connected anew, without a session: nothing marks it
            return [self.newest._replace(arrival=self.numbered(self.newest.arrival))]
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

    def again(self, sent: Sent) -> Sent:
        marked = msgspec.structs.replace(sent.arrival.retransmission, again=True)
        arrival = msgspec.structs.replace(sent.arrival, retransmission=marked)
        self.newest = sent._replace(arrival=arrival)
        return sent._replace(arrival=arrival, within_s=REMEMBER_S)

    def numbered(self, arrival: Arrival, *, again: bool = False) -> Arrival:
        self.number = self.number % self.ids + 1
        return msgspec.structs.replace(arrival, retransmission=Retransmission(b"client", again, number=self.number))


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
            return [self.newest._replace(within_s=self.LIFETIME_S)]
        token = b"" if self.newest is None else self.newest.arrival.retransmission.token
        if self.newest is not None and dice < 0.4:  # the id again: too soon with another token, later with the same
            token = b"%d" % self.readings if age_s - self.born <= self.LIFETIME_S else token
        else:
            self.mid = (self.mid + 1) % 2**16
        sent = Retransmission(b"endpoint", again=True, window_s=self.LIFETIME_S, number=self.mid, token=token)
        self.newest, self.born = self.new(sent=sent), age_s
        return [self.newest]


KINDS = (Named, InSessions, Counting, Counting, Timing, OverMqtt, OverMqtt, OverCoap)


# --- the gateways and the judge


class Stored(msgspec.Struct):
    """What of a stored event says which one it is."""

    id: str
    dedup: str


class Gateway:
    """The real way in, on a real file; what is stored is taken away at once, as if a bridge had it."""

    def __init__(self, folder, name):
        self.path = folder / f"{name}.db"
        self.name = name
        self.decoder = msgspec.json.Decoder(Stored)
        self.start()

    def start(self):
        self.connection = open_database(self.path, 10**9)
        self.streams = Streams(self.connection)
        self.ingest = Ingest(self.connection, self.streams, "acme", self.name)

    def restart(self, age_s):
        """Also forget what a gateway forgets of devices that said ten thousand other things since."""
        self.connection.execute(SQL["forget"], (age_s - REMEMBER_S, 0))
        self.connection.execute(SQL["forget_slots"], (age_s - REMEMBER_S, 0))
        self.connection.close()
        self.start()

    def hear(self, arrivals, age_s) -> list[Stored | None]:
        """Each as it was stored, `None` for what was refused as a resend."""
        stream = self.streams.of_lane(Lane.TELEMETRY)
        before = stream.head
        self.connection.execute("BEGIN IMMEDIATE")
        receipts = self.ingest.store([Waiting(each, NOW_NS, lambda _: None) for each in arrivals], age_s)
        rows = iter(self.connection.execute(SQL["read_events"], (stream.number, before, -1)).fetchall())
        self.connection.execute(SQL["delete_settled"], (stream.number, stream.head))
        self.connection.execute("COMMIT")
        self.ingest.committed()
        stored = [None if receipt is Receipt.DUPLICATE else self.decoder.decode(next(rows)[2]) for receipt in receipts]
        assert next(rows, None) is None
        return stored


class Judge:
    """Holds what two gateways did against what the devices know."""

    def __init__(self):
        self.wrong: list[str] = []
        self.tally: Tally[str] = Tally()
        self.there: dict[tuple[int, Device, int], int] = {}
        self.first_ids: dict[tuple[int, Device, int], str] = {}
        self.owners: dict[tuple[Device, str], int] = {}

    def judge(self, at: int, sent: Sent, stored: Stored | None, age_s: int) -> None:
        device, reading, arrival = sent.device, sent.reading, sent.arrival
        key = (at, device, reading)
        then_s = self.there.get(key)
        if stored is None:
            self.tally["refused"] += 1
            if then_s is None:
                self.say("merged: refused as a resend of another reading", at, sent)
            return
        self.tally["stored"] += 1
        if self.owners.setdefault((device, stored.id), reading) != reading:
            self.say("merged: it has the id of another reading", at, sent)
        if then_s is not None:
            self.tally["kept twice"] += 1
            if age_s - then_s <= sent.within_s:
                self.say("doubled: a marked resend is stored again", at, sent)
        if arrival.evidence is None and stored.dedup != "weak":
            self.say(f"nothing names it, and it is {stored.dedup}", at, sent)
        self.there[key] = age_s
        self.first_ids.setdefault(key, stored.id)
        if device.converges and self.first_ids.get((1 - at, device, reading), stored.id) != self.first_ids[key]:
            self.say("two gateways give it two ids", at, sent)

    def say(self, what: str, at: int, sent: Sent) -> None:
        self.tally["wrong"] += 1
        self.wrong.append(f"{what}: gateway {at}, {sent.device.name}, reading {sent.reading}, {sent.arrival}")


def live(gateways, random, devices, judge, age_s) -> int:
    """The devices' whole lives. Returns the age of the gateways at their end."""
    for _ in range(ROUNDS):
        said = [sent for device in devices for sent in device.say(age_s)]
        for at, gateway in enumerate(gateways):
            heard = [sent for sent in said if at in sent.heard_by]
            for sent, stored in zip(heard, gateway.hear([sent.arrival for sent in heard], age_s), strict=True):
                judge.judge(at, sent, stored, age_s)
        age_s += random.choice(PAUSES_S)
        if random.random() < 0.3:
            random.choice(gateways).restart(age_s)
    return age_s


@pytest.mark.timeout(600)
def test_no_identity_in_a_hundred_thousand_histories_merges_two_readings(tmp_path):
    random = Random(20_260_101)
    gateways = [Gateway(tmp_path, "gw-1"), Gateway(tmp_path, "gw-2")]
    tally: Tally[str] = Tally()
    age_s = 1000
    for first in range(0, HISTORIES, TOGETHER):
        judge = Judge()
        kinds = islice(((number, random.choice(KINDS)) for number in range(first, HISTORIES)), TOGETHER)
        devices = [kind(f"{kind.__name__.lower()}-{number}", random) for number, kind in kinds]
        tally.update(type(each).__name__ for each in devices)
        tally["histories"] += len(devices)
        age_s = live(gateways, random, devices, judge, age_s)
        pass
        tally += judge.tally
        tally.update(w.split(": gateway")[0] + " " + w.split(", ")[1].split("-")[0] for w in judge.wrong)
    print(f"identity: {dict(tally)}")
    assert tally["histories"] >= 100_000
    assert min(tally["refused"], tally["kept twice"]) > 1_000, "the devices sent little again"
