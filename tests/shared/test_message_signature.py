"""Signatures of messages: what a router on the way may do, and what it may not."""

import math
import uuid

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from fogline.amqp.wire import decode, encode
from fogline.errors import Misconfigured
from fogline.events.codec import Beacon, Range, encode_batch
from fogline.events.event import Lane
from fogline.gateway.message_signature import SIGNATURE, GatewayName, MessageSigner, SignedKind, signed_content
from fogline.gateway.signed_session import (
    CHALLENGE,
    CHALLENGE_S,
    NUMBER,
    WINDOW,
    Challenges,
    HelloJudge,
    NumberWindow,
    SignedIntake,
    SignedOutput,
)
from fogline.message import Message

NAME = GatewayName("acme", "gw-1")
KEYS = {"P-256": ec.generate_private_key(ec.SECP256R1()), "Ed25519": ed25519.Ed25519PrivateKey.generate()}
MUTABLE = {"durable", "ttl_ms"}
"""The header's fields, which a router may change (AMQP 1.0 part 3, section 3.2.1)."""


def batch(epoch="E1", first=1, last=3):
    span = Range("gw-1", "a1", Lane.TELEMETRY, first, last, b"c" * 16, epoch)
    return encode_batch(span, [b'{"n": %d}' % each for each in range(first, last + 1)], Beacon("b1", 7))


CHALLENGES = Challenges(b"secret")
SECOND = 10**9


def hello(at_s=1, challenges=CHALLENGES, name=NAME):
    """The hello that answers the challenge of a moment."""
    return Message(
        body=b'{"epoch": "E1"}',
        content_type="application/json",
        properties={CHALLENGE: challenges.make(name, at_s * SECOND)},
    )


BATCH = SignedKind.BATCH


class Sender:
    """One side that signs, and what the other one takes."""

    def __init__(self, key, epoch="E1", name=NAME):
        self.output = SignedOutput(name, epoch, MessageSigner(key))
        self.intake = SignedIntake(name, epoch, key.public_key())
        self.signer = MessageSigner(key)

    def sign(self, message, kind=BATCH):
        return self.output.sign(kind, message)[1]

    def doubt(self, message, kind=BATCH):
        return self.intake.doubt(kind, message)


@pytest.fixture(params=KEYS)
def key(request):
    return KEYS[request.param]


def test_a_message_counts_once_after_a_way_over_amqp(key):
    sender = Sender(key)
    for message in (batch(), batch(first=4, last=4)):
        there = decode(encode(sender.sign(message)))
        assert sender.doubt(there) is None
        assert sender.doubt(there) == "it was sent before"


def test_a_router_may_change_the_header(key):
    sender = Sender(key)
    assert sender.doubt(msgspec.structs.replace(sender.sign(batch()), durable=False, ttl_ms=1)) is None


OTHER = {
    str: lambda value: f"{value}x",
    int: lambda value: value + 1,
    bytes: lambda value: value + b"\0",
    type(None): lambda _: "x",
}
FULL = Message(
    body=b"body",
    to="to",
    subject="subject",
    reply_to="reply",
    message_id="id",
    correlation_id=7,
    content_type="type",
    content_encoding="coding",
    created_ms=1,
    properties={"epoch": "E1", "first": 1, "flag": True, "share": 1.5, "raw": b"r", "none": None},
)


@pytest.mark.parametrize("field", [each for each in Message.__struct_fields__ if each not in {*MUTABLE, "properties"}])
def test_a_change_of_any_field_of_the_bare_message_is_refused(key, field):
    sender = Sender(key)
    signed = sender.sign(FULL)
    value = getattr(FULL, field)
    changed = [OTHER[type(value)](value), None if field != "body" else b""]
    for each in changed:
        assert "signature is wrong" in sender.doubt(msgspec.structs.replace(signed, **{field: each}))
    assert sender.doubt(signed) is None, "a message that is refused takes no number"


def test_an_id_of_another_type_is_refused(key):
    sender = Sender(key)
    signed = sender.sign(msgspec.structs.replace(FULL, correlation_id="7"))
    for each in (7, b"7", uuid.UUID(int=7)):
        assert sender.doubt(msgspec.structs.replace(signed, correlation_id=each)) is not None


@pytest.mark.parametrize("name", [each for each in FULL.properties if each != "epoch"])
def test_a_change_of_any_property_is_refused(key, name):
    sender = Sender(key)
    signed = sender.sign(FULL)
    own = signed.properties
    without = {each: value for each, value in own.items() if each != name}
    others = [None, True, False, 0, 1, 2, 1.0, 1.5, -1.5, math.nan, "", "1", "True", b"", b"1", b"r"]
    changed = [{**own, name: other} for other in others if (type(other), other) != (type(own[name]), own[name])]
    for properties in [*changed, without, {**own, "more": None}, {**without, f"{name}x": own[name]}]:
        assert "signature is wrong" in sender.doubt(msgspec.structs.replace(signed, properties=properties))


values = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
messages = st.builds(
    Message,
    body=st.binary(),
    to=st.none() | st.text(),
    subject=st.none() | st.text(),
    content_type=st.none() | st.text(),
    message_id=st.none() | st.text() | st.binary() | st.uuids() | st.integers(0, 2**64 - 1),
    created_ms=st.none() | st.integers(0, 2**53),
    properties=st.dictionaries(st.text(), values, max_size=4),
)


@given(messages, messages)
def test_different_messages_have_different_content(one, other):
    def told(message):
        properties = {each: (type(value), value) for each, value in message.properties.items() if each != SIGNATURE}
        fields = [getattr(message, each) for each in Message.__struct_fields__ if each not in {*MUTABLE, "properties"}]
        return [(type(each), each) for each in fields], {
            each: (kind, repr(value)) for each, (kind, value) in properties.items()
        }

    same = signed_content(SignedKind.BATCH, NAME, one) == signed_content(SignedKind.BATCH, NAME, other)
    assert same == (told(one) == told(other))


@given(st.data())
def test_a_changed_bit_of_body_or_signature_is_refused(data):
    sender = Sender(KEYS["Ed25519"])
    signed = sender.sign(batch())
    which = data.draw(st.sampled_from(["body", SIGNATURE]))
    raw = bytearray(signed.body if which == "body" else signed.properties[SIGNATURE])
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    changed = (
        msgspec.structs.replace(signed, body=bytes(raw))
        if which == "body"
        else msgspec.structs.replace(signed, properties={**signed.properties, SIGNATURE: bytes(raw)})
    )
    assert sender.doubt(changed) is not None


@pytest.mark.parametrize("signature", [None, "", "text", 7, True, b"", b"x" * 64])
def test_what_is_no_signature_is_refused(key, signature):
    sender = Sender(key)
    signed = sender.sign(batch())
    bad = msgspec.structs.replace(signed, properties={**signed.properties, SIGNATURE: signature})
    assert sender.doubt(bad) in (
        "it is not signed",
        "its signature is wrong: it was changed on the way, or is not of whom it names",
    )


def test_a_signature_of_another_kind_gateway_tenant_or_key_is_refused(key):
    own = Sender(key)
    for sender, kind in (
        *((Sender(key), kind) for kind in SignedKind if kind is not BATCH),
        (Sender(key, name=GatewayName("acme", "gw-2")), BATCH),
        (Sender(key, name=GatewayName("acm", "egw-1")), BATCH),
        (Sender(ec.generate_private_key(ec.SECP256R1())), BATCH),
    ):
        assert "signature is wrong" in own.doubt(sender.sign(batch(), kind))


def test_messages_of_two_copies_of_an_outbox_do_not_interleave(key):
    """Both copies have the key. The one that said hello last has the epoch."""
    first, second = Sender(key, "E1"), Sender(key, "E2")
    late = first.sign(batch())
    assert second.doubt(late).startswith("its epoch is not that of the last hello")
    moved = msgspec.structs.replace(late, properties={**late.properties, "epoch": "E2"})
    assert "signature is wrong" in second.doubt(moved)
    assert second.doubt(second.sign(batch())) is None


def test_messages_count_in_any_order_and_none_twice(key):
    sender = Sender(key)
    sent = [sender.sign(batch()) for _ in range(4)]
    assert [sender.doubt(sent[each]) for each in (2, 0, 3, 1)] == [None] * 4
    assert {sender.doubt(each) for each in sent} == {"it was sent before"}


@given(st.lists(st.integers(1, 3 * WINDOW), max_size=200))
def test_a_number_counts_once_unless_it_is_far_behind(numbers):
    window, highest, taken = NumberWindow(), 0, set()
    for number in numbers:
        assert window.take(number) == (number not in taken and number > highest - WINDOW)
        highest, taken = max(highest, number), taken | {number}


@pytest.mark.parametrize("number", [None, True, 0, -1, 1.0, "1", b"1"])
def test_what_is_no_number_is_refused(key, number):
    sender = Sender(key)
    message = msgspec.structs.replace(batch(), properties={"epoch": "E1", NUMBER: number})
    assert sender.doubt(sender.signer.sign(BATCH, NAME, message)) == "it was sent before"


def said(key, at_s=1, name=NAME, challenges=CHALLENGES):
    """The signed hello that answers the challenge of a moment."""
    return MessageSigner(key).sign(SignedKind.HELLO, name, hello(at_s, challenges, name))


def test_a_hello_that_was_sent_before_is_refused(key):
    judge, public, sent_before = (
        HelloJudge(CHALLENGES),
        key.public_key(),
        "it was sent before: a later hello has come, or this one",
    )
    first = said(key)
    assert judge.doubt(NAME, first, public, 2 * SECOND) is None
    assert judge.doubt(NAME, first, public, 3 * SECOND) == sent_before
    assert judge.doubt(NAME, said(key, 4), public, 5 * SECOND) is None
    assert judge.doubt(NAME, said(key, 3), public, 6 * SECOND) == sent_before
    late = said(key, 7)
    assert "more than 30 s ago" in judge.doubt(NAME, late, public, int((7 + CHALLENGE_S) * SECOND))
    assert judge.doubt(NAME, late, public, 8 * SECOND) is None, "a hello that is refused changes nothing"


def test_hellos_of_many_gateways_leave_no_trace_after_their_challenges_have_ended(key):
    judge = HelloJudge(CHALLENGES)
    for number in range(100):
        name = GatewayName("acme", f"gw-{number}")
        assert judge.doubt(name, said(key, number + 1, name), key.public_key(), (number + 2) * SECOND) is None
    assert len(judge._answered_ns) <= CHALLENGE_S + 1


def test_a_challenge_counts_at_its_bridge_and_for_its_gateway_only(key):
    judge, signer = HelloJudge(CHALLENGES), MessageSigner(key)
    here = CHALLENGES.make(NAME, 5 * SECOND)
    others = [
        Challenges(b"another bridge").make(NAME, 5 * SECOND),
        CHALLENGES.make(GatewayName("acme", "gw-2"), 5 * SECOND),
        here.replace(".", "0."),
        f"+{here}",
        here.upper(),
        here[:-1],
        f"{here}\u00b2",
        *(None, "", ".", "5.", "x.y", 5, b"5", True),
    ]
    for each in others:
        message = signer.sign(SignedKind.HELLO, NAME, Message(body=b"{}", properties={CHALLENGE: each}))
        assert judge.doubt(NAME, message, key.public_key(), 6 * SECOND) == "it does not answer a challenge of this bridge"


def test_challenges_that_somebody_else_asks_for_take_nothing_from_a_gateway(key):
    judge, own = HelloJudge(CHALLENGES), said(key, 5)
    for at_s in range(6, 20):
        judge.challenge(NAME, at_s * SECOND)
    assert judge.doubt(NAME, own, key.public_key(), 20 * SECOND) is None


def test_a_hello_of_another_gateway_s_key_is_refused_and_takes_nothing_from_the_gateway(key):
    judge = HelloJudge(CHALLENGES)
    forged = said(ec.generate_private_key(ec.SECP256R1()))
    assert "signature is wrong" in judge.doubt(NAME, forged, key.public_key(), 2 * SECOND)
    assert judge.doubt(NAME, said(key), key.public_key(), 2 * SECOND) is None


def test_the_key_of_a_gateway_s_file_signs_and_other_kinds_of_keys_are_refused(key):
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    signed = MessageSigner.of_pem(b"# issued ...\n" + pem).sign(SignedKind.HELLO, NAME, hello())
    assert HelloJudge(CHALLENGES).doubt(NAME, signed, key.public_key(), 2 * SECOND) is None
    strong = rsa.generate_private_key(65537, 2048)
    for bad in (b"", b"no key", strong.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())):
        with pytest.raises(Misconfigured):
            MessageSigner.of_pem(bad)
    assert "another kind of key" in HelloJudge(CHALLENGES).doubt(NAME, said(key), strong.public_key(), 2 * SECOND)
