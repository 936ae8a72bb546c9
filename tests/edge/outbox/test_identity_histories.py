"""Ten thousand devices, and a hundred thousand, tell their stories: no readings are merged, no resend is stored twice."""

from collections import Counter as Tally
from random import Random

import msgspec
import pytest

from edge.outbox.histories import KINDS, Device, Sent
from edge.outbox.stores import open_store, rows, take
from fogline.events.event import Receipt
from fogline.events.identity import Counter, DeviceTime, Retransmission, SessionCounter, UniqueId
from fogline_edge.outbox.memory.memory_expiry import REMEMBER_S
from fogline_edge.outbox.memory.recognition import COUNTER_RESEND_S
from fogline_lab.clock import FakeClock
from fogline_lab.events import NOW_NS

TOGETHER = 1_000
"""Devices that live at the same time, in one outbox."""
ROUNDS = 5
PAUSES_S = (0, 1, 20, COUNTER_RESEND_S, COUNTER_RESEND_S + 1, 246, 248, 3600, REMEMBER_S + 1)


class Stored(msgspec.Struct):
    """The parts of a stored event that identify it."""

    id: str
    dedup: str


class Gateway:
    """The real way in, on a real file; the bridge accepts what is stored at once, and its rows are deleted now and then."""

    def __init__(self, folder, name):
        self.path = folder / f"{name}.db"
        self.name = name
        self.decoder = msgspec.json.Decoder(Stored)
        self.random = Random(name)
        self.start()

    def start(self):
        self.store = open_store(self.path, gateway=self.name, clock=FakeClock(NOW_NS))

    def restart(self, age_s):
        """Also forget what a gateway forgets of devices that said ten thousand other things since."""
        self.store.connection.execute("DELETE FROM memory WHERE stored_s < ?", (age_s - REMEMBER_S,))
        self.store.connection.close()
        self.start()

    def hear(self, arrivals, age_s) -> list[Stored | None]:
        """Each as it was stored, `None` for what was refused as a resend."""
        before = {each.stream: each.head for each in self.store.streams.opened()}
        receipts = take(self.store, *arrivals, age_ms=age_s * 1000)
        (stream,) = self.store.streams.opened()
        stored = iter(rows(self.store, stream, before.get(stream.stream, 0)))
        self.store.accept(stream.stream, stream.head)
        if self.random.random() < 0.5:
            with self.store.transaction():
                self.store.purge()
        found = [None if receipt is Receipt.DUPLICATE else self.decoder.decode(next(stored).body) for receipt in receipts]
        assert next(stored, None) is None
        return found


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
        mine = self.first_ids[key]
        if device.converges and self.first_ids.get((1 - at, device, reading), mine) != mine:
            self.say("two gateways give it two ids", at, sent)

    def say(self, what: str, at: int, sent: Sent) -> None:
        self.tally["wrong"] += 1
        self.wrong.append(f"{what}: gateway {at}, {type(sent.device).__name__}, reading {sent.reading}, {sent.arrival}")


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


def test_no_identity_in_ten_thousand_histories_merges_two_readings(memory):
    tell(10_000, memory)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.fault("D1", "D2", "D4", "D5")
def test_no_identity_in_a_hundred_thousand_histories_merges_two_readings(memory):
    tell(100_000, memory)


def tell(histories, folder):
    random = Random(20_260_101)
    gateways = [Gateway(folder, "gw-1"), Gateway(folder, "gw-2")]
    tally: Tally[str] = Tally()
    age_s = 1000
    for first in range(0, histories, TOGETHER):
        judge = Judge()
        devices = [random.choice(KINDS)(f"d-{number}", random) for number in range(first, first + TOGETHER)]
        tally.update(type(each).__name__ for each in devices)
        tally["histories"] += len(devices)
        age_s = live(gateways, random, devices, judge, age_s)
        assert not judge.wrong, "\n".join(judge.wrong[:10])
        tally += judge.tally
    print(f"identity: {dict(tally)}")
    assert tally["histories"] >= histories
    assert min(tally["refused"], tally["kept twice"]) > histories / 100, "the devices sent little again"


# --- one by one: what the fleet above meets by chance, or must not do


def said(data=b"21.5", evidence=None, number=None, *, again=False, token=b""):
    sent = None if number is None else Retransmission(b"client", again, number=number, token=token)
    return Device("one", Random(0)).new(data, evidence, sent).arrival


@pytest.fixture
def gateway(tmp_path):
    return Gateway(tmp_path, "gw-1")


def test_identity_of_a_device_that_uses_one_packet_id_for_everything(gateway):
    """One after the other, its resends are known. Several on their way at once are kept, and may be kept twice."""
    in_turn = [said(), said(number=1), said(number=1), said(number=1, again=True), said(b"22", number=1)]
    assert [stored is not None for stored in gateway.hear(in_turn, 1)] == [True, True, True, False, True]
    at_once = [said(b"a", number=1), said(b"b", number=1), said(b"a", number=1, again=True), said(b"b", number=1, again=True)]
    stored = gateway.hear(at_once, 2)
    assert [each.dedup for each in stored] == ["weak"] * 4
    assert len({each.id for each in stored}) == 4


def test_identity_that_cannot_be_known(gateway):
    """The first transmission is lost, and its DUP equals what the same packet id carried before: it passes for a resend."""
    assert gateway.hear([said(number=1), said(number=1, again=True)], 1)[1] is None


def test_identity_of_a_counter_whose_former_counts_are_forgotten(gateway):
    """Older counts are forgotten before the state is; a reboot to one of them is no late count of the same incarnation."""
    ids = [gateway.hear([said(evidence=Counter(value, 16))], 1)[0].id for value in (0, 1)]
    age_s = REMEMBER_S + 60
    ids.append(gateway.hear([said(evidence=Counter(2, 16))], age_s)[0].id)
    gateway.restart(age_s)
    ids += [gateway.hear([said(evidence=Counter(value, 16))], age_s + 100)[0].id for value in (0, 1)]
    assert len(set(ids)) == 5


@pytest.mark.parametrize("evidence", [UniqueId(b"7"), SessionCounter(b"boot", 7), Counter(7, 16), DeviceTime(7)], ids=str)
def test_identity_of_different_readings_in_two_copies_of_an_outbox(gateway, tmp_path, evidence):
    gateway.hear([said(evidence=Counter(6, 16))], 1)
    gateway.store.connection.close()
    (tmp_path / "copy.db").write_bytes(gateway.path.read_bytes())
    gateway.start()
    copy = Gateway(tmp_path, "copy")
    ((one,), (other,)) = (each.hear([said(data, evidence)], 2) for each, data in ((gateway, b"1"), (copy, b"2")))
    assert one.id != other.id


@pytest.mark.parametrize("evidence", [UniqueId(b"7"), SessionCounter(b"boot", 7), Counter(7, 16)], ids=str)
def test_identity_does_not_hang_on_the_token_of_an_exchange(gateway, evidence):
    first, second = gateway.hear([said(evidence=evidence, number=n, token=b"%d" % n) for n in (1, 2)], 1)
    assert first is not None
    assert second is None


def test_identity_of_two_readings_under_one_name_when_the_first_is_forgotten(gateway):
    one, other = said(b"1", UniqueId(b"7")), said(b"2", UniqueId(b"7"))
    gateway.hear([one], 1)
    gateway.hear([other], REMEMBER_S)
    gateway.restart(REMEMBER_S + 2)
    assert gateway.hear([other, one], REMEMBER_S + 2) == [None, None]
