"""`fogline-edge ble scan`: lists what is heard, says which profile fits, and what to write into the settings."""

import asyncio
import contextlib
import json
import logging
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bleak import BleakScanner
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData

from fogline.errors import Misconfigured, Unreachable
from fogline_edge.adapters.ble.bluez import CALL_LIMIT_S, Bluez
from fogline_edge.adapters.ble.findings import Findings
from fogline_edge.adapters.ble.heard import NO_RSSI, advertisement_of
from fogline_edge.adapters.ble.radio import BLUEZ_ERRORS, START_LIMIT_S, STOP_LIMIT_S, shown
from fogline_edge.adapters.ble.world import Phase, World, problem_of
from fogline_edge.profiles.ble import BleProfile

_REDRAW_S = 1.0
_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds`: how long; `None` until Ctrl-C. `adapter`: by name or address, by default the first."""

    profiles: Sequence[BleProfile]
    seconds: float | None
    adapter: str | None
    as_json: bool


async def scan(options: Options) -> None:
    """Scan and print. Ends in order on SIGINT and SIGTERM. Raises `Misconfigured` if there is no Bluetooth."""
    logging.getLogger("bleak").setLevel(logging.ERROR)
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    findings = Findings(options.profiles)

    def heard(device: BLEDevice, data: AdvertisementData) -> None:
        if data.rssi != NO_RSSI:
            findings.hear(device.address.upper(), advertisement_of(data), data.rssi)

    adapter = await _adapter(options.adapter)
    scanner = BleakScanner(heard, bluez={"adapter": adapter, "filters": {"DuplicateData": True}})
    try:
        async with asyncio.timeout(START_LIMIT_S):
            await scanner.start()
    except BLUEZ_ERRORS as error:
        raise Misconfigured(f"Bluetooth: {adapter} does not scan: {shown(error)}") from None
    try:
        await _watch(findings, options, stop)
    finally:
        with contextlib.suppress(*BLUEZ_ERRORS):
            async with asyncio.timeout(STOP_LIMIT_S):
                await scanner.stop()
    _print_all(findings, options)


async def _adapter(wanted: str | None) -> str:
    """The name of the adapter to use. Raises `Misconfigured` if there is none that is on."""
    seen = asyncio.Event()
    bluez = Bluez(wanted, seen.set)
    bus = asyncio.get_running_loop().create_task(bluez.run(), name="ble bus")
    try:
        world = await _settled(bluez, seen, bus)
    finally:
        bus.cancel()
        await asyncio.gather(bus, return_exceptions=True)
    if world.phase is not Phase.STARTING or world.adapter is None:
        raise Misconfigured(f"Bluetooth: {problem_of(world, wanted)}")
    return world.adapter


async def _settled(bluez: Bluez, seen: asyncio.Event, bus: asyncio.Task[None]) -> World:
    """What there is, once there is all that it takes, or in a moment."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CALL_LIMIT_S):
            while bluez.world.phase is not Phase.STARTING:
                seen.clear()
                more = asyncio.ensure_future(seen.wait())
                await asyncio.wait((more, bus), return_when=asyncio.FIRST_COMPLETED)
                more.cancel()
                if bus.done():
                    try:
                        bus.result()
                    except Unreachable as error:
                        return World(why=str(error))
                if bluez.looked:
                    break
    return bluez.world


async def _watch(findings: Findings, options: Options, stop: asyncio.Event) -> None:
    """Draw the table again and again, for as long as it takes."""
    live = sys.stdout.isatty() and not options.as_json
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(options.seconds):
            while not stop.is_set():
                if live:
                    sys.stdout.write(_CLEAR + "\n".join(findings.table()) + "\n\nCtrl-C ends it\n")
                    sys.stdout.flush()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), _REDRAW_S)


def _print_all(findings: Findings, options: Options) -> None:
    toml = findings.toml()
    if options.as_json:
        sys.stdout.write(json.dumps({"devices": findings.json(), "toml": toml}) + "\n")
        return
    if sys.stdout.isatty():
        sys.stdout.write(_CLEAR)
    said = f"To take what is heard of these, add to the settings:\n\n{toml}" if toml else "No profile fits any of these.\n"
    sys.stdout.write("\n".join(findings.table()) + f"\n\n{said}")
