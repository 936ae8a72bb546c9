"""One attempt to connect to a device. Scanning is paused until BlueZ reports the connection, and no longer.

After that the device's services are read, which disturbs scanning no more than any other link that is up.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bleak import BleakClient
from bleak.backends.bluezdbus.manager import BlueZManager, get_global_bluez_manager
from bleak.backends.device import BLEDevice
from bleak_retry_connector import BleakNotFoundError, establish_connection

from fogline.errors import Unreachable


class Pause:
    """The pause of one attempt. `limit_s`: how long it may last, `None` if scanning goes on meanwhile.

    `end` is called as soon as scanning may go on. It may be called more than once.
    """

    def __init__(self, limit_s: float | None, end: Callable[[], None]) -> None:
        self.limit_s = limit_s
        self._end = end
        self._ended = False

    def end(self) -> None:
        """Scan again."""
        if not self._ended:
            self._ended = True
            self._end()


async def connect(device: BLEDevice, name: str, over: asyncio.Event, pause: Pause, limit_s: float) -> BleakClient:
    """Connect and read the services, within `limit_s`; `over` is set when the connection ends.

    Raises `Unreachable` if there is no answer in time, and what bleak raises for everything else.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    waits_s = limit_s if pause.limit_s is None else min(limit_s, pause.limit_s)
    connected = False

    def now_connected() -> None:
        nonlocal connected
        if not connected:
            connected = True
            pause.end()
            if not limit.expired():
                limit.reschedule(began_s + limit_s)

    try:
        async with asyncio.timeout(waits_s) as limit:
            manager = await get_global_bluez_manager()
            with _watched(manager, device.details["path"], now_connected):
                client = await establish_connection(
                    BleakClient,
                    device,
                    name,
                    disconnected_callback=lambda _: over.set(),
                    max_attempts=1,
                    use_services_cache=False,
                )
    except (TimeoutError, BleakNotFoundError) as error:
        if not isinstance(error, TimeoutError) and not isinstance(error.__cause__, TimeoutError):
            raise
        if connected:
            raise Unreachable("it is connected, but answers no request") from None
        raise Unreachable("it advertises, but accepts no connection") from None
    if not client.is_connected:
        over.set()
    return client


@contextmanager
def _watched(manager: BlueZManager, path: str, connected: Callable[[], None]) -> Iterator[None]:
    """Call `connected` when BlueZ reports that the device is, or if it is already."""
    if manager.is_connected(path):
        connected()
    watcher = manager.add_device_watcher(path, lambda up: connected() if up else None, lambda _, __: None)
    try:
        yield
    finally:
        manager.remove_device_watcher(watcher)
