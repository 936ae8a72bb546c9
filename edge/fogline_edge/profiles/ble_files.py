"""Profiles of Bluetooth LE devices from their files: those in the box, and one's own."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

from fogline.errors import Misconfigured
from fogline.settings import load_settings
from fogline_edge.profiles.ble import BleProfile, OwnProfile

_IN_THE_BOX = Path(__file__).with_name("ble_devices")


def load_profile(path: Path) -> BleProfile:
    """Read and check one file. Raises `Misconfigured`, one line that names file and key."""
    return load_settings(path, BleProfile)


@cache
def in_the_box() -> dict[str, BleProfile]:
    """The profiles that come with the gateway, by name."""
    found = map(load_profile, sorted(_IN_THE_BOX.glob("*.toml")))
    return {each.name: each for each in found}


def chosen(names: Iterable[str], where: str) -> list[BleProfile]:
    """Profiles by name, or by path where the text ends with `.toml`, in this order.

    `where` is the key of the settings that is named in an error. Raises `Misconfigured`.
    """
    profiles: dict[str, BleProfile] = {}
    for text in names:
        profile = _load_own(Path(text)) if text.endswith(".toml") else in_the_box().get(text)
        if profile is None:
            known = ", ".join(in_the_box())
            raise Misconfigured(f"{where}: there is no profile {text!r}; in the box: {known}; one's own is a path to a .toml")
        if profile.name in profiles:
            raise Misconfigured(f"{where}: two profiles have the name {profile.name!r}")
        profiles[profile.name] = profile
    return list(profiles.values())


def _load_own(path: Path) -> OwnProfile:
    return OwnProfile(path=str(path.absolute()), **msgspec.structs.asdict(load_profile(path)))
