"""Changes of the registry of devices within a transaction: those of operators, and what follows from them."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from fogline.amqp.outcome import (
    ACCEPTED,
    DECODE_ERROR,
    INTERNAL_ERROR,
    MODIFIED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LIMIT,
    Outcome,
    rejected,
)
from fogline.commands.command import CONFLICT
from fogline.errors import Poison
from fogline.process.kernel_clock import wall_clock_ms
from fogline_cloud.audit.record import AuditRecord
from fogline_cloud.devices.desired import DesiredOutcome, DesiredRecord, ReportedState
from fogline_cloud.devices.device_table import MAX_DEVICES
from fogline_cloud.devices.edits import FORGET, WANT, DeviceEdit, apply_edit, apply_want, is_copy, same_want
from fogline_cloud.devices.record import (
    ABOUT,
    DESIRED,
    OUTCOME,
    REPORTED,
    SEEN,
    DeviceAbout,
    DeviceKey,
    device_key,
    encode_device,
)
from fogline_cloud.shard.owned_shard import Linger, OwnedShard


@dataclass(slots=True)
class DeviceChange:
    """A change of a device, in the shard of its name. `settle` is called once, on the shard's thread, after the commit."""

    edit: DeviceEdit
    settle: Callable[[Outcome], None]
    size: int = 1
    linger: Linger = Linger.NONE

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Write the new record and the decision. The returned callback settles the change."""
        outcome = self._refusal(owned)
        if outcome is None:
            try:
                version = self._want(owned) if self.edit.action == WANT else self._edit(owned)
            except Poison as error:
                outcome = rejected(DECODE_ERROR, str(error))
            else:
                outcome = ACCEPTED
                if version is not None:
                    owned.writer.write_audit(_audit(self.edit, version))
        settled = outcome
        return lambda: self.settle(settled)

    def give_up(self) -> None:
        """Settle as modified: the change may or may not be committed, and the operator sends it again."""
        self.settle(MODIFIED)

    def refuse(self, why: str) -> None:
        """Reject the change."""
        self.settle(rejected(INTERNAL_ERROR, why))

    def _refusal(self, owned: OwnedShard) -> Outcome | None:
        device, action, listed = self.edit.device, self.edit.action, owned.sightings.table
        is_known = device in owned.devices.records or listed.get(device) is not None
        if not is_known and action in (FORGET, WANT):
            return rejected(NOT_FOUND, f"device {device} is not in the registry")
        if not is_known and len(listed) + owned.devices.unread(listed) >= MAX_DEVICES:
            return rejected(RESOURCE_LIMIT, f"the registry has {MAX_DEVICES} devices already")
        desired, expected = owned.devices.desired.get(device), self.edit.if_version
        version = desired.version if desired is not None else 0
        if action == WANT and expected not in (None, version) and not is_copy(self.edit, desired):
            return rejected(PRECONDITION_FAILED, f"the desired state of {device} has version {version}, not {expected}")
        if action == WANT and is_copy(self.edit, desired) and not same_want(self.edit, desired):
            return rejected(CONFLICT, f"this message id is known with another desired state of {device}")
        return None

    def _edit(self, owned: OwnedShard) -> int | None:
        """Return the version that was written, 0 after `forget`, or `None` if nothing changed."""
        current = owned.devices.records.get(self.edit.device)
        record = apply_edit(self.edit, current, wall_clock_ms())
        if record is not None and record is current:
            return None
        owned.writer.write_device(device_key(self.edit.device), encode_device(record) if record is not None else None)
        owned.devices.put(self.edit.device, record)
        if owned.sightings.table.get(self.edit.device) is None:
            owned.devices.written.add(self.edit.device)
        if record is None and self.edit.device in owned.devices.desired:
            _write_desired(owned, self.edit.device, None)
        return record.version if record is not None else 0

    def _want(self, owned: OwnedShard) -> int | None:
        current = owned.devices.desired.get(self.edit.device)
        desired = apply_want(self.edit, current, wall_clock_ms())
        if desired is current:
            return None
        _write_desired(owned, self.edit.device, desired)
        return desired.version


@dataclass(slots=True)
class DesiredDispatch:
    """The decision to send a version of a desired state, under an id, through a gateway. In the device's shard."""

    device: str
    former: DesiredRecord
    gateway: str
    command_id: str
    done: Callable[[], None]
    size: int = 1
    linger: Linger = Linger.NONE

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Write the decision, unless the desired state or the decision has changed since."""
        current = owned.devices.desired.get(self.device)
        if current is not None and (current.version, current.sent_id) == (self.former.version, self.former.sent_id):
            same = current.sent_version == current.version
            sent = {"sent_version": current.version, "sent_id": self.command_id, "sent_gateway": self.gateway}
            decided = msgspec.structs.replace(current, attempt=current.attempt + 1 if same else 1, **sent)
            _write_desired(owned, self.device, decided)
        return self.done

    def give_up(self) -> None:
        """Let the next owner decide."""
        self.done()


@dataclass(slots=True)
class DesiredOutcomeChange:
    """The end of a command that carried a desired state, and what the device reported in its answer. In the gateway's shard.

    With `never_sent` it is written only if the shard has no such command.
    """

    device: str
    gateway: str
    outcome: DesiredOutcome
    reported: ReportedState | None
    done: Callable[[], None]
    failed: Callable[[], None]
    never_sent: bool = False
    size: int = 1
    linger: Linger = Linger.NONE

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Write the records."""
        if not (self.never_sent and owned.registry.get(self.outcome.command) is not None):
            key = DeviceKey(OUTCOME, self.device, self.gateway)
            owned.writer.write_device(key, msgspec.json.encode(self.outcome))
            if self.reported is not None:
                write_reported(owned, self.device, self.gateway, self.reported)
        return self.done

    def give_up(self) -> None:
        """Let the next owner write it."""
        self.failed()


@dataclass(slots=True)
class DeviceRemoval:
    """The end of the records of a forgotten device that belong to a gateway, in the gateway's shard."""

    device: str
    gateway: str
    size: int = 0
    linger: Linger = Linger.FULL

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Delete the records."""
        for kind in (SEEN, OUTCOME, REPORTED, ABOUT):
            owned.writer.write_device(DeviceKey(kind, self.device, self.gateway), None)
        owned.sightings.forget(self.device, self.gateway)
        return lambda: None

    def give_up(self) -> None:
        """Do nothing: the operator can forget the device again."""


def write_reported(owned: OwnedShard, device: str, gateway: str, state: ReportedState) -> None:
    """Write the state that a device reports."""
    owned.writer.write_device(DeviceKey(REPORTED, device, gateway), msgspec.json.encode(state))


def write_about(owned: OwnedShard, device: str, gateway: str, about: DeviceAbout) -> None:
    """Write what a program at a gateway says of a device."""
    owned.writer.write_device(DeviceKey(ABOUT, device, gateway), msgspec.json.encode(about))


def _write_desired(owned: OwnedShard, device: str, desired: DesiredRecord | None) -> None:
    value = msgspec.json.encode(desired) if desired is not None else None
    owned.writer.write_device(DeviceKey(DESIRED, device), value)
    owned.devices.want(device, desired)


def _audit(edit: DeviceEdit, version: int) -> AuditRecord:
    return AuditRecord(
        time_ms=wall_clock_ms(),
        who=edit.who,
        decision=f"DEVICE {edit.action.upper()}",
        why=f"version {version}" if version else "",
        device=edit.device,
    )
