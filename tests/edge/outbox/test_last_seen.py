"""Devices that repeat themselves, with a counter: what is stored of them, and what that costs."""

import contextlib
from itertools import pairwise

import pytest

from edge.outbox.stores import open_store, take
from fogline.events.event import Receipt
from fogline.events.identity import Counter
from fogline.events.report_on_change import ReportPolicy
from fogline_edge.outbox.memory import last_seen as module
from fogline_edge.outbox.memory.last_seen import PAUSE_S
from fogline_edge.outbox.memory.recognition import COUNTER_RESEND_S
from fogline_lab.clock import FakeClock
from fogline_lab.events import NOW_NS, make_arrival

ON_CHANGE = ReportPolicy(on_change=True)


class Gateway:
    """`stored`: of what was heard, what became an event, and when. `writes`: transactions that wrote anything."""

    def __init__(self, path):
        self.path = path
        self.stored = []
        self.writes = 0
        self.store = open_store(path, clock=FakeClock(NOW_NS))

    def restart(self):
        self.close()
        self.store = open_store(self.path, clock=FakeClock(NOW_NS))

    def close(self):
        self.store.connection.close()

    def hear(self, counter: int, data: bytes, at_s: int, report: ReportPolicy = ON_CHANGE):
        before = self.store.connection.total_changes
        arrival = make_arrival(data=data, evidence=Counter(counter, 8), report=report)
        (receipt,) = take(self.store, arrival, age_ms=at_s * 1000)
        self.writes += self.store.connection.total_changes > before
        if receipt is Receipt.STORED:
            self.stored.append((at_s, counter, data))


@pytest.fixture
def gateway(memory):
    with contextlib.closing(Gateway(memory / "outbox.db")) as gateway:
        yield gateway


@pytest.mark.parametrize("report", [ON_CHANGE, ReportPolicy()], ids=["on change", "all"])
def test_two_things_said_in_turn_are_stored_once_and_cost_no_write(gateway, report):
    for at_s in range(0, 1000, 2):
        gateway.hear(5, b"A", at_s, report)
        gateway.hear(6, b"B", at_s + 1, report)
    assert gateway.stored == [(0, 5, b"A"), (1, 6, b"B")]
    assert gateway.writes == 2


def test_repeated_report_beside_a_new_one_is_stored_once(gateway):
    """It tells the last two readings in turn; the older one was the last event for long."""
    for at_s in range(300):
        count = at_s // 100 + at_s % 2
        gateway.hear(count, b"%d" % count, at_s)
    assert [count for _, count, _ in gateway.stored] == [0, 1, 2, 3]


def test_a_report_more_often_than_a_counter_can_tell_costs_no_write(gateway):
    """Once in 30 s it is due, but then it still is a resend: the first time that it is none is the next event."""
    for at_s in range(200):
        gateway.hear(5, b"A", at_s, ReportPolicy(on_change=True, max_interval_s=30))
    assert [at_s for at_s, _, _ in gateway.stored] == [0, 61, 122, 183]
    assert gateway.writes == 4


def test_unchanged_report_is_an_event_at_its_maximum_interval(gateway):
    for at_s in range(2000):
        gateway.hear(5, b"A", at_s, ReportPolicy(on_change=True, max_interval_s=600))
    assert [at_s for at_s, _, _ in gateway.stored] == [0, 600, 1200, 1800]


@pytest.mark.fault("D4")
def test_a_counter_that_wraps_or_begins_anew_with_another_payload_is_a_new_event(gateway):
    for at_s in range(100):
        gateway.hear(5, b"A", at_s)
        gateway.hear(6, b"B", at_s)
    gateway.hear(5, b"C", 100)
    gateway.hear(6, b"A", 100)
    assert [each[1:] for each in gateway.stored] == [(5, b"A"), (6, b"B"), (5, b"C"), (6, b"A")]


@pytest.mark.fault("D4")
def test_a_device_that_begins_anew_with_each_event_is_stored_after_the_window_as_before(gateway):
    """A switch without a battery: each press is count 0, each release count 1."""
    presses = range(0, 1000, PAUSE_S + 5)
    for at_s in presses:
        gateway.hear(0, b"press", at_s)
        gateway.hear(1, b"release", at_s)
    stored = [at_s for at_s, _, data in gateway.stored if data == b"press"]
    assert all(later - earlier <= COUNTER_RESEND_S + PAUSE_S + 5 for earlier, later in pairwise(stored))
    assert len(stored) > 10


def test_after_a_pause_or_a_restart_the_first_copy_counts(gateway):
    for at_s in range(100):
        gateway.hear(5, b"A", at_s)
        gateway.hear(6, b"B", at_s)
    gateway.hear(5, b"A", 99 + PAUSE_S + 1)
    gateway.restart()
    assert [each[1:] for each in gateway.stored] == [(5, b"A"), (6, b"B"), (5, b"A")]
    gateway.hear(6, b"B", 99 + PAUSE_S + 2)
    assert len(gateway.stored) == 4


def test_memory_of_last_seen_messages_is_bounded(gateway, monkeypatch):
    monkeypatch.setattr(module, "MAX_SEEN", 10)
    for at_s in range(50):
        gateway.hear(at_s, b"%d" % at_s, at_s)
        gateway.hear(at_s, b"%d" % at_s, at_s)
    assert len(gateway.store.ingest.duplicates._last_seen._last_s) == 10


def test_each_press_of_a_button_without_a_counter_is_an_event(memory):
    presses = ReportPolicy(on_change=True, pause_s=2.0)
    store = open_store(memory / "presses.db", clock=FakeClock(NOW_NS))
    stored = []
    for pressed_ms in (0, 4000, 8000):
        for at_ms in range(pressed_ms, pressed_ms + 1200, 100):  # one press is on the air for a while
            (receipt,) = take(store, make_arrival(data=b"press", report=presses), age_ms=1_000_000 + at_ms)
            stored += [at_ms] * (receipt is Receipt.STORED)
    store.connection.close()
    assert stored == [0, 4000, 8000]
