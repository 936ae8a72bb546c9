"""Where a stream goes on after hello, or that it cannot."""

import msgspec
import pytest

from fogline.codec import decode_beacon
from fogline.errors import Poison
from fogline.hello import Mark, Own, Reopen, Resume, decode_hello, decode_welcome, resume
from fogline.message import Message


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


def test_a_torn_transaction_leaves_an_older_chain():
    assert resume(own(10, "aa", 20), Mark("s", 13, 10, "aa")) == Resume()


def dropped(at_mark, upto):
    return Own(10, "aa", 40, at_mark, upto)


@pytest.mark.parametrize(("hwm", "upto", "settled"), [(15, 20, 15), (20, 20, 20), (25, 20, 20), (10, 20, 0), (15, 0, 0)])
def test_what_was_dropped_and_has_landed_is_settled(hwm, upto, settled):
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


HELLO = {"protocol": 1, "version": "1", "gateway": "gw-1", "streams": []}
BAD_BEACONS = [
    {"boot_id": "b", "boottime_ms": 2**63},
    {"boot_id": "b", "boottime_ms": -1},
    {"boot_id": "b" * 100, "boottime_ms": 1},
]


@pytest.mark.fault("S4")
@pytest.mark.parametrize("beacon", BAD_BEACONS)
def test_a_clock_that_no_deadline_can_be_reckoned_with_is_poison(beacon):
    """Sister of B1: the deadline of the gateway's next command would be no number that AMQP can carry."""
    with pytest.raises(Poison):
        decode_hello(msgspec.json.encode({**HELLO, "beacon": beacon}))
    with pytest.raises(Poison):
        decode_beacon(Message(properties={"boot": beacon["boot_id"], "boottime": beacon["boottime_ms"]}))


@pytest.mark.fault("S4")
@pytest.mark.parametrize("decode", [decode_hello, decode_welcome])
def test_a_hello_nested_without_end_is_poison(decode):
    with pytest.raises(Poison):
        decode(b'{"protocol": 1, "new": ' + b"[" * 200_000)
