"""A real Mosquitto on loopback, which a test starts, kills and starts again."""

import asyncio
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

LIMIT_S = 60.0


def installed_mosquitto() -> str | None:
    """Return the path of the broker, None without one. Debian installs it where only root's PATH looks."""
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


class Mosquitto:
    """One broker. `kill` and `start` again keep its data and its port; `lines` are added to its configuration."""

    def __init__(self, folder: Path, *lines: str) -> None:
        self.folder = folder
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._lines = [] if any("allow_anonymous" in each for each in lines) else ["allow_anonymous true"]
        self._lines += lines

    def start(self) -> "Mosquitto":
        """Start it, and wait until it listens."""
        program = installed_mosquitto()
        assert program is not None
        configuration = self.folder / "mosquitto.conf"
        fixed = [
            f"listener {self.port} 127.0.0.1",
            "persistence true",
            f"persistence_location {self.folder}/",
            "autosave_on_changes true",
            "autosave_interval 1",
            f"user {getpass.getuser()}",
        ]
        configuration.write_text("\n".join([*fixed, *self._lines, ""]))
        with (self.folder / "mosquitto.log").open("ab") as log:
            self.process = subprocess.Popen([program, "-c", configuration], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + LIMIT_S
        while True:
            assert self.process.poll() is None, (self.folder / "mosquitto.log").read_text()
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert time.monotonic() < deadline, "the broker does not open its port"
                time.sleep(0.01)
            else:
                return self

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it as a power cut would, or in order."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(LIMIT_S)
            self.process = None

    async def publish(self, topic: str, *payloads: str, retain: bool = False, qos: int = 1, more: tuple[str, ...] = ()) -> None:
        """Publish each payload; returns when the broker has acknowledged all."""
        process = await asyncio.create_subprocess_exec(
            "mosquitto_pub", "-h", "127.0.0.1", "-p", str(self.port), "-V", "5", "-q", str(qos), "-t", topic, "-l",
            *(("-r",) if retain else ()), *more, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        async with asyncio.timeout(LIMIT_S):
            output, _ = await process.communicate("".join(f"{each}\n" for each in payloads).encode())
        assert process.returncode == 0, output


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
