"""The air: simulated Bluetooth devices, and what stands in for BlueZ at each gateway; one process.

    python ble_devices.py --gateways 2 --on-air FILE --effects FILE [--valves 3 --cycles 500 --seed 1]

Every gateway has a private `dbus-daemon` with an `org.bluez` of its own; the ready line has their addresses. Whatever an
advertiser says is written to the book `--on-air` first, one line `device n`; what a valve was told to do to `--effects`, one
line `device command` each time. With `--cycles` the links of the valves end again and again, until that was so often. Stdout:
a JSON line four times a second. Stdin: `begin` has the advertisers say something new every second; `quiet` has all of them
fall silent; the end of stdin, or SIGTERM, ends it.
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
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TextIO

from demo.ble_payload import MAX_N, BleDevice, advertised, crowd, order_name

CHANGE_S = 1.0
NEWS_S = 0.25
INTERVAL_MS = 300.0
"""Between two advertisements of one device."""
HOLD_S = (0.0, 1.0)
"""How long a link lives in a cycle: perhaps less than it takes to find the services."""
VANISH_SHARE = 0.15
"""So many links end by silence."""
VANISH_S = 0.5


def missing() -> str | None:
    """What is not here that the air needs, in words; `None` if everything is."""
    if shutil.which("dbus-daemon") is None:
        return "dbus-daemon is missing: install Debian's package dbus"
    absent = [name for name in ("bumble", "dbus_fast") if importlib.util.find_spec(name) is None]
    return f"{', '.join(absent)} missing: run deploy/setup/setup.sh" if absent else None


class World:
    """Everybody on the air. `cycles`: links that have ended on purpose."""

    def __init__(self, devices: list[BleDevice], gateways: int, on_air: TextIO, effects: TextIO) -> None:
        from fogline.testing.ble.air import Broadcaster, Peripheral  # noqa: PLC0415 - bumble is not there everywhere
        from fogline.testing.ble.bus import PrivateBus  # noqa: PLC0415
        from fogline.testing.ble.controller import Air  # noqa: PLC0415

        self.cycles = 0
        self.begin = asyncio.Event()
        self._gateways = gateways
        self._devices = devices
        self._on_air, self._effects = on_air, effects
        self._n = 1
        self._air = Air()  # type: ignore[no-untyped-call]  # bumble leaves it so
        self._buses = [PrivateBus() for _ in range(gateways)]
        self._broadcasters = {
            each: Broadcaster(each.address, advertised(each, 1), interval_ms=INTERVAL_MS) for each in devices if each.advertises
        }
        self._valves = {each: Peripheral(each.name, each.address, period_s=1.0) for each in devices if not each.advertises}

    async def start(self, stack: AsyncExitStack) -> list[str]:
        """Begin; `stack` ends it. Returns the addresses of the gateways' buses."""
        from fogline.testing.ble.bluez import FakeBluez  # noqa: PLC0415

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
        """Have the advertisers say something new, again and again; cancel it to end that."""
        await self.begin.wait()
        while self._n < MAX_N:
            await asyncio.sleep(CHANGE_S)
            self._n += 1
            self._write_down()
            for device, broadcaster in self._broadcasters.items():
                broadcaster.say(advertised(device, self._n))

    async def cycle(self, wanted: int, seed: int) -> None:
        """Have the links of the valves end, until that was `wanted` times."""
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
        """Nobody says anything any more; what is written to a valve is still done."""
        for broadcaster in self._broadcasters.values():
            broadcaster.silent = True
        for valve in self._valves.values():
            valve.mute = True

    def news(self) -> dict[str, Any]:
        """How it goes; and what valves did is written down."""
        for device, valve in self._valves.items():
            while valve.writes:
                self._effects.write(f"{device.name} {order_name(valve.writes.pop(0))}\n")
        self._effects.flush()
        linked = sum(valve.linked for valve in self._valves.values())
        return {"said": self._n * len(self._broadcasters), "linked": linked, "cycles": self.cycles}

    def _write_down(self) -> None:
        self._on_air.writelines(f"{each.name} {self._n}\n" for each in self._broadcasters)
        self._on_air.flush()


async def run(arguments: argparse.Namespace, on_air: TextIO, effects: TextIO) -> None:
    """Until told to end."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, over.set)
    world = World(crowd(arguments.gateways, arguments.valves), arguments.gateways, on_air, effects)
    async with AsyncExitStack() as stack:
        buses = await world.start(stack)
        tell({"ready": "air", "buses": buses})
        tasks = [asyncio.create_task(world.change(), name="change")]
        if arguments.cycles:
            tasks.append(asyncio.create_task(world.cycle(arguments.cycles, arguments.seed), name="cycles"))

        def heard(line: str) -> None:
            if line == "begin":
                world.begin.set()
            elif line == "quiet":
                for task in tasks:
                    task.cancel()
                world.quiet()
            else:
                over.set()

        threading.Thread(target=listen, args=(loop, heard), daemon=True).start()
        while not over.is_set():
            tell(world.news())
            _raise_first(tasks)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), NEWS_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        tell(world.news())


def _raise_first(tasks: list[asyncio.Task[None]]) -> None:
    """The error of a task that has failed."""
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()


def listen(loop: asyncio.AbstractEventLoop, heard: Any) -> None:
    """Read stdin; its end is an empty line."""
    for line in sys.stdin:
        loop.call_soon_threadsafe(heard, line.strip())
    with contextlib.suppress(RuntimeError):  # the loop may be closed
        loop.call_soon_threadsafe(heard, "")


def tell(news: dict[str, Any]) -> None:
    """One line for the demo."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(news) + "\n")
        sys.stdout.flush()


def main() -> int:
    """Run the air."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateways", type=int, required=True, help="how many there are")
    parser.add_argument("--valves", type=int, default=1, help="how many of them each gateway has (default: 1)")
    parser.add_argument("--on-air", type=Path, required=True, help="where to write down what was said")
    parser.add_argument("--effects", type=Path, required=True, help="where to write down what was done for commands")
    parser.add_argument("--cycles", type=int, default=0, help="how often the valves' links are to end (default: 0)")
    parser.add_argument("--seed", type=int, default=1, help="of how they do (default: 1)")
    arguments = parser.parse_args()
    with arguments.on_air.open("w") as on_air, arguments.effects.open("w") as effects:
        asyncio.run(run(arguments, on_air, effects))
    return 0


if __name__ == "__main__":
    sys.exit(main())
