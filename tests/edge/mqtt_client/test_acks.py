"""Acknowledgements keep the order of the messages."""

from fogline_edge.adapters.mqtt_client.session import Acks


def test_settlement_in_order_is_acknowledged_at_once():
    acks = Acks()
    first, second = acks.add(5), acks.add(9)
    assert acks.settle(first) == [5]
    assert acks.settle(second) == [9]


def test_early_settlement_waits_for_earlier_messages():
    acks = Acks()
    first, second, third = (acks.add(each) for each in (1, 2, 3))
    assert acks.settle(third) == []
    assert acks.settle(first) == [1]
    assert acks.settle(second) == [2, 3]
