"""Errors that bleak raises, and the repairs of its shared connection when BlueZ or the bus fails."""

import asyncio
import contextlib
import errno
from collections.abc import Iterable
from typing import Any

from bleak.backends.bluezdbus.manager import get_global_bluez_manager
from bleak.exc import BleakError, BleakGATTProtocolError
from bleak_retry_connector import close_stale_connections, get_device
from bleak_retry_connector.bluez import get_connected_devices

from fogline_edge.adapters.ble.counters import BleCounters

BLUEZ_ERRORS = (BleakError, OSError, EOFError, TimeoutError, AttributeError, AssertionError, KeyError)
"""Errors that bleak and its D-Bus library raise if BlueZ, the bus or a device does not behave as they expect."""
_DEAD = {errno.EBADF, errno.EPIPE, errno.ECONNRESET}
"""Errors of a message that is sent over a dead bus: its socket is closed here, or only at the other end."""
_LIMIT_S = 5.0


def error_text(error: BaseException) -> str:
    """Return an error in one line of plain words, also for a timeout or an ATT error, whose `str` is useless."""
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    if isinstance(error, BleakGATTProtocolError):
        return str(error.args[1]).removeprefix("GATT Protocol Error: ")
    return " ".join((str(error) or type(error).__name__).split())


async def leave_dead_bus() -> None:
    """Make bleak close its bus connection if the bus is gone, before a message is sent over it (see `ignore_dead_bus`)."""
    with contextlib.suppress(Exception):  # without a bus, bleak still closes the former connection
        async with asyncio.timeout(_LIMIT_S):
            await get_global_bluez_manager()


def ignore_dead_bus() -> None:
    """Do not report on the running loop that dbus-fast could not send a message over a dead bus.

    dbus-fast puts the error into a future that nobody awaits; `leave_dead_bus` cannot prevent it if the bus dies afterwards.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _DEAD and "never retrieved" in context["message"]):
            loop.default_exception_handler(context)

    asyncio.get_running_loop().set_exception_handler(handle)


async def renew() -> None:
    """Make bleak forget all that it knows of the bus; every client is disconnected.

    A bluetoothd that is killed sends no signal, so bleak's clients stay connected for ever. After its restart, bleak still
    believes the state of the former daemon. bleak clears all of that only when its bus connection ends, so this ends it.
    """
    with contextlib.suppress(Exception):  # whatever is wrong with the bus, it is given up
        async with asyncio.timeout(_LIMIT_S):
            manager = await get_global_bluez_manager()
        bus = manager._bus  # noqa: SLF001 - bleak offers no other way
        if bus is not None:
            bus.disconnect()
            async with asyncio.timeout(_LIMIT_S):
                await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]


async def close_stale_links(addresses: Iterable[str], counters: BleCounters) -> None:
    """End the connections that BlueZ kept from before this run or `renew`: a connected device does not advertise."""
    for address in addresses:
        with contextlib.suppress(*BLUEZ_ERRORS):
            async with asyncio.timeout(_LIMIT_S):
                await get_global_bluez_manager()  # after `renew`, bleak reads BlueZ's objects only when asked for its manager
                device = await get_device(address)
                if device is not None and await get_connected_devices(device):
                    counters.stale_links += 1
                    await close_stale_connections(device)
