"""The command in a record of Kafka."""

import pytest

from fogline.errors import Poison
from fogline_cloud.commands.kafka_request import MAX_CORRELATION, MAX_HEADER, MAX_HEADERS, answerable, read_kafka_command
from fogline_cloud.kafka.committed_records import CommittedRecord

METADATA = "delivery-failure-notification-metadata"
ASKED = {"device_id": "lamp-1", "subject": "switch", "response-required": "true", "correlation-id": "c-1"}


def record(key=b"lamp-1", **headers):
    found = [(name, value.encode()) for name, value in {**ASKED, **headers}.items() if value is not None]
    return CommittedRecord("hono.command.acme", 1, 17, key, b"{}", found, 1_000)


def read(*args, **headers):
    return read_kafka_command(record(*args, **headers), "acme", 30_000)


def test_each_copy_of_a_record_is_the_same_message():
    message = read(**{"content-type": "application/json", METADATA: "a"})
    assert message == read(**{"content-type": "application/json", METADATA: "a"})
    assert (message.message_id, message.correlation_id, message.ttl_ms) == ("1/17/1000", "c-1", 30_000)
    assert (message.to, message.reply_to) == ("command/acme/lamp-1", "command_response/acme/kafka")
    assert (message.subject, message.content_type, message.body) == ("switch", "application/json", b"{}")
    assert (message.properties, message.durable) == ({METADATA: "a"}, False)


def test_a_command_without_response_required_is_one_way():
    message = read(**{"response-required": None})
    assert (message.reply_to, message.correlation_id) == (None, None)


def test_a_record_without_a_key_is_a_command():
    assert read(b"").to == "command/acme/lamp-1"


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"device_id": None}, "device_id"),
        ({"device_id": "lamp-2"}, "lamp-1"),
        ({"subject": None}, "name of a command"),
        ({"correlation-id": None}, "correlation-id"),
        ({"correlation-id": "x" * (MAX_CORRELATION + 1)}, str(MAX_CORRELATION)),
        ({METADATA: "x" * (MAX_HEADER + 1)}, str(MAX_HEADER)),
        ({f"{METADATA}-{number}": "" for number in range(MAX_HEADERS + 1)}, str(MAX_HEADERS)),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_unreadable_command_record_is_named(headers, why):
    with pytest.raises(Poison, match=why):
        read(**headers)


def test_a_notification_repeats_nothing_that_is_too_long():
    long = "x" * 2000
    found = answerable(record(**{"correlation-id": long, METADATA: long}), "acme")
    assert (found.correlation, found.failure_headers) == ("", {})
