"""Advertisements and their bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.advertisement import (
    MAX_BYTES,
    Advertisement,
    ReceivedAdvertisement,
    decode,
    decode_heard,
    encode,
    encode_heard,
    short_uuid,
)
from fogline.errors import Poison

BTHOME = short_uuid(0xFCD2)
UUIDS = st.one_of(st.integers(0, 0xFFFF).map(short_uuid), st.integers(0, 0xFFFF_FFFF).map(short_uuid), st.uuids().map(str))
BODY = st.binary(max_size=238)
ADVERTISEMENTS = st.builds(
    Advertisement,
    name=st.none() | st.text(max_size=60),
    manufacturer=st.dictionaries(st.integers(0, 0xFFFF), BODY, max_size=4),
    service_data=st.dictionaries(UUIDS, BODY, max_size=4),
    services=st.sets(UUIDS, max_size=40).map(lambda found: tuple(sorted(found))),
    tx_power=st.none() | st.integers(-128, 127),
)


@given(ADVERTISEMENTS)
def test_an_advertisement_comes_back_as_it_was(advertisement):
    assert decode(encode(advertisement)) == advertisement


@given(ADVERTISEMENTS)
def test_equal_advertisements_have_equal_bytes(advertisement):
    turned = Advertisement(
        name=advertisement.name,
        manufacturer=dict(reversed(advertisement.manufacturer.items())),
        service_data=dict(reversed(advertisement.service_data.items())),
        services=tuple(reversed(advertisement.services)),
        tx_power=advertisement.tx_power,
    )
    assert encode(turned) == encode(advertisement)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data):
    try:
        found = decode(data)
    except Poison:
        return
    assert decode(encode(found)) == found


def test_an_advertisement_of_the_air_is_read():
    """bthome.io, "Advertising payload": flags, service data, complete local name."""
    found = decode(bytes.fromhex("020106 0a16d2fc4002c40903bf13 0b094449592d73656e736f72"))
    assert found == Advertisement(name="DIY-sensor", service_data={BTHOME: bytes.fromhex("4002c40903bf13")})


def test_short_uuids_are_short_on_the_air():
    made = encode(Advertisement(services=(short_uuid(0x181A), short_uuid(0x12345678), "6e400001-0000-4000-8000-00805f9b0001")))
    assert made == bytes.fromhex("03031a18 050578563412 110701009b5f8000008000400000010040 6e".replace(" ", ""))


def test_more_services_than_fit_into_one_structure_go_on_in_the_next():
    services = tuple(short_uuid(0x1800 + number) for number in range(200))
    made = encode(Advertisement(services=services))
    assert (made[0], made[1], made[256], made[257]) == (255, 0x03, 147, 0x03)
    assert decode(made).services == services


def test_a_complete_name_is_better_than_a_shortened_one():
    assert decode(bytes.fromhex("0309 6162 02 08 63")).name == "ab"
    assert decode(bytes.fromhex("0208 63 0309 6162")).name == "ab"
    assert decode(bytes.fromhex("0208 63")).name == "c"


def test_a_name_that_is_no_utf_8_costs_no_data():
    found = decode(bytes.fromhex("0309 ff61 04ff9904 05"))
    assert (found.name, found.manufacturer) == ("\ufffda", {0x0499: b"\x05"})


def test_zeros_end_an_advertisement_early():
    assert decode(bytes.fromhex("020a f4 000000")).tx_power == -12


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("03", "an AD structure of 3 bytes at byte 0, where 0 are left"),
        ("020106 0a16d2", "an AD structure of 10 bytes at byte 3, where 2 are left"),
        ("00 01", "goes on after its end, at byte 0"),
        ("0216d2", "service data of 1 bytes"),
        ("0520d2fc00", "an AD structure of 5 bytes"),
        ("02ff4c", "manufacturer specific data of 1 bytes"),
        ("040300 1800", "3 bytes of UUIDs that have 2 each"),
        ("030a 0000", "a TX power level of 2 bytes"),
    ],
)
def test_broken_structures_are_refused_by_name(data, says):
    with pytest.raises(Poison, match=says) as caught:
        decode(bytes.fromhex(data))
    assert caught.value.reason == "malformed"


def test_size_is_bounded_both_ways():
    with pytest.raises(Poison, match=f"at most {MAX_BYTES}"):
        decode(bytes(MAX_BYTES + 1))
    with pytest.raises(Poison, match="at most 254"):
        encode(Advertisement(manufacturer={1: bytes(253)}))
    with pytest.raises(Poison, match=f"at most {MAX_BYTES}"):
        encode(Advertisement(manufacturer=dict.fromkeys(range(17), bytes(250))))


@pytest.mark.parametrize(
    "wrong",
    [
        Advertisement(services=("181a",)),
        Advertisement(service_data={BTHOME.upper(): b""}),
        Advertisement(manufacturer={1 << 16: b""}),
        Advertisement(tx_power=128),
        Advertisement(name="\ud800"),
    ],
)
def test_unencodable_advertisement_is_refused(wrong):
    with pytest.raises(Poison) as caught:
        encode(wrong)
    assert caught.value.reason == "malformed"


@given(st.none() | st.text(max_size=20).filter(bool), st.none() | st.integers(-127, 20))
def test_address_and_signal_strength_are_decoded(address, rssi):
    assert decode_heard(encode_heard(ReceivedAdvertisement(address=address, rssi=rssi))) == ReceivedAdvertisement(
        address=address, rssi=rssi
    )


def test_an_rssi_of_127_is_not_available():
    assert encode_heard(ReceivedAdvertisement(rssi=127)) == ""
    assert decode_heard("rssi=127") == ReceivedAdvertisement()


@pytest.mark.parametrize("properties", [None, "", "rssi=loud", "a=b", "&" * 100, "%ff"])
def test_properties_that_say_nothing_are_passed_over(properties):
    assert decode_heard(properties) == ReceivedAdvertisement()
