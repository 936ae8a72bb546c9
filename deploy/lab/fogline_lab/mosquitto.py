"""A Mosquitto broker on loopback, for measurements: its program and its configuration file."""

import getpass
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from fogline.errors import Misconfigured


def find_mosquitto() -> str:
    """Return the path of the broker. Debian installs it where only root's PATH looks. Raises `Misconfigured`."""
    found = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Misconfigured("mosquitto is missing: install the package mosquitto")
    return found


def write_broker(folder: Path, port: int, more: Iterable[str] = ()) -> Path:
    """Write the configuration of a broker that keeps its messages in `folder`. Returns its path. `more`: further lines."""
    path = folder / "mosquitto.conf"
    lines = [
        f"listener {port} 127.0.0.1",
        "allow_anonymous true",
        f"user {getpass.getuser()}",
        "persistence true",
        f"persistence_location {folder}/",
        "set_tcp_nodelay true",  # else a PUBACK waits until the client's kernel has confirmed the one before
        "max_inflight_messages 500",
        "max_queued_messages 0",
        *more,
    ]
    path.write_text("\n".join([*lines, ""]))
    return path


def bridge_lines(port: int) -> list[str]:
    """Return the lines of a bridge that sends every message to the broker at `port` of loopback, at QoS 1."""
    return [
        "connection peer",
        f"address 127.0.0.1:{port}",
        "topic telemetry/# out 1",
        "topic telemetry out 1",
        "cleansession false",
        "notifications true",
        "remote_clientid bridge",
        "restart_timeout 1",
    ]
