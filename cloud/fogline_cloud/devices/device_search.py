"""Searches the table of all devices on the event loop, which serves others meanwhile."""

import asyncio
import heapq
from collections.abc import Callable

from fogline_cloud.devices.device_table import DeviceEntry, DeviceTable

TURN = 500
"""Devices that are looked at in one turn of the event loop."""


async def matching_names(table: DeviceTable, matches: Callable[[DeviceEntry], bool]) -> list[str]:
    """Return the names of the devices that match, as a heap: `heapq.heappop` returns them in order. Safe to cancel."""
    names: list[str] = []
    for number, each in enumerate(table):
        if number % TURN == 0:
            await asyncio.sleep(0)
        if matches(each):
            names.append(each.name)
    heapq.heapify(names)
    return names
