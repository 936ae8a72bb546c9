"""Tasmota: bytes in, arrivals out. The payloads are as its documentation shows them."""

import pytest

from fogline.errors import Misconfigured, Poison
from fogline.events.event import Arrival, Lane
from fogline_edge.profiles.profile import BrokerMessage, Filter, Ignored, IgnoreReason
from fogline_edge.profiles.tasmota import Tasmota

SENSOR = b'{"Time":"2024-05-01T12:00:00","AM2301":{"Temperature":21.6,"Humidity":54.7,"DewPoint":12.1},"TempUnit":"C"}'
STATE = b'{"Time":"2024-05-01T12:00:00","Uptime":"1T15:45:36","Vcc":3.504,"POWER":"ON","Wifi":{"AP":1,"RSSI":80}}'
INFO1 = b'{"Info1":{"Module":"Sonoff Basic","Version":"13.4.0(tasmota)","FallbackTopic":"cmnd/DVES_1F2A3B_fb/"}}'


def read(topic, payload=b"{}", *, retained=False, full_topic="%prefix%/%topic%/"):
    return Tasmota(full_topic).read(BrokerMessage(topic, payload, retained))


def test_a_sensor_is_telemetry_without_a_time_of_its_own():
    assert read("tele/tasmota_1F2A3B/SENSOR", SENSOR) == Arrival(
        device="tasmota_1F2A3B",
        channel="tele/tasmota_1F2A3B/SENSOR",
        lane=Lane.TELEMETRY,
        content_type="application/json",
        data=SENSOR,
        adapter="mqtt-client",
        type="telemetry",
    )


@pytest.mark.parametrize(
    ("topic", "payload", "kind"),
    [
        ("tele/plug/STATE", STATE, "telemetry"),
        ("tele/plug/UPTIME", b'{"Time":"2024-05-01T12:00:00","Uptime":"1T15:45:36"}', "telemetry"),
        ("tele/bridge/5ADF/SENSOR", SENSOR, "telemetry"),
        ("tele/plug/INFO1", INFO1, "info"),
        ("tele/plug/INFO3", b'{"Info3":{"RestartReason":"Power on"}}', "info"),
        ("stat/plug/RESULT", b'{"POWER":"ON"}', "result"),
        ("stat/plug/POWER", b"ON", "result"),
        ("stat/plug/POWER2", b"OFF", "result"),
        ("stat/plug/STATUS", b'{"Status":{"Module":1}}', "status"),
        ("stat/plug/STATUS11", b'{"StatusSTS":{}}', "status"),
    ],
)
def test_message_of_a_device_has_its_type(topic, payload, kind):
    arrival = read(topic, payload)
    device = ":2F".join(topic.split("/")[1:-1])
    assert (arrival.device, arrival.type, arrival.lane, arrival.time_ns) == (device, kind, Lane.TELEMETRY, None)
    assert arrival.content_type == ("application/json" if payload[:1] == b"{" else "application/octet-stream")


def test_two_topics_that_begin_with_the_same_level_are_two_devices():
    topics = ("tele/haus/plug1/SENSOR", "tele/haus/plug2/SENSOR", "tele/haus/SENSOR", "stat/haus/plug1/RESULT")
    assert [read(topic, SENSOR).device for topic in topics] == ["haus:2Fplug1", "haus:2Fplug2", "haus", "haus:2Fplug1"]


@pytest.mark.parametrize("payload", [b"Online", b"Offline"])
@pytest.mark.parametrize("retained", [False, True])
def test_the_last_will_is_an_alarm_also_when_it_is_retained(payload, retained):
    arrival = read("tele/plug/LWT", payload, retained=retained)
    assert (arrival.device, arrival.type, arrival.lane) == ("plug", "availability", Lane.ALARM)


@pytest.mark.parametrize(
    ("topic", "payload", "retained", "why"),
    [
        ("tele/plug/SENSOR", SENSOR, True, IgnoreReason.RETAINED),
        ("stat/plug/POWER", b"ON", True, IgnoreReason.RETAINED),
        ("stat/plug/POWER", b"", False, IgnoreReason.EMPTY),
        ("tele/plug/LWT", b"", False, IgnoreReason.EMPTY),
        ("stat/plug/LOGGING", b"12:00:00 MQT: ...", False, IgnoreReason.LOGGING),
        ("cmnd/plug/POWER", b"TOGGLE", False, IgnoreReason.COMMAND),
        ("tasmota/discovery/1F2A3B4C5D6E/config", b"{}", True, IgnoreReason.DISCOVERY),
    ],
)
def test_message_that_is_no_event_is_ignored(topic, payload, retained, why):
    assert read(topic, payload, retained=retained) == Ignored(why)


@pytest.mark.parametrize(
    ("full_topic", "topic", "filters"),
    [
        ("%prefix%/%topic%/", "tele/plug/SENSOR", ["tele/+/#", "stat/+/#"]),
        ("%topic%/%prefix%/", "plug/tele/SENSOR", ["+/tele/#", "+/stat/#"]),
        (
            "home/%prefix%/cellar.1/%topic%",
            "home/tele/cellar.1/plug/SENSOR",
            ["home/tele/cellar.1/+/#", "home/stat/cellar.1/+/#"],
        ),
    ],
)
def test_the_full_topic_is_read_as_tasmota_writes_it(full_topic, topic, filters):
    assert Tasmota(full_topic).filters == tuple(Filter(each) for each in filters)
    assert read(topic, SENSOR, full_topic=full_topic).device == "plug"


@pytest.mark.parametrize(
    "full_topic",
    [
        "",
        "%prefix%/",
        "%topic%/",
        "%prefix%/%topic%/%topic%",
        "%prefix%/%id%/%topic%",
        "a//%prefix%/%topic%",
        "%prefix%/+/%topic%",
        "x%prefix%/%topic%",
    ],
)
def test_a_full_topic_that_is_none_is_named(full_topic):
    with pytest.raises(Misconfigured, match="full_topic"):
        Tasmota(full_topic)


def test_a_topic_of_others_is_poison():
    with pytest.raises(Poison) as caught:
        read("zigbee2mqtt/lamp")
    assert caught.value.reason == "bad-topic"


def test_a_topic_that_is_no_identifier_is_escaped():
    assert read("tele/wash house/SENSOR", SENSOR).device == "wash:20house"
