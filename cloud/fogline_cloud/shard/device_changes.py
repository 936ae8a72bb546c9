"""Changes of the registry of devices within a transaction: those of operators, and what follows from a forgotten device."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from fogline.amqp.outcome import ACCEPTED, DECODE_ERROR, MODIFIED, NOT_FOUND, RESOURCE_LIMIT, Outcome, rejected
from fogline.errors import Poison
from fogline_cloud.audit.record import AuditRecord
from fogline_cloud.devices.device_table import MAX_DEVICES
from fogline_cloud.devices.edits import FORGET, DeviceEdit, apply_edit
from fogline_cloud.devices.record import DeviceRecord, device_key, encode_device, seen_key
from fogline_cloud.shard.owned_shard import OwnedShard


@dataclass(slots=True)
class DeviceChange:
    """A change of a device, in the shard of its name. `settle` is called once, on the shard's thread, after the commit."""

    edit: DeviceEdit
    settle: Callable[[Outcome], None]
    size: int = 1
    urgent: bool = True

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Write the new record and the decision. The returned callback settles the change."""
        outcome = self._write(owned)
        return lambda: self.settle(outcome)

    def give_up(self) -> None:
        """Settle as modified: the change may or may not be committed, and the operator sends it again."""
        self.settle(MODIFIED)

    def _write(self, owned: OwnedShard) -> Outcome:
        edit, now_ms = self.edit, time.time_ns() // 1_000_000
        current, listed = owned.devices.get(edit.device), owned.sightings.table
        if current is None and edit.action == FORGET and listed.get(edit.device) is None:
            return rejected(NOT_FOUND, f"device {edit.device} is not in the registry")
        if current is None and listed.get(edit.device) is None and len(listed) >= MAX_DEVICES:
            return rejected(RESOURCE_LIMIT, f"the registry has {MAX_DEVICES} devices already")
        try:
            record = apply_edit(edit, current, now_ms)
        except Poison as error:
            return rejected(DECODE_ERROR, str(error))
        if record is None or record is not current:
            self._write_record(owned, record)
            owned.writer.write_audit(_audit(edit, record, now_ms))
        return ACCEPTED

    def _write_record(self, owned: OwnedShard, record: DeviceRecord | None) -> None:
        owned.writer.write_device(device_key(self.edit.device), encode_device(record) if record is not None else None)
        if record is not None:
            owned.devices[self.edit.device] = record
        else:
            owned.devices.pop(self.edit.device, None)


@dataclass(slots=True)
class SightingRemoval:
    """The end of a sighting of a forgotten device, in the shard of its gateway."""

    device: str
    gateway: str
    size: int = 0
    urgent: bool = False

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Delete the record."""
        owned.writer.write_device(seen_key(self.device, self.gateway), None)
        owned.sightings.forget(self.device, self.gateway)
        return lambda: None

    def give_up(self) -> None:
        """Do nothing: the operator can forget the device again."""


def _audit(edit: DeviceEdit, record: DeviceRecord | None, now_ms: int) -> AuditRecord:
    return AuditRecord(
        time_ms=now_ms,
        who=edit.who,
        decision=f"DEVICE {edit.action.upper()}",
        why=f"version {record.version}" if record is not None else "",
        device=edit.device,
    )
