"""Advertisements: bytes in, readings out."""

import logging
import pickle
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flows.parsers.ble_samples import (
    BTHOME_ADDRESS,
    BTHOME_ENCRYPTED,
    BTHOME_KEY,
    BTHOME_NUMBERS,
    BTHOME_TEXTS,
    EDDYSTONE_TLM,
    IBEACON,
    RUUVI,
    RUUVI_5_INVALID,
)
from fogline.advertisement import CONTENT_TYPE, Advertisement, ReceivedAdvertisement, encode, encode_heard, short_uuid
from fogline.errors import Poison
from fogline_cloud.flows.parsers import Leftover, Reading, Skip
from fogline_cloud.flows.parsers.ble.advertisement import Advertisements
from fogline_cloud.flows.parsers.ble.bthome import OBJECTS
from fogline_cloud.flows.parsers.ble.keys import DeviceKeys, keyed
from fogline_cloud.flows.sandbox.parser_runner import checked
from property_tests import at_most

BTHOME, EDDYSTONE = short_uuid(0xFCD2), short_uuid(0xFEAA)
RUUVI_COMPANY, APPLE = 0x0499, 0x004C
KEYS = DeviceKeys({BTHOME_ADDRESS: BTHOME_KEY})


@pytest.fixture
def parsed(make_event):
    def parse(advertisement, keys=None, heard=None, **given):
        data = advertisement if isinstance(advertisement, bytes) else encode(advertisement)
        properties = None if heard is None else encode_heard(heard)
        event = make_event(data, content_type=CONTENT_TYPE, adapter="ble", properties=properties, **given)
        return Advertisements(keys or DeviceKeys())(event)

    return parse


def bthome(objects, info="40"):
    return Advertisement(service_data={BTHOME: bytes.fromhex(info + objects)})


def ruuvi(data):
    return Advertisement(manufacturer={RUUVI_COMPANY: bytes.fromhex(data)})


@pytest.mark.parametrize("sample", BTHOME_NUMBERS)
def test_published_samples_of_bthome_are_decoded(parsed, sample):
    metric, value, unit = BTHOME_NUMBERS[sample]
    assert parsed(bthome(sample)) == [Reading(metric, value, unit=unit)]


@pytest.mark.parametrize("sample", BTHOME_TEXTS)
def test_texts_and_events_of_bthome_are_decoded(parsed, sample):
    assert parsed(bthome(sample)) == [Reading(metric, text=text) for metric, text in BTHOME_TEXTS[sample]]


def test_every_object_of_bthome_has_a_published_sample():
    assert {bytes.fromhex(sample)[0] for sample in (*BTHOME_NUMBERS, *BTHOME_TEXTS)} == set(OBJECTS)


def test_a_whole_advertisement_is_decoded(parsed):
    """bthome.io, Format, "Advertising payload"."""
    found = parsed(bytes.fromhex("020106 0B094449592D73656E736F72 0A16D2FC4002C40903BF13"))
    assert found == [Reading("temperature", 25.0, unit="Cel"), Reading("humidity", 50.55, unit="%RH")]


def test_the_rssi_is_a_reading(parsed):
    found = parsed(bthome("0161"), heard=ReceivedAdvertisement(address=BTHOME_ADDRESS, rssi=-67))
    assert found == [Reading("battery", 97.0, unit="%"), Reading("rssi", -67.0, unit="dBm")]


def test_several_objects_of_one_metric_are_numbered(parsed):
    found = parsed(bthome("02CA09 02C409 3A00 3A01 0161"))
    assert [(each.metric, each.value, each.text) for each in found] == [
        ("temperature.1", 25.06, None),
        ("temperature.2", 25.0, None),
        ("button.2", None, "press"),
        ("battery", 97.0, None),
    ]


def test_bytes_from_an_unknown_object_on_are_kept_unparsed(parsed):
    assert parsed(bthome("0161 EE01 0102")) == [Reading("battery", 97.0, unit="%"), Reading("unparsed", text="ee010102")]


@pytest.mark.parametrize(
    ("objects", "info", "refusal", "reason"),
    [
        ("", "", Poison, "truncated"),
        ("", "40", Skip, "nothing"),
        ("3A00", "40", Skip, "nothing"),
        ("0161", "20", Skip, "bthome-version"),
        ("0161", "60", Skip, "bthome-version"),
        ("A4C138", "42", Poison, "truncated"),
        ("00112233", "41", Poison, "truncated"),
    ],
)
def test_undecodable_bthome_is_refused_with_a_reason(parsed, objects, info, refusal, reason):
    with pytest.raises(refusal) as caught:
        parsed(bthome(objects, info))
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("objects", "part"),
    [
        ("02", "temperature"),
        ("02CA", "temperature"),
        ("53", "text"),
        ("5305616263", "text"),
        ("3B1F00", "command"),
        ("5301FF", "text"),
    ],
)
def test_a_bthome_object_that_cannot_be_read_costs_no_other_object(parsed, objects, part):
    first, odd = parsed(bthome(f"0161 {objects}"))
    assert first == Reading("battery", 97.0, unit="%")
    assert isinstance(odd, Leftover)
    assert odd.part == part


def test_an_advertisement_of_which_nothing_is_understood_has_no_rssi_either(parsed):
    returned = parsed(bthome("02CA"), heard=ReceivedAdvertisement(rssi=-60))
    assert [type(each) for each in returned] == [Leftover]


ENCRYPTED = Advertisement(service_data={BTHOME: BTHOME_ENCRYPTED})
PLAIN = [Reading("temperature", 25.06, unit="Cel"), Reading("humidity", 50.55, unit="%RH")]


def test_an_encrypted_advertisement_is_read_with_its_key_by_address_or_device(parsed):
    heard = ReceivedAdvertisement(address=BTHOME_ADDRESS)
    assert parsed(ENCRYPTED, KEYS, heard) == PLAIN
    assert parsed(ENCRYPTED, DeviceKeys({"Shed.1": BTHOME_KEY}), heard, device="shed.1") == PLAIN


def test_an_address_in_the_advertisement_is_preferred_to_the_senders(parsed):
    """The flag is part of what is encrypted, so this one was made with the same library as bthome.io's sample."""
    from cryptography.hazmat.primitives.ciphers.aead import AESCCM

    address = bytes.fromhex(BTHOME_ADDRESS.replace(":", ""))
    nonce = address + bytes.fromhex("d2fc 43 33221100")
    sealed = AESCCM(BTHOME_KEY, tag_length=4).encrypt(nonce, bytes.fromhex("02ca0903bf13"), None)
    data = b"\x43" + address[::-1] + sealed[:-4] + bytes.fromhex("33221100") + sealed[-4:]
    found = parsed(
        Advertisement(service_data={BTHOME: data}),
        DeviceKeys({"d-1": BTHOME_KEY}),
        ReceivedAdvertisement(address="00:11:22:33:44:55"),
    )
    assert found == PLAIN


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_repeated_advertisement_is_decoded_like_the_first(parsed, times):
    """Equal packet ids and counters that do not increase do not prevent decoding."""
    heard = ReceivedAdvertisement(address=BTHOME_ADDRESS)
    assert [parsed(ENCRYPTED, KEYS, heard) for _ in range(times)] == [PLAIN] * times
    numbered = [Reading("packet_id", 9.0), Reading("battery", 97.0, unit="%")]
    assert [parsed(bthome("0009 0161")) for _ in range(times)] == [numbered] * times


@pytest.mark.parametrize(
    ("advertisement", "keys", "heard", "reason"),
    [
        (ENCRYPTED, DeviceKeys(), ReceivedAdvertisement(address=BTHOME_ADDRESS), "no-key"),
        (ENCRYPTED, DeviceKeys({BTHOME_ADDRESS: bytes(16)}), ReceivedAdvertisement(address=BTHOME_ADDRESS), "wrong-key"),
        (ENCRYPTED, DeviceKeys({"d-1": BTHOME_KEY}), ReceivedAdvertisement(), "no-address"),
        (ENCRYPTED, DeviceKeys({"d-1": BTHOME_KEY}), ReceivedAdvertisement(address="Kitchen"), "no-address"),
        (ENCRYPTED, DeviceKeys({"d-1": BTHOME_KEY}), ReceivedAdvertisement(address="00:00:00:00:00:01"), "wrong-key"),
        (bthome("02CA09"), KEYS, ReceivedAdvertisement(address=BTHOME_ADDRESS), "not-encrypted"),
    ],
)
def test_without_the_right_key_nothing_is_decoded(parsed, advertisement, keys, heard, reason):
    with pytest.raises(Skip) as caught:
        parsed(advertisement, keys, heard)
    assert caught.value.reason == reason
    assert BTHOME_KEY.hex() not in str(caught.value)


def test_keys_are_shown_nowhere():
    other = pickle.loads(pickle.dumps(KEYS))
    assert other.find("d-1", BTHOME_ADDRESS.lower()) == BTHOME_KEY
    assert repr(KEYS) == str(KEYS) == "DeviceKeys(of 1 devices)"
    assert BTHOME_KEY.hex() not in f"{KEYS!r} {keyed({'ble': Advertisements()}, KEYS)!r} {vars(Advertisements(KEYS))!r}"


@pytest.mark.parametrize("name", RUUVI)
def test_published_samples_of_ruuvi_are_decoded(parsed, name):
    data, values = RUUVI[name]
    assert {each.metric: each.value for each in parsed(ruuvi(data))} == values


def test_ruuvi_has_units(parsed):
    data, _ = RUUVI["5 valid"]
    units = {each.metric: each.unit for each in parsed(ruuvi(data))}
    assert (units["temperature"], units["humidity"], units["pressure"]) == ("Cel", "%RH", "hPa")
    assert (units["acceleration_x"], units["voltage"], units["tx_power"]) == ("m/s2", "V", "dBm")


def test_a_ruuvi_without_available_values_is_skipped(parsed):
    with pytest.raises(Skip) as caught:
        parsed(ruuvi(RUUVI_5_INVALID))
    assert caught.value.reason == "nothing"


@pytest.mark.parametrize("data", [data for data, _ in RUUVI.values()])
def test_a_truncated_ruuvi_advertisement_is_not_decoded_in_part(parsed, data):
    for length in range(2, len(data), 2):
        with pytest.raises(Skip) as caught:
            parsed(ruuvi(data[:length]))
        assert caught.value.reason == "ruuvi-format"


def test_a_fraction_of_a_whole_degree_or_more_is_no_temperature(parsed):
    assert "temperature" not in {each.metric for each in parsed(ruuvi("03291A64CE1EFC18F94202CA0B53"))}


def test_an_ibeacon_is_read(parsed):
    assert parsed(Advertisement(manufacturer={APPLE: bytes.fromhex(IBEACON)})) == [
        Reading("proximity_uuid", text="e2c56db5-dffb-48d2-b060-d0f5a71096e0"),
        Reading("major", 1.0),
        Reading("minor", 2.0),
        Reading("measured_power", -59.0, unit="dBm"),
    ]


def test_eddystone_tlm_is_read(parsed):
    assert parsed(Advertisement(service_data={EDDYSTONE: bytes.fromhex(EDDYSTONE_TLM)})) == [
        Reading("voltage", 3.0, unit="V"),
        Reading("temperature", 21.5, unit="Cel"),
        Reading("advertisement_count", 10.0),
        Reading("uptime", 10.0, unit="s"),
    ]


def test_a_value_that_a_beacon_does_not_measure_gives_no_reading(parsed):
    found = parsed(Advertisement(service_data={EDDYSTONE: bytes.fromhex("2000 0000 8000 00000001 00000002")}))
    assert [each.metric for each in found] == ["advertisement_count", "uptime"]


@pytest.mark.parametrize(
    ("advertisement", "refusal", "reason"),
    [
        (Advertisement(), Skip, "unknown-device"),
        (Advertisement(name="x", services=(BTHOME,)), Skip, "unknown-device"),
        (Advertisement(manufacturer={0x0006: b"\x01"}), Skip, "unknown-device"),
        (Advertisement(manufacturer={RUUVI_COMPANY: b""}), Skip, "ruuvi-format"),
        (Advertisement(manufacturer={RUUVI_COMPANY: b"\x04"}), Skip, "ruuvi-format"),
        (Advertisement(manufacturer={APPLE: b"\x10\x05\x0b"}), Skip, "not-ibeacon"),
        (Advertisement(manufacturer={APPLE: bytes.fromhex(IBEACON)[:-1]}), Poison, "truncated"),
        (Advertisement(service_data={EDDYSTONE: b"\x10\x00"}), Skip, "not-tlm"),
        (Advertisement(service_data={EDDYSTONE: b"\x20\x01"}), Skip, "encrypted-tlm"),
        (Advertisement(service_data={EDDYSTONE: bytes.fromhex(EDDYSTONE_TLM)[:-1]}), Poison, "truncated"),
        (b"\x05\x16\xd2\xfc", Poison, "malformed"),
        (bytes(5000), Poison, "too-big"),
    ],
)
def test_advertisements_of_unknown_devices_are_refused_with_a_reason(parsed, advertisement, refusal, reason):
    with pytest.raises(refusal) as caught:
        parsed(advertisement)
    assert caught.value.reason == reason


SERVICES = st.sampled_from([BTHOME, EDDYSTONE, short_uuid(0xFE95), short_uuid(0x181D)])
ANYTHING = st.one_of(
    st.binary(max_size=64),
    st.builds(lambda uuid, data: encode(Advertisement(service_data={uuid: data})), SERVICES, st.binary(max_size=40)),
    st.builds(
        lambda company, data, name: encode(Advertisement(name=name, manufacturer={company: data})),
        st.sampled_from([RUUVI_COMPANY, APPLE, 0xEC88, 1]),
        st.binary(max_size=40),
        st.sampled_from([None, "GVH5075_2762", "Govee_H5074_5FF4"]),
    ),
    st.builds(
        lambda info, data: encode(Advertisement(service_data={BTHOME: bytes((info,)) + data})),
        st.sampled_from([0x40, 0x41, 0x42, 0x43, 0x44]),
        st.lists(st.sampled_from(sorted(OBJECTS)) | st.integers(0, 255), max_size=30).map(bytes),
    ),
)


@example(data=bytes.fromhex("0516d2fc4000"), keys=DeviceKeys())  # a packet id that is cut off, and nothing else
@given(data=ANYTHING, keys=st.sampled_from([DeviceKeys(), DeviceKeys({"d-1": BTHOME_KEY})]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=at_most(150))
def test_any_advertisement_becomes_readings_or_a_reason(parsed, caplog, data, keys):
    caplog.set_level(logging.WARNING)
    with suppress(Skip, Poison):
        readings, leftovers = checked(parsed(data, keys, ReceivedAdvertisement(address=BTHOME_ADDRESS, rssi=-60)))
        assert readings or leftovers, "with leftovers alone the event is dead: not-understood"
    assert not caplog.records
