"""A peer that attaches, begins or sends more than it may: bounded by the engine, whatever the peer does."""

import gc

import pytest

from fogline.amqp.outcome import Condition
from fogline.amqp.peer_events import MAX_LINKS, MAX_UNFINISHED_BYTES
from fogline.events.codec import MAX_MESSAGE_BYTES
from fogline_lab.memory import resident_bytes
from shared.amqp.engine_peer import START, Peer, attach, detach, on_channel, performative, transfer

CREDIT = 10
"""What `Peer` grants each link."""
BODY = b"\x00\x53\x75\xa0\x01x"


def begun(*frames, **peer):
    made = Peer(**peer)
    for frame in (*START[:2], *frames):
        made.take(frame)
    return made


LINK = attach("l") + detach()
SESSION = on_channel(1, performative("begin")) + on_channel(1, performative("end"))


@pytest.mark.parametrize("cycle", [LINK, SESSION], ids=["links", "sessions"])
def test_b13_links_and_sessions_that_come_and_go_leave_nothing_behind(cycle, thorough):
    """Proton keeps both until they are freed."""
    peer = begun()
    warm, count = (2000, 8000) if thorough else (500, 2000)
    for _ in range(warm):
        peer.take(cycle)
    gc.collect()
    before = resident_bytes()
    for _ in range(count):
        peer.take(cycle)
        peer.links.clear()
    gc.collect()
    assert resident_bytes() - before < 512 * count
    assert peer.ended is None


def test_b9_a_message_beyond_the_credit_ends_its_link():
    peer = begun(attach("l"))
    for number in range(CREDIT + 20):
        peer.take(transfer(number, payload=BODY))
    assert peer.messages == CREDIT
    assert b"amqp:link:transfer-limit-exceeded" in peer.sent
    assert peer.ended is None
    peer.release()


def test_a_message_that_was_aborted_gives_its_credit_back():
    peer = begun(attach("l"))
    for number in range(3 * CREDIT):
        peer.take(transfer(number, payload=BODY, more=True) + transfer(number, aborted=True))
    peer.take(transfer(3 * CREDIT, payload=BODY))
    assert (peer.messages, peer.ended) == (1, None)


def test_b9_unfinished_messages_have_a_limit_over_all_links():
    piece = bytes(8000)
    count = MAX_UNFINISHED_BYTES // (MAX_MESSAGE_BYTES - 16_000) + 1
    peer = begun(*(attach(f"l{handle}", handle) for handle in range(count)))
    for handle in range(count):
        peer.take(transfer(handle, handle, payload=piece, more=True))
        for _ in range(MAX_MESSAGE_BYTES // len(piece) - 2):
            peer.take(transfer(handle, handle, payload=piece, more=True))
    assert b"amqp:resource-limit-exceeded" in peer.sent
    assert sum(len(link.partial) for link in peer.links) <= MAX_UNFINISHED_BYTES
    assert sum(link.closed for link in peer.links) == 1
    assert peer.ended is None


@pytest.mark.fault("S7")
def test_bytes_of_unfinished_messages_count_until_the_message_is_whole_or_its_link_ends():
    held = []

    def hold(size_bytes):
        held.append(size_bytes)
        return True

    peer = begun(attach("a"), attach("b", 1), hold=hold)
    peer.take(transfer(0, payload=bytes(1000), more=True))
    peer.take(transfer(1, 1, payload=bytes(500), more=True))
    assert held[-1] == 1500
    peer.take(transfer(0, payload=BODY))
    assert held[-1] == 500
    peer.take(detach(1))
    assert held[-1] == 0
    assert peer.messages == 1


@pytest.mark.fault("S7")
def test_a_peer_for_whose_message_there_is_no_room_is_ended_and_nothing_of_it_is_kept():
    peer = begun(attach("l"), hold=lambda size_bytes: size_bytes < 20_000)
    for _ in range(100):
        peer.take(transfer(0, payload=bytes(8000), more=True))
    assert peer.ended.name == "amqp:resource-limit-exceeded"
    assert b"amqp:resource-limit-exceeded" in peer.sent
    assert [len(link.partial) for link in peer.links] == [0]
    assert peer.messages == 0


@pytest.mark.fault("S7")
def test_of_a_peer_that_must_give_up_its_messages_none_is_taken_in_part():
    """The rest of a message would be another message."""
    peer = begun(attach("l"))
    peer.take(transfer(0, payload=bytes(8000), more=True))
    peer.engine.close(Condition("amqp:resource-limit-exceeded"), heed=False)
    peer.take(transfer(0, payload=BODY))
    assert peer.messages == 0
    assert b"amqp:resource-limit-exceeded" in peer.sent


def test_a_link_that_is_attached_again_on_another_session_takes_the_place_of_the_first():
    """AMQP 1.0 part 2, section 2.6.1: otherwise the first would be in use, and in no list."""
    peer = begun(*(on_channel(channel, performative("begin")) + attach("l", channel=channel) for channel in range(1, 40)))
    assert [link.closed for link in peer.links] == [True] * 38 + [False]
    assert {str(each.name) for each in peer.link_ends} == {"amqp:link:stolen"}
    peer.release()


def test_links_that_are_refused_and_never_detached_have_a_limit():
    peer = begun()
    for handle in range(3 * MAX_LINKS):
        peer.take(attach(f"l{handle}", handle))
    assert peer.ended is not None
    assert peer.ended.name == "amqp:resource-limit-exceeded"
    assert len(peer.links) == MAX_LINKS
    peer.release()


def test_sessions_have_a_limit():
    peer = begun()
    for channel in range(1, 2 * MAX_LINKS):
        peer.take(on_channel(channel, performative("begin")))
    assert peer.ended is not None
    assert "channel" in str(peer.ended)
