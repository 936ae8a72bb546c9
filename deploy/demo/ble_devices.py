"""Simulated Bluetooth devices, and a simulated BlueZ for each gateway, in one process.

    python ble_devices.py --gateways 2 --on-air FILE --log FILE [--valves 3 --cycles 500 --seed 1]

Every gateway has a private `dbus-daemon` with an `org.bluez` of its own; the ready line has their addresses. The process
writes each value to the file `--on-air` before it advertises it, one line `device n`, and each command that a valve executes
to `--log` (`demo.device_log`). With `--cycles` the links of the valves end so many times. Stdout: a JSON line four
times a second. Stdin: after `begin` the advertisers change their values every second; after `quiet` all devices are silent.
The end of stdin, or SIGTERM, ends the process.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import json
import random
import shutil
import signal
import sys
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TextIO

from demo.ble_payload import MAX_N, BleDevice, advertised, ble_fleet, command_name_of
from demo.device_log import did_line

CHANGE_S = 1.0
STATS_S = 0.25
INTERVAL_MS = 300.0
"""Between two advertisements of one device."""
HOLD_S = (0.0, 1.0)
"""Life of a link in a cycle: it may be shorter than the discovery of services."""
VANISH_SHARE = 0.15
"""Share of links that end by silence."""
VANISH_S = 0.5


def missing() -> str | None:
    """Return a message if the simulated Bluetooth lacks a program or package, else `None`."""
    if shutil.which("dbus-daemon") is None:
        return "dbus-daemon is missing: install Debian's package dbus"
    absent = [name for name in ("bumble", "dbus_fast") if importlib.util.find_spec(name) is None]
    return f"{', '.join(absent)} missing: run deploy/setup/setup.sh" if absent else None


class BleSite:
    """All simulated Bluetooth devices. `cycles`: links that ended on purpose."""

    def __init__(self, devices: list[BleDevice], gateways: int, on_air: TextIO, log: TextIO) -> None:
        from fogline_lab.ble.air import Broadcaster  # noqa: PLC0415 - bumble is not there everywhere
        from fogline_lab.ble.bus import PrivateBus  # noqa: PLC0415
        from fogline_lab.ble.controller import Air  # noqa: PLC0415
        from fogline_lab.ble.peripheral import Peripheral  # noqa: PLC0415

        self.cycles = 0
        self.begin = asyncio.Event()
        self._gateways = gateways
        self._devices = devices
        self._on_air, self._log = on_air, log
        self._n = 1
        self._air = Air()  # type: ignore[no-untyped-call]  # bumble has no types here
        self._buses = [PrivateBus() for _ in range(gateways)]
        self._broadcasters = {
            each: Broadcaster(each.address, advertised(each, 1), interval_ms=INTERVAL_MS) for each in devices if each.advertises
        }
        self._valves = {each: Peripheral(each.name, each.address, period_s=1.0) for each in devices if not each.advertises}

    async def start(self, stack: AsyncExitStack) -> list[str]:
        """Start everything; `stack` stops it. Returns the addresses of the gateways' buses."""
        from fogline_lab.ble.bluez import FakeBluez  # noqa: PLC0415

        for index, bus in enumerate(self._buses):
            stack.callback(bus.close)
            await bus.start()
            stack.push_async_callback(bus.stop)
            far = {each.address for each in self._devices if index not in each.heard_by}
            bluez = FakeBluez(self._air, bus.address, radio=f"D0:00:00:00:00:{index + 1:02X}", out_of_reach=far)
            await bluez.start()
            stack.push_async_callback(bluez.stop)
            stack.callback(bluez.close)
        self._write_down()
        for broadcaster in self._broadcasters.values():
            await broadcaster.start(self._air)
        for valve in self._valves.values():
            await valve.start(self._air)
            stack.callback(valve.stop)
        return [bus.address for bus in self._buses]

    async def change(self) -> None:
        """Change the advertised values periodically, until cancelled."""
        await self.begin.wait()
        while self._n < MAX_N:
            await asyncio.sleep(CHANGE_S)
            self._n += 1
            self._write_down()
            for device, broadcaster in self._broadcasters.items():
                broadcaster.say(advertised(device, self._n))

    async def cycle(self, wanted: int, seed: int) -> None:
        """End the links of the valves until that happened `wanted` times."""
        chance = random.Random(seed)

        async def end_links(valve: Any) -> None:
            while self.cycles < wanted:
                await valve.until_linked()
                await asyncio.sleep(chance.uniform(*HOLD_S))
                if not valve.linked:
                    continue
                await (valve.vanish(VANISH_S) if chance.random() < VANISH_SHARE else valve.drop())
                await valve.ended()
                self.cycles += 1

        await self.begin.wait()
        async with asyncio.TaskGroup() as group:
            for device, valve in self._valves.items():
                group.create_task(end_links(valve), name=f"cycles of {device.name}")

    def quiet(self) -> None:
        """Silence all devices; valves still execute commands."""
        for broadcaster in self._broadcasters.values():
            broadcaster.silent = True
        for valve in self._valves.values():
            valve.gatt.mute = True

    def stats(self) -> dict[str, Any]:
        """Return the counts, after writing the executed commands to the log."""
        for device, valve in self._valves.items():
            while valve.gatt.writes:
                self._log.write(did_line(time.time(), device.name, command_name_of(valve.gatt.writes.pop(0))))
        self._log.flush()
        linked = sum(valve.linked for valve in self._valves.values())
        return {"said": self._n * len(self._broadcasters), "linked": linked, "cycles": self.cycles}

    def _write_down(self) -> None:
        self._on_air.writelines(f"{each.name} {self._n}\n" for each in self._broadcasters)
        self._on_air.flush()


async def run(arguments: argparse.Namespace, on_air: TextIO, log: TextIO) -> None:
    """Run until stdin ends or a signal comes."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, over.set)
    site = BleSite(ble_fleet(arguments.gateways, arguments.valves), arguments.gateways, on_air, log)
    async with AsyncExitStack() as stack:
        buses = await site.start(stack)
        tell({"ready": "air", "buses": buses})
        tasks = [asyncio.create_task(site.change(), name="change")]
        if arguments.cycles:
            tasks.append(asyncio.create_task(site.cycle(arguments.cycles, arguments.seed), name="cycles"))

        def heard(line: str) -> None:
            if line == "begin":
                site.begin.set()
            elif line == "quiet":
                for task in tasks:
                    task.cancel()
                site.quiet()
            else:
                over.set()

        threading.Thread(target=listen, args=(loop, heard), daemon=True).start()
        while not over.is_set():
            tell(site.stats())
            _raise_first(tasks)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), STATS_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        tell(site.stats())


def _raise_first(tasks: list[asyncio.Task[None]]) -> None:
    """Raise the error of a task that has failed."""
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()


def listen(loop: asyncio.AbstractEventLoop, heard: Any) -> None:
    """Pass each line of stdin to the loop, and an empty line at its end."""
    for line in sys.stdin:
        loop.call_soon_threadsafe(heard, line.strip())
    with contextlib.suppress(RuntimeError):  # the loop may be closed
        loop.call_soon_threadsafe(heard, "")


def tell(stats: dict[str, Any]) -> None:
    """Print one JSON line for the demo."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(stats) + "\n")
        sys.stdout.flush()


def main() -> int:
    """Run the simulated Bluetooth devices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateways", type=int, required=True, help="number of gateways")
    parser.add_argument("--valves", type=int, default=1, help="valves of each gateway (default: 1)")
    parser.add_argument("--on-air", type=Path, required=True, help="file for the advertised values")
    parser.add_argument("--log", type=Path, required=True, help="file for the executed commands")
    parser.add_argument("--cycles", type=int, default=0, help="number of times that links of valves end (default: 0)")
    parser.add_argument("--seed", type=int, default=1, help="seed of their ends (default: 1)")
    arguments = parser.parse_args()
    with arguments.on_air.open("w") as on_air, arguments.log.open("w") as log:
        asyncio.run(run(arguments, on_air, log))
    return 0


if __name__ == "__main__":
    sys.exit(main())
