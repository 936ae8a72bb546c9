"""A client's message as an event: bytes in, event out."""

import pytest

from fogline.address import parse_address
from fogline.amqp.wire import content_of, decode, encode
from fogline.errors import Poison
from fogline.events.event import Lane, TimeQuality
from fogline.events.identity import Dedup
from fogline.message import Message
from fogline_cloud.bridge.consumers.client_events import MAX_PROPERTIES, event_of

NOW_NS = 1_700_000_000_000_000_000


def event(address="telemetry/acme/meter-1", /, **fields):
    """Return the event of a message to `address`, encoded and decoded as on the wire."""
    message = Message(**{"body": b"1", **fields})
    return event_of(decode(encode(message)), parse_address(address), NOW_NS)


def refusal(address="telemetry/acme/meter-1", /, **fields):
    with pytest.raises(Poison) as refused:
        event(address, **fields)
    return refused.value.reason


def section(content: bytes) -> bytes:
    return b"\x00\x53\x75\xa0" + bytes([len(content)]) + content


def test_a_plain_message_becomes_an_event_of_its_device():
    made = event(body=b"\x00\x01")
    assert (made.tenant, made.device, made.data, made.content_type) == (
        "acme",
        "meter-1",
        b"\x00\x01",
        "application/octet-stream",
    )
    assert (made.lane, made.type, made.subject, made.adapter) == (Lane.TELEMETRY, "telemetry", "telemetry", "amqp")
    assert (made.recordedtime, made.time, made.timequality) == ("2023-11-14T22:13:20.000000Z", None, TimeQuality.SYNCED)
    assert (made.gateway, made.stream, made.sequence, made.dedup) == ("", "", 0, Dedup.WEAK)


def test_the_endpoint_event_is_an_alarm():
    made = event("e/acme/meter-1", body=b"{}", content_type="application/json", subject="door", ttl_ms=60_000)
    assert (made.lane, made.type, made.subject, made.content_type) == (Lane.ALARM, "alarm", "door", "application/json")
    assert made.expirytime == "2023-11-14T22:14:20.000000Z"


@pytest.mark.parametrize("prefix", ["cloudEvents:", "cloudEvents_"])
def test_attributes_of_cloudevents_are_taken_over(prefix):
    attributes = {
        "id": "1",
        "type": "reading",
        "subject": "power",
        "datacontenttype": "text/csv",
        "time": "2026-01-02T03:04:05+01:00",
    }
    made = event(properties={prefix + name: value for name, value in attributes.items()})
    assert (made.type, made.subject, made.content_type) == ("reading", "power", "text/csv")
    assert (made.time, made.dedup) == ("2026-01-02T02:04:05.000000Z", Dedup.STRONG)


def test_further_properties_travel_beside_the_body():
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    given = {"cloudEvents_traceparent": trace, "device_id": "meter-1", "cloudEvents_id": "1", "room": "a b", "n": 3, "on": True}
    assert event(properties=given).properties == f"room=a+b&n=3&on=true&traceparent={trace}"
    assert event(properties={"traceparent": trace}).properties == f"traceparent={trace}"
    assert event(properties={"cloudEvents:traceparent": trace}).properties == f"traceparent={trace}"


def test_properties_that_are_too_long_or_no_text_are_left_out():
    assert event(properties={"room": "x" * MAX_PROPERTIES}).properties is None
    assert event(properties={"raw": b"x"}).properties is None
    assert event().properties is None


def test_copies_of_a_message_with_an_id_are_the_same_event():
    once, again, other = ({"cloudEvents_id": own, "cloudEvents_source": "/s"} for own in ("1", "1", "2"))
    assert event(properties=once).id == event(properties=again).id
    assert event(properties=once).id != event(properties=other).id
    assert event(properties=once).id != event("telemetry/acme/meter-2", properties=once).id
    assert event(properties=once).id != event(properties={"cloudEvents_id": "1"}).id


def test_without_an_id_every_message_is_a_new_event():
    assert event(body=b"x").id != event(body=b"x").id


@pytest.mark.parametrize(
    ("address", "fields"),
    [
        ("telemetry/acme", {"to": "telemetry/acme/meter-1"}),
        ("telemetry/acme", {"properties": {"device_id": "meter-1"}}),
        ("telemetry/acme", {"to": "telemetry/acme", "properties": {"device_id": "meter-1"}}),
        ("telemetry/acme/meter-1", {"to": "t/acme/meter-1", "properties": {"device_id": "meter-2"}}),
    ],
)
def test_the_device_comes_from_to_else_from_the_link_else_from_a_property(address, fields):
    assert event(address, **fields).device == "meter-1"


@pytest.mark.parametrize(
    ("address", "fields", "reason"),
    [
        ("telemetry/acme", {}, "bad-identifier"),
        ("telemetry/acme", {"properties": {"device_id": "no\ndevice"}}, "bad-identifier"),
        ("telemetry/acme", {"properties": {"device_id": 7}}, "bad-identifier"),
        ("telemetry/acme", {"to": "nonsense"}, "bad-address"),
        ("telemetry/acme", {"to": "event/other/meter-1"}, "not-authorised"),
        ("telemetry/acme/meter-1", {"to": "telemetry/acme/meter-2"}, "not-authorised"),
        ("telemetry/acme", {"to": "command/acme/meter-1"}, "not-authorised"),
    ],
)
@pytest.mark.fault("D9")
def test_a_message_about_no_device_or_anothers_is_refused(address, fields, reason):
    assert refusal(address, **fields) == reason


@pytest.mark.parametrize("given", ["application/vnd.fogline-gap+json", "Application/VND.Fogline-ledger+json"])
def test_a_reserved_content_type_is_refused(given):
    assert refusal(content_type=given) == "reserved-content-type"
    assert refusal(properties={"cloudEvents_datacontenttype": given}) in ("reserved-content-type", "malformed")


@pytest.mark.parametrize("given", ["yesterday", "2026-01-02", "2026-01-02T03:04:05", "2026-13-01T00:00:00Z", "9" * 257])
def test_a_time_that_is_not_rfc_3339_is_refused(given):
    assert refusal(properties={"cloudEvents_time": given}) == "malformed"


def test_a_body_in_several_sections_is_joined():
    message = decode(encode(Message(subject="s")) + section(b"in two ") + section(b"sections"))
    assert event_of(message, parse_address("telemetry/acme/meter-1"), NOW_NS).data == b"in two sections"


def test_a_string_is_a_body_and_a_map_is_refused():
    assert decode(b"\x00\x53\x77\xa1\x02ab").body == b"ab"
    with pytest.raises(Poison, match="send Data sections"):
        decode(b"\x00\x53\x77\xc1\x05\x02\xa1\x01a\x40")


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"\x00\x53\x75",
        b"\x00\x53\x75\xa0\x05ab",
        b"\x00\x53\x75\xb0\xff\xff\xff\xff",
        b"\x00\x53\x75\x40",
        b"\x00\xa3\x10amqp:data:binary\xa0\x01a",
        section(b"a") + b"more",
    ],
)
def test_bytes_that_are_no_section_are_refused(data):
    with pytest.raises(ValueError):
        content_of(data)
    with pytest.raises(Poison):
        decode(data)


@pytest.mark.parametrize("given", ["text plain", "application/json; charset", "x", "x" * 257])
@pytest.mark.parametrize("place", ["content_type", "datacontenttype"])
def test_b15_a_content_type_that_is_no_media_type_is_refused(given, place):
    fields = {"content_type": given} if place == "content_type" else {"properties": {"cloudEvents:datacontenttype": given}}
    assert refusal(**fields) == ("malformed" if place == "datacontenttype" and len(given) > 256 else "bad-content-type")
