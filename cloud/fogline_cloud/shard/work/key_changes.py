"""Changes of the keys of a device within a transaction, in the shard of its name."""

from collections.abc import Callable
from dataclasses import dataclass

from fogline.amqp.outcome import ACCEPTED, DECODE_ERROR, INTERNAL_ERROR, MODIFIED, NOT_ALLOWED, NOT_FOUND, Outcome, rejected
from fogline.errors import Poison
from fogline.process.kernel_clock import wall_clock_ms
from fogline_cloud.audit.record import AuditRecord
from fogline_cloud.credentials.credential_record import CredentialRecord, open_record, seal_record
from fogline_cloud.credentials.key_edits import KeyEdit, apply_key_edit, described
from fogline_cloud.credentials.vault import Vault
from fogline_cloud.shard.owned_shard import Linger, OwnedShard

_CONDITIONS = {"unknown-key": NOT_FOUND, "sealed": NOT_ALLOWED}


@dataclass(slots=True)
class KeyChange:
    """A change of a device's keys. `settle` is called once, on the shard's thread, after the commit."""

    edit: KeyEdit
    vault: Vault
    settle: Callable[[Outcome], None]
    size: int = 1
    linger: Linger = Linger.NONE

    def perform(self, owned: OwnedShard) -> Callable[[], None]:
        """Write the sealed record and the decision. The returned callback settles the change."""
        device, outcome = self.edit.device, ACCEPTED
        sealed = owned.devices.sealed_keys.get(device)
        try:
            current = open_record(self.vault, device, sealed) if sealed is not None else None
            record = apply_key_edit(self.edit, current, wall_clock_ms())
        except Poison as error:
            outcome = rejected(_CONDITIONS.get(error.reason, DECODE_ERROR), str(error))
        else:
            if record is not current:
                value = seal_record(self.vault, device, record) if record is not None else None
                owned.writer.write_keys(device, value)
                owned.devices.seal(device, value)
                owned.writer.write_audit(_audit(self.edit, record))
        return lambda: self.settle(outcome)

    def give_up(self) -> None:
        """Settle as modified: the change may or may not be committed, and the operator sends it again."""
        self.settle(MODIFIED)

    def refuse(self, why: str) -> None:
        """Reject the change."""
        self.settle(rejected(INTERNAL_ERROR, why))


def _audit(edit: KeyEdit, record: CredentialRecord | None) -> AuditRecord:
    return AuditRecord(
        time_ms=wall_clock_ms(),
        who=edit.who,
        decision=f"DEVICE {edit.action.upper().replace('-', ' ')}",
        why=described(record),
        device=edit.device,
    )
