"""Changes of a table of devices."""

from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.devices.record import DeviceRecord, DeviceSighting, device_key, encode_device, encode_sighting, seen_key


def put(table: DeviceTable, name: str, **fields) -> None:
    record = DeviceRecord(version=1, changed_ms=1, changed_by="alice", **fields)
    table.apply(device_key(name).encode(), encode_device(record))


def see(table: DeviceTable, name: str, gateway: str, ms: int, firmware: str = "") -> None:
    table.apply(seen_key(name, gateway).encode(), encode_sighting(DeviceSighting(seen_ms=ms, firmware=firmware)))
