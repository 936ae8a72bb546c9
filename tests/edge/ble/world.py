"""A virtual air, a stand-in for BlueZ, a bridge that accepts everything, and the gateway as a process.

All but the gateway run on one loop, in a thread, for a whole module. Tests pass coroutines to it with `run`.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Self

import msgspec

from fogline.advertisement import decode
from fogline.commands.command import Command, Deadline
from fogline_edge.adapters.ble.state import BleState, lines_of
from fogline_edge.machine.boot import beacon
from fogline_edge.operate.status import read_status
from fogline_lab.amqp import within
from fogline_lab.ble.air import BTHOME, EDDYSTONE, IBEACON, RUUVITAG, Broadcaster
from fogline_lab.ble.bluez import FakeBluez
from fogline_lab.ble.bus import PrivateBus
from fogline_lab.ble.controller import Air
from fogline_lab.ble.peripheral import Peripheral
from fogline_lab.bridge.accepting_bridge import AcceptingBridge

PROGRAM = Path(sys.executable).parent / "fogline-edge"
HEALED_S = 60.0
"""No fault may last longer than this."""
THERMOMETER, TAG, BEACON, BATTERY = (f"C0:00:00:00:00:0{each}" for each in range(1, 5))
ENV_1, ENV_2 = "C0:00:00:00:00:10", "C0:00:00:00:00:11"


class World:
    """`settings`: of `[ble]`, as TOML; `{folder}` stands for the folder of the settings file.

    `experimental`: bluetoothd offers passive scans.
    """

    def __init__(self, folder: Path, settings: str, *, devices: bool = True, experimental: bool = False) -> None:
        self.folder = folder
        self.bus = PrivateBus()
        self.air = Air()
        self.bluez = FakeBluez(self.air, self.bus.address, experimental=experimental)
        self.bridge = AcceptingBridge()
        self.broadcasters = {
            address: Broadcaster(address, said)
            for address, said in ((THERMOMETER, BTHOME), (TAG, RUUVITAG), (BEACON, IBEACON), (BATTERY, EDDYSTONE))
        }
        self.env = {address: Peripheral(f"env-{n}", address) for n, address in enumerate((ENV_1, ENV_2), 1)}
        self._settings = settings
        self._devices = devices
        self._gateway: asyncio.subprocess.Process | None = None
        self.drained: asyncio.Task | None = None
        self.said: list[str] = []
        self._more_said = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="world", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.run(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self.bus.close()

    def run(self, coroutine, limit_s: float = 170.0):
        """Have the world's loop run a coroutine."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(limit_s)

    async def _open(self) -> None:
        await self.bus.start()
        await self.bluez.start()
        if self._devices:
            for each in (*self.broadcasters.values(), *self.env.values()):
                await each.start(self.air)
        port = await self.bridge.serve()
        self.config = self.folder / "edge.toml"
        head = 'tenant = "acme"\ngateway = "gw-1"\ndata = "data"\nmetrics = "127.0.0.1:0"\n'
        uplink = f'[uplink]\nbridge = "127.0.0.1:{port}"\nstatement_s = 1\n'
        self.config.write_text(head + uplink + self._settings)

    async def _close(self) -> None:
        try:
            await self.stop()
        finally:
            await self._end()

    async def _end(self) -> None:
        self.bridge.close()
        for each in self.env.values():
            each.stop()
        self.bluez.close()
        await self.bluez.stop()
        await self.bus.stop()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- the gateway

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": self.bus.address}

    async def start(self) -> None:
        """Run it; it knows nothing of what is behind the bus."""
        command = [PROGRAM, "run", "--insecure-dev", "--config", self.config]
        pipe = asyncio.subprocess.PIPE
        self._gateway = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=self.environment)
        assert self._gateway.stdout is not None
        self.drained = asyncio.create_task(self._drain(self._gateway))
        self.ready = json.loads(await within(self._gateway.stdout.readline(), "the gateway does not start"))

    async def kill(self) -> None:
        """SIGKILL, whatever it is doing."""
        assert self._gateway is not None
        self._gateway.kill()
        await self._gateway.wait()
        self._gateway = None

    async def stop(self) -> None:
        """SIGTERM; it ends in order."""
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.send_signal(signal.SIGTERM)
            assert await within(gateway.wait(), "the gateway does not end") == 0, self.said[-20:]

    @property
    def alive(self) -> bool:
        return self._gateway is not None and self._gateway.returncode is None

    async def _drain(self, gateway) -> None:
        while line := await gateway.stderr.readline():
            self.said.append(line.decode().rstrip())
            self._more_said.set()

    async def until_said(self, what: str, after: int = 0) -> str:
        """The line of the log that holds `what`."""

        async def wait():
            while not (found := [each for each in self.said[after:] if what in each]):
                self._more_said.clear()
                await self._more_said.wait()
            return found[0]

        return await within(wait(), f"nothing was said of {what!r}", HEALED_S)

    # --- what came

    def events(self, device: str, after: int = 0):
        """Return the events of a device, in order. `after`: an earlier `mark`."""
        return [event for _, event in self.bridge.came[after:] if event.device == device]

    def mark(self) -> int:
        """Return the number of events so far."""
        return len(self.bridge.came)

    async def until_event(self, device: str, after: int = 0, *, subject: str | None = None, count: int = 1):
        """The events of a device, once there are some."""

        def found():
            events = [each for each in self.events(device, after) if subject in (None, each.subject)]
            return events if len(events) >= count else None

        try:
            return await asyncio.wait_for(self.bridge.until(found, f"no event of {device}"), HEALED_S)
        except (TimeoutError, AssertionError):
            raise AssertionError(f"no event of {device} ({subject}) in {HEALED_S:.0f} s: {self.said[-20:]}") from None

    async def command(self, device: str, name: str, data: bytes = b"", *, ttl_s: float = 60.0, **other):
        """A command's end: state and reply event."""
        now = beacon()
        command_id = f"C-{time.monotonic_ns()}"
        command = Command(
            id=command_id,
            tenant="acme",
            gateway="gw-1",
            device=device,
            name=name,
            data=data,
            deadline=Deadline(now.boot_id, now.boottime_ms + int(ttl_s * 1000)),
            **{"durable": True, **other},
        )
        await self.bridge.command(command)
        (reply,) = await self.bridge.until(
            lambda: [event for _, event in self.bridge.came if event.commandid == command_id][:1], f"no reply to {name}"
        )
        return reply

    def state(self) -> dict:
        """Return Bluetooth's part of `fogline-edge status --json`."""
        return read_status(self.folder / "data")["ble"]

    def shown(self) -> str:
        """Return the lines of `fogline-edge status` about Bluetooth."""
        return "\n".join(lines_of(msgspec.convert(self.state(), BleState)))


def advertised(event):
    """Return the advertisement in an event."""
    return decode(event.data)
