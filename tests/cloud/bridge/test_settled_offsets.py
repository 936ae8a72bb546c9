"""The position of a consumer."""

from fogline_cloud.bridge.consumers.settled_offsets import SettledOffsets

P, Q = ("hono.telemetry.acme", 0), ("hono.telemetry.acme", 1)


def test_the_position_waits_for_the_oldest_unsettled():
    offsets = SettledOffsets()
    for each in (5, 6, 9):
        offsets.taken(P, each)
    offsets.taken(Q, 1)
    assert offsets.positions() == {P: 5, Q: 1}
    offsets.settled(P, 6)
    assert offsets.positions() == {P: 5, Q: 1}
    offsets.settled(P, 5)
    assert offsets.positions() == {P: 9, Q: 1}
    offsets.settled(P, 9)
    assert offsets.positions() == {P: 10, Q: 1}


def test_a_partition_that_went_to_another_consumer_is_forgotten():
    offsets = SettledOffsets()
    offsets.taken(P, 5)
    offsets.forget(P)
    offsets.settled(P, 5)
    assert offsets.positions() == {}


def test_a_partition_without_records_has_the_position_where_reading_began():
    offsets = SettledOffsets()
    offsets.begin(Q, 7)
    assert offsets.positions() == {Q: 7}
    offsets.taken(Q, 8)
    offsets.settled(Q, 8)
    assert offsets.positions() == {Q: 9}
