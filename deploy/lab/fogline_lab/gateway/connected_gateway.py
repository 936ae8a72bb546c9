"""A gateway's outbox, downlink and uplink in this process, without adapters."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fogline.amqp.backoff import Backoff
from fogline.amqp.outcome import Outcome
from fogline.commands.cancel import CancelRequest
from fogline.commands.command import Command, Deadline, JournalQuery, Reply, digest
from fogline.commands.signature import TrustedKeys
from fogline.events.codec import decode_event
from fogline.events.event import Lane, Receipt
from fogline_edge.credentials.credential_updates import CredentialUpdates
from fogline_edge.downlink.device_queues import THE_GATEWAY
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.downlink.history_reader import HistoryReader
from fogline_edge.machine.boot import beacon
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, OutboxSettings, UplinkSettings
from fogline_edge.uplink.session import OnCommand
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.clock import LoopClock
from fogline_lab.commands import make_command

LIMIT_S = 60.0


class Impatient(Backoff):
    """Pauses of a gateway that comes back soon, also if a bridge that has no shard yet asks for longer."""

    def requested_s(self, wanted_s: float) -> float:
        """See `Backoff.requested_s`."""
        return super().requested_s(min(wanted_s, 0.2))


@dataclass
class OfflineGateway:
    """An outbox with its journal and downlink, without a connection to a bridge: a test hands the messages over."""

    outbox: Outbox
    downlink: Downlink

    async def receive(self, message: Command | JournalQuery | CancelRequest) -> Outcome:
        """Hand a message of the bridge over. Returns its outcome."""
        settled: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.downlink.received(message, settled.set_result)
        return await asyncio.wait_for(settled, LIMIT_S)

    async def answer(self, command_id: str, status: int = 200, data: bytes = b"ok", device: str = "lamp-1") -> Receipt:
        """Answer a command as its device's adapter does. Returns the receipt."""
        receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self.downlink.answer(device, command_id, Reply(status, data, "text/plain"), receipt.set_result)
        return await asyncio.wait_for(receipt, LIMIT_S)

    async def replies(self, count: int) -> list[tuple[str | None, str | None, int | None]]:
        """Return command, state and status of each event on lane `reply`, once there are `count`."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                found = []
                for stream in await self.outbox.streams.pending():
                    if stream.lane is Lane.REPLY:
                        found += [decode_event(row.body) for row in await self.outbox.streams.read(stream.stream, 0, 100)]
                if len(found) >= count:
                    return [(each.commandid, each.commandstate, each.status) for each in found]
                await asyncio.sleep(0.005)


@asynccontextmanager
async def opened_gateway(settings: EdgeSettings, keys: TrustedKeys | None = None) -> AsyncIterator[OfflineGateway]:
    """Open an outbox with its downlink, for the length of a block. Deadlines of commands pass with `pass_time`."""
    outbox = Outbox.open(settings, clock=LoopClock())
    downlink = Downlink(outbox, keys or TrustedKeys())
    await downlink.start()
    keeps = any(each.keep_days is not None for each in settings.rules.reduce)
    reader = HistoryReader(downlink, Path(settings.data), keeps=keeps)
    downlink.reachable(THE_GATEWAY, reader)
    try:
        yield OfflineGateway(outbox, downlink)
    finally:
        await reader.close()
        downlink.close()
        await outbox.close()


@asynccontextmanager
async def offline_gateway(folder: Path, keys: TrustedKeys | None = None, **outbox: object) -> AsyncIterator[OfflineGateway]:
    """Open gateway `gw-1` of tenant `acme` with its data in `folder`. `outbox`: settings of the outbox."""
    limits = OutboxSettings(**outbox)  # type: ignore[arg-type]
    async with opened_gateway(
        EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder / "data"), outbox=limits), keys
    ) as gw:
        yield gw


@asynccontextmanager
async def connected_gateway(
    settings: EdgeSettings, keys: TrustedKeys | None = None, backoff: Backoff | None = None
) -> AsyncIterator[tuple[Outbox, Downlink]]:
    """Open a gateway that sends its events to the bridge of its settings and takes commands from it."""
    async with (
        opened_gateway(settings, keys) as opened,
        running_uplink(opened.outbox, settings.uplink, opened.downlink.received, backoff),
    ):
        yield opened.outbox, opened.downlink


@asynccontextmanager
async def running_uplink(
    outbox: Outbox,
    settings: UplinkSettings,
    on_command: OnCommand | None = None,
    backoff: Backoff | None = None,
    credentials: CredentialUpdates | None = None,
) -> AsyncIterator[Uplink]:
    """Keep an outbox connected to its bridge, for the length of a block. Without `on_command` a command is an error."""
    pauses = backoff or Backoff(base_s=0.05, cap_s=0.5)
    uplink = Uplink(outbox, settings, on_command or no_commands, pauses, credentials=credentials)
    task = asyncio.create_task(uplink.run(), name=f"uplink of {outbox.gateway}")
    try:
        yield uplink
    finally:
        task.cancel()
        await asyncio.wait({task})


def no_commands(message: Command | JournalQuery | CancelRequest, settle: Callable[[Outcome], None]) -> None:  # noqa: ARG001
    """Take no command. Raises `AssertionError`."""
    raise AssertionError("nobody has sent a command")


def durable_command(command_id: str = "C1", *, in_s: float = 60.0, **other: object) -> Command:
    """Make a durable command whose deadline is `in_s` seconds from now on this machine's clock."""
    now = beacon()
    deadline = Deadline(now.boot_id, now.boottime_ms + int(in_s * 1000))
    return make_command(**{"id": command_id, "durable": True, "deadline": deadline, **other})  # type: ignore[arg-type]


def cancel_request(command: Command, **change: object) -> CancelRequest:
    """Make an operator's request to cancel a command, with some attributes changed."""
    request = CancelRequest(
        id=command.id,
        tenant=command.tenant,
        gateway=command.gateway,
        device=command.device,
        name=command.name,
        digest=digest(command),
        deadline=command.deadline,
        why="cancelled by client acme/op-1",
    )
    return msgspec.structs.replace(request, **change)
