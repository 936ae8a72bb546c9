"""The demo's Bluetooth, its pure parts: who is on the air, what they say as gateway and flow read it, and the judgement."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "deploy"))

from demo.ble_devices import missing
from demo.ble_judgement import BleEvidence, BleJudgement, judge_ble
from demo.ble_payload import (
    MAX_N,
    METRIC,
    MOVE,
    TURN,
    VALVE_PROFILE,
    BleDevice,
    Sort,
    advertised,
    advertised_n,
    ble_fleet,
    command_body,
    command_name_of,
    read_n,
    settings,
)
from demo.judgement import judge_commands
from demo.operator_commands import planned_command
from demo.report import DemoReport
from e2e.demo_verdict import verdict
from fogline.advertisement import ReceivedAdvertisement, decode
from fogline_cloud.flows.parsers.ble import bthome, ruuvi
from fogline_cloud.flows.parsers.ble.decoding import Broadcast
from fogline_edge.adapters.ble.roster import read_settings
from fogline_edge.profiles.ble import body_of, counter_of
from fogline_edge.profiles.ble_files import built_in_profiles
from fogline_edge.settings import load
from fogline_lab.ble.peripheral import ACKNOWLEDGEMENT, COMMAND, TEMPERATURE

SAID = [("bthome-01", 1), ("bthome-01", 2), ("ruuvi-02", 1)]
ONE, OTHER = "gateway-1", "gateway-2"
NO_COMMANDS = judge_commands([], [], {})


def ble(on_air=SAID, kafka=None, table=SAID) -> BleJudgement:
    told = [(ONE, each) for each in SAID] if kafka is None else kafka
    return judge_ble(BleEvidence(set(on_air), Counter(told), Counter(table)), ["bthome-01", "ruuvi-02"], NO_COMMANDS)


def test_advertisement_received_by_two_gateways_is_one_row():
    found = ble(kafka=[(ONE, each) for each in SAID] + [(OTHER, SAID[0])])
    assert (found.on_air, found.kafka, found.copies, found.table, found.share) == (3, 3, 1, 3, 1.0)
    assert found.problems == []


def test_advertisement_that_no_gateway_received_is_not_lost():
    found = ble(on_air=[*SAID, ("bthome-01", 3)])
    assert found.problems == []
    assert found.share == 0.75


def test_stored_advertisement_missing_from_the_table_is_lost():
    assert ble(table=SAID[1:]).lost == [SAID[0]]


@pytest.mark.parametrize(
    "places",
    [{"table": [*SAID, SAID[0]]}, {"kafka": [(ONE, each) for each in SAID] + [(ONE, SAID[0])]}],
    ids=["table", "kafka"],
)
def test_advertisement_twice_in_the_table_or_from_one_gateway_is_a_duplicate(places):
    found = ble(**places)
    assert found.duplicate == [SAID[0]]
    assert "1 twice, for example bthome-01 1" in found.problems[0]


def test_advertisement_never_sent_or_only_in_the_table_is_a_phantom():
    assert ble(on_air=SAID[1:]).phantom == [SAID[0]]
    assert ble(kafka=[(ONE, each) for each in SAID[1:]]).phantom == [SAID[0]]


def test_a_device_of_which_nothing_came_is_a_problem():
    found = ble(kafka=[(ONE, each) for each in SAID[:2]], table=SAID[:2])
    assert found.problems == ["Bluetooth: nothing of ruuvi-02 arrived"]


def test_bluetooth_decides_the_exit_status_and_is_in_the_json():
    assert DemoReport(verdict(), {}, {}, ble=ble()).status == 0
    wrong = DemoReport(verdict(), {}, {}, ble=ble(table=SAID[1:]))
    assert wrong.status == 1
    assert wrong.as_json()["ble"]["lost"] == 1
    assert wrong.as_json()["ble"]["examples"] == {"lost": ["bthome-01 1"]}
    assert DemoReport(verdict(), {}, {}).as_json()["ble"] is None


def test_missing_message_bus_is_one_line_with_the_package(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert missing() == "dbus-daemon is missing: install Debian's package dbus"


def test_two_kinds_of_devices_are_shared_and_each_gateway_has_its_own():
    devices = ble_fleet(2)
    heard = Counter((each.sort, each.heard_by) for each in devices)
    assert heard == {(sort, by): 1 for sort in Sort for by in ((0, 1), (0,), (1,)) if sort is not Sort.VALVE or len(by) == 1}
    assert len({each.address for each in devices}) == len({each.name for each in devices}) == 8
    assert sum(not each.advertises for each in ble_fleet(2, valves=3)) == 6


def heard(device: BleDevice, n: int):
    """The advertisement, as AD structures."""
    kind, data = advertised(device, n)
    return decode(bytes([len(data) + 1, kind]) + data)


@pytest.mark.parametrize("n", [1, 255, 256, MAX_N])
@pytest.mark.parametrize("device", ble_fleet(1)[:2], ids=lambda each: each.sort)
def test_gateway_counts_advertisements_and_the_body_has_their_number(device, n):
    profile = built_in_profiles()[{Sort.BTHOME: "bthome", Sort.RUUVI: "ruuvitag"}[device.sort]]
    advertisement = heard(device, n)
    assert counter_of(profile, advertisement).value == (n % 256 if device.sort is Sort.BTHOME else n)
    assert advertised_n(body_of(profile, advertisement)) == n
    assert advertised_n(b"\x02\x01\x06") is None


@pytest.mark.parametrize("n", [1, 256, MAX_N])
def test_the_flow_reads_n_as_a_temperature(n):
    bthome_device, ruuvi_device = ble_fleet(1)[:2]
    (said,) = heard(bthome_device, n).service_data.values()
    (measured,) = heard(ruuvi_device, n).manufacturer.values()
    broadcast = Broadcast(heard(bthome_device, n), ReceivedAdvertisement())
    for readings in (bthome.decode(said, broadcast), ruuvi.decode(measured, broadcast)):
        (value,) = (each.value for each in readings if each.metric == METRIC)
        assert read_n(value) == n


def test_settings_of_a_gateway_list_its_devices_and_valves_take_commands(tmp_path):
    (tmp_path / "valve.toml").write_text(VALVE_PROFILE)
    file = tmp_path / "edge.toml"
    file.write_text('tenant = "demo"\ngateway = "gateway-1"\ndata = "data"\n[uplink]\nbridge = "127.0.0.1:1"\n')
    file.write_text(file.read_text() + settings(ble_fleet(2), 0, 2.0))
    _, listed = read_settings(load(file).ble)
    assert [each.device for each in load(file).ble.devices] == ["bthome-01", "ruuvi-02", "bthome-03", "ruuvi-04", "valve-07"]
    assert len(listed) == 5
    uuids = set(re.findall(r'"(6e4\S+|2a6e)"', VALVE_PROFILE))
    assert uuids == {TEMPERATURE, COMMAND, ACKNOWLEDGEMENT}


def test_commands_to_valves_are_distinguished_by_their_bytes():
    sent = [planned_command(n, "valve-07", ble=True) for n in (1, 2)]
    assert [each.verb for each in sent] == [MOVE, TURN]
    assert [command_name_of(command_body(each.verb, each.name)) for each in sent] == [each.name for each in sent]
