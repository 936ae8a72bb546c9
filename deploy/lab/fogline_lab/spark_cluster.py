"""A standalone cluster of Spark on loopback, whose workers see nothing of the driver's files.

Each worker runs in a mount namespace of its own. The checkout with `.venv`, and every folder that the caller names, are empty
there; what is left is Spark, Java and the Python that `.venv` was made of. So driver and executors have in common what they
reach over the network, as machines have. Making a namespace takes root, or a kernel that lets every user have one.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import time
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark

from fogline.errors import Misconfigured
from fogline.installed import find_java
from fogline_lab.kafka_broker import free_port
from fogline_lab.supervisor import ChildProcess, wait_for_port

START_LIMIT_S = 60.0
STOP_LIMIT_S = 30.0
CHECKOUT = Path(__file__).parents[3]
_POLL_S = 0.05
_DAEMON = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"}
_RETRIES = "-Dspark.deploy.maxExecutorRetries=100"  # more than the default, because tests kill executors
_EXECUTOR = re.compile(rb"CoarseGrainedExecutorBackend")
_PACKAGE = "org.apache.spark.deploy"
_HIDDEN = """\
mount --bind "$1" "$2"; spark=$2; shift 2
while [ "$1" != -- ]; do [ ! -e "$1" ] || mount -t tmpfs -o size=64m tmpfs "$1"; shift; done
shift; export SPARK_HOME=$spark; exec "$@"
"""
"""Mounts Spark at its place, hides the folders before `--`, and starts what follows."""


class SparkCluster:
    """A master and some workers, each with one core. A context manager.

    `data`: folder of logs, and of the workers' files; no hidden folder may hold it. `hidden`: folders that no worker sees.
    `python`: folder of the executors' `python3` and `python3.x`. `memory_mib`: of each worker.
    """

    def __init__(
        self,
        data: Path,
        *,
        workers: int = 2,
        hidden: Iterable[Path] = (),
        python: Path | None = None,
        memory_mib: int = 1024,
    ) -> None:
        self.data = data.absolute()
        self.data.mkdir(parents=True, exist_ok=True)
        self._port, self._page = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        self._home = self.data / "spark"
        self._home.mkdir(exist_ok=True)
        interpreter = python or Path(sys.executable).resolve().parent
        self._environment = {**_DAEMON, "PATH": os.pathsep.join([str(interpreter), os.defpath, str(Path(find_java()).parent)])}
        listen = ("--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._page))
        spark = Path(pyspark.__file__).parent
        self.master = ChildProcess(
            "Spark's master",
            [spark / "bin" / "spark-class", f"{_PACKAGE}.master.Master", *listen],
            self.data / "master.log",
            environment={**_DAEMON, "SPARK_HOME": str(spark), "SPARK_MASTER_OPTS": _RETRIES},
            json_lines=False,
        )
        hide = [str(each.absolute()) for each in (CHECKOUT, *hidden)]
        self.workers = [self._worker(number, spark, hide, memory_mib) for number in range(1, workers + 1)]

    def _worker(self, number: int, spark: Path, hide: Sequence[str], memory_mib: int) -> ChildProcess:
        folder = self.data / f"worker-{number}"
        own = ("--host", "127.0.0.1", "-c", "1", "-m", f"{memory_mib}m", "-d", str(folder), "--webui-port", str(free_port()))
        namespace = ["unshare", *(() if os.geteuid() == 0 else ("--map-root-user",)), "--mount", "--propagation", "private"]
        clean = ["env", "-i", *(f"{name}={value}" for name, value in self._environment.items())]
        start = [str(self._home / "bin" / "spark-class"), f"{_PACKAGE}.worker.Worker", *own, self.url]
        command = [*namespace, *clean, "sh", "-ec", _HIDDEN, "sh", str(spark), str(self._home), *hide, "--", *start]
        return ChildProcess(f"Spark's worker {number}", command, self.data / f"worker-{number}.log", json_lines=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start master and workers, and return when the master has all workers. Raises `Misconfigured`."""
        if shutil.which("unshare") is None:
            raise Misconfigured("unshare is missing: install util-linux")
        self.master.start()
        try:
            wait_for_port(self.master, self._port, START_LIMIT_S)
            for each in self.workers:
                each.start()
            self.wait_for_workers()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop workers and master. Logs stay."""
        for each in (*self.workers, self.master):
            each.stop(STOP_LIMIT_S)

    def wait_for_workers(self) -> None:
        """Return when the master has all workers. Raises `Misconfigured` if one ended, or after `START_LIMIT_S`."""
        deadline = time.monotonic() + START_LIMIT_S
        while self.status().get("aliveworkers") != len(self.workers):
            for each in self.workers:
                if not each.running:
                    raise Misconfigured(f"{each.name} {each.end}")
            if time.monotonic() > deadline:
                raise Misconfigured(f"the master has not all workers after {START_LIMIT_S:.0f} s: see {self.master.log}")
            time.sleep(_POLL_S)

    def status(self) -> dict[str, Any]:
        """Return what the master says about workers and applications, nothing while it does not answer."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
        return {}

    def executors(self) -> list[int]:
        """Return the process ids of the executors that run."""
        found = []
        for pid in (each for worker in self.workers for each in worker.members()):
            with contextlib.suppress(OSError):
                if _EXECUTOR.search(Path(f"/proc/{pid}/cmdline").read_bytes()):
                    found.append(pid)
        return found

    def kill_executor(self, pid: int) -> None:
        """Kill an executor; the master starts another one."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
