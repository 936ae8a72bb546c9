"""Zigbee2MQTT: bytes in, arrivals out. The payloads are as its documentation shows them."""

import json

import pytest

from fogline.errors import Poison
from fogline.events.event import Arrival, Lane
from fogline.events.identity import DeviceTime
from fogline_edge.profiles.profile import BrokerMessage, Filter, Ignored, IgnoreReason
from fogline_edge.profiles.zigbee2mqtt import Zigbee2Mqtt

LAMP = "0x00158d0001dc126a"
DEVICES = json.dumps(
    [
        {
            "ieee_address": "0x00124b00120144ae",
            "type": "Coordinator",
            "network_address": 0,
            "supported": False,
            "friendly_name": "Coordinator",
            "endpoints": {"1": {"bindings": [], "configured_reportings": [], "clusters": {"input": [], "output": []}}},
        },
        {
            "ieee_address": LAMP,
            "type": "Router",
            "network_address": 29159,
            "supported": True,
            "friendly_name": "living room/lamp",
            "description": "beside the window",
            "definition": {"model": "LED1545G12", "vendor": "IKEA", "exposes": [{"type": "light"}]},
            "power_source": "Mains (single phase)",
            "interview_completed": True,
        },
    ]
).encode()


def read(topic, payload=b"{}", *, retained=False, names=None, base="zigbee2mqtt"):
    return Zigbee2Mqtt(base, names or {}).read(BrokerMessage(topic, payload, retained))


def test_a_state_is_telemetry_of_the_device():
    payload = b'{"temperature": 27.34,"humidity": 44.72,"battery":100,"linkquality":83}'
    arrival = read("zigbee2mqtt/0x00158d0001dc126a", payload)
    assert arrival == Arrival(
        device=LAMP,
        channel="zigbee2mqtt/0x00158d0001dc126a",
        lane=Lane.TELEMETRY,
        content_type="application/json",
        data=payload,
        adapter="mqtt-client",
        type="telemetry",
    )


@pytest.mark.parametrize(("name", "device"), [("kitchen/floor_light", "kitchen:2Ffloor_light"), ("Büro 1", "B:C3:BCro:201")])
def test_unknown_name_is_escaped(name, device):
    assert read(f"zigbee2mqtt/{name}").device == device


def test_known_name_resolves_to_its_address():
    profile = Zigbee2Mqtt("zigbee2mqtt", {})
    learned = profile.read(BrokerMessage("zigbee2mqtt/bridge/devices", DEVICES, retained=True))
    assert learned.changed == {"Coordinator": "0x00124b00120144ae", "living room/lamp": LAMP}
    assert profile.read(BrokerMessage("zigbee2mqtt/living room/lamp", b'{"state":"ON"}')).device == LAMP


def test_device_is_described_once_and_again_when_its_description_changes():
    profile = Zigbee2Mqtt("zigbee2mqtt", {})
    (described,) = profile.read(BrokerMessage("zigbee2mqtt/bridge/devices", DEVICES, retained=True)).described
    arrival = described.arrival
    assert (arrival.device, arrival.type, arrival.channel, arrival.lane) == (
        LAMP,
        "device",
        "zigbee2mqtt/bridge/devices",
        Lane.TELEMETRY,
    )
    assert json.loads(arrival.data) == {
        "name": "living room/lamp",
        "vendor": "IKEA",
        "model": "LED1545G12",
        "description": "beside the window",
        "power_source": "Mains (single phase)",
    }
    again = Zigbee2Mqtt("zigbee2mqtt", {}, {LAMP: described.digest})
    assert again.read(BrokerMessage("zigbee2mqtt/bridge/devices", DEVICES)).described == ()
    moved = DEVICES.replace(b"beside the window", b"beside the door")
    assert len(again.read(BrokerMessage("zigbee2mqtt/bridge/devices", moved)).described) == 1
    assert again.read(BrokerMessage("zigbee2mqtt/bridge/devices", b"[]")).gone == {LAMP}


@pytest.mark.parametrize("odd", [b"null", b"1", b"[]", b'{"model":null,"vendor":7}'])
def test_odd_entry_of_the_list_costs_no_names(odd):
    body = b'[{"ieee_address":"0x01","friendly_name":"plug","definition":' + odd + b',"power_source":' + odd + b"}]"
    learned = read("zigbee2mqtt/bridge/devices", body)
    assert learned.changed == {"plug": "0x01"}
    assert json.loads(learned.described[0].arrival.data) == {"name": "plug"}


def test_names_of_before_a_restart_are_known():
    assert read("zigbee2mqtt/living room/lamp", names={"living room/lamp": LAMP}).device == LAMP


def test_a_device_that_is_renamed_stays_the_device():
    profile = Zigbee2Mqtt("zigbee2mqtt", {"living room/lamp": LAMP})
    learned = profile.read(BrokerMessage("zigbee2mqtt/bridge/devices", DEVICES.replace(b"living room", b"hall")))
    assert learned.changed == {"living room/lamp": None, "hall/lamp": LAMP, "Coordinator": "0x00124b00120144ae"}
    assert profile.read(BrokerMessage("zigbee2mqtt/hall/lamp", b"{}")).device == LAMP


@pytest.mark.parametrize(
    "payload", [b'{"a":1}', b"[{}]", b"[", b"nothing", b'[{"ieee_address":1,"friendly_name":"x"}]', b"[" * 100_000]
)
def test_a_list_that_is_none_is_poison(payload):
    with pytest.raises(Poison) as caught:
        read("zigbee2mqtt/bridge/devices", payload)
    assert caught.value.reason == "malformed"


@pytest.mark.parametrize("payload", [b'{"state":"online"}', b"offline"])
@pytest.mark.parametrize("retained", [False, True])
def test_availability_is_an_alarm_also_when_it_is_retained(payload, retained):
    arrival = read("zigbee2mqtt/living room/lamp/availability", payload, retained=retained, names={"living room/lamp": LAMP})
    assert (arrival.device, arrival.type, arrival.lane, arrival.data) == (LAMP, "availability", Lane.ALARM, payload)
    assert arrival.content_type == ("application/json" if payload[:1] == b"{" else "application/octet-stream")


@pytest.mark.parametrize("retained", [False, True])
def test_the_state_of_the_bridge_is_its_availability(retained):
    arrival = read("zigbee2mqtt/bridge/state", b'{"state":"online"}', retained=retained)
    assert (arrival.device, arrival.type, arrival.lane) == ("zigbee2mqtt", "availability", Lane.ALARM)


def test_an_event_of_the_bridge_is_one():
    payload = b'{"type":"device_joined","data":{"friendly_name":"0x90fd9ffffe6494fc","ieee_address":"0x90fd9ffffe6494fc"}}'
    arrival = read("zigbee2mqtt/bridge/event", payload)
    assert (arrival.device, arrival.type, arrival.lane, arrival.data) == ("zigbee2mqtt", "event", Lane.ALARM, payload)


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("bridge/logging", IgnoreReason.LOGGING),
        ("bridge/info", IgnoreReason.BRIDGE),
        ("bridge/groups", IgnoreReason.BRIDGE),
        ("bridge/definitions", IgnoreReason.BRIDGE),
        ("bridge/extensions", IgnoreReason.BRIDGE),
        ("bridge/health", IgnoreReason.BRIDGE),
        ("bridge/request/permit_join", IgnoreReason.BRIDGE),
        ("bridge/response/device/rename", IgnoreReason.BRIDGE),
        ("lamp/set", IgnoreReason.COMMAND),
        ("lamp/set/brightness", IgnoreReason.COMMAND),
        ("living room/lamp/left/set", IgnoreReason.COMMAND),
        ("lamp/get", IgnoreReason.COMMAND),
        ("lamp/get/state", IgnoreReason.COMMAND),
    ],
)
def test_message_that_is_no_event_is_ignored(topic, why):
    assert read(f"zigbee2mqtt/{topic}") == Ignored(why)


def test_a_retained_reading_is_passed_over():
    assert read("zigbee2mqtt/lamp", b'{"state":"ON"}', retained=True) == Ignored(IgnoreReason.RETAINED)
    assert read("zigbee2mqtt/bridge/event", b"{}", retained=True) == Ignored(IgnoreReason.RETAINED)


def test_an_empty_payload_deletes_and_says_nothing():
    assert read("zigbee2mqtt/lamp", b"") == Ignored(IgnoreReason.EMPTY)
    assert read("zigbee2mqtt/bridge/devices", b"") == Ignored(IgnoreReason.EMPTY)


@pytest.mark.parametrize(
    ("last_seen", "time_ns"),
    [
        ('"2024-05-01T12:00:00.500Z"', 1_714_564_800_500_000_000),
        ('"2024-05-01T14:00:00+02:00"', 1_714_564_800_000_000_000),
        ("1714564800500", 1_714_564_800_500_000_000),
    ],
)
def test_last_seen_is_the_time_and_the_evidence(last_seen, time_ns):
    arrival = read("zigbee2mqtt/lamp", f'{{"state":"ON","last_seen":{last_seen}}}'.encode())
    assert (arrival.time_ns, arrival.evidence) == (time_ns, DeviceTime(time_ns))


@pytest.mark.parametrize(
    "last_seen",
    ["null", "true", '"yesterday"', '"2024-05-01T12:00:00"', "-5", "1e300", "[]", '{"a":1}', "1e400", "1" + "0" * 400],
)
def test_a_last_seen_that_cannot_be_read_is_left_out(last_seen):
    arrival = read("zigbee2mqtt/lamp", f'{{"last_seen":{last_seen}}}'.encode())
    assert (arrival.time_ns, arrival.evidence) == (None, None)


def test_an_attribute_of_a_known_device_is_its_own():
    names = {"living room/lamp": LAMP, "living room": "0x02"}
    arrival = read("zigbee2mqtt/living room/lamp/brightness", b"120", names=names)
    assert (arrival.device, arrival.channel, arrival.content_type) == (
        LAMP, "zigbee2mqtt/living room/lamp/brightness", "application/octet-stream",
    )  # fmt: skip
    assert read("zigbee2mqtt/living room/table", b"{}", names=names).device == "living:20room:2Ftable"


def test_a_device_may_be_called_as_a_command_is():
    assert read("zigbee2mqtt/tv/set", b"{}", names={"tv/set": "0x03"}).device == "0x03"


@pytest.mark.parametrize("payload", [b"{", b"\xff\xfe", b'{"a":"\xff"}', b"[" * 100_000, b'{"a":' * 100_000])
def test_a_payload_that_is_no_json_is_kept_as_it_is(payload):
    arrival = read("zigbee2mqtt/lamp", payload)
    assert arrival.data == payload
    assert arrival.content_type == ("application/json" if payload[:1] in (b"{", b"[") else "application/octet-stream")


def test_another_base_topic_is_another_bridge():
    assert read("home/z2m/bridge/state", b"online", base="home/z2m").device == "home:2Fz2m"
    assert Zigbee2Mqtt("home/z2m", {}).filters == (Filter("home/z2m/bridge/devices", always=True), Filter("home/z2m/#"))


@pytest.mark.parametrize("topic", ["zigbee2mqtt", "elsewhere/lamp", "zigbee2mqtt/" + "x" * 2000, "zigbee2mqtt/a\u0007"])
def test_a_topic_that_is_none_is_poison(topic):
    with pytest.raises(Poison) as caught:
        read(topic)
    assert caught.value.reason == "bad-topic"
