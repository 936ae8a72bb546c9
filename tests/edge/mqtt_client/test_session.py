"""Recognition of messages that may be retransmissions."""

from fogline_edge.adapters.mqtt_client import session as module
from fogline_edge.adapters.mqtt_client.session import BrokerSession


def again(session, packet_id, *, dup=True):
    return session.received(packet_id, dup=dup).again


def test_resend_of_a_received_message_is_recognised():
    session = BrokerSession(b"s", fresh=True)
    assert not again(session, 7, dup=False)
    assert again(session, 7)


def test_a_dup_that_never_came_in_a_fresh_session_is_new():
    assert not again(BrokerSession(b"s", fresh=True), 7)


def test_after_a_restart_the_outbox_has_to_decide():
    assert again(BrokerSession(b"s", fresh=False), 7)


def test_an_id_that_is_used_again_much_later_is_new(monkeypatch):
    monkeypatch.setattr(module, "WINDOW", 3)
    session = BrokerSession(b"s", fresh=False)
    for packet_id in (7, 8, 9, 10):
        session.received(packet_id, dup=False)
    assert not again(session, 7)
    assert again(session, 10)


def test_redelivery_in_order_keeps_all_of_them_recent(monkeypatch):
    monkeypatch.setattr(module, "WINDOW", 3)
    session = BrokerSession(b"s", fresh=True)
    for packet_id in (1, 2, 3):
        session.received(packet_id, dup=False)
    for _ in range(3):
        assert [again(session, each) for each in (1, 2, 3)] == [True, True, True]


def test_slots_differ_between_sessions_and_ids():
    one, other = BrokerSession(b"one", fresh=True), BrokerSession(b"other", fresh=True)
    slots = {session.received(each, dup=False) for session in (one, other) for each in (1, 256, 65535)}
    assert len(slots) == 6
