"""The table of devices: records in the order of Kafka, filters, and bounds."""

import pytest

from cloud.devices.device_changes import put, see
from fogline.errors import Poison
from fogline_cloud.devices import device_table
from fogline_cloud.devices.device_filter import read_filter
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.devices.record import device_key, seen_key


def test_set_fields_and_learnt_fields_do_not_overwrite_each_other():
    table = DeviceTable()
    see(table, "lamp-1", "gw-1", 10, "1.0")
    put(table, "lamp-1", type="lamp", tags={"site": "berlin"})
    see(table, "lamp-1", "gw-2", 30)
    see(table, "lamp-1", "gw-1", 20, "1.1")
    device = table.get("lamp-1")
    assert (device.type, device.gateways, device.seen_ms, device.firmware) == ("lamp", ["gw-2", "gw-1"], 30, "1.1")
    table.apply(device_key("lamp-1").encode(), b"")
    assert (table.get("lamp-1").record, table.get("lamp-1").seen_ms) == (None, 30)
    for gateway in ("gw-1", "gw-2"):
        table.apply(seen_key("lamp-1", gateway).encode(), b"")
    assert table.get("lamp-1") is None
    assert len(table) == 0


def test_a_record_that_cannot_be_read_changes_nothing():
    table = DeviceTable()
    put(table, "lamp-1", type="lamp")
    for key, value in ((b"device/lamp-1", b"{"), (b"device/a b", b"{}"), (b"\xff", b"{}"), (b"seen/x", b"{}"), (b"-", b"")):
        with pytest.raises(Poison):
            table.apply(key, value)
        assert table.apply_or_log(key, value) == ""
    assert [each.name for each in table] == ["lamp-1"]


def test_a_gateway_adds_devices_up_to_its_bound(monkeypatch):
    monkeypatch.setattr(device_table, "MAX_LEARNT_A_GATEWAY", 2)
    table = DeviceTable()
    see(table, "a", "gw-1", 1)
    see(table, "b", "gw-1", 1)
    assert not table.room_for("gw-1")
    assert table.room_for("gw-2")
    put(table, "a")  # an operator has set it, so it is not only learnt
    assert table.room_for("gw-1")


def test_devices_beyond_the_bound_are_left_out_and_counted(monkeypatch):
    monkeypatch.setattr(device_table, "MAX_DEVICES", 2)
    table = DeviceTable()
    for name in ("a", "b", "c"):
        put(table, name)
    assert ([each.name for each in table], table.left_out, table.room_for("gw-1")) == (["a", "b"], 1, False)


def test_of_many_gateways_the_last_ones_stay():
    table = DeviceTable()
    for n in range(20):
        see(table, "tag-1", f"gw-{n}", n)
    assert table.get("tag-1").gateways == [f"gw-{n}" for n in range(19, 11, -1)]


@pytest.mark.parametrize(
    ("where", "names"),
    [
        (["type=lamp"], ["lamp-1", "lamp-2"]),
        (["type=lamp,site=berlin"], ["lamp-1"]),
        (["type=lamp", "site=ber*"], ["lamp-1"]),
        (["device=*-2"], ["lamp-2"]),
        (["gateway=gw-1"], ["lamp-1", "tag-9"]),
        (["firmware=1.?"], ["tag-9"]),
        (["floor=2"], []),
        ([], ["lamp-1", "lamp-2", "tag-9"]),
    ],
    ids=str,
)
def test_a_filter_selects_by_fields_and_tags(where, names):
    table = DeviceTable()
    put(table, "lamp-1", type="lamp", tags={"site": "berlin"})
    put(table, "lamp-2", type="lamp", tags={"site": "paris"})
    see(table, "lamp-1", "gw-1", 1)
    see(table, "tag-9", "gw-1", 1, "1.2")
    assert [each.name for each in table if read_filter(where).matches(each)] == names


@pytest.mark.parametrize("where", ["lamp", "=x", "type=", ""])
def test_a_wrong_filter_is_refused_by_its_term(where):
    with pytest.raises(Poison, match="expected name=value"):
        read_filter([where])
