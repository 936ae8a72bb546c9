"""Keys of devices that encrypt what they say. They are shown nowhere: not in a log, an exception, or a table."""

from collections.abc import Mapping
from typing import Protocol, Self, runtime_checkable

from fogline_cloud.flows.parsers import Parser


class Keys:
    """Keys by device or by address (`AA:BB:CC:DD:EE:FF`)."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[str, bytes] | None = None) -> None:
        self._keys = {name.upper(): key for name, key in (keys or {}).items()}

    def __repr__(self) -> str:
        return f"Keys(of {len(self._keys)} devices)"

    def find(self, device: str, address: str | None) -> bytes | None:
        """The device's key, if there is one; by its name first."""
        by_name = self._keys.get(device.upper())
        return by_name if by_name is not None or address is None else self._keys.get(address.upper())


NO_KEYS = Keys()


@runtime_checkable
class Keyed(Protocol):
    """A parser that can use keys."""

    def with_keys(self, keys: Keys) -> Self:
        """The same parser, with these keys."""


def keyed(parsers: Mapping[str, Parser], keys: Keys) -> dict[str, Parser]:
    """`parsers`, those that can use keys with `keys`."""
    return {name: parser.with_keys(keys) if isinstance(parser, Keyed) else parser for name, parser in parsers.items()}
