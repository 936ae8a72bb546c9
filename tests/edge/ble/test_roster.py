"""Known devices, their names, and the events of their advertisements. Bytes in, values out."""

import tomllib

import msgspec
import pytest

from fogline.advertisement import Advertisement, decode, decode_heard, short_uuid
from fogline.errors import Misconfigured
from fogline.events.identity import Counter
from fogline.events.report_on_change import ReportPolicy
from fogline_edge.adapters.ble.gatt.commands import is_att_error, reply_of
from fogline_edge.adapters.ble.intake import of_advertisement, of_value
from fogline_edge.adapters.ble.roster import FORGOTTEN_S, ListedDevice, Roster, read_settings, report_of
from fogline_edge.adapters.ble.scan_results import ScanResults
from fogline_edge.ble_settings import BleSettings
from fogline_edge.profiles.ble_files import built_in_profiles, find_profiles

BTHOME, ENV = built_in_profiles()["bthome"], built_in_profiles()["environmental-sensing"]
FCD2 = short_uuid(0xFCD2)
SAYS = Advertisement(service_data={FCD2: bytes.fromhex("40000902CA09")}, name="b", manufacturer={0x0499: b"x"})
OTHER = Advertisement(name="other")
A, B, C = (f"AA:00:00:00:00:0{n}" for n in range(3))


def roster(*listed: ListedDevice, most: int = 10) -> Roster:
    return Roster(listed, [BTHOME], most, now_s=0)


def listed(address: str, profile=BTHOME, device: str | None = None, silence_s: float = 60) -> ListedDevice:
    return ListedDevice(address, profile, silence_s, report_of(profile), device)


def test_device_that_matches_a_profile_is_taken_under_its_name():
    known = roster().receive(A, SAYS, -60, 1)
    assert (known.device, known.profile.name, known.rssi, known.received_s) == (A, "bthome", -60, 1)


def test_device_without_a_profile_is_not_taken():
    assert roster().receive(A, OTHER, -60, 1) is None


def test_a_listed_device_has_the_name_of_the_settings():
    assert roster(listed(A, device="kitchen")).receive(A, SAYS, -60, 1).device == "kitchen"


NAMED = msgspec.structs.replace(ENV, device="env-{name}")
LISTS = short_uuid(0x181A)


def test_listed_device_gets_its_name_with_its_first_naming_advertisement_and_keeps_it():
    found = roster(listed(A, NAMED))
    assert found.receive(A, Advertisement(services=(LISTS,)), -60, 1) is None
    assert not found.listed[A].named
    assert found.receive(A, Advertisement(services=(LISTS,), name="7"), -60, 2).device == "env-7"
    assert found.listed[A].named
    assert found.receive(A, Advertisement(services=(LISTS,), name="8"), -60, 3).device == "env-7"


def test_name_is_read_from_any_advertisement():
    found = roster(listed(A, NAMED))
    assert found.receive(A, Advertisement(name="7"), -60, 1) is None
    assert (found.listed[A].device, found.listed[A].named) == ("env-7", True)


def test_device_named_by_settings_or_address_has_its_name_before_its_first_advertisement():
    found = roster(listed(A, NAMED, device="cellar"), listed(B, msgspec.structs.replace(ENV, device="env-{address}")))
    assert [each.named for each in found.listed.values()] == [True, True]
    assert found.listed[A].device == "cellar"


def test_a_second_device_with_a_name_is_refused_until_it_has_another():
    found = roster(listed(A, NAMED), listed(B, device="env-7"))
    assert found.receive(A, Advertisement(services=(LISTS,), name="7"), -60, 1) is None
    assert found.listed[A].refused == f"its name env-7 is that of {B} as well; give it another: device = ... in ble.devices"
    assert found.receive(A, Advertisement(services=(LISTS,), name="8"), -60, 2).device == "env-8"
    assert found.listed[A].refused is None


def test_every_advertisement_of_a_listed_device_counts():
    found = roster(listed(A))
    assert found.receive(A, OTHER, -60, 7) is None
    assert found.listed[A].received_s == 7


def test_silence_is_reported_once_until_the_device_returns():
    found = roster(listed(A))
    assert found.newly_silent(59) == []
    assert [each.address for each in found.newly_silent(60)] == [A]
    assert found.newly_silent(61) == []
    found.receive(A, SAYS, -60, 70)
    assert not found.listed[A].silent
    assert [each.address for each in found.newly_silent(130)] == [A]


def test_a_link_that_says_something_is_no_silence():
    found = roster(listed(A))
    found.alive(A, 50)
    assert found.newly_silent(100) == []


def test_exempt_device_is_not_reported_silent_until_its_exemption_ends():
    found = roster(listed(A))
    found.receive(A, SAYS, -60, 1)
    assert found.newly_silent(1000, {A}) == []
    assert found.listed[A].received_s == 1
    assert found.newly_silent(1059) == []
    assert [each.address for each in found.newly_silent(1060)] == [A]


def test_device_with_a_long_interval_may_be_silent_between_reads(tmp_path):
    path = tmp_path / "meter.toml"
    path.write_text(
        'name = "meter"\nchannel = "meter"\n[[recognise]]\nname = "m"\n'
        '[[read]]\ncharacteristic = "2a6e"\ninterval_s = 900\n[[read]]\ncharacteristic = "2a6f"\ninterval_s = 3600\n'
    )
    settings = {"devices": [{"address": A, "profile": str(path), "silence_s": 60}, {"address": B, "profile": "bthome"}]}
    _, devices = read_settings(msgspec.convert(settings, BleSettings))
    assert [each.silence_s for each in devices] == [1800, 600]


def test_made_up_addresses_are_bounded_and_those_long_gone_make_room():
    found = roster(most=2)
    found.receive(A, SAYS, -60, 0)
    found.receive(B, SAYS, -60, 1)
    with pytest.raises(OverflowError):
        found.receive(C, SAYS, -60, 2)
    assert found.receive(C, SAYS, -60, FORGOTTEN_S).address == C
    assert list(found.others) == [B, C]


def test_event_has_the_fields_that_identify_the_device_and_its_counter():
    known = roster().receive(A, SAYS, -61, 1)
    arrival = of_advertisement(known, SAYS, "hci0")
    assert decode(arrival.data) == Advertisement(service_data=SAYS.service_data)
    assert (arrival.evidence, arrival.shared, arrival.channel) == (Counter(9, 8), True, "bthome")
    assert arrival.report == ReportPolicy(on_change=True)
    heard = decode_heard(arrival.properties)
    assert (heard.address, heard.rssi) == (A, -61)
    assert arrival.properties.endswith("&adapter=hci0")


def test_an_advertisement_that_says_nothing_that_is_kept_is_no_event():
    found = roster(listed(A, ENV))
    said = Advertisement(services=(short_uuid(0x181A),), name="env-1")
    assert of_advertisement(found.receive(A, said, -60, 1), said, "hci0") is None


def test_value_of_an_unseen_device_has_its_address():
    arrival = of_value(roster(listed(A, ENV)).listed[A], short_uuid(0x2A6E), b"\x01\x02", "hci0")
    assert decode_heard(arrival.properties).address == A
    assert (arrival.channel, arrival.data, arrival.report) == (short_uuid(0x2A6E), b"\x01\x02", None)


def test_the_settings_of_a_device_overrule_its_profile():
    assert report_of(BTHOME, 5.0) == ReportPolicy(on_change=True, min_interval_s=5.0)


@pytest.mark.parametrize(("code", "status"), [(0x03, 405), (0x05, 401), (0x0D, 413), (0x0E, 500), (0x80, 422), (0xFC, 403)])
def test_an_att_error_has_a_status(code, status):
    answer = reply_of(code, "no")
    assert (answer.status, answer.data) == (status, f"ATT error 0x{code:02X}: no".encode())


def test_a_link_that_ended_is_no_answer():
    assert not is_att_error(0)
    assert is_att_error(0x0E)


def test_devices_with_a_profile_are_listed_first():
    found = ScanResults([BTHOME, ENV])
    found.add(C, OTHER, -30)
    found.add(A, SAYS, -80)
    found.add(B, Advertisement(services=(short_uuid(0x181A),)), -50)
    assert [each.address for each in found.all()] == [B, A, C]
    assert found.toml().startswith('[ble]\nprofiles = ["bthome"]\n\n[[ble.devices]]\naddress = "AA:00:00:00:00:01"')


def test_a_profile_of_ones_own_is_named_by_its_path_as_the_settings_take_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recognise = '[[recognise]]\nname = "other"\n'
    (tmp_path / "lock.toml").write_text(f'name = "lock"\nchannel = "lock"\n{recognise}[[notify]]\ncharacteristic = "2a6e"\n')
    (tmp_path / "tag.toml").write_text(f'name = "tag"\nchannel = "tag"\n{recognise}')
    for text in ("lock.toml", "tag.toml"):
        found = ScanResults(find_profiles([text], "--profile"))
        found.add(A, OTHER, -50)
        settings = msgspec.convert(tomllib.loads(found.toml())["ble"], BleSettings)
        profiles, devices = read_settings(settings)
        assert [each.reference for each in [*profiles, *(each.profile for each in devices)]] == [str(tmp_path / text)]


def test_no_address_is_suggested_as_a_name():
    """R4: the device's own name, made unique, or the profile's."""
    found = ScanResults([ENV])
    for address, name in (
        (A, "Greenhouse 2"),
        (B, "ATC"),
        (C, "ATC"),
        ("AA:00:00:00:AB:CD", None),
        ("AA:00:00:00:AB:CE", "\t"),
    ):
        found.add(address, Advertisement(services=(short_uuid(0x181A),), name=name), -50)
    devices = msgspec.convert(tomllib.loads(found.toml())["ble"], BleSettings).devices
    assert {each.address: each.device for each in devices} == {
        A: "Greenhouse-2",
        B: "ATC-0001",
        C: "ATC-0002",
        "AA:00:00:00:AB:CD": "environmental-sensing-abcd",
        "AA:00:00:00:AB:CE": "environmental-sensing-abce",
    }
    assert "Greenhouse-2" in found.table()[1]
    assert found.json()[0]["device"] == "Greenhouse-2"


def test_name_with_a_line_break_stays_on_its_line():
    found = ScanResults([ENV])
    found.add(A, Advertisement(services=(short_uuid(0x181A),), name='x"\n[evil]\n\x1b[2J'), -50)
    assert "[evil]" not in found.toml().splitlines()
    assert "\x1b" not in "".join([*found.table(), found.toml()])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "[ble] names neither profiles nor devices"),
        ({"profiles": ["bthome", "nothing"]}, "ble.profiles: there is no profile 'nothing'"),
        (
            {"devices": [{"address": A.lower(), "profile": "bthome"}, {"address": A, "profile": "bthome"}]},
            f"{A} is listed twice",
        ),
        (
            {"devices": [{"address": each, "profile": "bthome", "device": "d"} for each in (A, B)]},
            "ble.devices: d is listed twice",
        ),
        ({"devices": [{"address": A, "profile": "no"}]}, f"ble.devices {A}: profile: there is no profile 'no'"),
    ],
)
def test_settings_that_make_no_sense_are_said_in_one_line(settings, said):
    with pytest.raises(Misconfigured) as caught:
        read_settings(msgspec.convert(settings, BleSettings))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_device_that_advertises_without_a_long_break_is_steady():
    """R3: silence of such a device says something of the radio, silence of a button does not."""
    found = Roster([], [BTHOME], 10, now_s=0, steady_s=10)
    known = found.receive(A, SAYS, -60, 100)
    assert not found.is_steady(known, 100)
    for now_s in range(101, 111):
        assert not found.is_steady(known, now_s - 1)
        found.receive(A, SAYS, -60, now_s)
    assert found.is_steady(known, 110)
    found.receive(A, SAYS, -60, 121)
    assert not found.is_steady(known, 121)
