"""A thread with a consumer that fails or blocks, without a broker."""

import queue
import threading

import pytest

from fogline_cloud.kafka import consumer_thread
from fogline_cloud.kafka.consumer_thread import ConsumerThread, stuck_consumers

LIMIT_S = 60
NAME = "reader of topic-1"


class Closed:
    """A consumer that can only be closed."""

    def __init__(self, told):
        self._told = told

    def close(self):
        self._told.put("stuck" if NAME in stuck_consumers() else "closed")


class Reader(ConsumerThread):
    """Tells what happens to it. Each turn does what the test wants."""

    def __init__(self, turn):
        self.told: queue.SimpleQueue[str] = queue.SimpleQueue()
        super().__init__(NAME, lambda: Closed(self.told))
        self._turn = turn

    def begin(self, _):
        self.told.put("begins")

    def turn(self, _):
        self.told.put("turn")
        self._turn()

    def next(self):
        return self.told.get(timeout=LIMIT_S)

    def end(self):
        self.stop()
        self.join(LIMIT_S)
        assert not self.is_alive(), "the thread did not end"


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyError("no")])
def test_a_thread_begins_again_with_a_new_consumer_after_any_error(monkeypatch, caplog, error):
    def fail():
        raise error

    monkeypatch.setattr(consumer_thread, "RETRY_S", 0.0)
    reader = Reader(fail)
    reader.start()
    assert [reader.next() for _ in range(6)] == ["begins", "turn", "closed"] * 2
    reader.end()
    assert "reader of topic-1 begins again" in caplog.text


def test_a_thread_that_does_not_come_back_is_named_until_it_does(monkeypatch):
    entered, free = threading.Event(), threading.Event()

    def block():
        entered.set()
        assert free.wait(LIMIT_S), "the test did not free the thread"

    reader = Reader(block)
    assert NAME not in stuck_consumers()
    reader.start()
    assert entered.wait(LIMIT_S), "the thread did not begin"
    assert NAME not in stuck_consumers()
    monkeypatch.setattr(consumer_thread, "STUCK_S", 0.0)
    assert NAME in stuck_consumers().removeprefix("no progress for 0 s: ").split("; ")
    free.set()
    reader.end()
    assert NAME not in stuck_consumers()


def test_a_thread_that_closes_its_consumer_is_not_stuck_because_that_lasts_as_long_as_an_outage(monkeypatch):
    monkeypatch.setattr(consumer_thread, "STUCK_S", 0.0)
    reader = Reader(lambda: None)
    reader.start()
    assert reader.next() == "begins"
    reader.end()
    assert next(each for each in iter(reader.next, None) if each != "turn") == "closed"


def test_a_thread_that_was_not_started_can_be_stopped():
    Reader(lambda: None).end()
