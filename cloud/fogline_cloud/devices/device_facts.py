"""What clients are told of a device, as JSON. Pure."""

from typing import Any

import msgspec

from fogline.process.console.listing import utc
from fogline_cloud.devices.desired import difference
from fogline_cloud.devices.device_table import DeviceEntry


def facts_of(device: DeviceEntry) -> dict[str, Any]:
    """Return what the registry knows of a device, as the API shows it."""
    record = device.record
    return {
        "device": device.name,
        "type": device.type,
        "tags": device.tags,
        "gateways": [each for each in device.gateways if each],
        "last_seen": utc(device.seen_ms / 1000) if device.seen_ms is not None else None,
        "firmware": device.firmware,
        "commands": msgspec.json.decode(record.commands) if record is not None and record.commands else None,
        "version": record.version if record is not None else 0,
    }


def all_facts_of(device: DeviceEntry) -> dict[str, Any]:
    """Return what is known of a device, with its last change, its desired state and its reported one."""
    record = device.record
    return {
        **facts_of(device),
        **_about_facts(device),
        "changed": utc(record.changed_ms / 1000) if record is not None else None,
        "changed_by": record.changed_by if record is not None else "",
        **_desired_facts(device),
    }


def _about_facts(device: DeviceEntry) -> dict[str, Any]:
    """Return what a program at a gateway says of the device."""
    said = msgspec.to_builtins(device.description) if device.description is not None else {}
    facts = {name: value for name, value in said.items() if name != "firmware"}
    about = next((each for _, each in device.abouts if each.online is not None), None)
    if about is not None:
        facts["online"] = about.online
        facts["online_since" if about.online else "offline_since"] = utc(about.online_ms / 1000)
    return facts


def _desired_facts(device: DeviceEntry) -> dict[str, Any]:
    """Return the desired state, the reported one beside it, and the difference."""
    desired, outcome, reported = device.desired, device.outcome, device.reported
    if desired is None:
        return {"reported": reported.reported} if reported is not None else {}
    return {
        "desired": desired.desired,
        "desired_version": desired.version,
        "desired_state": device.desired_state,
        "desired_command_id": desired.sent_id,
        "desired_why": outcome.why if outcome is not None else "",
        "reported": reported.reported if reported is not None else None,
        "difference": difference(desired.desired, reported.reported if reported is not None else None),
    }
