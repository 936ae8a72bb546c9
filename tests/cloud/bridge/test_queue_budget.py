"""Back-pressure by the bytes that wait for a shard: credit is withheld, then the socket is not read."""

import pytest

from fogline.amqp.events import Link
from fogline_cloud.bridge.peers.queue_budget import QueueBudget, QueuedBytes


class Gate:
    """A connection that records the calls."""

    def __init__(self):
        self.granted = 0
        self.reading = True

    def grant(self, link, credit):  # noqa: ARG002 - the interface
        self.granted += credit

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True


LINK = Link("l", "telemetry/t", False, {}, None)


@pytest.fixture
def budget():
    return QueueBudget(connection_bytes=100, process_bytes=300)


def taking(budget, *sizes):
    queued = QueuedBytes(Gate())
    for size in sizes:
        budget.take(queued, size)
    return queued


def settle(budget, queued, size):
    budget.give_back(queued, size)
    budget.owe(queued, LINK)


def test_b9_a_message_that_is_settled_brings_credit_at_once_while_little_waits(budget):
    queued = taking(budget, 20, 20)
    settle(budget, queued, 20)
    assert (queued.connection.granted, queued.connection.reading, budget.held_bytes) == (1, True, 20)


def test_b9_above_half_of_a_connections_limit_credit_waits_until_there_is_room(budget):
    queued = taking(budget, 30, 30, 30)
    settle(budget, queued, 30)
    assert (queued.connection.granted, queued.connection.reading) == (0, True)
    settle(budget, queued, 30)
    assert queued.connection.granted == 2


def test_b9_at_a_connections_limit_its_socket_is_not_read_and_others_are(budget):
    queued, other = taking(budget, 60, 60), taking(budget, 10)
    assert (queued.connection.reading, other.connection.reading) == (False, True)
    settle(budget, other, 10)
    assert (queued.connection.reading, other.connection.granted) == (False, 1)
    settle(budget, queued, 60)
    assert (queued.connection.reading, queued.connection.granted) == (True, 0)
    settle(budget, queued, 60)
    assert queued.connection.granted == 2


def test_b9_at_the_limit_of_the_process_all_that_bring_more_wait_for_any_that_is_settled(budget):
    first = [taking(budget, 90) for _ in range(3)]
    late = taking(budget, 40)
    assert [each.connection.reading for each in (*first, late)] == [True, True, True, False]
    settle(budget, first[0], 90)
    assert late.connection.reading
    assert first[0].connection.granted == 0, "the process is above half of its limit"
    settle(budget, first[1], 90)
    assert [each.connection.granted for each in first] == [1, 1, 0]


def test_b9_messages_of_a_closed_connection_are_counted_until_they_are_settled(budget):
    queued = taking(budget, 90)
    budget.forget(queued)
    assert budget.held_bytes == 90
    settle(budget, queued, 90)
    assert budget.held_bytes == 0
