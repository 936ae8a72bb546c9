"""A command's signature covers every field."""

import msgspec
import pytest

from fogline.amqp import wire
from fogline.commands.command import Command, Deadline, decode_command, encode_command
from fogline.commands.signature import make_key, read_keys, read_signer
from fogline_lab.commands import make_command

PRIVATE, PUBLIC = make_key()
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
    assert fields == OTHER.keys() | {"signature"}


@pytest.mark.parametrize("field", OTHER)
def test_no_field_can_be_changed_after_it_was_signed(field):
    keys = read_keys({"k1": PUBLIC, "k2": PUBLIC}, "commands.keys")
    genuine = through_amqp(signed())
    assert keys.doubt(genuine) is None
    assert "is wrong" in keys.doubt(msgspec.structs.replace(genuine, **{field: OTHER[field]}))
