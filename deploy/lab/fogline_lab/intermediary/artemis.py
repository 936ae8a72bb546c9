"""A real Apache ActiveMQ Artemis on loopback, from the jars that deploy/setup/setup.sh fetched.

    python -m fogline_lab.intermediary.artemis --data DIR [--port 5672]

Prints one JSON line with its address when it listens; Ctrl-C or SIGTERM stops it.
"""

import argparse
import asyncio
import json
import math
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from fogline.errors import Misconfigured
from fogline.installed import find_jars, find_java
from fogline.process.files.tls_files import TlsSettings
from fogline_lab.intermediary.artemis_files import BrokerFiles
from fogline_lab.kafka_broker import free_port
from fogline_lab.supervisor import ChildProcess, kill_child, stop_children, wait_for_port

START_LIMIT_S = 60.0
HEAP = "256m"


class Artemis:
    """One broker on a port that stays. `kill` and `start` again keep its queues, as a power cut does.

    `users`: passwords by user name. `tls`: its certificate, and the authority of its clients, whose certificates are a log-in
    too (EXTERNAL). Without both, everybody is let in. `as_shipped`: see `BrokerFiles`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        users: Mapping[str, str] | None = None,
        tls: TlsSettings | None = None,
        as_shipped: bool = False,
    ) -> None:
        self.port = port or free_port()
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        BrokerFiles(self.folder, self.port, users or {}, tls, as_shipped=as_shipped).write()
        places = {"home": folder, "instance": folder, "instance.etc": folder / "etc"}
        options = [f"-Xmx{HEAP}", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
        options += [f"-Dartemis.{name}={path.absolute()}" for name, path in places.items()]
        options += [f"-Djava.security.auth.login.config={self.folder / 'etc' / 'login.config'}"]
        options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        jars = ":".join(map(str, find_jars("artemis")))
        command = [find_java(), *options, "-cp", jars, "org.apache.activemq.artemis.cli.Artemis", "run"]
        self.process = ChildProcess("Artemis", command, self.folder / "artemis.log", folder=self.folder, json_lines=False)

    def start(self) -> Self:
        """Start, and return when the port is open. Raises `Misconfigured`."""
        self.process.start()
        wait_for_port(self.process, self.port, START_LIMIT_S)
        return self

    async def started(self) -> Self:
        """Start as `start` does, without blocking the loop."""
        self.process.start()
        await asyncio.to_thread(wait_for_port, self.process, self.port, START_LIMIT_S)
        return self

    async def stop(self) -> None:
        """Stop in order."""
        await stop_children(self.process)

    async def kill(self) -> None:
        """Kill it, as a power cut would."""
        await kill_child(self.process)

    def resident_bytes(self) -> int:
        """Return the memory of its process."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.join()


def main() -> int:
    """Run one broker until a signal ends it."""
    parser = argparse.ArgumentParser(prog="python -m fogline_lab.intermediary.artemis", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the broker's folder")
    parser.add_argument("--port", type=int, default=0, help="the port (default: a free one)")
    arguments = parser.parse_args()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: sys.exit(0))
    try:
        with Artemis(arguments.data, port=arguments.port) as broker:
            sys.stdout.write(json.dumps({"amqp": f"127.0.0.1:{broker.port}", "pid": broker.process.pid}) + "\n")
            sys.stdout.flush()
            return broker.process.wait(math.inf)
    except Misconfigured as error:
        sys.stderr.write(f"artemis: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
