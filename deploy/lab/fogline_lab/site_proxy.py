"""Real proxies of a site on loopback: microsocks speaks SOCKS5, tinyproxy HTTP."""

import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from fogline.errors import Misconfigured
from fogline.transport.proxy.proxy_address import ProxyKind
from fogline_lab.kafka_broker import free_port
from fogline_lab.supervisor import ChildProcess, wait_for_port

START_LIMIT_S = 60.0
USER = "gw-1"
PASSWORD = "between-field-and-cloud"  # noqa: S105 - of a test


class SiteProxy:
    """One proxy, which takes `USER` with `PASSWORD` if `login`, and everybody if not. A context manager.

    `allowed_port`: HTTP's CONNECT is allowed to this port only. Without its program (Debian's microsocks, tinyproxy) a test
    fails.
    """

    def __init__(self, folder: Path, kind: ProxyKind, *, login: bool = False, allowed_port: int | None = None) -> None:
        self.kind, self.port, self.login = kind, free_port(), login
        if kind is ProxyKind.SOCKS5:
            user = ["-u", USER, "-P", PASSWORD] if login else []
            command = [_program("microsocks"), "-i", "127.0.0.1", "-p", str(self.port), *user]
        else:
            lines = [f"Port {self.port}", "Listen 127.0.0.1", "Timeout 600", "MaxClients 100"]
            lines += [f"BasicAuth {USER} {PASSWORD}"] if login else []
            lines += [f"ConnectPort {allowed_port}"] if allowed_port is not None else []
            file = folder / f"tinyproxy-{self.port}.conf"
            file.write_text("".join(f"{each}\n" for each in lines))
            command = [_program("tinyproxy"), "-d", "-c", str(file)]
        self.process = ChildProcess(f"the {kind} proxy", command, folder / f"proxy-{self.port}.log", json_lines=False)

    @property
    def url(self) -> str:
        """The proxy, as settings name it."""
        return f"{self.kind}://{f'{USER}@' if self.login else ''}127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.process.start()
        wait_for_port(self.process, self.port, START_LIMIT_S)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the proxy, with all of its connections."""
        self.process.kill()
        self.process.join()


def _program(name: str) -> str:
    """Return the path of a proxy. Raises `Misconfigured`."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Misconfigured(f"{name} is missing: run deploy/setup/setup.sh tests, or install the package {name}")
    return found
