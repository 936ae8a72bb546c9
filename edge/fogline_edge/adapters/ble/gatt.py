"""The characteristics of a connected device: to be told of one, whatever BlueZ is busy with and the device is able to."""

import asyncio
from collections.abc import Callable

from bleak import BleakClient
from bleak.backends.characteristic import BleakGATTCharacteristic
from bleak.exc import BleakDBusError, BleakError, BleakGATTProtocolError

from fogline_edge.adapters.ble.radio import shown

ATT_LIMIT_S = 30.0
"""ATT's own limit for a transaction (Core Specification, Vol 3, Part F, section 3.3.3)."""
_NOTIFY_TRIES = 6
_FIRST_NOTIFY_PAUSE_S = 0.25
_IN_PROGRESS, _NOT_SUPPORTED, _NOT_PERMITTED = (
    f"org.bluez.Error.{each}" for each in ("InProgress", "NotSupported", "NotPermitted")
)
_NEVER = (0x03, 0x05, 0x06, 0x08, 0x0C, 0x0F)
"""ATT errors that another attempt would get as well: not permitted, not supported, and what pairing would take."""

Told = Callable[[BleakGATTCharacteristic, bytearray], None]


def characteristic_of(client: BleakClient, uuid: str) -> BleakGATTCharacteristic | None:
    """The characteristic of a UUID (in full, in lower case); the first by its handle if several have it.

    Raises `BleakError` if the services are not known (any more).
    """
    found = [each for each in client.services.characteristics.values() if each.uuid == uuid]
    return min(found, key=lambda each: each.handle, default=None)


async def listen(client: BleakClient, uuid: str, told: Told, retried: Callable[[], None]) -> str | None:
    """Ask for the notifications of a characteristic; returns why there can be none, if so.

    `retried` is called before each further attempt: while BlueZ is busy with another request it answers `InProgress`, and
    nobody tries again but us. Raises what bleak raises when the link is of no use.
    """
    characteristic = characteristic_of(client, uuid)
    if characteristic is None:
        return f"there is no characteristic {uuid} to be told of"
    cannot = f"{uuid} does not notify"
    if not {"notify", "indicate"} & set(characteristic.properties):
        return cannot
    pause_s = _FIRST_NOTIFY_PAUSE_S
    for left in range(_NOTIFY_TRIES - 1, -1, -1):
        try:
            async with asyncio.timeout(ATT_LIMIT_S):
                await client.start_notify(characteristic, told)
        except (BleakDBusError, BleakGATTProtocolError) as error:
            if _for_good(error):
                return f"{cannot}: {shown(error)}"
            if not left or not _is_busy(error):
                raise
            retried()
            await asyncio.sleep(pause_s)
            pause_s *= 2
        else:
            break
    return None


def _for_good(error: BleakError) -> bool:
    if isinstance(error, BleakGATTProtocolError):
        return int(error.code) in _NEVER
    return isinstance(error, BleakDBusError) and error.dbus_error in (_NOT_SUPPORTED, _NOT_PERMITTED)


def _is_busy(error: BleakError) -> bool:
    return isinstance(error, BleakDBusError) and error.dbus_error == _IN_PROGRESS
