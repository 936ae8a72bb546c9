"""Gives a gateway another machine: one that is restored from a backup, or one with an empty card."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from demo.polling import until
from demo.snapshot import Snapshot
from demo.workspace import Workspace
from fogline.errors import Misconfigured
from fogline_edge.operate.status import read_status
from fogline_lab.supervisor import ChildProcess, find_script, run_to_end

DRAIN_S = 600.0
"""The longest time until every event of a gateway's devices has landed, through faults of bridges and Kafka."""
LOOK_S = 0.5


class Machines:
    """The machines of the gateways. What a broken machine alone had is lost, so its devices stop first until all has landed."""

    def __init__(self, workspace: Workspace, devices: ChildProcess, snapshot: Snapshot) -> None:
        self._workspace = workspace
        self._devices = devices
        self._snapshot = snapshot
        self._edge = find_script("fogline-edge")
        self._taken = 0

    async def back_up(self, gateway: str) -> Path:
        """Write a backup while the gateway runs. Raises `Misconfigured`."""
        self._taken += 1
        file = self._workspace.folder / f"{gateway}-{self._taken}.backup"
        await self._run("backup", file, "--config", self._workspace.edge(gateway))
        return file

    @asynccontextmanager
    async def drained(self, gateway: str) -> AsyncIterator[None]:
        """Keep the gateway's devices from sending; the block begins once all that it acknowledged to them is in Kafka."""
        number = self._workspace.gateways.index(gateway)
        waiting = self._snapshot.devices.waiting_at
        self._devices.tell(f"pause {number}")
        try:
            await asyncio.sleep(LOOK_S)  # until what the devices tell is what they know after the pause
            async with asyncio.timeout(DRAIN_S):
                await until(lambda: not waiting.get(number))
                heads = await asyncio.to_thread(self._sequences, gateway, "head")
                while not await asyncio.to_thread(self._has_sent, gateway, heads):  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(LOOK_S)
            yield
        except TimeoutError:
            raise Misconfigured(f"{gateway} was not exchanged: events have waited for {DRAIN_S:.0f} s") from None
        finally:
            self._devices.tell(f"resume {number}")

    def _sequences(self, gateway: str, which: str) -> dict[str, int]:
        return {each["stream"]: each[which] for each in read_status(self._workspace.outbox(gateway))["streams"]}

    def _has_sent(self, gateway: str, heads: Mapping[str, int]) -> bool:
        """Return True if Kafka has each stream up to its sequence. A stream that is not there any more was sent whole."""
        settled = self._sequences(gateway, "settled")
        return all(settled.get(stream, head) >= head for stream, head in heads.items())

    async def restore(self, gateway: str, backup: Path) -> None:
        """Put the gateway of a backup in the place of one that does not run. Raises `Misconfigured`."""
        folder = self._workspace.edge(gateway).parent
        await asyncio.to_thread(shutil.rmtree, folder)
        await self._run("restore", backup, "--out", folder)
        await asyncio.to_thread(backup.unlink)

    async def exchange_card(self, gateway: str) -> None:
        """Take the outbox from a gateway that does not run. Settings, key and certificate stay."""
        await asyncio.to_thread(shutil.rmtree, self._workspace.outbox(gateway))

    async def _run(self, *arguments: object) -> None:
        log = self._workspace.logs / "machines.log"
        status, _ = await asyncio.to_thread(run_to_end, [self._edge, *arguments], log, self._workspace.folder)
        if status:
            last = log.read_text("utf-8").strip().rpartition("\n")[2]
            raise Misconfigured(f"fogline-edge {arguments[0]} ended with status {status}: {last}")
