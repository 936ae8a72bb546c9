"""Is it a resend? Histories in, verdicts out."""

from functools import cache
from itertools import count
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.events.event import Arrival, Lane
from fogline.events.identity import Counter, Dedup, DeviceTime, Retransmission, SessionCounter, UniqueId, digest
from fogline.gateway.ledger import RuleOutcome
from fogline_edge.outbox.file.schema import connect_file, migrate
from fogline_edge.outbox.memory.recognition import (
    COUNTER_RESEND_DISTANCE,
    COUNTER_RESEND_S,
    KnownEvent,
    NewEvent,
    recognise,
    serial_distance,
)
from fogline_edge.outbox.memory.resend_memory import ResendMemory

NAMES = count()


@cache
def database():
    """One for all devices of a run: each has a name of its own there."""
    connection = connect_file(Path(":memory:"))
    migrate(connection)
    return connection


class Device:
    """A device and what is remembered of it. `say` returns the id of a new event, or None for a resend."""

    def __init__(self):
        self.name = f"d{next(NAMES)}"
        self.memory = {}
        self.slots = ResendMemory(database(), 10**9)
        self.age_s = 1000
        self.nonce = 0

    def verdict(self, data=b"21.5", evidence=None, slot=None, *, again=False, shared=False):
        self.nonce += 1
        arrival = Arrival(
            device="d",
            channel="c",
            lane=Lane.TELEMETRY,
            content_type="x",
            data=data,
            adapter="mqtt",
            evidence=evidence,
            shared=shared,
            retransmission=None if slot is None else Retransmission(self.name.encode() + slot, again),
        )
        sent, payload = arrival.retransmission, digest(arrival.channel, arrival.data)
        if sent is not None and again and self.slots.repeats(arrival, sent, self.age_s):
            return KnownEvent()
        verdict = recognise(arrival, payload, tenant="t", recall=self.memory.get, age_s=self.age_s, nonce=self.nonce)
        if isinstance(verdict, NewEvent):
            self.memory.update(verdict.remember)
            if sent is not None:
                self.slots.note(arrival, sent, self.age_s)
        return verdict

    def say(self, *args, **kwargs):
        verdict = self.verdict(*args, **kwargs)
        return None if isinstance(verdict, KnownEvent) else verdict.id or "weak"


@pytest.mark.fault("D5")
def test_without_evidence_two_equal_readings_are_two_events():
    device = Device()
    assert device.say() == "weak"
    assert device.say() == "weak"


def test_a_marked_resend_of_the_same_is_recognised():
    device = Device()
    assert device.say(slot=b"1") == "weak"
    assert device.say(slot=b"1", again=True) is None


def test_an_unmarked_one_in_the_same_slot_is_a_new_event():
    device = Device()
    assert device.say(slot=b"1") == "weak"
    assert device.say(slot=b"1") == "weak"


def test_a_marked_one_that_never_came_before_is_a_new_event():
    device = Device()
    assert device.say(slot=b"1", again=True) == "weak"
    assert device.say(b"other", slot=b"1", again=True) == "weak"
    assert device.say(slot=b"2", again=True) == "weak"


def test_a_slot_is_forgotten_after_its_window():
    device = Device()
    device.say(slot=b"1")
    device.age_s += 48 * 3600 + 1
    assert device.say(slot=b"1", again=True) == "weak"


@pytest.mark.parametrize("evidence", [UniqueId(b"42"), SessionCounter(b"boot", 42)], ids=str)
def test_a_named_event_is_itself_whenever_it_comes_again(evidence):
    device = Device()
    first = device.verdict(evidence=evidence)
    assert first.dedup is Dedup.STRONG
    device.age_s += 10**9
    assert device.say(evidence=evidence) is None
    assert Device().say(evidence=evidence) == first.id


@pytest.mark.parametrize("evidence", [UniqueId(b"42"), SessionCounter(b"boot", 42)], ids=str)
def test_one_name_for_two_things_keeps_both_and_says_so(evidence):
    device = Device()
    first = device.verdict(b"one", evidence)
    other = device.verdict(b"two", evidence)
    assert (other.outcome, other.original) == (RuleOutcome.CONFLICT, first.id)
    assert device.say(b"two", evidence) is None
    assert device.say(b"one", evidence) is None


@pytest.mark.parametrize(
    ("newest", "value", "distance"), [(5, 6, 1), (6, 5, -1), (255, 0, 1), (0, 255, -1), (0, 127, 127), (0, 128, -128)]
)
def test_serial_distance(newest, value, distance):
    assert serial_distance(newest, value, 8) == distance


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.fault("D11")
def test_two_contents_in_turn_under_one_counter_value_are_two_events(shared):
    device = Device()
    said = []
    for value in (176, 177):
        for _ in range(4):
            for content in (b"climate", b"battery"):
                said.append(device.say(content, Counter(value, 8), shared=shared))
                device.age_s += 1
    ids = [each for each in said if each is not None]
    assert [index for index, each in enumerate(said) if each] == [0, 1, 8, 9]
    assert len(set(ids)) == 4


def test_a_shared_device_that_restarts_within_a_minute_uses_no_id_twice():
    device = Device()
    said = [device.say(b"%d" % value, Counter(value, 8), shared=True) for value in (0, 1, 40, 0, 1, 2)]
    ids = [each for each in said if each]
    assert len(set(ids)) == len(ids) == 4


def test_a_counter_that_stands_still_keeps_every_content():
    device = Device()
    contents = [b"%d" % n for n in range(12)] * 2
    ids = [device.say(content, Counter(5, 8)) for content in contents]
    assert None not in ids
    assert len(set(ids)) == len(contents)


def test_a_counter_wraps_without_a_merge():
    device = Device()
    ids = [device.say(b"same", Counter(n % 256, 8)) for n in range(1000)]
    assert len(set(ids)) == 1000


def test_a_counter_that_comes_again_soon_is_a_resend():
    device = Device()
    for n in range(10):
        device.say(b"%d" % n, Counter(n, 16))
    assert device.say(b"9", Counter(9, 16)) is None
    assert device.say(b"5", Counter(5, 16)) is None
    device.age_s += COUNTER_RESEND_S + 1
    assert device.say(b"9", Counter(9, 16)) is not None


def test_a_counter_takes_no_more_memory_the_further_it_goes():
    device = Device()
    for n in range(1000):
        device.say(b"%d" % n, Counter(n, 16))
        device.age_s += 1
    (state,) = device.memory.values()
    assert len(msgspec.msgpack.encode(state)) < 700
    device.age_s += COUNTER_RESEND_S
    device.say(b"1000", Counter(1000, 16))
    (state,) = device.memory.values()
    assert len(state.recent) == 1, "no row holds what is no resend any more"


@pytest.mark.parametrize(("behind", "resend"), [(COUNTER_RESEND_DISTANCE, True), (COUNTER_RESEND_DISTANCE + 1, False)])
def test_a_counter_is_a_resend_up_to_its_distance_behind_the_newest(behind, resend):
    device = Device()
    device.say(b"first", Counter(100, 16))
    device.say(b"newest", Counter(100 + behind, 16))
    assert (device.say(b"first", Counter(100, 16)) is None) == resend


def test_memory_of_a_counter_has_only_values_that_a_resend_could_repeat():
    device = Device()
    for n in range(100, 141):
        device.say(b"%d" % n, Counter(n, 16))
    (state,) = device.memory.values()
    assert [each.value for each in state.recent] == list(range(140 - COUNTER_RESEND_DISTANCE, 141))


def test_a_late_counter_is_an_event_of_the_same_incarnation():
    device = Device()
    for n in (1, 2, 4):
        device.say(b"%d" % n, Counter(n, 16))
    assert device.say(b"3", Counter(3, 16)) is not None
    assert device.say(b"5", Counter(5, 16)) is not None
    assert device.say(b"4", Counter(4, 16)) is None


@given(st.lists(st.tuples(st.integers(1, 300), st.sampled_from([8, 16])), min_size=1, max_size=6), st.booleans())
@pytest.mark.fault("D4")
def test_reboots_never_swallow_a_reading(boots, constant):
    """Every reading differs in truth; a device that always sends the same bytes is the hardest case."""
    device, stored, sent = Device(), [], 0
    width = boots[0][1]
    for readings, _ in boots:
        for n in range(readings):
            sent += 1
            device.age_s += COUNTER_RESEND_S + 1
            stored.append(device.say(b"same" if constant else b"%d" % sent, Counter(n % 2**width, width)))
    assert None not in stored
    assert len(set(stored)) == sent


def test_equal_readings_at_one_time_are_occurrences():
    device = Device()
    first, second = (device.verdict(evidence=DeviceTime(5), slot=slot) for slot in (b"1", b"2"))
    assert first.dedup is Dedup.GOOD
    assert first.id != second.id
    assert device.say(evidence=DeviceTime(5), slot=b"2", again=True) is None


def test_all_gateways_compute_the_same_id_of_a_shared_counter_after_any_history():
    heard = [[5], [3, 4, 5], [300 % 256, 5]]
    ids = set()
    for values in heard:
        device = Device()
        for value in values:
            verdict = device.verdict(b"%d" % value, Counter(value, 8), shared=True)
        assert verdict.dedup is Dedup.SHARED
        ids.add(verdict.id)
    assert len(ids) == 1


def test_a_shared_counter_with_another_payload_has_another_id():
    device = Device()
    first = device.verdict(b"21.5", Counter(5, 8), shared=True)
    assert device.verdict(b"21.5", Counter(5, 8), shared=True) == KnownEvent()
    assert device.verdict(b"21.6", Counter(5, 8), shared=True).id != first.id
