"""`fogline-edge ble scan`: lists the devices in range, the profile that fits each, and the settings to add."""

import asyncio
import contextlib
import json
import logging
import signal
import sys
from collections.abc import Sequence

from bleak.backends.device import BLEDevice

from fogline.advertisement import Advertisement
from fogline.errors import Misconfigured, Unreachable
from fogline.process.cancellation import end_tasks
from fogline_edge.adapters.ble.radio.bluez import CALL_LIMIT_S, Bluez
from fogline_edge.adapters.ble.radio.scanner import Scanner
from fogline_edge.adapters.ble.scan_results import ScanResults
from fogline_edge.adapters.ble.supervision.bluez_state import BluezState, RadioPhase, problem_of
from fogline_edge.profiles.ble import BleProfile

_REDRAW_S = 1.0
_CLEAR = "\x1b[H\x1b[2J"


async def scan(profiles: Sequence[BleProfile], seconds: float | None, adapter: str | None, *, as_json: bool) -> None:
    """Scan for `seconds` (`None`: until SIGINT or SIGTERM) and print. Raises `Misconfigured` if there is no Bluetooth."""
    logging.getLogger("bleak").setLevel(logging.ERROR)
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    results = ScanResults(profiles)

    def received(device: BLEDevice, advertisement: Advertisement, rssi: int) -> None:
        results.add(device.address.upper(), advertisement, rssi)

    scanner = Scanner(received)
    why = await scanner.start(await _adapter(adapter))
    if why is not None:
        raise Misconfigured(f"Bluetooth: {why}")
    try:
        await _redraw(results, seconds, stop, live=sys.stdout.isatty() and not as_json)
    finally:
        await scanner.stop()
    _print_all(results, as_json=as_json)


async def _adapter(wanted: str | None) -> str:
    """Return the name of the adapter to use. Raises `Misconfigured` if none is on."""
    changed = asyncio.Event()
    bluez = Bluez(wanted, changed.set)
    bus = asyncio.get_running_loop().create_task(bluez.run(), name="ble bus")
    try:
        state = await _settled(bluez, changed, bus)
    finally:
        await end_tasks(bus)
    if state.phase is not RadioPhase.STARTING or state.adapter is None:
        raise Misconfigured(f"Bluetooth: {problem_of(state, wanted)}")
    return state.adapter


async def _settled(bluez: Bluez, changed: asyncio.Event, bus: asyncio.Task[None]) -> BluezState:
    """Return BlueZ's state as soon as a scanner can start, or after the first query of its objects."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CALL_LIMIT_S):
            while bluez.state.phase is not RadioPhase.STARTING:
                changed.clear()
                change = asyncio.ensure_future(changed.wait())
                await asyncio.wait((change, bus), return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
                if bus.done():
                    try:
                        bus.result()
                    except Unreachable as error:
                        return BluezState(why=str(error))
                if bluez.looked:
                    break
    return bluez.state


async def _redraw(results: ScanResults, seconds: float | None, stop: asyncio.Event, *, live: bool) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not stop.is_set():
                if live:
                    sys.stdout.write(_CLEAR + "\n".join(results.table()) + "\n\nPress Ctrl-C to stop.\n")
                    sys.stdout.flush()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_REDRAW_S):
                        await stop.wait()


def _print_all(results: ScanResults, *, as_json: bool) -> None:
    toml = results.toml()
    if as_json:
        sys.stdout.write(json.dumps({"devices": results.json(), "toml": toml}) + "\n")
        return
    if sys.stdout.isatty():
        sys.stdout.write(_CLEAR)
    hint = f"To store the data of these devices, add to the settings:\n\n{toml}" if toml else "No profile fits any of these.\n"
    sys.stdout.write("\n".join(results.table()) + f"\n\n{hint}")
