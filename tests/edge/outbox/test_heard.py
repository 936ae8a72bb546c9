"""Devices that repeat themselves, with a counter: what is stored of them, and what that costs."""

import contextlib
from itertools import pairwise

import pytest

from fogline.event import Receipt
from fogline.identity import Counter
from fogline.report import Report
from fogline.testing.clock import FakeClock
from fogline.testing.events import NOW_NS, make_arrival
from fogline_edge.boot import moment
from fogline_edge.outbox import heard as module
from fogline_edge.outbox.heard import PAUSE_S
from fogline_edge.outbox.ingest import Ingest, Waiting
from fogline_edge.outbox.recognition import COUNTER_RESEND_S
from fogline_edge.outbox.schema import open_database
from fogline_edge.outbox.streams import Streams

ON_CHANGE = Report(on_change=True)


class Gateway:
    """`stored`: of what was heard, what became an event, and when. `writes`: transactions that wrote anything."""

    def __init__(self, connection):
        self.connection = connection
        self.stored = []
        self.writes = 0
        self.start()

    def start(self):
        self.ingest = Ingest(self.connection, Streams(self.connection), "acme", "gw-1")

    def hear(self, counter: int, data: bytes, at_s: int, report: Report = ON_CHANGE):
        before = self.connection.total_changes
        self.connection.execute("BEGIN")
        arrival = make_arrival(data=data, evidence=Counter(counter, 8), report=report)
        (receipt,) = self.ingest.store([Waiting(arrival, moment(FakeClock(NOW_NS)), lambda _: None)], at_s * 1000)
        self.connection.execute("COMMIT")
        self.writes += self.connection.total_changes > before
        if receipt is Receipt.STORED:
            self.stored.append((at_s, counter, data))


@pytest.fixture
def gateway(memory):
    with contextlib.closing(open_database(memory / "outbox.db", 10**9)) as connection:
        yield Gateway(connection)


@pytest.mark.parametrize("report", [ON_CHANGE, Report()], ids=["on change", "all"])
def test_two_things_said_in_turn_are_stored_once_and_cost_no_write(gateway, report):
    for at_s in range(0, 1000, 2):
        gateway.hear(5, b"A", at_s, report)
        gateway.hear(6, b"B", at_s + 1, report)
    assert gateway.stored == [(0, 5, b"A"), (1, 6, b"B")]
    assert gateway.writes == 2


def test_what_is_said_on_beside_something_new_is_stored_once(gateway):
    """It tells the last two readings in turn; the older one was the last event for long."""
    for at_s in range(300):
        count = at_s // 100 + at_s % 2
        gateway.hear(count, b"%d" % count, at_s)
    assert [count for _, count, _ in gateway.stored] == [0, 1, 2, 3]


def test_a_report_more_often_than_a_counter_can_tell_costs_no_write(gateway):
    """Once in 30 s it is due, but then it still is a resend: the first time that it is none is the next event."""
    for at_s in range(200):
        gateway.hear(5, b"A", at_s, Report(on_change=True, max_interval_s=30))
    assert [at_s for at_s, _, _ in gateway.stored] == [0, 61, 122, 183]
    assert gateway.writes == 4


def test_what_is_due_though_nothing_changes_is_an_event(gateway):
    for at_s in range(2000):
        gateway.hear(5, b"A", at_s, Report(on_change=True, max_interval_s=600))
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
    gateway.start()
    assert [each[1:] for each in gateway.stored] == [(5, b"A"), (6, b"B"), (5, b"A")]
    gateway.hear(6, b"B", 99 + PAUSE_S + 2)
    assert len(gateway.stored) == 4


def test_what_is_heard_takes_no_more_memory_the_more_is_heard(gateway, monkeypatch):
    monkeypatch.setattr(module, "MAX_HEARD", 10)
    for at_s in range(50):
        gateway.hear(at_s, b"%d" % at_s, at_s)
        gateway.hear(at_s, b"%d" % at_s, at_s)
    assert len(gateway.ingest._heard._last_s) == 10
