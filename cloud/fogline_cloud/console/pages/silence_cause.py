"""Why a device may be silent, as far as the registry tells: the device itself, or the gateway that heard it last. Pure."""

from fogline_cloud.console.pages.line_state import HEARD_S
from fogline_cloud.console.shown import age
from fogline_cloud.devices.device_table import DeviceEntry


def silence_cause(device: DeviceEntry, newest_ms: int | None, now_ms: int) -> str:
    """Return where to look for the cause, "" for a device that was heard just now.

    `newest_ms`: when the gateway that heard the device last has heard any device.
    """
    if device.seen_ms is None:
        return "No gateway has heard it yet: is it on, near a gateway, and does it report under this name?"
    silent_s = (now_ms - device.seen_ms) / 1000
    if silent_s < HEARD_S:
        return ""
    gateway = device.gateways[0]
    if not gateway:
        return f"It had an AMQP connection of its own, and has sent nothing for {age(silent_s)}: look at the device."
    since_s = (now_ms - (newest_ms or device.seen_ms)) / 1000
    if since_s < HEARD_S:
        return f"Its gateway {gateway} heard another device {age(since_s)} ago: look at the device, its power and its radio."
    return f"Its gateway {gateway} has heard no device for {age(since_s)}: look at the gateway, its power and its network."
