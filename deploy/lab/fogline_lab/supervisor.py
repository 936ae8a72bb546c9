"""Supervisor of child processes, for the demo, the soak, the bench and tests: starts, watches, kills and reaps them.

Each child is a session of its own. It may become many processes (Spark: driver, JVM, Python workers), and a terminal's
Ctrl-C must not reach it. If the supervising process is killed, the kernel ends the child (PR_SET_PDEATHSIG, by setpriv).

The waits of `ChildProcess` block, have a limit, and raise `Misconfigured` with the last line of the child's log. On an
event loop use `start_child`, `stop_children` and `kill_child`, and `asyncio.to_thread` for the other waits. Never start a
child on a pool's thread: the kernel ends a child when the thread that started it ends.
"""

import asyncio
import contextlib
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fogline.errors import Misconfigured
from fogline.process.crash_points import VARIABLE

READY_LIMIT_S = 120.0
STOP_LIMIT_S = 60.0
_POLL_S = 0.01
FAULTHANDLER = {"PYTHONFAULTHANDLER": "1"}
"""A native crash leaves its stack in the child's log."""

Line = dict[str, Any]


class ChildProcess:
    """One child process, started again as often as needed. `kill`, `send` and `tell` may be called from any thread.

    The child prints one JSON object a line. The first line says that it is ready, and is kept in `ready_line`. Later lines
    go to `on_line` if it is given, else to `lines` and `next_line`. `on_exit` is called if the child ends and neither
    `kill` nor `stop` asked for it. Both callbacks run on the reader's thread. With `json_lines` false, the child's stdout
    goes to its log. `environment` is added to our own, at each start. `orphan_signal`: sent by the kernel if the
    supervising process dies.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[object],
        log: Path,
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[Line], None] | None = None,
        on_exit: Callable[["ChildProcess"], None] = lambda _: None,
        orphan_signal: str = "KILL",
        json_lines: bool = True,
    ) -> None:
        self.name = name
        self.log = log
        self.environment = dict(environment or {})
        self.starts = 0
        self.pid = 0
        self.ready_line: Line = {}
        self._command = [find_setpriv(), "--pdeathsig", orphan_signal, "--", *map(str, command)]
        self._folder = folder
        self._on_line = on_line
        self._on_exit = on_exit
        self._json_lines = json_lines
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lines: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        self._exit_expected = False
        self._sessions: set[int] = set()

    @property
    def running(self) -> bool:
        """True from the start of the child until its end."""
        return self._process is not None and self._process.poll() is None

    @property
    def serving(self) -> bool:
        """True while the child is ready and neither `kill` nor `stop` was called."""
        return self.running and not self._exit_expected and bool(self.ready_line)

    @property
    def end(self) -> str:
        """The way in which the child ended, with the last line of its log, for a message."""
        code = self._process.poll() if self._process is not None else None
        how = "is running" if code is None else f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended: {code}"
        lines = self.log.read_text("utf-8", "replace").strip().splitlines() if self.log.exists() else []
        return f"{how}: {lines[-1]} ({self.log})" if lines else f"{how}: {self.log} is empty"

    def start(self, *, crash_at: str = "") -> None:
        """Start the child and return at once; `next_line` waits until it is ready.

        With `crash_at`, the child kills itself at this crash point (`fogline.process.crash_points`); `on_exit` is not called.
        """
        self._exit_expected = bool(crash_at)
        self.ready_line = {}
        self._lines = queue.SimpleQueue()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE if self._json_lines else subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._json_lines else log,
                stderr=log,
                cwd=self._folder,
                env={**FAULTHANDLER, **os.environ, **self.environment, VARIABLE: crash_at},
                start_new_session=True,
                text=True,
            )
        self.starts += 1
        self.pid = self._process.pid
        self._sessions.add(self.pid)
        self._reader = threading.Thread(
            target=self._read, args=(self._process, self._lines), name=f"read {self.name}", daemon=True
        )
        self._reader.start()

    def _read(self, process: "subprocess.Popen[str]", lines: "queue.SimpleQueue[Line | None]") -> None:
        for text in process.stdout or ():
            with contextlib.suppress(ValueError):
                line: Line = json.loads(text)
                if not self.ready_line:
                    if "pid" in line:  # of a process in a session of its own, as the Kafka broker's JVM
                        self._sessions.add(int(line["pid"]))
                    self.ready_line = line
                    lines.put(line)
                elif self._on_line is not None:
                    self._on_line(line)
                else:
                    lines.put(line)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        lines.put(None)
        if not self._exit_expected and (self.ready_line or not self._json_lines):
            self._on_exit(self)

    def lines(self, limit_s: float = READY_LIMIT_S) -> Iterator[Line]:
        """Yield each line until the child ends. Raises `Misconfigured` if that takes more than `limit_s` in all."""
        deadline = time.monotonic() + limit_s
        try:
            while (line := self._lines.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
                yield line
        except queue.Empty:
            raise Misconfigured(f"{self.name} printed no line within {limit_s:.0f} s; it {self.end}") from None

    def next_line(self, limit_s: float = READY_LIMIT_S) -> Line:
        """Wait for the next line. Raises `Misconfigured` if the child ends or prints nothing within `limit_s`."""
        for line in self.lines(limit_s):
            return line
        raise Misconfigured(f"{self.name} {self.end}")

    def tell(self, line: str = "") -> None:
        """Write a line to the child's stdin, if it is running."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):  # the child has ended, and its pipe is closed
                self._process.stdin.write(f"{line}\n")
                self._process.stdin.flush()

    def send(self, what: signal.Signals) -> None:
        """Send a signal to the child's first process, if it is running."""
        if self._process is not None:
            self._process.send_signal(what)

    def wait(self, limit_s: float = STOP_LIMIT_S) -> int:
        """Wait until the child ends by itself. Returns its exit status. Raises `Misconfigured` after `limit_s`."""
        assert self._process is not None
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise Misconfigured(f"{self.name} did not end within {limit_s:.0f} s; it {self.end}") from None

    def kill(self) -> None:
        """Send SIGKILL to every process of the child and return; `join` waits for their end."""
        self._exit_expected = True
        if self.running:
            _kill(self.pid)  # first of all: the search for the others takes milliseconds
        for pid in self.members():
            _kill(pid)

    def join(self) -> None:
        """Kill every process of the child, those that start meanwhile too, and wait until none is left."""
        while self.members():
            self.kill()
            time.sleep(_POLL_S)
        if self._reader is not None:
            self._reader.join(STOP_LIMIT_S)
        self._sessions.clear()

    def stop(self, limit_s: float = STOP_LIMIT_S) -> None:
        """Send SIGTERM, wait up to `limit_s`, then kill the rest and reap it. A stopped child (SIGSTOP) goes on first."""
        self._exit_expected = True
        if self.running and self._reader is not None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            self._reader.join(limit_s)
        self.join()

    def members(self) -> list[int]:
        """Return the ids of the child's living processes."""
        return [pid for session in tuple(self._sessions) for pid in session_members(session)]


async def start_child(child: ChildProcess, limit_s: float = READY_LIMIT_S, *, crash_at: str = "") -> Line:
    """Start a child and wait until it is ready. Returns its first line. Raises `Misconfigured`. Safe to cancel."""
    child.start(crash_at=crash_at)
    return await asyncio.to_thread(child.next_line, limit_s)


async def stop_children(*children: ChildProcess) -> None:
    """Stop children side by side, each in order."""
    await asyncio.gather(*(asyncio.to_thread(child.stop) for child in children))


async def kill_child(child: ChildProcess) -> None:
    """Kill a child and wait for its end."""
    child.kill()
    await asyncio.to_thread(child.join)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def session_members(session: int) -> list[int]:
    """Return the living processes of a session, its leader first."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state not in "ZX":
                found.append(int(stat.parent.name))
    return sorted(found, key=lambda pid: (pid != session, pid))


def wait_for_port(child: ChildProcess, port: int, limit_s: float) -> None:
    """Wait until the child listens on a TCP port of loopback. Raises `Misconfigured`, and kills the child after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while child.running:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 0.5).close()
            return
        if time.monotonic() > deadline:
            child.kill()
            child.join()
            raise Misconfigured(f"{child.name} did not open port {port} within {limit_s:.0f} s: see {child.log}")
        time.sleep(_POLL_S)
    raise Misconfigured(f"{child.name} {child.end}")


def kill_after_write(child: ChildProcess, file: Path, limit_s: float) -> None:
    """Kill the child just after it has written to `file`, or after `limit_s`. Blocks: call it on a thread."""
    before = _written(file)
    deadline = time.monotonic() + limit_s
    while _written(file) == before and time.monotonic() < deadline:
        time.sleep(0.0002)
    child.kill()


def _written(file: Path) -> tuple[int, int]:
    try:
        stat = file.stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


def run_to_end(command: Sequence[object], log: Path, folder: Path | None = None, typed: str = "") -> tuple[int, str]:
    """Run a short command to its end. Returns its exit status and its stdout; its stderr is added to `log`.

    `typed`: its stdin.
    """
    with log.open("ab") as errors:
        done = subprocess.run(
            [find_setpriv(), "--pdeathsig", "KILL", "--", *map(str, command)],
            cwd=folder,
            input=typed,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            text=True,
            check=False,
        )
    return done.returncode, done.stdout


def find_setpriv() -> str:
    """Return the path of `setpriv` (util-linux). Raises `Misconfigured`."""
    found = shutil.which("setpriv")
    if found is None:
        raise Misconfigured("setpriv is missing: install util-linux")
    return found


def find_script(name: str) -> str:
    """Return the path of a command that is installed beside this Python. Raises `Misconfigured`."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise Misconfigured(f"{path} is missing: run deploy/setup/setup.sh, and start this with .venv/bin/python")
    return str(path)
