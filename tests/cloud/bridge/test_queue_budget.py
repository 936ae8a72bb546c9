"""Back-pressure by the bytes that wait for a shard: who gets credit, whose socket is read."""

import pytest

from fogline.amqp.events import Link
from fogline_cloud.bridge.queue_budget import Inflow, QueueBudget


class Tap:
    """A connection that notes what is asked of it."""

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
    inflow = Inflow(Tap())
    for size in sizes:
        budget.take(inflow, size)
    return inflow


def test_b9_a_message_that_is_settled_brings_credit_at_once_while_little_waits(budget):
    inflow = taking(budget, 20, 20)
    budget.give_back(inflow, 20, LINK)
    assert (inflow.tap.granted, inflow.tap.reading, budget.held_bytes) == (1, True, 20)


def test_b9_above_half_of_a_connections_limit_credit_waits_until_there_is_room(budget):
    inflow = taking(budget, 30, 30, 30)
    budget.give_back(inflow, 30, LINK)
    assert (inflow.tap.granted, inflow.tap.reading) == (0, True)
    budget.give_back(inflow, 30, LINK)
    assert inflow.tap.granted == 2


def test_b9_at_a_connections_limit_its_socket_is_not_read_and_others_are(budget):
    inflow, other = taking(budget, 60, 60), taking(budget, 10)
    assert (inflow.tap.reading, other.tap.reading) == (False, True)
    budget.give_back(other, 10, LINK)
    assert (inflow.tap.reading, other.tap.granted) == (False, 1)
    budget.give_back(inflow, 60, LINK)
    assert (inflow.tap.reading, inflow.tap.granted) == (True, 0)
    budget.give_back(inflow, 60, LINK)
    assert inflow.tap.granted == 2


def test_b9_at_the_limit_of_the_process_all_that_bring_more_wait_for_any_that_is_settled(budget):
    first = [taking(budget, 90) for _ in range(3)]
    late = taking(budget, 40)
    assert [each.tap.reading for each in (*first, late)] == [True, True, True, False]
    budget.give_back(first[0], 90, LINK)
    assert late.tap.reading
    assert first[0].tap.granted == 0, "the process is above half of its limit"
    budget.give_back(first[1], 90, LINK)
    assert [each.tap.granted for each in first] == [1, 1, 0]


def test_b9_what_a_connection_that_is_gone_left_in_the_queue_is_counted_until_it_is_settled(budget):
    inflow = taking(budget, 90)
    budget.forget(inflow)
    assert budget.held_bytes == 90
    budget.give_back(inflow, 90, LINK)
    assert budget.held_bytes == 0
