"""Faults of a machine, for a gateway in a container: memory that runs out, a clock that is set, an adapter that goes."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from fogline_lab.ble.air import BTHOME, Broadcaster, bthome
from fogline_lab.ble.bluez import FakeBluez
from fogline_lab.ble.controller import Air
from packages.container import Container

THERMOMETER = "C0:00:00:00:00:01"
_V1_MEMORY = Path("/sys/fs/cgroup/memory")
_LIMIT_S = 60.0
_DROP_INS = "etc/systemd/system/fogline-edge.service.d"
# Python imports it at its start. The order names a process, so that the one after the restart does not grow.
_HOG = """\
import os, pathlib, threading, time
def grow():
    order, kept = pathlib.Path("/srv/hog/order"), []
    while True:
        words = order.read_text().split() if order.exists() else []
        if words and int(words[0]) == os.getpid():
            kept.append(b"x" * (int(words[1]) << 20))
        time.sleep(0.1)
threading.Thread(target=grow, daemon=True).start()
"""
_FAKETIME = """\
LD_PRELOAD=/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1 FAKETIME_TIMESTAMP_FILE=/srv/clock FAKETIME_NO_CACHE=1 \
FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_DISABLE_SHM=1"""
_BLUEZ_POLICY = """\
<busconfig>
  <policy user="root"><allow own="org.bluez"/></policy>
  <policy context="default"><allow send_destination="org.bluez"/></policy>
</busconfig>
"""


def set_environment(machine: Container, name: str, variables: str) -> None:
    """Have the service start with these variables. `name`: of the drop-in."""
    folder = machine.root / _DROP_INS
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.conf").write_text(f"[Service]\nEnvironment={variables}\n")
    machine.run("systemctl daemon-reload && systemctl restart fogline-edge")


class MemoryHog:
    """Code beside the gateway, in its process, that takes memory when it is told to."""

    def __init__(self, machine: Container) -> None:
        self._folder = machine.root / "srv" / "hog"
        self._folder.mkdir()
        (self._folder / "sitecustomize.py").write_text(_HOG)
        set_environment(machine, "hog", "PYTHONPATH=/srv/hog")

    def grow(self, pid: int, mib: int) -> None:
        """Take so much memory ten times a second."""
        (self._folder / "order").write_text(f"{pid} {mib}")


@contextlib.contextmanager
def memory_max(machine: Container, pid: int, limit_bytes: int) -> Iterator[None]:
    """Have the kernel bound the memory of a process in the container.

    With cgroup v2 the service's own MemoryMax does it. A container with cgroup v1 has no memory controller, so a group of the
    host bounds it.
    """
    if not _V1_MEMORY.is_dir():
        yield
        return
    group = _V1_MEMORY / f"fogline-test-{pid}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit_bytes))
        (group / "cgroup.procs").write_text(str(_outside(machine, pid)))
        yield
    finally:
        group.rmdir()


def _outside(machine: Container, pid: int) -> int:
    """Return the id on this machine of a process in the container."""
    space = Path(f"/proc/{machine.leader}/ns/pid").readlink()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            inside = (folder / "status").read_text().partition("NSpid:")[2].split("\n")[0].split()[-1]
            if (folder / "ns" / "pid").readlink() == space and int(inside) == pid:
                return int(folder.name)
    raise AssertionError(f"process {pid} of the container is not found")


class WallClock:
    """The wall clock of the gateway alone (libfaketime): the container shares that of the machine."""

    def __init__(self, machine: Container) -> None:
        self._file = machine.root / "srv" / "clock"
        self.set("+0")
        set_environment(machine, "clock", _FAKETIME)

    def set(self, offset: str) -> None:
        """Set it, relative to the machine's: `+5y`, `-5y`, `+0`."""
        self._file.write_text(f"{offset}\n")


class BluetoothDongle:
    """An adapter on the container's system bus, and a thermometer in its reach. Its BlueZ runs outside, on its own loop."""

    def __init__(self, machine: Container) -> None:
        (machine.root / "etc/dbus-1/system.d/bluetooth.conf").write_text(_BLUEZ_POLICY)
        machine.run("systemctl start dbus && systemctl reload dbus")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bluez", daemon=True)
        bus = f"/proc/{machine.leader}/root/run/dbus/system_bus_socket"
        self._air = Air()
        self._thermometer = Broadcaster(THERMOMETER, BTHOME)
        self._bluez = FakeBluez(self._air, f"unix:path={bus}")

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._bluez.start())
        self._run(self._thermometer.start(self._air))
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def pull(self) -> None:
        """Unplug it."""
        self._run(self._bluez.unplug())

    def plug(self, hundredths: int) -> None:
        """Plug it in again. `hundredths`: the temperature has changed meanwhile, in hundredths of a degree."""
        self._loop.call_soon_threadsafe(self._bluez.plug)
        self._loop.call_soon_threadsafe(self._thermometer.say, bthome(hundredths, hundredths))

    def _run(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_LIMIT_S)

    async def _end(self) -> None:
        self._bluez.close()
        await self._bluez.stop()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
