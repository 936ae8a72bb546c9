"""What profiles ask of a scan: why some need an active one, and the patterns of a passive one for BlueZ. Pure.

A passive scan sends no scan requests, which saves the batteries of sensors. So it gets no scan responses. BlueZ (since 5.56,
`org.bluez.AdvertisementMonitor`) reports an advertisement of a passive scan only if it matches a pattern, and only if its data
differs from the device's last one: the filter `DuplicateData` is for active scans.
"""

from collections.abc import Collection

from fogline_edge.profiles.ble import BleProfile

FLAGS, MANUFACTURER = 0x01, 0xFF
MAX_PATTERNS = 16
"""The most patterns that Linux takes for one monitor (HCI_MAX_ADV_MONITOR_NUM_PATTERNS)."""
_FLAG_BYTES = (0x02, 0x04, 0x05, 0x06, 0x18, 0x1A)
"""The values of Flags that devices send, as habluetooth has collected them."""

Pattern = tuple[int, int, bytes]
"""Position in the data of an AD structure, the structure's type, and the bytes that must be there."""


def needs_active(profile: BleProfile) -> str | None:
    """Return why only an active scan receives all that the profile declares; None if a passive one does.

    `scan` of the profile decides, if it is not `auto`.
    """
    if profile.scan != "auto":
        return "it says so" if profile.scan == "active" else None
    if profile.connects:
        return "the gateway connects to its devices, and waits for each of their advertisements"
    if "name" in profile.keep or "{name}" in profile.device or any(each.name is not None for each in profile.recognise):
        return "most devices send their name in scan responses only"
    if not profile.report.on_change or profile.report.max_interval_s is not None:
        return "it stores unchanged advertisements too, which BlueZ does not report of a passive scan"
    return None


def reason_for_active(profiles: Collection[BleProfile], setting: str) -> str | None:
    """Return why a scan for all these profiles must be active, None if it need not. `setting`: `ble.scan`.

    With `passive`, only a profile that says `scan = "active"` makes it active.
    """
    for each in profiles:
        why = needs_active(each)
        if why is not None and (setting != "passive" or each.scan == "active"):
            return f"profile {each.name}: {why}"
    if len(passive_patterns(profiles)) > MAX_PATTERNS:
        return f"the profiles have more company numbers than fit into the {MAX_PATTERNS} patterns of a passive scan"
    return None


def passive_patterns(profiles: Collection[BleProfile]) -> list[Pattern]:
    """Return the patterns of advertisements with Flags, and of those with the profiles' company numbers.

    Before 5.72, BlueZ compares neither company numbers nor service data; since then, it compares service data without its UUID.
    So nearly all devices match by their Flags only.
    """
    companies = {rule.manufacturer for profile in profiles for rule in profile.recognise if rule.manufacturer is not None}
    flags: list[Pattern] = [(0, FLAGS, bytes((value,))) for value in _FLAG_BYTES]
    return [*flags, *((0, MANUFACTURER, company.to_bytes(2, "little")) for company in sorted(companies))]
