"""A PUBLISH to an arrival, or to a dead letter."""

import pytest

from fogline.address import device_identifier
from fogline.dead_letter import DEAD_CONTENT_TYPE, decode_dead_letter
from fogline.errors import Poison
from fogline.events.event import Lane, parse_rfc3339
from fogline.events.identity import Retransmission, UniqueId
from fogline_edge.adapters.device_acl import DeviceAcl
from fogline_edge.adapters.mqtt.counters import MqttCounters
from fogline_edge.adapters.mqtt.hono.intake import MAX_PROPERTIES, Client, PublishIntake
from fogline_edge.adapters.mqtt.hono.topics import Topics
from fogline_edge.adapters.mqtt.protocol.packets import Publish
from fogline_edge.adapters.mqtt.protocol.primitives import Reason
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_edge.broker_settings import TopicSettings

PATTERNS = [
    TopicSettings(topic="raw/{device}"),
    TopicSettings(topic="csv/{device}", content_type="text/csv"),
    TopicSettings(topic="own/#"),
]
INTAKE = PublishIntake("acme", "gw-1", Topics("acme", PATTERNS))
ANYONE = Client("d1")


def take(topic, payload=b"x", client=ANYONE, **more):
    return INTAKE.arrival(client, Publish(topic=topic, payload=payload, **more), client.slot)


def stored(*given, **more):
    arrival, code = take(*given, **more)
    assert code == Reason.SUCCESS
    return arrival


def refused(*given, **more):
    arrival, code = take(*given, **more)
    assert arrival.content_type == DEAD_CONTENT_TYPE
    assert arrival.device == "gw-1"
    return decode_dead_letter(arrival.data), code


def test_without_users_the_device_is_the_topics_else_the_client_id():
    assert stored("telemetry").device == "d1"
    assert stored("telemetry/acme/d2").device == "d2"
    assert stored("own/anything").device == "d1"


def test_a_client_id_with_blanks_names_a_device():
    """G14."""
    assert stored("telemetry", client=Client("Wohnzimmer Lampe")).device == "Wohnzimmer:20Lampe"


@pytest.mark.parametrize("client_id", ["mosq/x y", "Датчик температуры кухня", "x" * 66])
@pytest.mark.fault("D12")
def test_a_client_id_of_any_script_and_length_names_a_device(client_id):
    assert stored("telemetry", client=INTAKE.client(client_id, None)).device == device_identifier(client_id, "client id")


@pytest.mark.fault("D12")
def test_a_client_id_that_names_no_device_is_refused_at_the_connect():
    with pytest.raises(Poison) as refused:
        INTAKE.client("a\x07b", None)
    assert refused.value.reason == "bad-identifier"


def test_a_user_speaks_for_the_device_of_that_name():
    client = Client("any id", "d1")
    assert stored("telemetry", client=client).device == "d1"
    assert stored("t//d1", client=client).device == "d1"


@pytest.mark.parametrize("topic", ["t//d2", "raw/d2", "e/acme/d2"])
def test_a_user_does_not_speak_for_another_device(topic):
    letter, code = refused(topic, client=Client("c", "d1"))
    assert (letter.reason, letter.sender, letter.channel, code) == (
        "not-authorised",
        "'d1'",
        repr(topic),
        Reason.NOT_AUTHORIZED,
    )


def test_a_user_speaks_for_the_devices_that_its_patterns_match():
    client = Client("c", "d1", DeviceAcl({"d1": ["d[2-4]", "press-*"]}, "mqtt.acl").others("d1"))
    assert [stored(f"raw/{each}", client=client).device for each in ("d1", "d2", "press-", "press-7")] == [
        "d1",
        "d2",
        "press-",
        "press-7",
    ]
    for other in ("d5", "d22", "D2", "xpress-7"):
        assert refused(f"raw/{other}", client=client)[0].reason == "not-authorised"


@pytest.mark.parametrize(
    ("topic", "reason", "code"),
    [
        ("nowhere", "bad-topic", Reason.TOPIC_NAME_INVALID),
        ("t//", "bad-identifier", Reason.TOPIC_NAME_INVALID),
        ("t/other/d1", "foreign-tenant", Reason.NOT_AUTHORIZED),
    ],
)
@pytest.mark.fault("D9")
def test_unacceptable_event_becomes_a_dead_letter(topic, reason, code):
    letter, told = refused(topic, b"\xff\0")
    assert (letter.reason, letter.body, told) == (reason, b"\xff\0", code)


@pytest.mark.parametrize("kind", ["application/vnd.fogline-gap+json", "Application/Vnd.Fogline-Dead+json;x=1"])
def test_a_device_does_not_speak_as_the_gateway(kind):
    letter, _ = refused("t", properties=Properties(content_type=kind))
    assert letter.reason == "reserved-content-type"


@pytest.mark.parametrize(
    ("topic", "told", "payload", "kind"),
    [
        ("t", None, b'{"a":1}', "application/json"),
        ("t", None, b"[1]", "application/json"),
        ("t", None, b"\x01{", "application/octet-stream"),
        ("t", None, b"", "application/octet-stream"),
        ("t", "text/plain; charset=utf-8", b"{", "text/plain; charset=utf-8"),
        ("t/?content-type=a%2Fb", None, b"{", "a/b"),
        ("t/?content-type=a%2Fb", "c/d", b"{", "c/d"),
        ("raw/d2", None, b"{", "application/json"),
        ("raw/d2", "a/b", b"{", "a/b"),
        ("csv/d2", None, b"{", "text/csv"),
        ("csv/d2", "a/b", b"{", "a/b"),
        ("t", "not a media type", b"{", "application/json"),
        ("t", "text/plain; charset", b"{", "application/json"),
        ("t", "a/b\r\nx: y", b"x", "application/octet-stream"),
        ("t", "a/" + "b" * 60_000, b"x", "application/octet-stream"),
    ],
)
def test_the_content_type_is_the_messages_else_the_topics_else_the_first_byte_tells(topic, told, payload, kind):
    assert stored(topic, payload, properties=Properties(content_type=told)).content_type == kind


def test_a_cloud_event_brings_its_id_and_time():
    arrival = stored(
        "t", properties=Properties(user=(("specversion", "1.0"), ("id", "é1"), ("time", "2024-05-06T07:08:09.5Z")))
    )
    assert arrival.evidence == UniqueId("é1".encode())
    assert arrival.time_ns == parse_rfc3339("2024-05-06T07:08:09.5Z")


@pytest.mark.parametrize(
    "user",
    [(("id", "1"),), (("specversion", "1.0"),), (("specversion", "1.0"), ("id", ""))],
    ids=["no specversion", "no id", "empty id"],
)
def test_message_that_is_no_cloud_event_gives_no_evidence(user):
    assert stored("t", properties=Properties(user=user)).evidence is None


@pytest.mark.parametrize(
    "time",
    ["yesterday", "2024-05-06T07:08:09", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z", ""],
)
def test_a_time_that_cannot_be_meant_is_left_out(time):
    assert stored("t", properties=Properties(user=(("time", time),))).time_ns is None


@pytest.mark.fault("T5")
def test_a_time_of_2099_is_the_devices_own_affair():
    assert stored("t", properties=Properties(user=(("time", "2099-01-01T00:00:00Z"),))).time_ns is not None


def test_the_slot_is_the_client_and_the_packet_id():
    first = stored("t", qos=1, packet_id=7).retransmission
    again = stored("t", qos=1, packet_id=7, dup=True).retransmission
    assert first is not None
    assert again == Retransmission(first.slot, again=True, number=7)
    assert stored("t", qos=1, packet_id=8).retransmission == Retransmission(first.slot, again=False, number=8)
    others = [
        stored("t", qos=1, packet_id=7, client=Client("d2")),
        stored("t", qos=1, packet_id=7, client=Client("d1", "d1")),
    ]
    assert len({first.slot, *(each.retransmission.slot for each in others)}) == 3


def test_qos_0_has_no_slot():
    assert stored("t").retransmission is None


def test_events_are_alarms():
    arrival = stored("event")
    assert (arrival.lane, arrival.type, arrival.adapter, arrival.channel) == (Lane.ALARM, "alarm", "mqtt", "event")


@pytest.mark.parametrize(("username", "device"), [("d1", "d1"), ("d1@acme", "d1")])
def test_a_user_is_a_device_of_this_tenant(username, device):
    assert INTAKE.client("c", username) == Client("c", device)
    acl = DeviceAcl({device: ["*"]}, "mqtt.acl")
    assert PublishIntake("acme", "gw-1", Topics("acme", []), acl=acl).client("c", username).speaks_for("any")


@pytest.mark.parametrize("username", ["d1@other", "a\x07b", "@acme"])
def test_other_users_are_none(username):
    with pytest.raises(Poison):
        INTAKE.client("c", username)


def test_user_properties_and_the_rest_of_the_property_bag_go_with_the_event():
    arrival = stored(
        "t/?content-type=a%2Fb&ttl=1",
        properties=Properties(user=(("site", "a&b"), ("site", "ü"), ("", "empty name"))),
    )
    assert arrival.properties == "ttl=1&site=a%26b&site=%C3%BC&=empty+name"
    assert stored("t/?content-type=a%2Fb").properties is None
    assert stored("t/?ttl=1").properties == "ttl=1"
    assert stored("t", properties=Properties(content_type="a/b")).properties is None


def test_cloud_event_attributes_are_not_repeated_in_properties():
    user = (("specversion", "1.0"), ("id", "1"), ("time", "2024-05-06T07:08:09Z"), ("site", "a"))
    assert stored("t", properties=Properties(user=user)).properties == "site=a"
    assert stored("t", properties=Properties(user=(("id", "1"),))).properties == "id=1"


def test_too_many_properties_are_left_out_and_counted():
    counters = MqttCounters()
    intake = PublishIntake("acme", "gw-1", Topics("acme", []), counters)
    message = Publish(topic="t", payload=b"x", properties=Properties(user=(("a", "x" * MAX_PROPERTIES),)))
    arrival, code = intake.arrival(ANYONE, message, b"")
    assert (arrival.properties, arrival.data, code, counters.properties_dropped) == (None, b"x", 0, 1)


def test_message_expiry_is_the_events():
    assert stored("t", properties=Properties(message_expiry_s=60)).expiry_s == 60
    assert stored("t").expiry_s is None
