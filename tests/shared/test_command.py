"""A command on the wire, and which state may follow which."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.amqp import wire
from fogline.commands.command import (
    MAX_COMMAND_BYTES,
    CommandState,
    Deadline,
    Reply,
    check_name,
    decode_command,
    digest,
    encode_command,
    is_command,
    may_become,
)
from fogline.commands.signature import Signer, TrustedKeys, make_key, read_keys, read_signer
from fogline.errors import Misconfigured, Poison
from fogline.events.codec import Beacon
from fogline.message import Message, pack_id, unpack_id
from fogline_lab.commands import make_command

PROPERTIES = encode_command(make_command()).properties


@given(
    data=st.binary(max_size=200),
    content_type=st.none() | st.just("application/json"),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    signature=st.binary(max_size=64),
)
def test_a_command_comes_through_amqp_as_it_was(data, content_type, flags, signature):
    reply, durable, idempotent = flags
    command = make_command(
        data=data, content_type=content_type, reply=reply, durable=durable, idempotent=idempotent, signature=signature
    )
    message = wire.decode(wire.encode(encode_command(command)))
    assert is_command(message)
    assert decode_command(message) == command


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"subject": "a/b"}, "bad-name"),
        ({"subject": ""}, "bad-name"),
        ({"message_id": "no/identifier"}, "bad-identifier"),
        ({"body": bytes(MAX_COMMAND_BYTES + 1)}, "too-big"),
        ({"properties": {"fogline": "command"}}, "malformed"),
        ({"content_type": "x" * 1025}, "too-big"),
        ({"properties": {**PROPERTIES, "deadline_ms": 2**63}}, "malformed"),
        ({"properties": {**PROPERTIES, "correlation": "x" * 1025}}, "malformed"),
        ({"properties": {**PROPERTIES, "deadline_boot": "x" * 129}}, "malformed"),
        ({"properties": {**PROPERTIES, "key_id": "x" * 65}}, "malformed"),
        ({"properties": {**PROPERTIES, "signature": b"x" * 65}}, "malformed"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_unreadable_command_is_refused_with_the_reason(change, reason):
    message = msgspec.structs.replace(encode_command(make_command()), **change)
    with pytest.raises(Poison) as caught:
        decode_command(message)
    assert caught.value.reason == reason


def test_an_answer_to_hello_is_no_command():
    assert not is_command(Message(body=b"{}"))


def test_every_difference_of_a_request_changes_its_digest():
    asked = [
        make_command(),
        make_command(device="lamp-2"),
        make_command(name="blink"),
        make_command(data=b"{}"),
        make_command(content_type=None),
        make_command(reply=False),
        make_command(idempotent=True),
    ]
    assert len({digest(each) for each in asked}) == len(asked)
    assert digest(make_command(deadline=Deadline("other", 1))) == digest(make_command())


def test_a_deadline_of_another_boot_is_past():
    deadline = Deadline("boot", 1000)
    assert deadline.left_ms(Beacon("boot", 400)) == 600
    assert deadline.left_ms(Beacon("boot", 1400)) == -400
    assert deadline.left_ms(Beacon("other", 400)) == 0


def test_nothing_leaves_an_end_but_a_doubt_that_is_resolved():
    ends = [state for state in CommandState if state.terminal]
    assert {(now, then) for now in ends for then in CommandState if may_become(now, then)} == {
        (CommandState.IN_DOUBT, then)
        for then in (CommandState.SUCCEEDED, CommandState.FAILED, CommandState.REJECTED, CommandState.EXPIRED)
    }
    assert not may_become(CommandState.QUEUED, CommandState.SUCCEEDED)


@pytest.mark.parametrize(
    ("status", "state"), [(200, CommandState.SUCCEEDED), (299, CommandState.SUCCEEDED), (404, CommandState.FAILED)]
)
def test_the_devices_own_status_decides(status, state):
    assert Reply(status).state is state


@given(st.text(max_size=200))
def test_a_name_never_disturbs_a_topic_or_a_path(name):
    try:
        check_name(name)
    except Poison:
        return
    assert not set(name) & set("/+#?& \n\0")


@given(st.text(max_size=20) | st.integers(0, 2**64 - 1) | st.uuids() | st.binary(max_size=20))
def test_an_id_keeps_its_type(value):
    again = unpack_id(pack_id(value))
    assert (type(again), again) == (type(value), value)


def test_signature_is_valid_only_for_the_signed_bytes():
    private, public = make_key()
    signed = read_signer("k1", private, "here").sign(make_command())
    keys = read_keys({"k1": public}, "commands.keys")
    assert keys.doubt(signed) is None
    for forged in ({"data": b"{}"}, {"device": "lamp-2"}, {"deadline": Deadline("boot", 1)}, {"id": "CMD-2"}):
        assert "is wrong" in keys.doubt(msgspec.structs.replace(signed, **forged))
    assert "not known" in keys.doubt(make_command())
    assert "is wrong" in read_keys({"k1": make_key()[1]}, "commands.keys").doubt(signed)


def test_without_keys_unsigned_commands_are_accepted():
    assert TrustedKeys().doubt(Signer().sign(make_command())) is None


@pytest.mark.parametrize("text", ["", "?", "YWJj"])
def test_a_key_that_is_none_names_its_place(text):
    with pytest.raises(Misconfigured, match=r"commands\.keys\.k1"):
        read_keys({"k1": text}, "commands.keys")


@pytest.mark.parametrize("deadline_ms", [2**63, 2**64 - 1, -(2**63)])
def test_a_deadline_that_no_database_could_hold_is_not_readable(deadline_ms):
    """G15: it raised in the outbox's writer, and ended the gateway."""
    message = encode_command(make_command(deadline=Deadline("boot", deadline_ms)))
    with pytest.raises(Poison, match="deadline_ms"):
        decode_command(message)
