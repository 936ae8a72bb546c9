"""Reads the profiles of Bluetooth LE devices from their files: built-in ones and your own."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

from fogline.errors import Misconfigured
from fogline.process.files.settings_file import load_settings
from fogline_edge.profiles.ble import BleProfile, OwnProfile

_BUILT_IN = Path(__file__).with_name("ble_devices")


def load_profile(path: Path) -> BleProfile:
    """Read and check one file. Raises `Misconfigured` with one line that names the file and the key."""
    return load_settings(path, BleProfile, "profile")


@cache
def built_in_profiles() -> dict[str, BleProfile]:
    """Return the built-in profiles by name."""
    found = map(load_profile, sorted(_BUILT_IN.glob("*.toml")))
    return {each.name: each for each in found}


def find_profiles(names: Iterable[str], where: str) -> list[BleProfile]:
    """Return profiles by name, or by path to a `.toml` file, in the given order. Raises `Misconfigured`, naming `where`."""
    profiles: dict[str, BleProfile] = {}
    for text in names:
        profile = _own(Path(text)) if text.endswith(".toml") else built_in_profiles().get(text)
        if profile is None:
            known = ", ".join(built_in_profiles())
            raise Misconfigured(f"{where}: there is no profile {text!r}; built in: {known}; your own is a path to a .toml file")
        if profile.name in profiles:
            raise Misconfigured(f"{where}: two profiles have the name {profile.name!r}")
        profiles[profile.name] = profile
    return list(profiles.values())


def _own(path: Path) -> OwnProfile:
    return OwnProfile(path=str(path.absolute()), **msgspec.structs.asdict(load_profile(path)))
