"""Surroundings of a measurement: a folder, child processes that end with it, and a Kafka broker if one is needed."""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from gateway_rows import GatewayOptions
from usage import Usage, make_counter, read_report, read_usage

from fogline.errors import FoglineError
from fogline_lab.supervisor import ChildProcess, run_to_end

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent


class Failed(Exception):
    """Something could not be measured; the message says what, in one line."""


def cpu_s(child: ChildProcess) -> float:
    """Return the user and system time that a child and its descendants have used, in seconds."""
    ticks = 0
    for pid in child.members():
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_rss_mib(child: ChildProcess) -> float:
    """Return the highest resident set of a child's first process."""
    lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


NOT_MEASURED = (Failed, FoglineError, OSError, TimeoutError)
"""The errors after which a figure is left out, and others are still measured."""


@dataclass
class Bench:
    """One run. `events`: of a gateway's row at full speed; the others scale with it."""

    folder: Path
    events: int
    gateway_options: GatewayOptions
    number: int = 0
    failures: set[str] = field(default_factory=set)
    _bootstrap: str = ""
    _children: list[ChildProcess] = field(default_factory=list)

    def say(self, what: str) -> None:
        """Progress, on stderr."""
        sys.stderr.write(f"  {what}\n")

    def fail(self, name: str, error: Exception) -> None:
        """Tell that something could not be measured."""
        self.failures.add(name)
        sys.stderr.write(f"  {name}: not measured: {error or type(error).__name__}\n")

    @contextmanager
    def child(
        self, name: str, *command: object, environment: Mapping[str, str] | None = None, json_lines: bool = True
    ) -> Iterator[ChildProcess]:
        """Run a child process for the length of the block."""
        log = self.folder / f"{name}.log"
        child = ChildProcess(name, command, log, folder=self.folder, environment=environment, json_lines=json_lines)
        self._children.append(child)
        child.start()
        try:
            yield child
        finally:
            child.stop()
            self._children.remove(child)

    @contextmanager
    def metered(self, name: str, *command: object, json_lines: bool = True) -> Iterator["Metered"]:
        """Run a child process whose usage is measured, its end included."""
        syncs, report = make_counter(self.folder, name), self.folder / f"{name}.usage"
        report.unlink(missing_ok=True)
        wrapper = [*self.program("metered"), self.sync_counter, syncs, report]
        with self.child(name, *wrapper, *command, json_lines=json_lines) as child:
            yield Metered(child, syncs, report)

    @property
    def sync_counter(self) -> Path:
        """The library that counts syncs, compiled at its first use."""
        library = self.folder / "count_syncs.so"
        if not library.exists():
            log = self.folder / "gcc.log"
            if run_to_end(["gcc", "-O2", "-shared", "-fPIC", "-o", library, HERE / "count_syncs.c", "-ldl"], log)[0]:
                raise Failed(f"gcc: {log.read_text('utf-8').strip()}")
        return library

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
        """The address of the Kafka broker. One broker serves all runs; the first use starts it."""
        if not self._bootstrap:
            command = [sys.executable, "-m", "fogline_lab.kafka_broker", "--data", self.folder / "kafka"]
            broker = ChildProcess("kafka", command, self.folder / "kafka.log", folder=self.folder, orphan_signal="TERM")
            self._children.append(broker)
            broker.start()
            self._bootstrap = broker.next_line()["bootstrap"]
        return self._bootstrap

    def cloud(self, tenant: str, shards: int, more: str = "") -> Path:
        """The settings file of a new tenant, with its topics made."""
        path = self.folder / f"{tenant}.toml"
        kafka = f'[kafka]\n"bootstrap.servers" = "{self.bootstrap}"\n'
        path.write_text(f'tenant = "{tenant}"\nshards = {shards}\n{kafka}[bridge]\nlisten = "127.0.0.1:0"\n{more}')
        log = self.folder / "topics.log"
        status, _ = run_to_end([BIN / "fogline", "topics", "create", "--config", path], log)
        if status:
            raise Failed(f"fogline topics create: {log.read_text('utf-8').strip()}")
        return path

    @contextmanager
    def bridge(self, cloud: Path) -> Iterator[tuple[ChildProcess, int]]:
        """A bridge, and its port."""
        with self.child("bridge", BIN / "fogline", "bridge", "run", "--insecure-dev", "--config", cloud) as bridge:
            yield bridge, port_of(bridge.next_line()["amqp"])

    @contextmanager
    def api(self, cloud: Path, bridge_port: int) -> Iterator[tuple[ChildProcess, int]]:
        """The HTTP API in front of a bridge. Yields its process and its port."""
        settings = cloud.with_name(f"api-{cloud.name}")
        own = f'[operator]\nbridge = "127.0.0.1:{bridge_port}"\n[api]\nlisten = "127.0.0.1:0"\n'
        settings.write_text(cloud.read_text() + own)
        with self.child("api", BIN / "fogline", "api", "run", "--insecure-dev", "--config", settings) as api:
            yield api, port_of(api.next_line()["url"])

    @contextmanager
    def gateway(
        self, name: str, bridge_port: int, tenant: str = "bench", program: Path = BIN / "fogline-edge"
    ) -> Iterator[tuple[ChildProcess, int]]:
        """Run a gateway with an empty outbox in the folder of its name. Yields its process and its MQTT port."""
        settings = gateway_settings(self.subfolder(name), name, bridge_port, tenant)
        with self.child(name, program, "run", "--insecure-dev", "--config", settings) as gateway:
            yield gateway, port_of(gateway.next_line()["mqtt"])

    def close(self) -> None:
        """End every child."""
        for child in reversed(self._children):
            child.stop()
        self._children.clear()


class Metered:
    """A child under `metered.py`. `pid`: of the program itself."""

    def __init__(self, child: ChildProcess, syncs: Path, report: Path) -> None:
        self.child = child
        self._syncs = syncs
        self._report = report

    @property
    def pid(self) -> int:
        """The program's process id."""
        return next(pid for pid in self.child.members() if pid != self.child.pid)

    def usage(self) -> Usage:
        """Return what the program has used until now."""
        return read_usage(self.pid, self._syncs)

    def end(self) -> Usage:
        """Stop the program in order. Returns what it used in all. Raises `Failed` if it had to be killed."""
        self.child.stop()
        if not self._report.exists():
            raise Failed(f"{self.child.name} did not end by itself: see {self.child.log}")
        return read_report(self._report)


def gateway_settings(folder: Path, name: str, bridge_port: int, tenant: str = "bench", more: Iterable[str] = ()) -> Path:
    """Write the settings file of a gateway. `more`: settings as `table.key = value`."""
    path = folder / "edge.toml"
    names = [f'tenant = "{tenant}"', f'gateway = "{name}"', 'data = "data"']
    path.write_text("\n".join([*names, f'uplink.bridge = "127.0.0.1:{bridge_port}"', "mqtt.port = 0", *more, ""]))
    return path


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


def quantile(values: list[float], q: float) -> float:
    """The value that a part `q` of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
