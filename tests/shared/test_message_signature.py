"""Signatures of a gateway's messages: what a router on the way may do, and what it may not."""

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
from fogline.gateway.message_signature import (
    CHALLENGE,
    CHALLENGE_S,
    SIGNATURE,
    Challenges,
    GatewayName,
    GatewaySigner,
    SignedKind,
    SignedSession,
    signed_content,
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


def session_of(name=NAME):
    return SignedSession(name, CHALLENGES)


def welcomed(key, epoch="E1", name=NAME):
    """A bridge's session after a right hello, and the gateway's signer."""
    session, signer = session_of(name), GatewaySigner(name, key)
    assert session.doubt_hello(signer.sign(SignedKind.HELLO, hello()), epoch, key.public_key(), 2 * SECOND) is None
    return session, signer


@pytest.fixture(params=KEYS)
def key(request):
    return KEYS[request.param]


def test_hello_and_batches_count_after_a_way_over_amqp(key):
    session, signer = welcomed(key)
    for message in (batch(), batch(first=4, last=4)):
        there = decode(encode(signer.sign(SignedKind.BATCH, message)))
        assert session.doubt_batch(there) is None
        assert session.doubt_batch(there) is None, "a copy is as good as the batch: the high-water mark refuses its events"


def test_a_router_may_change_the_header(key):
    session, signer = welcomed(key)
    signed = signer.sign(SignedKind.BATCH, batch())
    assert session.doubt_batch(msgspec.structs.replace(signed, durable=False, ttl_ms=1)) is None


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
    session, signer = welcomed(key)
    signed = signer.sign(SignedKind.BATCH, FULL)
    assert session.doubt_batch(signed) is None
    value = getattr(FULL, field)
    changed = [OTHER[type(value)](value), None if field != "body" else b""]
    for each in changed:
        assert "signature is wrong" in session.doubt_batch(msgspec.structs.replace(signed, **{field: each}))


def test_an_id_of_another_type_is_refused(key):
    session, signer = welcomed(key)
    signed = signer.sign(SignedKind.BATCH, msgspec.structs.replace(FULL, correlation_id="7"))
    for each in (7, b"7", uuid.UUID(int=7)):
        assert session.doubt_batch(msgspec.structs.replace(signed, correlation_id=each)) is not None


@pytest.mark.parametrize("name", [each for each in FULL.properties if each != "epoch"])
def test_a_change_of_any_property_is_refused(key, name):
    session, signer = welcomed(key)
    signed = signer.sign(SignedKind.BATCH, FULL)
    own = signed.properties
    without = {each: value for each, value in own.items() if each != name}
    others = [None, True, False, 0, 1, 2, 1.0, 1.5, -1.5, math.nan, "", "1", "True", b"", b"1", b"r"]
    changed = [{**own, name: other} for other in others if (type(other), other) != (type(own[name]), own[name])]
    for properties in [*changed, without, {**own, "more": None}, {**without, f"{name}x": own[name]}]:
        assert "signature is wrong" in session.doubt_batch(msgspec.structs.replace(signed, properties=properties))


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
    session, signer = welcomed(KEYS["Ed25519"])
    signed = signer.sign(SignedKind.BATCH, batch())
    which = data.draw(st.sampled_from(["body", SIGNATURE]))
    raw = bytearray(signed.body if which == "body" else signed.properties[SIGNATURE])
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    changed = (
        msgspec.structs.replace(signed, body=bytes(raw))
        if which == "body"
        else msgspec.structs.replace(signed, properties={**signed.properties, SIGNATURE: bytes(raw)})
    )
    assert session.doubt_batch(changed) is not None


@pytest.mark.parametrize("signature", [None, "", "text", 7, True, b"", b"x" * 64])
def test_what_is_no_signature_is_refused(key, signature):
    session, signer = welcomed(key)
    signed = signer.sign(SignedKind.BATCH, batch())
    bad = msgspec.structs.replace(signed, properties={**signed.properties, SIGNATURE: signature})
    assert session.doubt_batch(bad) in (
        "it is not signed",
        "its signature is wrong: it was changed on the way, or is not of this gateway",
    )


def test_a_signature_of_another_kind_gateway_tenant_or_key_is_refused(key):
    session, _ = welcomed(key)
    other = ec.generate_private_key(ec.SECP256R1())
    for signer, kind in (
        (GatewaySigner(NAME, key), SignedKind.HELLO),
        (GatewaySigner(GatewayName("acme", "gw-2"), key), SignedKind.BATCH),
        (GatewaySigner(GatewayName("acm", "egw-1"), key), SignedKind.BATCH),
        (GatewaySigner(NAME, other), SignedKind.BATCH),
    ):
        assert "signature is wrong" in session.doubt_batch(signer.sign(kind, batch()))


def test_a_hello_that_was_sent_before_is_refused(key):
    session, signer = welcomed(key)
    public, sent_before = key.public_key(), "it was sent before: a later hello has come, or this one"
    first = signer.sign(SignedKind.HELLO, hello())
    assert session.doubt_hello(first, "E1", public, 3 * SECOND) == sent_before
    assert session.doubt_hello(signer.sign(SignedKind.HELLO, hello(4)), "E2", public, 5 * SECOND) is None
    assert session.doubt_hello(first, "E1", public, 6 * SECOND) == sent_before
    late = signer.sign(SignedKind.HELLO, hello(7))
    assert "more than 30 s ago" in session.doubt_hello(late, "E3", public, int((7 + CHALLENGE_S) * SECOND))
    assert session.doubt_hello(late, "E2", public, 8 * SECOND) == sent_before, "its epoch is not new"
    assert session.epoch == "E2", "a hello that is refused changes nothing"
    assert session.doubt_batch(signer.sign(SignedKind.BATCH, batch("E2"))) is None


def test_a_challenge_counts_at_its_bridge_and_for_its_gateway_only(key):
    session, signer = welcomed(key)
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
        message = Message(body=b"{}", properties={CHALLENGE: each})
        why = session.doubt_hello(signer.sign(SignedKind.HELLO, message), "E2", key.public_key(), 6 * SECOND)
        assert why == "it does not answer a challenge of this bridge"


def test_challenges_that_somebody_else_asks_for_take_nothing_from_a_gateway(key):
    session, signer = welcomed(key)
    own = signer.sign(SignedKind.HELLO, hello(5))
    for at_s in range(6, 20):
        CHALLENGES.make(NAME, at_s * SECOND)
    assert session.doubt_hello(own, "E2", key.public_key(), 20 * SECOND) is None


def test_a_hello_of_another_gateway_s_key_is_refused_and_takes_nothing_from_the_gateway(key):
    session, signer = session_of(), GatewaySigner(NAME, key)
    forged = GatewaySigner(NAME, ec.generate_private_key(ec.SECP256R1())).sign(SignedKind.HELLO, hello())
    assert "signature is wrong" in session.doubt_hello(forged, "E1", key.public_key(), 2 * SECOND)
    assert session.doubt_hello(signer.sign(SignedKind.HELLO, hello()), "E1", key.public_key(), 2 * SECOND) is None


def test_batches_of_two_copies_of_an_outbox_do_not_interleave(key):
    """Both copies have the key. The one that said hello last has the epoch."""
    session, first = welcomed(key)
    assert session.doubt_batch(first.sign(SignedKind.BATCH, batch("E1"))) is None
    second = GatewaySigner(NAME, key)
    assert session.doubt_hello(second.sign(SignedKind.HELLO, hello(5)), "E2", key.public_key(), 6 * SECOND) is None
    assert session.doubt_batch(second.sign(SignedKind.BATCH, batch("E2"))) is None
    late = first.sign(SignedKind.BATCH, batch("E1"))
    assert session.doubt_batch(late).startswith("its epoch is not that of the last hello")
    moved = msgspec.structs.replace(late, properties={**late.properties, "epoch": "E2"})
    assert "signature is wrong" in session.doubt_batch(moved)


def test_a_batch_before_a_hello_is_refused(key):
    signed = GatewaySigner(NAME, key).sign(SignedKind.BATCH, batch())
    assert session_of().doubt_batch(signed) == "no hello has come before it"


def test_the_key_of_a_gateway_s_file_signs_and_other_kinds_of_keys_are_refused(key):
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    session, _ = welcomed(key)
    signer = GatewaySigner.of_pem(NAME, b"# issued ...\n" + pem)
    assert session.doubt_batch(signer.sign(SignedKind.BATCH, batch())) is None
    strong = rsa.generate_private_key(65537, 2048)
    for bad in (b"", b"no key", strong.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())):
        with pytest.raises(Misconfigured):
            GatewaySigner.of_pem(NAME, bad)
    fresh = session_of()
    signed = GatewaySigner(NAME, key).sign(SignedKind.HELLO, hello())
    assert "another kind of key" in fresh.doubt_hello(signed, "E1", strong.public_key(), 2 * SECOND)
