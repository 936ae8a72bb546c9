"""The settings of `[ble]` to profiles and listed devices."""

from fogline.errors import Misconfigured
from fogline_edge.adapters.ble.roster import Listed, report_of
from fogline_edge.profiles.ble import BleProfile
from fogline_edge.profiles.ble_files import chosen
from fogline_edge.settings import BleSettings

READS_MISSED = 2
"""A device that is asked less often than it may be silent is not silent between two questions."""


def read_settings(settings: BleSettings) -> tuple[list[BleProfile], list[Listed]]:
    """The profiles of whoever is heard, and the devices that are listed. Raises `Misconfigured`."""
    profiles = chosen(settings.profiles, "ble.profiles")
    if not profiles and not settings.devices:
        raise Misconfigured("[ble] names neither profiles nor devices: `fogline-edge ble scan` shows what is heard")
    listed: dict[str, Listed] = {}
    names: set[str] = set()
    for each in settings.devices:
        address = each.address.upper()
        if address in listed or (each.device is not None and each.device in names):
            raise Misconfigured(f"ble.devices: {each.device if address not in listed else address} stands there twice")
        (profile,) = chosen([each.profile], f"ble.devices {address}: profile")
        silence_s = settings.device_silence_s if each.silence_s is None else each.silence_s
        silence_s = max(silence_s, READS_MISSED * profile.shortest_read_s)
        listed[address] = Listed(address, profile, silence_s, report_of(profile, each.min_interval_s), each.device)
        names.update(() if each.device is None else (each.device,))
    return profiles, list(listed.values())
