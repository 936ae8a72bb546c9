"""Refuses the events of devices that are not bound to the gateway that sends them. Pure."""

from collections.abc import Callable

from fogline.errors import Poison
from fogline.events.codec import Batch
from fogline_cloud.audit.record import AuditRecord
from fogline_cloud.commands.reply_lane import MAX_SHOWN, refused_event

REFUSED = Poison("not-authorised", "its device is not one of this gateway's")
MaySpeakFor = Callable[[str, str], bool]
"""Returns True if a gateway may send events of a device. Thread-safe."""


def refuse_foreign(
    batch: Batch, gateway: str, tenant: str, may_speak_for: MaySpeakFor, now_ms: int
) -> tuple[Batch, list[AuditRecord], int]:
    """Return the batch with gap records for the events of foreign devices, an audit record for each device, and their number.

    A gap record repeats nothing of the event. Events of other tenants pass: they are refused elsewhere.
    """
    devices = {device for own, device in batch.devices.values() if own == tenant}
    foreign = sorted(device for device in devices if not may_speak_for(gateway, device))
    if not foreign:
        return batch, [], 0
    events, refused = [], 0
    for event in batch.events():
        is_foreign = event.tenant == tenant and event.device in foreign
        refused += is_foreign
        events.append(refused_event(event, REFUSED, now_ms) if is_foreign else event)
    audits = [_audit(device[:MAX_SHOWN], gateway, tenant, now_ms) for device in foreign]
    return Batch.of(events), audits, refused


def _audit(device: str, gateway: str, tenant: str, now_ms: int) -> AuditRecord:
    return AuditRecord(
        time_ms=now_ms,
        who=f"gateway {tenant}/{gateway}",
        decision="EVENTS REFUSED",
        why=f"device {device} is bound to other gateways (bridge.access)",
        device=device,
        gateway=gateway,
    )
