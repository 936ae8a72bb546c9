"""A real PostgreSQL on a socket in a folder of its own. Without Debian's package `postgresql` a test fails.

PostgreSQL refuses to run as root. Started by root, it runs as the user `postgres`, in a folder that this user may enter.
"""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fogline.errors import Misconfigured
from fogline_lab.kafka_broker import free_port
from fogline_lab.supervisor import ChildProcess, find_setpriv

START_LIMIT_S = 60.0
USER = "fog"
"""The superuser, who needs no password. Every other user does."""
DATABASE = "fog"
_SYSTEM_USER = "postgres"
_POLL_S = 0.02
_ACCESS = f"local all {USER} trust\nlocal all all scram-sha-256\nhost all {USER} 127.0.0.1/32 trust\n"


def find_postgres() -> Path:
    """Return the folder of the newest PostgreSQL's programs. Debian keeps it off PATH. Raises `Misconfigured`."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda each: int(each.parent.parent.name))
    program = str(found[-1]) if found else shutil.which("postgres")
    if program is None:
        raise Misconfigured("there is no PostgreSQL: install the package postgresql")
    return Path(program).parent


class Postgres:
    """One server with one empty database. A context manager; `kill` and `start` again keep its data and its address.

    `tcp`: it listens on a port of loopback too.
    """

    def __init__(self, *, tcp: bool = False) -> None:
        self._programs = find_postgres()
        self._folder = Path(tempfile.mkdtemp(prefix="fogline-postgres-"))
        if os.geteuid() == 0:
            shutil.chown(self._folder, _SYSTEM_USER)
        # Durable only against the end of the process, as tests need it: a sync for each commit would be most of their time.
        self.port = free_port() if tcp else 5432
        listen = ["-c", f"listen_addresses={'127.0.0.1' if tcp else ''}", "-p", str(self.port)]
        options = [*listen, "-c", "fsync=off", "-c", "max_connections=20", "-c", "shared_buffers=16MB"]
        command = [*_as_user(), str(self._programs / "postgres"), "-D", str(self._data), "-k", str(self._folder), *options]
        self.process = ChildProcess(
            "PostgreSQL",
            command,
            self._folder / "log",
            folder=self._folder,
            json_lines=False,
            environment={"LC_ALL": "C.UTF-8"},
        )

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def url(self) -> str:
        """The address of the database, of the superuser."""
        return self.url_of(USER)

    def url_of(self, user: str, database: str = DATABASE) -> str:
        """Return the address of a database for a user."""
        return f"postgresql://{user}@/{database}?host={self._folder}&port={self.port}"

    def start(self) -> Self:
        """Start, and return when it takes connections. Raises `Misconfigured`."""
        is_new = not self._data.exists()
        if is_new:
            self._run("initdb", "-D", self._data, "-U", USER, "-A", "trust", "-N", "--locale=C.UTF-8", "-E", "UTF8")
            (self._data / "pg_hba.conf").write_text(_ACCESS)
        deadline = time.monotonic() + START_LIMIT_S
        while not self._is_ready():
            if time.monotonic() > deadline:
                how = self.process.end
                self.kill()
                raise Misconfigured(f"PostgreSQL takes no connections; it {how}")
            if not self.process.running:  # after a kill: it refuses to start until the last of its former processes has ended
                self.process.start()
            time.sleep(_POLL_S)
        if is_new:
            self._run("createdb", "-h", self._folder, "-p", self.port, "-U", USER, DATABASE)
        return self

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Execute one statement as the superuser. Returns its rows."""
        from adbc_driver_postgresql import dbapi  # noqa: PLC0415 - only with the extra `sink`

        with dbapi.connect(self.url, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def kill(self) -> None:
        """Kill every process of the server. What it has committed is there at the next start."""
        self.process.kill()
        self.process.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_ready(self) -> bool:
        command = [str(self._programs / "pg_isready"), "--quiet", "-h", str(self._folder), "-p", str(self.port)]
        return self.process.running and subprocess.run(command, check=False).returncode == 0

    def _run(self, program: str, *arguments: object) -> None:
        command = [*_as_user(), str(self._programs / program), *map(str, arguments)]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Misconfigured(f"{program} failed: {done.stderr.strip()}")


def _as_user() -> list[str]:
    """Return the command that gives root's rights away."""
    if os.geteuid():
        return []
    # The kernel forgets the signal of `ChildProcess` when the user changes.
    return [find_setpriv(), "--reuid", _SYSTEM_USER, "--regid", _SYSTEM_USER, "--clear-groups", "--pdeathsig", "KILL", "--"]
