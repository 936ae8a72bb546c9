"""The flow reads the bytes that a gateway makes of an advertisement by its profile."""

import pytest

from fogline.advertisement import CONTENT_TYPE, Advertisement, ReceivedAdvertisement, encode_heard, short_uuid
from fogline_cloud.flows.parsers import installed, parser_name
from fogline_edge.profiles.ble import BleProfile, body_of, fits
from fogline_edge.profiles.ble_files import built_in_profiles
from fogline_lab.events import make_event


def of_service(number, data):
    return Advertisement(name="what else was heard", tx_power=4, service_data={short_uuid(number): bytes.fromhex(data)})


def of_company(number, data, **more):
    return Advertisement(manufacturer={number: bytes.fromhex(data), 0x0006: b"other"}, **more)


XIAOMIS_ADDRESS = "58:2D:34:35:93:21"
"""It stands in the sample as well; the others do not mind."""
SAMPLES = {
    "bthome": (of_service(0xFCD2, "40 0009 02ca09 03bf13"), "temperature", 25.06),
    "ruuvitag": (of_company(0x0499, "0512FC5394C37C0004FFFC040CAC364200CDCBB8334C884F"), "temperature", 24.3),
    "ruuvi-6": (of_company(0x0499, "06170C5668C79E007000C90501D9FFCD004C884F"), "co2", 201),
    "ruuvi-e1": (
        of_company(0x0499, "E1170C5668C79E0065007004BD11CA00C90A0213E0AC000000DECDEE100000000000CBB8334C884F"),
        "pm10",
        455.4,
    ),
    "xiaomi": (of_service(0xFE95, "5020aa01da219335342d580d1004fe004802"), "temperature", 25.4),
    "govee": (of_company(0xEC88, "000341c26400", name="GVH5075_2762"), "temperature", 21.3),
    "ibeacon": (of_company(0x004C, "0215E2C56DB5DFFB48D2B060D0F5A71096E000010002C5"), "major", 1),
    "eddystone-tlm": (of_service(0xFEAA, "20000bb815800000000a00000064"), "voltage", 3),
}


def test_every_profile_without_connections_is_shown():
    assert set(SAMPLES) == {name for name, profile in built_in_profiles().items() if not profile.connects}


@pytest.mark.parametrize("name", SAMPLES)
def test_every_advertisement_of_a_profile_is_parsed(name):
    advertisement, metric, value = SAMPLES[name]
    profile: BleProfile = built_in_profiles()[name]
    assert fits(profile, advertisement)
    event = make_event(
        1,
        data=body_of(profile, advertisement),
        content_type=CONTENT_TYPE,
        subject=profile.channel,
        properties=encode_heard(ReceivedAdvertisement(address=XIAOMIS_ADDRESS, rssi=-60)),
    )
    found = {each.metric: each.value for each in installed()[parser_name(CONTENT_TYPE, {})](event)}
    assert found[metric] == value
    assert found["rssi"] == -60
