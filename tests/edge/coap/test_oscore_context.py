"""The test vectors of RFC 8613, appendix C."""

import pytest

from fogline.errors import Poison
from fogline_edge.adapters.coap.oscore.context import OscoreInput, RequestId, SecurityContext
from fogline_edge.adapters.coap.oscore.object_security import ObjectSecurity, decode_option, encode_option, encode_piv

SECRET = bytes.fromhex("0102030405060708090a0b0c0d0e0f10")
SALT = bytes.fromhex("9e7ca92223786340")
CONTEXT = bytes.fromhex("37cbf3210017a2d3")


def context(sender: str, recipient: str, salt: bytes = SALT, id_context: bytes | None = None) -> SecurityContext:
    return SecurityContext(OscoreInput(SECRET, salt, bytes.fromhex(sender), bytes.fromhex(recipient), id_context))


@pytest.mark.parametrize(
    ("sender", "recipient", "salt", "id_context", "keys"),
    [
        (
            "",
            "01",
            SALT,
            None,
            ("f0910ed7295e6ad4b54fc793154302ff", "ffb14e093c94c9cac9471648b4f98710", "4622d4dd6d944168eefb54987c"),
        ),
        (
            "01",
            "",
            SALT,
            None,
            ("ffb14e093c94c9cac9471648b4f98710", "f0910ed7295e6ad4b54fc793154302ff", "4622d4dd6d944168eefb54987c"),
        ),
        (
            "00",
            "01",
            b"",
            None,
            ("321b26943253c7ffb6003b0b64d74041", "e57b5635815177cd679ab4bcec9d7dda", "be35ae297d2dace910c52e99f9"),
        ),
        (
            "01",
            "00",
            b"",
            None,
            ("e57b5635815177cd679ab4bcec9d7dda", "321b26943253c7ffb6003b0b64d74041", "be35ae297d2dace910c52e99f9"),
        ),
        (
            "",
            "01",
            SALT,
            CONTEXT,
            ("af2a1300a5e95788b356336eeecd2b92", "e39a0c7c77b43f03b4b39ab9a268699f", "2ca58fb85ff1b81c0b7181b85e"),
        ),
        (
            "01",
            "",
            SALT,
            CONTEXT,
            ("e39a0c7c77b43f03b4b39ab9a268699f", "af2a1300a5e95788b356336eeecd2b92", "2ca58fb85ff1b81c0b7181b85e"),
        ),
    ],
    ids=["C.1 client", "C.1 server", "C.2 client", "C.2 server", "C.3 client", "C.3 server"],
)
def test_keys_are_derived_as_in_the_appendix(sender, recipient, salt, id_context, keys):
    made = context(sender, recipient, salt, id_context)
    assert (made.sender_key.hex(), made.recipient_key.hex(), made.common_iv.hex()) == keys


@pytest.mark.parametrize(
    ("sides", "salt", "id_context", "option", "ciphertext"),
    [
        (("", "01"), SALT, None, "0914", "612f1092f1776f1c1668b3825e"),
        (("00", "01"), b"", None, "091400", "4ed339a5a379b0b8bc731fffb0"),
        (("", "01"), SALT, CONTEXT, "19140837cbf3210017a2d3", "72cd7273fd331ac45cffbe55c3"),
    ],
    ids=["C.4", "C.5", "C.6"],
)
def test_a_request_is_protected_as_in_the_appendix(sides, salt, id_context, option, ciphertext):
    sender, recipient = sides
    plaintext, piv = bytes.fromhex("01b3747631"), encode_piv(20)  # GET with Uri-Path tv1
    request = RequestId(bytes.fromhex(sender), piv)
    assert context(sender, recipient, salt, id_context).seal(plaintext, request, piv).hex() == ciphertext
    value = encode_option(ObjectSecurity(piv, bytes.fromhex(sender), id_context))
    assert value.hex() == option
    assert decode_option(value) == ObjectSecurity(piv, bytes.fromhex(sender), id_context)
    other = context(recipient, sender, salt, id_context)
    assert other.open(bytes.fromhex(ciphertext), request, piv) == plaintext


@pytest.mark.parametrize(
    ("own", "option", "ciphertext"),
    [
        (None, "", "dbaad1e9a7e7b2a813d3c31524378303cdafae119106"),
        (b"\0", "0100", "4d4c13669384b67354b2b6175ff4b8658c666a6cf88e"),
    ],
    ids=["C.7", "C.8"],
)
def test_a_response_is_protected_as_in_the_appendix(own, option, ciphertext):
    plaintext, request = bytes.fromhex("45ff48656c6c6f20576f726c6421"), RequestId(b"", encode_piv(20))
    assert context("01", "").seal(plaintext, request, own).hex() == ciphertext
    assert encode_option(ObjectSecurity(own)).hex() == option
    assert context("", "01").open(bytes.fromhex(ciphertext), request, own) == plaintext


@pytest.mark.parametrize("value", ["20", "06010203040506", "0301", "19", "1908", "0114ff", "0714", "020001"])
def test_an_option_that_breaks_the_rules_is_poison(value):
    with pytest.raises(Poison):
        decode_option(bytes.fromhex(value))


def test_a_changed_message_and_one_for_another_request_do_not_open():
    piv = encode_piv(20)
    request = RequestId(b"", piv)
    sealed = context("", "01").seal(b"\x01", request, piv)
    server = context("01", "")
    assert server.open(sealed, request, piv) == b"\x01"
    for text, asked, number in (
        (sealed[:-1] + bytes((sealed[-1] ^ 1,)), request, piv),
        (b"", request, piv),
        (sealed, RequestId(b"", encode_piv(21)), piv),
        (sealed, request, encode_piv(21)),
    ):
        with pytest.raises(Poison, match="changed"):
            server.open(text, asked, number)
