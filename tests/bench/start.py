"""Start of a gateway: the time until a device is served, and the memory then; with an empty outbox, and after SIGKILL.

The killed gateway leaves 1,000,000 events that no bridge has accepted, and a log that was not checkpointed. The environment is
that of `memory`; its modules are compiled before, as the Debian package's are.
"""

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from memory import DEVICES, EVENTS, EVENTS_A_SECOND, MB, PAYLOAD_BYTES, WINDOW, gateway_program
from mqtt_load import Client
from processes import Bench, Failed, cpu_s, gateway_settings, port_of
from systems import free_ports

from fogline_edge.operate.status import read_status
from fogline_lab.memory import proportional_bytes, resident_bytes

NAME = "gw-start"


def measure(bench: Bench) -> dict[str, float]:
    """Start with an empty outbox, then with a copy of the killed one."""
    program, events = gateway_program(bench), bench.events * EVENTS
    environment = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(bench.folder / "compiled")}
    killed = bench.folder / "killed"
    if not killed.exists():
        _fill_and_kill(bench, program, environment, events, killed)
    folder = bench.subfolder(NAME)
    found = _start(bench, program, environment, folder, "empty")
    shutil.rmtree(folder / "data")
    shutil.copytree(killed, folder / "data")
    os.sync()  # else the start waits until the disk has the copy
    found |= _start(bench, program, environment, folder, "killed")
    waiting = sum(each["backlog"] for each in read_status(folder / "data")["streams"])
    if waiting < events:
        raise Failed(f"{waiting:,} of {events:,} events wait after the start")
    return found


def _fill_and_kill(bench: Bench, program: Path, environment: Mapping[str, str], events: int, killed: Path) -> None:
    """Send events to a gateway without a bridge, kill it after the last PUBACK, and move its data folder to `killed`."""
    folder, limit_s = bench.subfolder("fill"), 60 + events / EVENTS_A_SECOND
    settings = gateway_settings(folder, NAME, free_ports(1)[0])
    load_size = (1, DEVICES, events, 0, PAYLOAD_BYTES, WINDOW)
    with bench.child("fill", program, "run", "--insecure-dev", "--config", settings, environment=environment) as gateway:
        port = port_of(gateway.next_line()["mqtt"])
        with bench.child("load", *bench.program("mqtt_load"), port, *load_size) as load:
            load.next_line(limit_s)
            load.tell("go")
            load.next_line(limit_s)
            gateway.kill()
        gateway.join()
    if not (folder / "data" / "outbox.db-wal").stat().st_size:
        raise Failed("the killed gateway left no log")
    (folder / "data").rename(killed)


def _start(bench: Bench, program: Path, environment: Mapping[str, str], folder: Path, name: str) -> dict[str, float]:
    settings = gateway_settings(folder, NAME, free_ports(1)[0])
    began = time.monotonic()
    with bench.child(NAME, program, "run", "--insecure-dev", "--config", settings, environment=environment) as gateway:
        Client(port_of(gateway.next_line()["mqtt"]), 0, [], 1).socket.close()
        return {
            f"start.{name}": time.monotonic() - began,
            f"start.{name}_cpu": cpu_s(gateway),
            f"start.{name}_rss": resident_bytes(gateway.pid) / MB,
            f"start.{name}_pss": proportional_bytes(gateway.pid) / MB,
        }
