"""Pauses between attempts."""

from fogline.amqp.backoff import MAX_REQUESTED_S, Backoff


def test_the_ceiling_doubles_to_the_cap_and_a_stable_connection_resets_it():
    ceilings = []
    backoff = Backoff(draw=lambda low, high: ceilings.append((low, high)) or high)
    assert [backoff.next_s() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert all(low == 0 for low, _ in ceilings)
    backoff.stable()
    assert backoff.next_s() == 1


def test_a_peer_that_says_when_is_no_failure():
    backoff = Backoff(draw=lambda _, high: high)
    assert [backoff.requested_s(7) for _ in range(9)] == [8] * 9
    assert backoff.failures == 0


def test_a_peer_cannot_keep_a_gateway_away_for_ever_nor_have_it_come_back_at_once():
    backoff = Backoff(draw=lambda _, high: high)
    assert [backoff.requested_s(wish) for wish in (1e300, -5.0)] == [MAX_REQUESTED_S + 1, 1]
