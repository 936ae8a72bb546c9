"""All that an outbox does in its life, in little, on a disk that records it; what is said outside is noted in place."""

import asyncio
from functools import partial
from itertools import count
from pathlib import Path

from chaos.books import Note, arrival, numbers
from fogline.commands.command import CommandState, Reply
from fogline.events.event import Lane, Receipt
from fogline_edge.downlink import journal
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, OutboxSettings, UplinkSettings
from fogline_lab.amqp import within
from fogline_lab.commands import make_command
from fogline_lab.disk import Disk

ANSWER = Reply(200, b"done", "text/plain")


def settings(folder: Path, statement_s: float = 3600, **outbox) -> EdgeSettings:
    outbox = OutboxSettings(**{"group_commit_ms": 1, **outbox})
    uplink = UplinkSettings(statement_s=statement_s)
    return EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder), outbox=outbox, uplink=uplink)


class Life:
    """An outbox at work. Everything that is asked of it is noted before, everything that it tells after."""

    def __init__(self, disk: Disk, folder: Path, connect=None, **options) -> None:
        self.disk = disk
        self._open = lambda: Outbox.open(settings(folder, **options), connect or disk.connect)
        self._numbers = count(1)
        self.start()

    def start(self) -> None:
        """Open the outbox, as a new process would."""
        self.outbox = self._open()

    def note(self, what: str, of: object, value: object = None) -> None:
        self.disk.note(Note(what, of, value))

    async def _committed(self, ask) -> None:
        done = asyncio.get_running_loop().create_future()
        ask(lambda *_: done.done() or done.set_result(None))
        await within(done, "nothing was committed")

    def send(self, n: int | None = None, *, again: bool = False) -> "asyncio.Future[Receipt]":
        """One arrival, the next if none is named; its receipt will be there once it is acknowledged."""
        n = next(self._numbers) if n is None else n
        done = asyncio.get_running_loop().create_future()

        def acknowledge(receipt):
            self.note("acknowledged", n)
            done.set_result(receipt)

        self.note("put", n)
        self.outbox.port.put(arrival(n, again=again), acknowledge)
        return done

    async def put(self, events: int) -> None:
        """So many arrivals at once; they may be acknowledged in several groups."""
        await within(asyncio.gather(*(self.send() for _ in range(events))), "not acknowledged")

    async def settle(self, leave: int) -> None:
        """The bridge accepts all of each lane but the last few; replies stay, so that they can be counted."""
        for stream in await self.outbox.streams.pending():
            upto = stream.head - leave
            if stream.lane is not Lane.REPLY and upto > stream.settled:
                rows = await self.outbox.streams.read(stream.stream, stream.settled, upto - stream.settled)
                self.note("may_go", frozenset(numbers(row.body for row in rows)))
                self.outbox.streams.settle(stream.stream, upto)
                self.outbox.streams.count_sent(stream.stream, 1)
        await self.outbox.streams.pending()

    async def forget(self, n: int) -> None:
        self.note("forgotten", n)
        await self._committed(lambda done: self.outbox.port.forget(b"mqtt", done, n))

    async def keep(self, key: str, value: bytes | None) -> None:
        self.note("asked", key, value)
        await self._committed(lambda done: self.outbox.port.keep(key, value, done))
        self.note("told", key, value)

    async def _become(self, command: str, state: CommandState, run) -> None:
        self.note("commands", command, (state, False))
        await self._committed(lambda done: self.outbox.port.act(run, done, urgent=True))
        self.note("commands", command, (state, True))

    async def command(self, name: str) -> None:
        """A command through all of its states."""
        command = make_command(id=name)
        await self._become(name, CommandState.QUEUED, partial(journal.store, command=command, first=CommandState.QUEUED))
        await self._become(name, CommandState.SENDING, partial(journal.set_state, command_id=name, state=CommandState.SENDING))
        finish = partial(journal.store_answer, device="lamp-1", command_id=name, reply=ANSWER)
        await self._become(name, CommandState.SUCCEEDED, finish)

    async def quarantine(self) -> None:
        """The newest telemetry event is refused."""
        stream = await self._telemetry()
        (row,) = await self.outbox.streams.read(stream.stream, stream.head - 1, 1)
        await self.outbox.streams.quarantine(stream.stream, stream.head, "amqp:decode-error", "not readable")
        self.note("set_aside", frozenset(numbers([row.body])))

    async def begin_anew(self) -> None:
        """The numbering of telemetry is in doubt."""
        stream = await self._telemetry()
        await self.outbox.streams.reopen(stream.stream, stream.settled, "the chains differ")

    async def _telemetry(self):
        return next(each for each in await self.outbox.streams.pending() if each.lane is Lane.TELEMETRY)

    async def checkpoint(self) -> None:
        """Everything from the WAL into the file."""
        await self.outbox.read_journal(lambda connection, _: connection.execute("PRAGMA wal_checkpoint").fetchall())

    async def restart(self) -> None:
        await self.outbox.close()
        self.start()


async def live(disk: Disk, folder: Path, connect=None) -> None:
    """A whole life: restarts with everything in between."""
    life = Life(disk, folder, connect)
    for turn in range(3):
        await life.put(7)
        await life.keep("session", b"%d" % turn)
        await asyncio.gather(life.put(4), life.command(f"C{turn}"))
        if turn:
            await life.forget(turn * 3)
        await asyncio.gather(life.settle(leave=3), life.put(3))
        if turn % 2:
            await life.quarantine()
        await life.checkpoint()
        await life.put(2)
        if turn == 2:
            await life.begin_anew()
            await life.keep("session", None)
        await life.settle(leave=2)
        await life.put(1)
        await life.restart()
    await life.outbox.close()


async def answered(outbox: Outbox, name: str):
    """A command comes, is tried, and is answered; what the journal says of the answer."""
    loop = asyncio.get_running_loop()
    store = partial(journal.store, command=make_command(id=name), first=CommandState.SENDING)
    stored, told = loop.create_future(), loop.create_future()
    outbox.port.act(store, stored.set_result, urgent=True)
    assert await within(stored, "the command is not stored") is journal.JournalResult.NEW
    answer = partial(journal.store_answer, device="lamp-1", command_id=name, reply=ANSWER)
    outbox.port.act(answer, told.set_result, urgent=True)
    return await within(told, "the answer is not stored")
