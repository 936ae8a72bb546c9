"""The keys of all devices of a tenant, sealed in memory. Written by one thread, read by any."""

from collections.abc import Callable
from typing import NamedTuple

from fogline.address import is_identifier
from fogline.errors import Poison
from fogline.gateway.device_credentials import DeviceCredentials, credentials_digest, set_digest
from fogline_cloud.credentials.credential_record import CredentialRecord, credentials_of, open_record
from fogline_cloud.credentials.vault import Vault

MAX_DEVICES = 20_000
"""Devices of a tenant that may have keys: each gateway that may hear all of them keeps so many."""


class _Sealed(NamedTuple):
    value: bytes
    digest: bytes | None  # None: it cannot be opened


class CredentialTable:
    """`vault`: None if this bridge has no key for the records."""

    def __init__(self, vault: Vault | None) -> None:
        self._vault = vault
        self._devices: dict[str, _Sealed] = {}

    def __len__(self) -> int:
        return len(self._devices)

    def __contains__(self, device: str) -> bool:
        return device in self._devices

    @property
    def names(self) -> list[str]:
        """The devices that have, or had, keys, by name."""
        return sorted(self._devices)

    @property
    def problem(self) -> str:
        """Why gateways cannot get the keys of all devices from this bridge, or ""."""
        if self._vault is None and self._devices:
            return f"{len(self._devices)} devices have keys, and this bridge has no devices.credentials_key"
        closed = [name for name, each in list(self._devices.items()) if each.digest is None]
        return f"the keys of {len(closed)} devices cannot be opened, first those of {closed[0]}" if closed else ""

    def apply(self, key: bytes, value: bytes) -> str:
        """Take a record from Kafka; an empty value deletes. Return the device, "" if it is no device's record."""
        device = key.decode("utf-8", "replace")
        if not is_identifier(device):
            return ""
        if not value:
            self._devices.pop(device, None)
        else:
            self._devices[device] = _Sealed(value, self._digest(device, value))
        return device

    def record(self, device: str) -> CredentialRecord | None:
        """Return the record of a device. Raises `Poison('sealed')` if it cannot be opened."""
        found = self._devices.get(device)
        if found is None:
            return None
        if self._vault is None:
            raise Poison("sealed", self.problem)
        return open_record(self._vault, device, found.value)

    def credentials(self, device: str) -> DeviceCredentials | None:
        """Return what gateways get of a device. Raises `Poison('sealed')`."""
        record = self.record(device)
        return credentials_of(device, record) if record is not None else None

    def digest(self, allowed: Callable[[str], bool]) -> str:
        """Return the digest of the allowed devices' credentials (`set_digest`)."""
        return set_digest({name: each.digest for name, each in list(self._devices.items()) if each.digest and allowed(name)})

    def _digest(self, device: str, value: bytes) -> bytes | None:
        if self._vault is None:
            return None
        try:
            return credentials_digest(credentials_of(device, open_record(self._vault, device, value)))
        except Poison:
            return None
