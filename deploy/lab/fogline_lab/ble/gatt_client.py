"""A GATT client that behaves as bleak's, without a radio."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from bleak.exc import BleakError

from fogline.advertisement import short_uuid
from fogline_edge.profiles.ble import BleProfile

WRITTEN_TO, ANSWERS = short_uuid(0x2A01), short_uuid(0x2A02)
LOCK_PROFILE = msgspec.convert(
    {
        "name": "lock",
        "channel": "lock",
        "recognise": [{"name": "lock"}],
        "commands": [
            {"name": "open", "characteristic": "2a01"},
            {"name": "shout", "characteristic": "2a01", "answer": "nothing"},
            {"name": "ask", "characteristic": "2a01", "answer": "notify", "answer_characteristic": "2a02"},
        ],
    },
    BleProfile,
)


@dataclass(frozen=True)
class FakeCharacteristic:
    """A characteristic of the device."""

    uuid: str
    handle: int


@dataclass(frozen=True)
class FakeServices:
    """The characteristics of all services, by handle."""

    characteristics: Mapping[int, FakeCharacteristic]


class FakeGattClient:
    """Client of a device with two characteristics. `written`: the bytes that were written to them, in order.

    `known`: its services are discovered. `fails`: the error of each write, or None. `wrote`: set by each write.
    """

    def __init__(self) -> None:
        self.known = True
        self.fails: Exception | None = None
        self.wrote = asyncio.Event()
        self.written: list[bytes] = []

    @property
    def services(self) -> FakeServices:
        """The services of the device. Raises `BleakError` unless they are `known`."""
        if not self.known:
            raise BleakError("Service Discovery has not been performed yet")
        return FakeServices({n: FakeCharacteristic(uuid, n) for n, uuid in enumerate((WRITTEN_TO, ANSWERS))})

    async def write_gatt_char(self, _characteristic: object, data: bytes, *, response: bool) -> None:  # noqa: ARG002 - bleak's
        """Record a write."""
        if self.fails is not None:
            raise self.fails
        self.written.append(bytes(data))
        self.wrote.set()
