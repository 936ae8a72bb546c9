"""Changes of the registry of devices within a shard, without Kafka."""

from types import SimpleNamespace

from fogline.amqp.outcome import ACCEPTED, RESOURCE_LIMIT
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.devices.edits import FORGET, SET, DeviceEdit
from fogline_cloud.devices.own_devices import OwnDevices
from fogline_cloud.shard.work import device_changes
from fogline_cloud.shard.work.device_changes import DeviceChange


def test_devices_that_the_registry_has_not_read_back_yet_count_against_its_bound(monkeypatch):
    monkeypatch.setattr(device_changes, "MAX_DEVICES", 5)
    written, table, settled = [], DeviceTable(), []
    writer = SimpleNamespace(write_device=lambda *record: written.append(record), write_audit=lambda _: None)
    owned = SimpleNamespace(devices=OwnDevices(), sightings=SimpleNamespace(table=table), writer=writer)

    def change(device, action):
        DeviceChange(DeviceEdit(device, action, "alice", b"{}"), settled.append).perform(owned)()

    for number in range(8):
        change(f"lamp-{number}", SET)
    assert settled[:5] == [ACCEPTED] * 5
    assert {each.condition for each in settled[5:]} == {RESOURCE_LIMIT}
    change("lamp-0", FORGET)
    change("lamp-8", SET)
    assert settled[-1] == ACCEPTED
    for key, value in written:
        table.apply(key.encode(), value or b"")
    assert len(table) == 5
    change("lamp-9", SET)
    change("lamp-1", SET)
    assert (settled[-2].condition, settled[-1]) == (RESOURCE_LIMIT, ACCEPTED)
