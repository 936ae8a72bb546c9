"""The records of the devices that belong to one shard, which alone changes them. Pure."""

from fogline.documents.json_document import read_document
from fogline_cloud.devices.desired import DesiredRecord
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.devices.record import DESIRED, DEVICE, DeviceKey, DeviceRecord, decode_device


class OwnDevices:
    """The committed records of one shard, and those of the open transaction."""

    def __init__(self) -> None:
        self.records: dict[str, DeviceRecord] = {}
        self.written: set[str] = set()
        """New devices that this ownership has written, and that the table of all devices may not have yet."""
        self.desired: dict[str, DesiredRecord] = {}
        self.sealed_keys: dict[str, bytes] = {}
        """The keys of devices, sealed (`fogline_cloud.credentials.credential_record`)."""

    def apply(self, key: DeviceKey, value: bytes) -> None:
        """Take a record of the shard's partition, in Kafka's order. Raises `Poison('malformed')`."""
        if key.kind == DEVICE:
            self.put(key.device, decode_device(value) if value else None)
        elif key.kind == DESIRED:
            self.want(key.device, read_document(value, DesiredRecord, "a desired state") if value else None)

    def seal(self, device: str, value: bytes | None) -> None:
        """Store the sealed keys of a device, or remove them."""
        if value:
            self.sealed_keys[device] = value
        else:
            self.sealed_keys.pop(device, None)

    def put(self, device: str, record: DeviceRecord | None) -> None:
        """Store what operators set of a device, or remove it."""
        if record is not None:
            self.records[device] = record
        else:
            self.records.pop(device, None)

    def unread(self, table: DeviceTable) -> int:
        """Return the number of new devices of the shard that the table of all devices does not have yet."""
        self.written = {name for name in self.written if name in self.records and table.get(name) is None}
        return len(self.written)

    def want(self, device: str, desired: DesiredRecord | None) -> None:
        """Store a desired state, or remove it."""
        if desired is not None:
            self.desired[device] = desired
        else:
            self.desired.pop(device, None)

    def share(self, table: DeviceTable) -> None:
        """Use the objects of the table where they are equal: there may be many."""
        for name, record in self.records.items():
            known = table.get(name)
            if known is not None and known.record == record:
                self.records[name] = known.record
