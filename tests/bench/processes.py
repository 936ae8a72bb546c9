"""What a measurement needs around it: a folder, child processes that end with it, a Kafka broker if one is asked for."""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
READY_S = 120.0
STOP_S = 30.0


class Failed(Exception):
    """Something could not be measured; the message says what, in one line."""


class Child:
    """One child process: JSON lines on its stdout, each with the moment at which it came.

    A session of its own, so that Ctrl-C reaches only the bench, which ends it. When the bench itself is killed, the
    kernel sends the child `orphaned`.
    """

    def __init__(self, name: str, command: list[str], folder: Path, orphaned: str = "KILL") -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", orphaned, "--", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                start_new_session=True,
                text=True,
            )
        self.pid = self._process.pid
        self._lines: queue.SimpleQueue[tuple[float, dict[str, Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name=f"read {name}", daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout:
            with suppress(ValueError):
                self._lines.put((time.perf_counter(), json.loads(line)))
        self._lines.put(None)

    def line(self, limit_s: float = READY_S) -> dict[str, Any]:
        """What it says next. Raises `Failed` if it ends or stays silent."""
        with suppress(queue.Empty):
            said = self._lines.get(timeout=limit_s)
            if said is not None:
                return said[1]
            raise Failed(f"{self.name} ended: {self.last_words()}")
        raise Failed(f"{self.name} said nothing for {limit_s:.0f} s: {self.last_words()}")

    def lines_to_end(self, limit_s: float) -> Iterator[tuple[float, dict[str, Any]]]:
        """What it says, as it says it, until it ends by itself. Raises `Failed` if that is not with status 0."""
        deadline = time.monotonic() + limit_s
        try:
            while (line := self._lines.get(timeout=max(0.1, deadline - time.monotonic()))) is not None:
                yield line
        except queue.Empty:
            raise Failed(f"{self.name} did not end in {limit_s:.0f} s") from None
        if self._process.wait(STOP_S):
            raise Failed(f"{self.name} failed: {self.last_words()}")

    def tell(self, line: str = "") -> None:
        """Write a line to its stdin."""
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def last_words(self) -> str:
        """The last line of its log."""
        lines = self._log.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "without a word"

    def cpu_s(self) -> float:
        """User and system time that it and its descendants have used, seconds."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.pid:  # the session
                    ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def peak_rss_mib(self) -> float:
        """The most memory that it had."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

    def stop(self) -> None:
        """SIGTERM, then SIGKILL for what is left of it."""
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            self._process.terminate()
            self._process.wait(STOP_S)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


@dataclass
class Bench:
    """One run. `events`: of the gateway's row; the others scale with it."""

    folder: Path
    events: int
    number: int = 0
    _bootstrap: str = ""
    _children: list[Child] = field(default_factory=list)

    def say(self, what: str) -> None:
        """Progress, on stderr."""
        sys.stderr.write(f"  {what}\n")

    @contextmanager
    def child(self, name: str, *command: object, orphaned: str = "KILL") -> Iterator[Child]:
        """A child process for the length of a block."""
        child = Child(name, [str(each) for each in command], self.folder, orphaned)
        self._children.append(child)
        try:
            yield child
        finally:
            child.stop()
            self._children.remove(child)

    def program(self, name: str) -> list[object]:
        """The command of one of the bench's own programs."""
        return [sys.executable, HERE / f"{name}.py"]

    def subfolder(self, name: str) -> Path:
        """An empty folder."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    @property
    def bootstrap(self) -> str:
        """Where Kafka answers: one broker for all runs, started when it is first asked for."""
        if not self._bootstrap:
            command = [sys.executable, "-m", "fogline.testing.kafka_broker", "--data", str(self.folder / "kafka")]
            broker = Child("kafka", command, self.folder, orphaned="TERM")
            self._children.append(broker)
            self._bootstrap = broker.line()["bootstrap"]
        return self._bootstrap

    def cloud(self, tenant: str, shards: int, more: str = "") -> Path:
        """The settings file of a new tenant, with its topics made."""
        path = self.folder / f"{tenant}.toml"
        kafka = f'[kafka]\n"bootstrap.servers" = "{self.bootstrap}"\n'
        path.write_text(f'tenant = "{tenant}"\nshards = {shards}\n{kafka}[bridge]\nlisten = "127.0.0.1:0"\n{more}')
        made = subprocess.run(
            [BIN / "fogline", "topics", "create", "--config", path], capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise Failed(f"fogline topics create: {made.stderr.strip()}")
        return path

    @contextmanager
    def bridge(self, cloud: Path) -> Iterator[tuple[Child, int]]:
        """A bridge, and its port."""
        with self.child("bridge", BIN / "fogline", "bridge", "run", "--config", cloud) as bridge:
            yield bridge, _port(bridge.line()["amqp"])

    @contextmanager
    def gateway(self, name: str, bridge_port: int, tenant: str = "bench") -> Iterator[tuple[Child, int]]:
        """A gateway with an empty outbox in the folder of its name, and its MQTT port."""
        folder = self.subfolder(name)
        settings = folder / "edge.toml"
        uplink = f'[uplink]\nbridge = "127.0.0.1:{bridge_port}"\n'
        settings.write_text(f'tenant = "{tenant}"\ngateway = "{name}"\ndata = "data"\n{uplink}[mqtt]\nport = 0\n')
        with self.child(name, BIN / "fogline-edge", "run", "--config", settings) as gateway:
            yield gateway, _port(gateway.line()["mqtt"])

    def close(self) -> None:
        """End every child."""
        for child in reversed(self._children):
            child.stop()
        self._children.clear()


def _port(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


def quantile(values: list[float], q: float) -> float:
    """The value that a part `q` of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
