"""Profiles of Bluetooth LE devices: built-in ones on advertisements that their makers publish, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.address import is_identifier
from fogline.advertisement import Advertisement, decode, short_uuid
from fogline.errors import Misconfigured, Poison
from fogline.events.identity import Counter
from fogline.events.report_on_change import ReportPolicy
from fogline_cloud.flows.parsers.ble.bthome import OBJECTS
from fogline_edge.profiles.ble import PRESS_PAUSE_S, body_of, counter_of, device_of, fits, full_uuid, report_of
from fogline_edge.profiles.ble_files import built_in_profiles, find_profiles, load_profile
from fogline_edge.profiles.ble_values import Encoding, encode_value
from fogline_edge.profiles.bthome import WIDTHS

ADDRESS = "a4:c1:38:8d:18:b2"
BTHOME, XIAOMI, EDDYSTONE = short_uuid(0xFCD2), short_uuid(0xFE95), short_uuid(0xFEAA)


def of_service(uuid, data):
    return Advertisement(service_data={uuid: bytes.fromhex(data)})


def of_company(company, data):
    return Advertisement(manufacturer={company: bytes.fromhex(data)})


RUUVI_5 = of_company(0x0499, "0512FC5394C37C0004FFFC040CAC364200CDCBB8334C884F")
IBEACON = of_company(0x004C, "0215 E2C56DB5DFFB48D2B060D0F5A71096E0 0001 0002 C5")
SAMPLES = [
    ("bthome", of_service(BTHOME, "40 0009 02ca09 03bf13"), Counter(9, 8)),
    ("bthome", of_service(BTHOME, "42 b2188d38c1a4 0009 02ca09"), Counter(9, 8)),
    ("bthome", of_service(BTHOME, "40 02ca09 03bf13"), None),
    ("bthome", of_service(BTHOME, "41 a47266c95f73 00112233 78237214"), Counter(0x33221100, 32)),
    ("bthome", of_service(BTHOME, "41 0011"), None),
    ("bthome", of_service(BTHOME, ""), None),
    ("ruuvitag", RUUVI_5, Counter(205, 16)),
    ("ruuvitag", of_company(0x0499, "058000FFFFFFFF800080008000FFFFFFFFFFFFFFFFFFFFFF"), None),
    ("ruuvi-6", of_company(0x0499, "06170C5668C79E007000C90501D900CD004C884F"), Counter(205, 8)),
    (
        "ruuvi-e1",
        of_company(0x0499, "E1170C5668C79E0065007004BD11CA00C90A0213E0AC000000DECDEE110000000000CBB8334C884F"),
        Counter(0xDECDEE, 24),
    ),
    ("xiaomi", of_service(XIAOMI, "5020 AA01 DA 2E34 2D58 0D10 04 FE00 4802"), Counter(0xDA, 8)),
    ("govee", Advertisement(name="GVH5075_2762", manufacturer={0xEC88: bytes.fromhex("00035B245200")}), None),
    ("ibeacon", IBEACON, None),
    ("eddystone-tlm", of_service(EDDYSTONE, "2000 0bb8 1580 0000000a 00000064"), Counter(10, 32)),
    ("environmental-sensing", Advertisement(services=(short_uuid(0x181A),)), None),
]


@pytest.mark.parametrize(("name", "advertisement", "counter"), SAMPLES)
def test_devices_are_recognised_and_their_counters_found(name, advertisement, counter):
    assert [each.name for each in built_in_profiles().values() if fits(each, advertisement)] == [name]
    assert counter_of(built_in_profiles()[name], advertisement) == counter


def test_an_inkbird_at_the_temperature_of_ruuvis_number_is_no_ruuvi():
    advertisement = Advertisement(name="sps", manufacturer={0x0499: bytes.fromhex("05120100b55b08")})
    assert [each.name for each in built_in_profiles().values() if fits(each, advertisement)] == []


def test_a_gateway_and_a_parser_know_the_same_objects_of_bthome():
    fixed = {number: each.width for number, each in OBJECTS.items() if each.width}
    assert fixed == WIDTHS
    assert {number for number, each in OBJECTS.items() if not each.width} == {0x3B, 0x53, 0x54}


@pytest.mark.parametrize(
    ("objects", "pause_s"),
    [
        ("3a01", PRESS_PAUSE_S),
        ("0161 3a00 3a01", PRESS_PAUSE_S),
        ("02ca09 3c0103", PRESS_PAUSE_S),
        ("3b0001", PRESS_PAUSE_S),
        ("530161 3a01", PRESS_PAUSE_S),
        ("3a00", None),
        ("02ca09", None),
        ("0009 3a01", None),
        ("eb3a01", None),
        ("02", None),
        ("", None),
    ],
)
def test_press_without_a_packet_id_is_distinguished_from_a_repetition_by_the_pause(objects, pause_s):
    report = ReportPolicy(on_change=True)
    assert report_of(built_in_profiles()["bthome"], of_service(BTHOME, "40" + objects), report).pause_s == pause_s


def test_every_profile_in_the_box_is_shown_on_a_sample():
    assert {name for name, _, _ in SAMPLES} == set(built_in_profiles())


def test_profile_with_a_frame_counter_and_an_own_interval_is_not_shared():
    profile = built_in_profiles()["eddystone-tlm"]
    assert profile.report.min_interval_s > 0
    assert not profile.shared


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("ruuvitag", of_company(0x0499, "03291A1ECE1EFC18F94202CA0B53")),
        ("eddystone-tlm", of_service(EDDYSTONE, "2001 0bb8")),
        ("ibeacon", of_company(0x004C, "1005 0b1c")),
        ("govee", Advertisement(name="gvh5075_2762")),
        ("bthome", Advertisement()),
        ("environmental-sensing", Advertisement()),
    ],
)
def test_others_are_not(name, other):
    profile = built_in_profiles()[name]
    assert not fits(profile, other)
    assert device_of(profile, ADDRESS, other) is None
    assert counter_of(profile, other) is None


def test_a_device_is_named_by_its_address_or_its_bytes():
    assert device_of(built_in_profiles()["ruuvitag"], ADDRESS, RUUVI_5) == "A4:C1:38:8D:18:B2"
    assert device_of(built_in_profiles()["ibeacon"], ADDRESS, IBEACON) == "ibeacon-e2c56db5dffb48d2b060d0f5a71096e000010002"


def profile_of(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\nchannel = "mine"\n{text}')
    return load_profile(path)


def test_a_device_may_be_named_by_its_name_once_that_is_known(tmp_path):
    profile = profile_of(tmp_path, 'device = "hall-{name}"\n[[recognise]]\nmanufacturer = 1')
    assert device_of(profile, ADDRESS, of_company(1, "")) is None
    assert device_of(profile, ADDRESS, Advertisement(name="lamp 1", manufacturer={1: b""})) == "hall-lamp:201"


@given(name=st.text(max_size=90), address=st.text(max_size=90))
def test_name_of_a_device_is_always_an_identifier(tmp_path_factory, name, address):
    profile = profile_of(tmp_path_factory.mktemp("p"), 'device = "{name}-{address}"\n[[recognise]]\nmanufacturer = 1')
    found = device_of(profile, address, Advertisement(name=name, manufacturer={1: b""}))
    assert found is None or is_identifier(found)


def test_two_gateways_store_the_same_body_of_one_advertisement():
    profile = built_in_profiles()["ruuvitag"]
    other = Advertisement(name="Ruuvi 884F", tx_power=4, manufacturer={0x0499: RUUVI_5.manufacturer[0x0499], 6: b"x"})
    assert body_of(profile, other) == body_of(profile, RUUVI_5)


def test_profile_names_further_fields_to_keep():
    heard = Advertisement(name="GVH5075_2762", manufacturer={0xEC88: b"1", 1: b"2"}, services=(short_uuid(0xEC88),), tx_power=1)
    kept = decode(body_of(built_in_profiles()["govee"], heard))
    assert kept == Advertisement(name="GVH5075_2762", manufacturer={0xEC88: b"1", 1: b"2"}, services=(short_uuid(0xEC88),))


def test_reported_characteristics_are_declared(tmp_path):
    profile = profile_of(tmp_path, f"{GOOD}[report]\nmin_interval_s = 10\nmax_interval_s = 60")
    assert profile.report.report == ReportPolicy(min_interval_s=10, on_change=True, max_interval_s=60)


GOOD = "[[recognise]]\nservice_data = 'fcd2'\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "missing key `recognise`"),
        ("recognise = []", "key `recognise`: "),
        ("[[recognise]]\nservice_dat = 'fcd2'", "unknown key `service_dat` in [recognise[0]]"),
        ("[[recognise]]\nservice_data = 'fcd'", "'fcd' is no UUID"),
        ("[[recognise]]\nprefix = '00'", "service_data or manufacturer is missing"),
        ("[[recognise]]\nservice_data = 'fcd2'\nprefix = '0'", "prefix = '0': expected up to 24 bytes in hex"),
        ("[[recognise]]\nservice_data = 'fcd2'\nmanufacturer = 1", "exclude each other"),
        ("[[recognise]]\nmanufacturer = 65536", "key `recognise[0].manufacturer`: "),
        (f"device = '{{adress}}'\n{GOOD}", "device = '{adress}': expected words"),
        (f"device = 'lamp'\n{GOOD}", "device = 'lamp': expected words"),
        (f"device = '{{name}}'\nshared = true\n{GOOD}", "cannot be named by {name}"),
        (f"lane = 'reply'\n{GOOD}", "is reserved for replies to commands"),
        (f"lane = 'fast'\n{GOOD}", "key `lane`: "),
        (f"{GOOD}[counter]\nfind = 'somewhere'", "find = 'somewhere': expected one of at, bthome"),
        (f"{GOOD}[counter]\nwidth_bits = 12", "key `counter.width_bits`: "),
        ("[[recognise]]\nname = 'x*'\n[counter]\n", "a counter needs service_data or manufacturer"),
        (f"{GOOD}[[read]]\ncharacteristic = 'temp'", "'temp' is no UUID"),
        (f"{GOOD}[[notify]]\ncharacteristic = '2a6e'\n[[notify]]\ncharacteristic = '2A6E'", "notify: 00002a6e"),
        (
            f"{GOOD}[[commands]]\nname = 'on'\ncharacteristic = '2a6e'\nanswer = 'notify'",
            "answer_characteristic is required with",
        ),
        (f"{GOOD}[[commands]]\nname = 'on'\ncharacteristic = '2a6e'\nencoding = 'utf7'", "key `commands[0].encoding`: "),
        (f"{GOOD}" + "[[commands]]\nname = 'on'\ncharacteristic = '2a6e'\n" * 2, "commands: on occurs twice"),
    ],
)
def test_error_in_a_profile_is_one_line(tmp_path, text, says):
    with pytest.raises(Misconfigured) as caught:
        profile_of(tmp_path, text)
    said = str(caught.value)
    assert said.startswith(str(tmp_path / "mine.toml"))
    assert says in said
    assert "\n" not in said


def test_profiles_are_chosen_by_name_or_path(tmp_path):
    profile_of(tmp_path, GOOD)
    assert [each.name for each in find_profiles(["bthome", str(tmp_path / "mine.toml")], "[ble] profiles")] == [
        "bthome",
        "mine",
    ]
    with pytest.raises(Misconfigured, match=r"\[ble\] profiles: there is no profile 'bthom'; built in: bthome, eddystone"):
        find_profiles(["bthom"], "[ble] profiles")
    with pytest.raises(Misconfigured, match="two profiles have the name 'bthome'"):
        find_profiles(["bthome", "bthome"], "[ble] profiles")


def test_a_uuid_may_be_short():
    assert full_uuid("FCD2") == full_uuid("0000FCD2") == full_uuid(BTHOME.upper()) == BTHOME


@pytest.mark.parametrize(
    ("encoding", "body", "value"),
    [
        (Encoding.BYTES, b"on\x00", b"on\x00"),
        (Encoding.HEX, b"01 ff", b"\x01\xff"),
        (Encoding.UINT16, b"513", b"\x01\x02"),
        (Encoding.SINT8, b"-1", b"\xff"),
        (Encoding.UINT32, b"4294967295", b"\xff\xff\xff\xff"),
    ],
)
def test_a_commands_body_becomes_bytes(encoding, body, value):
    assert encode_value(encoding, body) == value


@pytest.mark.parametrize(
    ("encoding", "body", "reason"),
    [
        (Encoding.UINT8, b"256", "malformed"),
        (Encoding.UINT8, b"-1", "malformed"),
        (Encoding.SINT32, b"2147483648", "malformed"),
        (Encoding.UINT8, b"1.5", "malformed"),
        (Encoding.UINT8, b"true", "malformed"),
        (Encoding.UINT8, b"", "malformed"),
        (Encoding.HEX, b"0", "malformed"),
        (Encoding.HEX, b"\xff", "malformed"),
        (Encoding.BYTES, bytes(513), "too-big"),
    ],
)
def test_a_body_that_is_none_of_the_encoding_is_refused(encoding, body, reason):
    with pytest.raises(Poison) as caught:
        encode_value(encoding, body)
    assert caught.value.reason == reason
