"""The parts as child processes: started, killed, ended for certain.

Each is a session of its own, because a part may be many processes (Spark: driver, JVM, Python workers) and a terminal's
Ctrl-C must not reach them. When the demo itself is killed, the kernel ends them (PR_SET_PDEATHSIG, by setpriv).
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fogline.errors import Misconfigured

READY_LIMIT_S = 120.0
STOP_LIMIT_S = 40.0
FAULTHANDLER = {"PYTHONFAULTHANDLER": "1"}
"""What a native crash was in the middle of stands in the part's log."""

News = dict[str, Any]


class Part:
    """One child process, started again as often as needed.

    It is ready when it has printed its first JSON line, which is `said` then; every later line goes to `on_news`.
    `on_end` is called if it ends without having been told to. `gently`: it is asked to end, not killed, if the demo dies.
    `environment`: what is added where our own does not say otherwise.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        folder: Path,
        *,
        on_news: Callable[[News], None] = lambda _: None,
        on_end: Callable[["Part"], None] = lambda _: None,
        gently: bool = False,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / "logs" / f"{name}.log"
        self.starts = 0
        self.said: News = {}
        self.process: asyncio.subprocess.Process | None = None
        self._command = [find_setpriv(), "--pdeathsig", "TERM" if gently else "KILL", "--", *command]
        self._environment = {**FAULTHANDLER, **(environment or {}), **os.environ}
        self._folder = folder
        self._on_news = on_news
        self._on_end = on_end
        self._expected = False
        self._ready: asyncio.Future[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._sessions: set[int] = set()

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self.process is not None and self.process.returncode is None

    @property
    def status(self) -> str:
        """How it ended, in words."""
        code = self.process.returncode if self.process is not None else None
        if code is None:
            return "not ended"
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"

    @property
    def serving(self) -> bool:
        """Whether it is ready, and nobody is ending it."""
        return self.running and not self._expected and self._ready is not None and self._ready.done()

    async def start(self, doomed: dict[str, str] | None = None) -> None:
        """Start it and wait until it is ready. Raises `Misconfigured` with its last words if it ends instead.

        `doomed`: more of its environment, by which it will end by itself; nobody is told then.
        """
        self._expected = doomed is not None
        self._ready = asyncio.get_running_loop().create_future()
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=self._folder,
                env=self._environment | (doomed or {}),
                start_new_session=True,
            )
        self.starts += 1
        self._sessions.add(self.process.pid)
        self._reader = asyncio.create_task(self._read(self.process), name=f"read {self.name}")
        done, _ = await asyncio.wait([self._ready, self._reader], timeout=READY_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        if self._ready not in done:
            if not done:
                raise Misconfigured(f"{self.name} was not ready after {READY_LIMIT_S:.0f} s: see {self.log}")
            raise Misconfigured(f"{self.name} does not start: {self.last_words()}")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert self._ready is not None
        async for line in process.stdout:
            try:
                news = json.loads(line)
            except ValueError:
                continue
            if self._ready.done():
                self._on_news(news)
            else:
                self.said = news
                if "pid" in news:
                    self._sessions.add(int(news["pid"]))
                self._ready.set_result(None)
        await process.wait()
        if not self._expected and self._ready.done():
            self._on_end(self)

    def last_words(self) -> str:
        """The last line of its log."""
        lines = self.log.read_text("utf-8", "replace").strip().splitlines() if self.log.exists() else []
        return lines[-1] if lines else f"it said nothing, see {self.log}"

    def surround(self, environment: dict[str, str]) -> None:
        """More of its environment, from its next start on."""
        self._environment |= environment

    def tell(self, line: str) -> None:
        """Write a line to its stdin."""
        if self.process is not None and self.process.stdin is not None and self.running:
            self.process.stdin.write(line.encode() + b"\n")

    def send(self, what: signal.Signals) -> None:
        """Send a signal to its first process, if there is one."""
        if self.process is not None and self.running:
            self.process.send_signal(what)

    def strike(self) -> None:
        """SIGKILL to every process of it, now. From any thread; `join` comes after."""
        self._expected = True
        if self.process is not None and self.running:
            _kill(self.process.pid)  # to look for the others takes milliseconds
        for pid in self.members():
            _kill(pid)

    async def join(self) -> None:
        """Wait until nothing of it runs any more; whatever was born meanwhile is killed as well."""
        while self.members():
            self.strike()
            await asyncio.sleep(0.01)
        if self._reader is not None:
            await asyncio.wait([self._reader])
        self._sessions.clear()

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL for what is left."""
        self._expected = True
        if self.process is not None and self.running and self._reader is not None:
            self.process.send_signal(signal.SIGTERM)
            await asyncio.wait([self._reader], timeout=STOP_LIMIT_S)
        await self.join()

    def members(self) -> list[int]:
        """Every process of it that lives."""
        return [pid for session in self._sessions for pid in session_members(session)]


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def session_members(session: int) -> list[int]:
    """Every living process of a session, the leader first."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state not in "ZX":
                found.append(int(stat.parent.name))
    return sorted(found, key=lambda pid: (pid != session, pid))


def find_setpriv() -> str:
    """`setpriv` of util-linux. Raises `Misconfigured`."""
    found = shutil.which("setpriv")
    if found is None:
        raise Misconfigured("there is no setpriv: install util-linux")
    return found


def script(name: str) -> str:
    """A command that was installed beside this Python. Raises `Misconfigured`."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise Misconfigured(f"{path} is missing: run deploy/setup/setup.sh, and start the demo with .venv/bin/python")
    return str(path)


async def run_once(command: list[str], folder: Path, log: Path) -> tuple[int, str]:
    """Run a short command to its end: exit status and what it printed; its stderr goes to `log`."""
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            find_setpriv(),
            "--pdeathsig",
            "KILL",
            "--",
            *command,
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode or 0, printed.decode()


def strike_after_write(part: Part, file: Path, limit_s: float) -> None:
    """Kill `part` just after it has written to `file`, or after `limit_s`. Blocks: for a thread."""
    before = _written(file)
    deadline = time.monotonic() + limit_s
    while _written(file) == before and time.monotonic() < deadline:
        time.sleep(0.0002)
    part.strike()


def _written(file: Path) -> tuple[int, int]:
    try:
        stat = file.stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size
