"""Decisions about a stream after hello."""

import msgspec
import pytest

from fogline.errors import Poison
from fogline.events.codec import decode_beacon
from fogline.events.event import Lane
from fogline.gateway.hello import (
    CLOCKS_DIFFER_MS,
    KNOWN_MS,
    Hello,
    Mark,
    OpenStream,
    Own,
    Reopen,
    Resume,
    Welcome,
    decode_hello,
    decode_welcome,
    encode_hello,
    resume,
)
from fogline.message import Message
from fogline_lab.events import BEACON, STREAM


def own(settled=10, chain="aa", head=20, at_mark=None):
    return Own(settled, chain, head, at_mark)


def test_both_agree():
    assert resume(own(), Mark("s", 10, 10, "aa")) == Resume()


def test_the_bridge_has_more_than_the_gateway_knows_of():
    assert resume(own(at_mark="bb"), Mark("s", 15, 15, "bb")) == Resume()


def test_a_new_stream():
    assert resume(own(0, "", 5), Mark("s")) == Resume()


@pytest.mark.parametrize(
    ("knowledge", "mark", "why"),
    [
        (own(), Mark("s", 25, 25, "cc"), "older copy"),
        (own(), Mark("s", 3, 3, "xx"), "lost data"),
        (own(), Mark("s", 10, 10, "bb"), "chains differ"),
        (own(at_mark="bb"), Mark("s", 15, 15, "cc"), "chains differ"),
    ],
    ids=["restored", "kafka lost", "cloned at settled", "cloned later"],
)
def test_the_numbering_cannot_be_trusted(knowledge, mark, why):
    verdict = resume(knowledge, mark)
    assert isinstance(verdict, Reopen)
    assert why in verdict.why


@pytest.mark.parametrize(
    ("waited_ms", "hwm", "anew"),
    [(KNOWN_MS, 0, True), (KNOWN_MS, 5, False), (KNOWN_MS - CLOCKS_DIFFER_MS, 0, False), (0, 0, False)],
    ids=["forgotten", "known", "young", "unknown age"],
)
@pytest.mark.fault("C13")
def test_b10_old_events_of_a_stream_that_the_bridge_does_not_know_are_sent_again(waited_ms, hwm, anew):
    """It may have forgotten the stream: an old copy of the outbox has its events, and does not know that they have landed."""
    verdict = resume(Own(0, "", 20, None, 0, waited_ms), Mark("s", hwm))
    assert isinstance(verdict, Reopen) == anew


def test_a_torn_transaction_leaves_an_older_chain():
    assert resume(own(10, "aa", 20), Mark("s", 13, 10, "aa")) == Resume()


def test_a_move_that_was_cut_short_beside_a_torn_transaction_goes_on():
    """Only a move settles what the bridge did not accept: an accepted batch ends with a chain that the bridge has."""
    assert isinstance(resume(own(510, "aa", 2000), Mark("s", 600, 400, "bb")), Reopen)


def dropped(at_mark, upto):
    return Own(10, "aa", 40, at_mark, upto)


@pytest.mark.parametrize(("hwm", "upto", "settled"), [(15, 20, 15), (20, 20, 20), (25, 20, 20), (10, 20, 0), (15, 0, 0)])
def test_dropped_event_that_has_landed_is_settled(hwm, upto, settled):
    chain = "aa" if hwm == 10 else "bb"
    assert resume(dropped("bb", upto), Mark("s", hwm, hwm, chain)) == Resume(settled)


def test_where_a_dropped_row_cannot_prove_the_chain_the_stream_begins_anew():
    verdict = resume(dropped(None, 20), Mark("s", 15, 15, "bb"))
    assert isinstance(verdict, Reopen)
    assert "dropped" in verdict.why


@pytest.mark.parametrize("decode", [decode_hello, decode_welcome])
@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"protocol":"x"}', b"\xff"])
def test_nonsense_is_poison(decode, body):
    with pytest.raises(Poison):
        decode(body)


def encoded(value, **replaced):
    return msgspec.json.encode(msgspec.to_builtins(value) | replaced)


HELLO = Hello(protocol=1, version="0.1", gateway="gw-1", beacon=BEACON, streams=[OpenStream(STREAM, Lane.ALARM)])
WELCOME = Welcome(protocol=1, marks=[Mark(STREAM, 1)])


@pytest.mark.fault("S4")
@pytest.mark.parametrize(
    "replaced",
    [
        {"version": "0.1\n2026-01-01 fogline.bridge all is well"},
        {"version": "x" * 65},
        {"streams": [{"stream": "s" * 65, "lane": "alarm"}]},
        {"streams": [{"stream": "", "lane": "alarm"}]},
        {"beacon": {"boot_id": "b" * 65, "boottime_ms": 1}},
        {"beacon": {"boot_id": "b", "boottime_ms": 2**63}},
        {"beacon": {"boot_id": "b", "boottime_ms": True}},
        {"protocol": 2**31},
    ],
)
def test_hello_with_a_value_out_of_range_is_poison(replaced):
    """S4: names that are too long, a clock beyond every deadline, a version that would forge a line of the log."""
    with pytest.raises(Poison):
        decode_hello(encoded(HELLO, **replaced))


@pytest.mark.fault("S4")
@pytest.mark.parametrize(
    "replaced",
    [
        {"retry_after_s": 1e300},
        {"retry_after_s": -1},
        {"marks": [{"stream": STREAM, "hwm": 2**63}]},
        {"marks": [{"stream": STREAM, "chain_sequence": -1}]},
        {"marks": [{"stream": STREAM, "chain": "0" * 65}]},
    ],
)
def test_answer_to_hello_that_would_stop_a_gateway_is_poison(replaced):
    """S4: a wait without end, sequences that SQLite cannot hold."""
    with pytest.raises(Poison):
        decode_welcome(encoded(WELCOME, **replaced))


def test_reason_of_a_refusal_is_one_line():
    assert decode_welcome(encoded(WELCOME, refused="no\n\x1b[2Jroom" + "x" * 2000)).refused.startswith("no  [2Jroomxxx")


def test_valid_hello_and_answer_are_read():
    assert decode_hello(encode_hello(HELLO)) == HELLO
    assert decode_welcome(encode_hello(WELCOME)) == WELCOME


@pytest.mark.parametrize(
    "told",
    [
        b'{"stream":"s","hwm":9223372036854775808}',
        b'{"stream":"s","hwm":-1}',
        b'{"stream":"s","chain_sequence":18446744073709551615}',
        b'{"stream":"s","more":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"stream":"\xff"}',
    ],
    ids=["too large", "negative", "a chain at no sequence", "deep", "no UTF-8"],
)
def test_a_welcome_that_no_database_could_hold_is_not_readable(told):
    """G15: such numbers raised in the outbox's writer, and ended the gateway."""
    with pytest.raises(Poison):
        decode_welcome(b'{"protocol":1,"marks":[' + told + b"]}")


@pytest.mark.parametrize("decode", [decode_hello, decode_welcome])
def test_a_hello_that_is_nested_without_end_is_not_readable(decode):
    with pytest.raises(Poison):
        decode(b'{"protocol":1,"version":"1","gateway":"g","more":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@pytest.mark.fault("S4")
@pytest.mark.parametrize("clock", [("b", 2**63), ("b", -1), ("b" * 100, 1)])
def test_a_clock_that_no_deadline_can_be_reckoned_with_is_poison(clock):
    """Sister of B1: the deadline of the gateway's next command would be no number that AMQP can carry."""
    boot_id, boottime_ms = clock
    with pytest.raises(Poison):
        decode_hello(encoded(HELLO, beacon={"boot_id": boot_id, "boottime_ms": boottime_ms}))
    with pytest.raises(Poison):
        decode_beacon(Message(properties={"boot": boot_id, "boottime": boottime_ms}))
