"""Reads commands from messages of Hono's API, and names the reason of each refusal."""

import uuid

import msgspec
import pytest

from fogline.address import CommandAddress
from fogline.commands.command import MAX_COMMAND_BYTES, CommandState
from fogline.errors import Poison
from fogline.message import Message
from fogline_cloud.access.principal import ASSERTED, KAFKA, Principal, PrincipalKind
from fogline_cloud.bridge.commands.replies import reply_message
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.commands.request import read_command
from fogline_cloud.settings import CommandPolicySettings

ME = Principal(PrincipalKind.CLIENT, "acme", "me", "asserted")
LINK_ADDRESS = CommandAddress("acme", "")
IDS = CommandIds(b"k" * 32)
MESSAGE = Message(
    body=b"{}",
    to="command/acme/lamp-1",
    subject="switch",
    reply_to="command_response/acme/me/1",
    message_id="m1",
    correlation_id="c1",
    content_type="application/json",
)


def record(operator=ME, link_address=LINK_ADDRESS, **change):
    return read_command(
        msgspec.structs.replace(MESSAGE, **change), link_address, operator, 1000, CommandPolicySettings(), ids=IDS
    )


def test_a_command_of_honos_api_is_read():
    made = record()
    assert (made.device, made.name, made.data, made.content_type) == ("lamp-1", "switch", b"{}", "application/json")
    assert (made.reply_to, made.correlation, made.state, made.durable) == ("me/1", "string:c1", CommandState.ACCEPTED, False)
    assert made.expires_ms == 1000 + 30_000


@pytest.mark.parametrize(
    ("ttl_ms", "left_ms", "ends_in_ms"),
    [(5000, 3000, 3000), (5000, 0, 0), (5000, 9000, 5000), (None, 3000, 3000), (None, 90_000, 30_000), (None, None, 30_000)],
)
def test_an_end_that_its_sender_stated_can_only_be_earlier(ttl_ms, left_ms, ends_in_ms):
    message = msgspec.structs.replace(MESSAGE, ttl_ms=ttl_ms)
    made = read_command(message, LINK_ADDRESS, ME, 1000, CommandPolicySettings(), ids=IDS, left_ms=left_ms)
    assert made.expires_ms == 1000 + ends_in_ms


@pytest.mark.parametrize(
    ("durable", "ttl_ms", "waits", "ends_in_ms"),
    [(False, None, False, 30_000), (True, None, False, 30_000), (False, 5000, False, 5000), (True, 5000, True, 5000)],
)
def test_only_a_durable_command_with_a_ttl_waits_for_its_device(durable, ttl_ms, waits, ends_in_ms):
    """B18: JMS sends persistent by default, which is AMQP's `durable`; without a ttl it means nothing here, as in Hono."""
    made = record(durable=durable, ttl_ms=ttl_ms)
    assert (made.durable, made.expires_ms) == (waits, 1000 + ends_in_ms)


def test_without_a_reply_address_it_is_one_way():
    assert record(reply_to=None).reply_to == ""


@pytest.mark.parametrize(
    ("to", "link_address", "properties"),
    [
        ("command/acme/lamp-1", LINK_ADDRESS, {}),
        (None, CommandAddress("acme", "lamp-1"), {}),
        (None, LINK_ADDRESS, {"device_id": "lamp-1"}),
        ("command/acme/lamp-1", LINK_ADDRESS, {"device_id": "lamp-2"}),
    ],
)
def test_the_device_is_found_by_to_the_link_or_the_property(to, link_address, properties):
    assert record(to=to, link_address=link_address, properties=properties).device == "lamp-1"


@pytest.mark.parametrize("correlation", ["c", 7, uuid.UUID(int=9), b"\x00\xff"])
def test_the_reply_carries_the_correlation_id_as_it_came(correlation):
    made = msgspec.structs.replace(record(correlation_id=correlation), state=CommandState.SUCCEEDED, status=200)
    reply = reply_message(made)
    assert (reply.correlation_id, reply.to) == (correlation, "command_response/acme/me/1")
    assert type(reply.correlation_id) is type(correlation)


def test_the_message_id_is_the_correlation_where_there_is_no_other():
    assert record(correlation_id=None).correlation == "string:m1"


def test_the_same_message_of_the_same_operator_is_the_same_command():
    assert record().id == record(correlation_id="other").id
    other = Principal(PrincipalKind.CLIENT, "acme", "you", "asserted")
    ids = [record(), record(message_id="m2"), record(message_id=1), record(operator=other), record(reply_to=None)]
    assert len({each.id for each in ids}) == 5
    assert record(message_id=None).id != record(message_id=None).id


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"subject": None}, "bad-name"),
        ({"subject": "a b"}, "bad-name"),
        ({"to": "command/acme"}, "bad-identifier"),
        ({"to": "command/acme/a\nb"}, "bad-identifier"),
        ({"to": "command/other/lamp-1"}, "not-authorised"),
        ({"to": "telemetry/acme/lamp-1"}, "not-authorised"),
        ({"reply_to": "command_response/other/me"}, "malformed"),
        ({"reply_to": "somewhere"}, "malformed"),
        ({"message_id": None, "correlation_id": None}, "malformed"),
        ({"correlation_id": "x" * 1000}, "malformed"),
        ({"content_type": "a\nb"}, "malformed"),
        ({"body": bytes(MAX_COMMAND_BYTES + 1)}, "too-big"),
        ({"ttl_ms": 604_800_001}, "ttl"),
        ({"durable": False, "properties": {"newest_wins": True}}, "malformed"),
        ({"ttl_ms": None, "properties": {"newest_wins": True}}, "malformed"),
    ],
)
def test_a_message_that_is_no_command_is_refused_with_the_reason(change, reason):
    with pytest.raises(Poison) as caught:
        record(**change)
    assert caught.value.reason == reason


def test_no_amqp_peer_can_make_the_ids_of_commands_that_came_over_kafka():
    """It has the sender's name, its reply id, and the message id of a record."""
    message = msgspec.structs.replace(MESSAGE, reply_to="command_response/acme/kafka", message_id="0/12/1234")
    of_kafka, of_user = (
        read_command(
            message,
            LINK_ADDRESS,
            Principal(PrincipalKind.CLIENT, "acme", "hono.command", proof),
            0,
            CommandPolicySettings(),
            ids=IDS,
        )
        for proof in (KAFKA, ASSERTED)
    )
    assert of_kafka.id != of_user.id
