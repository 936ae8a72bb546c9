"""Reasons why no key counts by which a device names itself, for the log: the device gets the same answer to all. Pure."""

from fogline.events.event import rfc3339
from fogline.gateway.device_credentials import DeviceCredentials, KeyKind, key_name

_Name = tuple[KeyKind, str]


class RefusalReasons:
    """Knows keys that have ended. To be asked only for a name that no key has now."""

    def __init__(self) -> None:
        self._known: dict[_Name, tuple[str, str]] = {}  # device and reason

    def put(self, credentials: DeviceCredentials) -> None:
        """Note the keys of a device."""
        device = credentials.device
        for ended in credentials.ended:
            why = f"it was revoked or replaced ({_shown(device, ended.number, ended.ended_ms)})"
            self._known[ended.kind, ended.name] = device, why
        for key in credentials.keys:
            if key.until_ms:
                why = f"its time is over ({_shown(device, key.number, key.until_ms)})"
                self._known[key_name(key)] = device, why

    def remove(self, credentials: DeviceCredentials) -> None:
        """Forget the keys of a device."""
        names: list[_Name] = [(each.kind, each.name) for each in credentials.ended]
        for name in (*names, *map(key_name, credentials.keys)):
            if self._known.get(name, ("", ""))[0] == credentials.device:
                del self._known[name]

    def of_psk(self, identity: bytes) -> str:
        """Return why no key has this PSK identity."""
        return self._of(("psk", identity.decode("ascii", "replace")))

    def of_oscore(self, kid: bytes) -> str:
        """Return why no key has this Sender ID."""
        return self._of(("oscore", kid.hex()))

    def _of(self, name: _Name) -> str:
        _, why = self._known.get(name, ("", "this gateway has not heard of it, nor that it was revoked"))
        return why


def _shown(device: str, number: int, time_ms: int) -> str:
    return f"key {number} of {device}, {rfc3339(time_ms * 1_000_000)}"
