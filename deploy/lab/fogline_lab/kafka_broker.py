"""Real Kafka broker on loopback: KRaft, one node, from the jars that deploy/setup/setup.sh fetched.

    python -m fogline_lab.kafka_broker --data DIR [--port 9092]

Prints one JSON line with the bootstrap address when the broker's port is open; Ctrl-C or SIGTERM stops it.
"""

import argparse
import base64
import contextlib
import json
import math
import random
import signal
import socket
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from fogline.errors import Misconfigured
from fogline.installed import find_jars, find_java
from fogline_lab.supervisor import ChildProcess, run_to_end, wait_for_port

START_LIMIT_S = 60.0
STOP_LIMIT_S = 60.0
FIRST_PORT = 10_000


def free_port() -> int:
    """Return a TCP port of loopback that is free now.

    The port is below the range of outgoing connections, so that a server finds it free again after a restart.
    """
    while True:
        port = random.randrange(FIRST_PORT, max(_first_outgoing_port(), 2 * FIRST_PORT))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _first_outgoing_port() -> int:
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])


def new_cluster_id() -> str:
    """Return a random id, as Kafka wants it for a cluster."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


class KafkaBroker:
    """One broker. A context manager; `kill` and `start` again keep the data and the port.

    `data`: its folder. `properties`: more broker settings. `format_options`: of the command that formats the folder. `heap` and
    `java_options`: of the JVM. `node`, `quorum` and `cluster_id`: its place in a cluster; `quorum` holds the controller port of
    each node.
    """

    def __init__(
        self,
        data: Path,
        *,
        port: int = 0,
        heap: str = "384m",
        properties: dict[str, str] | None = None,
        format_options: Sequence[str] = (),
        java_options: Sequence[str] = (),
        node: int = 1,
        quorum: Mapping[int, int] | None = None,
        cluster_id: str = "",
    ) -> None:
        self.data = data.absolute()
        self.port = port or free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._node = node
        self._quorum = quorum or {node: free_port()}
        self._controller_port = self._quorum[node]
        self._cluster_id = cluster_id or new_cluster_id()
        self._heap = heap
        self._java_options = java_options
        self._format_options = format_options
        self._properties = properties or {}
        configuration = self.data / "server.properties"
        self.process = ChildProcess(
            "the Kafka broker", self._java("kafka.Kafka", str(configuration)), self.data / "broker.log", json_lines=False
        )

    def start(self) -> Self:
        """Format the folder if it is new, start, and return when the port is open. Raises `Misconfigured`."""
        self.launch()
        self.wait()
        return self

    def launch(self) -> None:
        """Format the folder if it is new, and start; `wait` waits until the port is open. Raises `Misconfigured`."""
        self.data.mkdir(parents=True, exist_ok=True)
        configuration = self.data / "server.properties"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        if not (self.data / "log" / "meta.properties").exists():
            format_folder = ("format", "-t", self._cluster_id, "-c", str(configuration))
            command = self._java("kafka.tools.StorageTool", *format_folder, *self._format_options)
            status, _ = run_to_end(command, self.process.log)
            if status:
                raise Misconfigured(f"the Kafka broker's folder could not be formatted: see {self.process.log}")
        self.process.start()

    def wait(self) -> None:
        """Wait until the port is open. Raises `Misconfigured`."""
        wait_for_port(self.process, self.port, START_LIMIT_S)

    def stop(self) -> None:
        """Stop the broker in order."""
        self.process.stop(STOP_LIMIT_S)

    def kill(self) -> None:
        """Kill the broker, as a power cut would."""
        self.process.kill()
        self.process.join()

    def _java(self, *arguments: str) -> list[str]:
        options = [f"-Xmx{self._heap}", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
        return [find_java(), *options, *self._java_options, "-cp", ":".join(map(str, find_jars("kafka"))), *arguments]

    def _settings(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": str(self._node),
            "controller.quorum.voters": ",".join(f"{node}@127.0.0.1:{port}" for node, port in self._quorum.items()),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data / "log"),
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "log.cleaner.dedupe.buffer.size": str(4 << 20),
            **self._properties,
        }

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def main() -> int:
    """Run one broker until a signal ends it."""
    parser = argparse.ArgumentParser(prog="python -m fogline_lab.kafka_broker", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the broker's folder")
    parser.add_argument("--port", type=int, default=0, help="the port (default: a free one)")
    parser.add_argument("--heap", default="384m", help="heap of the JVM (default: 384m)")
    arguments = parser.parse_args()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: sys.exit(0))
    try:
        with KafkaBroker(arguments.data, port=arguments.port, heap=arguments.heap) as broker:
            sys.stdout.write(json.dumps({"bootstrap": broker.bootstrap, "pid": broker.process.pid}) + "\n")
            sys.stdout.flush()
            return broker.process.wait(math.inf)
    except Misconfigured as error:
        sys.stderr.write(f"kafka broker: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
