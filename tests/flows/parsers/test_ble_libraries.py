"""Devices that others' libraries read, and our own decoders against such libraries."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.parsers.ble_samples import BTHOME_ADDRESS, BTHOME_ENCRYPTED, BTHOME_KEY, RUUVI
from fogline.advertisement import CONTENT_TYPE, Advertisement, ReceivedAdvertisement, encode, encode_heard, short_uuid
from fogline_cloud.flows.parsers import Reading, Skip
from fogline_cloud.flows.parsers.ble import extras, ruuvi
from fogline_cloud.flows.parsers.ble.advertisement import Advertisements
from fogline_cloud.flows.parsers.ble.bthome import OBJECTS, ObjectKind, split
from fogline_cloud.flows.parsers.ble.decoding import Broadcast
from fogline_cloud.flows.parsers.ble.keys import DeviceKeys
from property_tests import at_most

XIAOMI, SCALE_1, BTHOME = (short_uuid(number) for number in (0xFE95, 0x181D, 0xFCD2))


@pytest.fixture
def parsed(make_event):
    def parse(advertisement, address, key=None):
        properties = encode_heard(ReceivedAdvertisement(address=address, rssi=-60))
        keys = DeviceKeys({} if key is None else {address: bytes.fromhex(key)})
        found = Advertisements(keys)(make_event(encode(advertisement), content_type=CONTENT_TYPE, properties=properties))
        assert found.pop() == Reading("rssi", -60.0, unit="dBm")
        return {each.metric: each.text if each.value is None else (each.value, each.unit) for each in found}

    return parse


XIAOMI_SAMPLES = [
    (
        "LYWSDCGQ",
        b"P \xaa\x01\xda!\x9354-X\r\x10\x04\xfe\x00H\x02",
        "58:2D:34:35:93:21",
        None,
        {"temperature": (25.4, "Cel"), "humidity": (58.4, "%RH")},
    ),
    (
        "HHCCJCY01",
        b"q \x98\x00\x12\xf3Ok\x8d|\xc4\r\x04\x10\x02\xc4\x00",
        "C4:7C:8D:6B:4F:F3",
        None,
        {"temperature": (19.6, "Cel")},
    ),
    ("WX08ZM", bytes.fromhex("5040df0201df02008d7cc41010027d00"), "C4:7C:8D:00:02:DF", None, {"formaldehyde": (1.25, "mg/m3")}),
    (
        "LYWSD03MMC, encrypted",
        b"XX\xe4\x16,\x84SV8\xc1\xa4+n\xf2\xe9\x12\x00\x00l\x88M\x9e",
        "A4:C1:38:56:53:84",
        "a115210eed7a88e50ad52662e732a9fb",
        {"humidity": (58.0, "%RH")},
    ),
    (
        "CGDK2, encrypted",
        b"XXo\x06\x07\x89 \x124-X_\x17m\xd5O\x02\x00\x00/\xa4S\xfa",
        "58:2D:34:12:20:89",
        "a3bfe9853dd85a620debe3620caaa351",
        {"temperature": (22.6, "Cel")},
    ),
    (
        "YLKG07YL, turned",
        b"X0\xb6\x036\x8b\x98\xc5A$\xf8\x8b\xb8\xf2f\x13Q\x00\x00\x00\xd6",
        "F8:24:41:C5:98:8B",
        "b853075158487ca39a5b5ea9",
        {"dimmer": "rotate_left", "dimmer.steps": (1.0, None)},
    ),
    (
        "YLKG07YL, a key of 12 bytes",
        b"X0\xb6\x03\xd2\x8b\x98\xc5A$\xf8\xc3I\x14vu~\x00\x00\x00\x99",
        "F8:24:41:C5:98:8B",
        "b853075158487ca39a5b5ea9",
        {"dimmer": "press", "dimmer.number_of_presses": (1.0, None)},
    ),
]
"""From the tests of xiaomi-ble."""


@pytest.mark.parametrize(("name", "data", "address", "key", "values"), XIAOMI_SAMPLES)
def test_published_samples_of_xiaomi_are_decoded(parsed, name, data, address, key, values):
    for _ in range(2):  # the library itself would pass over a second copy
        assert parsed(Advertisement(service_data={XIAOMI: data}), address, key) == values


def test_a_scale_is_decoded(parsed):
    found = parsed(Advertisement(service_data={SCALE_1: b"\x22\x9e\x43\xe5\x07\x04\x0b\x10\x13\x01"}), "50:FB:19:1B:B5:DC")
    assert found["mass"] == (86.55, "kg")


@pytest.mark.parametrize(
    ("data", "key", "reason"),
    [
        (XIAOMI_SAMPLES[3][1], None, "no-key"),
        (XIAOMI_SAMPLES[3][1], "00" * 16, "wrong-key"),
        (b"0X[\x05\x02H<\xd48\xc1\xa4\x08", None, "nothing"),
        (b"", None, "nothing"),
    ],
)
def test_undecodable_xiaomi_advertisements_have_a_reason(parsed, data, key, reason):
    with pytest.raises(Skip) as caught:
        parsed(Advertisement(service_data={XIAOMI: data}), "A4:C1:38:56:53:84", key)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("advertisement", "values"),
    [
        (
            Advertisement(
                name="Govee_H5074_5FF4",
                manufacturer={0xEC88: b"\x00\xe6\t\xbc\x12d\x02", 0x4C: b"\x02\x15INTELLI_ROCKS_HWPu\xf2\xff\xc2"},
            ),
            {"temperature": (25.34, "Cel"), "humidity": (47.96, "%RH"), "battery": (100.0, "%")},
        ),
        (
            Advertisement(name="GVH5075_2762", manufacturer={0xEC88: b"\x00\x03A\xc2d\x00"}),
            {"temperature": (21.3, "Cel"), "humidity": (44.2, "%RH"), "battery": (100.0, "%")},
        ),
        (
            Advertisement(manufacturer={0xEC88: b"\x00\xba\x0a\xf9\x0f\x63\x02\x01\x01"}),
            {"temperature": (27.46, "Cel"), "humidity": (40.89, "%RH"), "battery": (99.0, "%")},
        ),
        (
            Advertisement(name="GVH5100_7738", manufacturer={1: b"\x01\x01\x03FTd"}),
            {"temperature": (21.4, "Cel"), "humidity": (61.2, "%RH"), "battery": (100.0, "%")},
        ),
    ],
)
def test_published_samples_of_govee_are_decoded(parsed, advertisement, values):
    """Samples from the tests of govee-ble; values by hand: 0x0341C2 is 213442, 21.3 degrees and 44.2 %."""
    assert parsed(advertisement, "A4:C1:38:00:00:01") == values


def test_the_reason_for_a_missing_library_names_it(parsed, monkeypatch):
    extras._load.cache_clear()
    monkeypatch.setitem(sys.modules, "govee_ble", None)
    try:
        with pytest.raises(Skip, match=r"pip install 'fogline-cloud\[govee\]'") as caught:
            parsed(Advertisement(name="GVH5075_2762", manufacturer={0xEC88: b"\x00\x03A\xc2d\x00"}), "A4:C1:38:00:00:01")
        assert caught.value.reason == "not-installed"
    finally:
        extras._load.cache_clear()


def library_reads(kind, advertisement, address=BTHOME_ADDRESS, key=None):
    """Decode with a library of the same family: the values of its sensors and flags, and its events."""
    from habluetooth import BluetoothServiceInfoBleak
    from home_assistant_bluetooth import BluetoothServiceInfo

    given = {
        "name": "", "address": address, "rssi": -60, "manufacturer_data": advertisement.manufacturer,
        "service_data": advertisement.service_data, "service_uuids": [], "source": "",
    }  # fmt: skip
    if key is not None or BTHOME in advertisement.service_data:
        info = BluetoothServiceInfoBleak(**given, device=None, advertisement=None, connectable=False, time=0.0, tx_power=None)
        found = kind(key)
    else:
        info, found = BluetoothServiceInfo(**given), kind()
    update = found.update(info)
    return {
        **{key.key: each.native_value for key, each in update.entity_values.items() if key.key != "signal_strength"},
        **{key.key: each.native_value for key, each in update.binary_entity_values.items()},
    }


ROUNDED = 0x58
"""bthome-ble rounds thirds of a degree to tenths."""
NUMBERS = [
    number
    for number, each in OBJECTS.items()
    if each.kind in (ObjectKind.NUMBER, ObjectKind.FLAG) and number not in (0x50, 0xF0)
]


@given(number=st.sampled_from(NUMBERS), body=st.binary(min_size=4, max_size=4))
@settings(max_examples=at_most(200), deadline=None)
def test_our_bthome_decoder_agrees_with_bthome_ble(number, body):
    from bthome_ble import BTHomeBluetoothDeviceData

    from fogline_cloud.flows.parsers.ble.bthome import decode

    data = b"\x40" + bytes((number,)) + body[: OBJECTS[number].width]
    advertisement = Advertisement(service_data={BTHOME: data})
    [ours] = decode(data, Broadcast(advertisement, ReceivedAdvertisement()))
    [theirs] = library_reads(BTHomeBluetoothDeviceData, advertisement).values()
    assert ours.value == pytest.approx(float(theirs), abs=0.051 if number == ROUNDED else 1e-9)


def test_we_know_every_object_of_bthome_ble():
    from bthome_ble.const import MEAS_TYPES

    assert set(MEAS_TYPES) == set(OBJECTS)


@given(st.lists(st.sampled_from(sorted(OBJECTS)), max_size=6).map(bytes), st.binary(max_size=20))
def test_split_objects_join_to_the_original_bytes(ids, noise):
    """The split objects and the rest, joined again, are the original bytes."""
    payload = b"".join(bytes((each,)) + noise[:4].ljust(max(OBJECTS[each].width, 1), b"\x01") for each in ids)
    found, rest, cut = split(payload)
    if cut:
        return
    lengths = sum(1 + len(body) + (0 if known.width else 1) for known, body in found)
    assert lengths + len(rest) == len(payload)


def test_our_bthome_decryption_agrees_with_bthome_ble():
    from bthome_ble import BTHomeBluetoothDeviceData

    from fogline_cloud.flows.parsers.ble.bthome import decode

    advertisement = Advertisement(service_data={BTHOME: BTHOME_ENCRYPTED})
    ours = decode(BTHOME_ENCRYPTED, Broadcast(advertisement, ReceivedAdvertisement(address=BTHOME_ADDRESS), BTHOME_KEY))
    theirs = library_reads(BTHomeBluetoothDeviceData, advertisement, key=BTHOME_KEY)
    assert {each.metric: each.value for each in ours} == theirs


RUUVITAG_BLE = {
    "temperature": "temperature", "humidity": "humidity", "pressure": "pressure", "voltage": "voltage", "pm2_5": "pm25",
    "pm10": "pm10", "co2": "carbon_dioxide", "voc_index": "voc_index", "nox_index": "nox_index", "illuminance": "illuminance",
}  # fmt: skip
"""Our metric to its key; its voltage is in mV, and it rounds to two places."""


@given(body=st.binary(min_size=39, max_size=39), name=st.sampled_from(["5", "6", "E1"]))
@settings(max_examples=at_most(100), deadline=None)
def test_our_ruuvi_decoder_agrees_with_ruuvitag_ble(body, name):
    from ruuvitag_ble import RuuvitagBluetoothDeviceData

    length = len(RUUVI[f"{name} valid"][0]) // 2
    data = bytes.fromhex(name.rjust(2, "0")) + body[: length - 1]
    advertisement = Advertisement(manufacturer={ruuvi.COMPANY: data})
    theirs = library_reads(RuuvitagBluetoothDeviceData, advertisement)
    ours = {each.metric: each.value for each in ruuvi.decode(data, Broadcast(advertisement, ReceivedAdvertisement()))}
    for metric, key in RUUVITAG_BLE.items():
        if key in theirs:
            assert (metric in ours) == (theirs[key] is not None), metric
            if metric in ours:
                value = ours[metric] * (1000 if metric == "voltage" else 1)
                assert value == pytest.approx(theirs[key], abs=0.51 if metric == "illuminance" else 0.0051), metric
