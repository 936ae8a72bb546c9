"""The fields that a command's signatures cover, and gateways and bridges of two versions (B11)."""

import msgspec
import pytest

from fogline.amqp import wire
from fogline.command import Command, Deadline, decode_command, encode_command, signed_bytes
from fogline.signature import make_key, read_keys, read_signer
from fogline_lab.commands import make_command

PRIVATE, PUBLIC = make_key()
KEYS = {"k1": PUBLIC}
OTHER = {
    "id": "CMD-2",
    "tenant": "other",
    "gateway": "gw-2",
    "device": "lamp-2",
    "name": "blink",
    "deadline": Deadline("boot", 1),
    "data": b"{}",
    "content_type": "text/plain",
    "reply": False,
    "durable": True,
    "idempotent": True,
    "correlation": "string:other",
    "key_id": "k2",
}


def signed(**other):
    return read_signer("k1", PRIVATE, "here").sign(make_command(**other))


def through_amqp(command):
    return decode_command(wire.decode(wire.encode(encode_command(command))))


def test_every_field_has_a_forgery():
    fields = {each.name for each in msgspec.structs.fields(Command)}
    assert fields == OTHER.keys() | {"signature", "full_signature"}


@pytest.mark.parametrize("field", OTHER)
def test_no_field_can_be_changed_after_it_was_signed(field):
    """B11: `durable` and `correlation` could."""
    keys = read_keys({"k1": PUBLIC, "k2": PUBLIC}, "commands.keys")
    genuine = through_amqp(signed())
    assert keys.doubt(genuine) is None
    assert "is wrong" in keys.doubt(msgspec.structs.replace(genuine, **{field: OTHER[field]}))


def test_former_gateway_verifies_signatures_of_this_bridge():
    """It knows one signature, and ignores properties that it does not know."""
    message = encode_command(signed())
    known = {"tenant", "gateway", "device_id", "reply", "idempotent", "correlation", "deadline_boot", "deadline_ms", "key_id"}
    assert known < message.properties.keys()
    key = read_keys(KEYS, "commands.keys").known["k1"]
    key.verify(message.properties["signature"], signed_bytes(signed()))


def test_a_bridge_of_the_version_before_is_trusted_until_the_settings_say_otherwise():
    message = encode_command(signed())
    del message.properties["full_signature"]
    old = decode_command(message)
    assert read_keys(KEYS, "commands.keys").doubt(old) is None
    why = read_keys(KEYS, "commands.keys", partial=False).doubt(old)
    assert "does not cover" in why
    assert "commands.partial_signatures" in why


def test_a_wrong_full_signature_is_not_made_good_by_a_right_partial_one():
    forged = msgspec.structs.replace(signed(), durable=True)
    assert "is wrong" in read_keys(KEYS, "commands.keys").doubt(forged)


def test_a_signature_for_one_purpose_is_none_for_the_other():
    genuine = signed()
    for swapped in ({"full_signature": genuine.signature}, {"signature": genuine.full_signature, "full_signature": b""}):
        assert "is wrong" in read_keys(KEYS, "commands.keys").doubt(msgspec.structs.replace(genuine, **swapped))
