"""The keys of devices that count now, as adapters look them up. Pure; used on the event loop."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from fogline.gateway.device_credentials import (
    DeviceCredentials,
    DeviceKey,
    OscoreKey,
    PskKey,
    credentials_digest,
    set_digest,
)
from fogline.process.kernel_clock import wall_clock_ms
from fogline_edge.credentials.refusal_reasons import RefusalReasons

MAX_DEVICES = 20_000
"""Devices whose credentials a gateway keeps."""


class PskOwner(NamedTuple):
    """The device that a PSK identity belongs to, with its key."""

    device: str
    key: PskKey


class OscoreOwner(NamedTuple):
    """A device whose OSCORE Sender ID came as `kid`, with its key."""

    device: str
    key: OscoreKey


OnEnded = Callable[[str, int], None]
"""Takes the device and the number of a key that counts no longer."""


class CredentialStore:
    """Looks up keys, and tells when one ends: it was revoked or replaced, or its time is over.

    `complete`: False if the gateway has lost its credentials; until it has them again, every device counts as protected.
    `now_ms` returns milliseconds since 1970.
    """

    def __init__(
        self, known: Iterable[DeviceCredentials] = (), *, complete: bool = True, now_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self.complete = complete
        self._now_ms = now_ms
        self._devices: dict[str, DeviceCredentials] = {}
        self._digests: dict[str, bytes] = {}
        self._psk: dict[str, PskOwner] = {}
        self._oscore: dict[bytes, tuple[OscoreOwner, ...]] = {}
        self.reasons = RefusalReasons()
        self._on_ended: list[OnEnded] = []
        for each in known:
            self._put(each)

    def __len__(self) -> int:
        return len(self._devices)

    @property
    def digest(self) -> str:
        """The digest of all credentials (`set_digest`); "" while they are not complete."""
        return set_digest(self._digests) if self.complete else ""

    @property
    def all(self) -> list[DeviceCredentials]:
        """The credentials of all devices."""
        return list(self._devices.values())

    def psk(self, identity: bytes) -> PskOwner | None:
        """Return the device and the key of a PSK identity as DTLS has it; None if there is none, or its time is over."""
        found = self._psk.get(identity.decode("ascii", "replace"))
        return found if found is not None and found.key.valid_at(self._now_ms()) else None

    def oscore(self, kid: bytes) -> list[OscoreOwner]:
        """Return the devices with this Sender ID, most often one. Only the right one's key decrypts the message."""
        return [each for each in self._oscore.get(kid, ()) if each.key.valid_at(self._now_ms())]

    def newest_oscore(self, device: str) -> OscoreOwner | None:
        """Return the OSCORE key of a device that was added last; None if none counts."""
        keys = [each for each in self.keys(device) if isinstance(each, OscoreKey)]
        return OscoreOwner(device, max(keys, key=lambda each: each.number)) if keys else None

    def is_protected(self, device: str) -> bool:
        """Return True if messages of this device without protection must be refused: it has, or had, a key."""
        return not self.complete or device in self._devices

    def keys(self, device: str) -> list[DeviceKey]:
        """Return the keys of a device that count."""
        found, now_ms = self._devices.get(device), self._now_ms()
        return [each for each in found.keys if each.valid_at(now_ms)] if found is not None else []

    def when_ended(self, call: OnEnded) -> None:
        """Call `call` for each key that ends from now on. A session that it opened must end then."""
        self._on_ended.append(call)

    # --- the bridge's side

    def replace(self, all_devices: Iterable[DeviceCredentials]) -> None:
        """Take the credentials of all devices that the gateway may hear."""
        wanted = {each.device: each for each in all_devices}
        self.complete = True
        self.change(wanted.values(), [each for each in self._devices if each not in wanted])

    def change(self, changed: Iterable[DeviceCredentials], gone: Iterable[str] = ()) -> None:
        """Take the new credentials of some devices. Those of `gone` are no longer protected, or not this gateway's."""
        ended: list[tuple[str, int]] = []
        for device in gone:
            ended += self._remove(device)
        for each in changed:
            former = self._remove(each.device)
            self._put(each)
            numbers = {key.number for key in each.keys}
            ended += [(device, number) for device, number in former if number not in numbers]
        _tell(self._on_ended, ended)

    def end_expired(self) -> float | None:
        """Tell of the keys whose time is over, also of those told before.

        Return the seconds until the next one's is; None if none has an end.
        """
        now_ms, ended, next_ms = self._now_ms(), list[tuple[str, int]](), list[int]()
        for each in self.all:
            live: list[DeviceKey] = [key for key in each.keys if key.valid_at(now_ms)]
            next_ms += [key.until_ms for key in live if key.until_ms]
            ended += [(each.device, key.number) for key in each.keys if not key.valid_at(now_ms)]
        _tell(self._on_ended, ended)
        return max(0.0, (min(next_ms) - now_ms) / 1000) if next_ms else None

    def _put(self, each: DeviceCredentials) -> None:
        self._devices[each.device] = each
        self._digests[each.device] = credentials_digest(each)
        for key in each.keys:
            if isinstance(key, PskKey):
                self._psk[key.identity] = PskOwner(each.device, key)
            else:
                others = self._oscore.get(key.device_id, ())
                self._oscore[key.device_id] = (*others, OscoreOwner(each.device, key))
        self.reasons.put(each)

    def _remove(self, device: str) -> list[tuple[str, int]]:
        """Forget a device. Return its keys."""
        former = self._devices.pop(device, None)
        self._digests.pop(device, None)
        if former is not None:
            self.reasons.remove(former)
        for key in former.keys if former is not None else ():
            if isinstance(key, PskKey):
                self._psk.pop(key.identity, None)
                continue
            others = tuple(each for each in self._oscore.pop(key.device_id, ()) if each.device != device)
            if others:
                self._oscore[key.device_id] = others
        return [(device, key.number) for key in former.keys] if former is not None else []


def _tell(listeners: Iterable[OnEnded], ended: Iterable[tuple[str, int]]) -> None:
    for device, number in ended:
        for call in listeners:
            call(device, number)
