"""Eclipse Hono's application clients for Kafka and AMQP, in a Java of its own: it gets and prints lines of JSON."""

import asyncio
import itertools
import json
import re
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from contracts.foreign.clients import CLIENT_LIMIT_S
from fogline.installed import find_jars, find_java

PROGRAM = Path(__file__).parent / "hono" / "HonoApplication.java"
DOCS = Path(__file__).parents[3] / "docs"
EXAMPLES = [("clients-kafka.md", "SwitchOverKafka"), ("clients-amqp.md", "SwitchOverAmqp")]
COMPILE_LIMIT_S = 60.0
_OPTIONS = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_COMPILER = "org.eclipse.jdt.internal.compiler.batch.Main"

Shown = dict[str, Any]
"""What the program printed: a message as Hono's client shows it, or `error`, the status of Hono's exception."""


@contextmanager
def running(folder: Path) -> Iterator["HonoApplication"]:
    """The program, compiled into `folder`, together with the examples of the documentation."""
    path = ":".join(map(str, [folder, *find_jars("hono"), *find_jars("compiler")]))
    sources = [str(PROGRAM), *(str(_example(folder, *each)) for each in EXAMPLES)]
    compiler = [find_java(), *_OPTIONS, "-cp", path, _COMPILER, "-17", "-proc:none", "-cp", path, "-d", str(folder), *sources]
    compiled = subprocess.run(compiler, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False)
    assert compiled.returncode == 0, compiled.stderr
    command = [find_java(), *_OPTIONS, "-cp", path, PROGRAM.stem]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield HonoApplication(process)
        finally:
            process.kill()


def _example(folder: Path, page: str, name: str) -> Path:
    """The Java source of this class on a page, written into `folder`."""
    blocks = re.findall(r"```java\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    source = next(each for each in blocks if f"class {name} " in each)
    (folder / f"{name}.java").write_text(source)
    return folder / f"{name}.java"


class HonoApplication:
    """A program with one client at a time."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._lines: list[Shown] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._read, name="Hono's application", daemon=True).start()

    @asynccontextmanager
    async def client(self, kind: str, address: str, tenant: str) -> AsyncIterator["HonoApplication"]:
        """A client of this kind (`kafka`, `amqp`), with consumers of telemetry, events and responses."""
        opened = await self.ask("open", client=kind, address=address, tenant=tenant)
        assert "error" not in opened, opened
        try:
            yield self
        finally:
            await self.ask("close")
            self._lines.clear()

    async def ask(self, what: str, **request: object) -> Shown:
        """Let the client do something, and return the result."""
        number = next(self._numbers)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, "number": number, **request}) + "\n")
        self._process.stdin.flush()
        return await asyncio.to_thread(self._taken, {"number": number})

    async def arrival(self, on: str, device: str) -> Shown:
        """Return the next message of a device that came as `telemetry`, `event` or `response`."""
        return await asyncio.to_thread(self._taken, {"on": on, "device": device})

    def _taken(self, wanted: Shown) -> Shown:
        def find() -> Shown | None:
            return next((each for each in self._lines if wanted.items() <= each.items()), None)

        with self._changed:
            found = self._changed.wait_for(find, CLIENT_LIMIT_S)
            assert found is not None, f"the application prints no {wanted}, only {self._lines}"
            self._lines.remove(found)
        return found

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(json.loads(line))
                self._changed.notify_all()
