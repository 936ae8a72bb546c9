"""Keys of devices that encrypt their advertisements. No log, exception or table shows a key."""

from collections.abc import Mapping
from typing import Protocol, Self, runtime_checkable

from fogline_cloud.flows.parsers import Parser


class DeviceKeys:
    """Keys by device or by address (`AA:BB:CC:DD:EE:FF`)."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[str, bytes] | None = None) -> None:
        self._keys = {name.upper(): key for name, key in (keys or {}).items()}

    def __repr__(self) -> str:
        return f"DeviceKeys(of {len(self._keys)} devices)"

    def find(self, device: str, address: str | None) -> bytes | None:
        """Return the device's key, found by its name or else by its address, `None` without one."""
        by_name = self._keys.get(device.upper())
        return by_name if by_name is not None or address is None else self._keys.get(address.upper())


NO_KEYS = DeviceKeys()


@runtime_checkable
class Keyed(Protocol):
    """A parser that uses keys."""

    def with_keys(self, keys: DeviceKeys) -> Self:
        """Return the same parser with these keys."""


def keyed(parsers: Mapping[str, Parser], keys: DeviceKeys) -> dict[str, Parser]:
    """Return the parsers, with `keys` for those that use keys."""
    return {name: parser.with_keys(keys) if isinstance(parser, Keyed) else parser for name, parser in parsers.items()}
