"""The outbox: its file, the thread that writes it, and its two interfaces on the event loop."""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from fogline.commands.command import Command
from fogline.tracing.spans import ExportSpans
from fogline_edge.machine.boot import SYSTEM, Clock
from fogline_edge.outbox.file.copy_file import CopyFile
from fogline_edge.outbox.file.data_folder import DataFolder, RunEnd, journal_name
from fogline_edge.outbox.file.free_space import is_damage, may_wait, opening
from fogline_edge.outbox.file.full_record import FullRecord
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.file.schema import Connect, connect_file
from fogline_edge.outbox.gathering import Gathering
from fogline_edge.outbox.port import OutboxPort
from fogline_edge.outbox.rows.message_rows import unpublished
from fogline_edge.outbox.startup import open_file
from fogline_edge.outbox.uplink_streams import UplinkStreams
from fogline_edge.outbox.window_timer import WindowTimer
from fogline_edge.outbox.writer.ingest import Act, Waiting
from fogline_edge.outbox.writer.quarantine import EventKey
from fogline_edge.outbox.writer.reactor import report_in_doubt
from fogline_edge.outbox.writer.rejection import empty_quarantine
from fogline_edge.outbox.writer.store import OutboxStore, history_of, windows_due_ms
from fogline_edge.outbox.writer.writer import Writer
from fogline_edge.outbox.writer.writer_queue import LoopCalls, NewRows, Results, Settlement, WriterCallbacks
from fogline_edge.settings import EdgeSettings

_log = logging.getLogger("fogline.outbox")
T = TypeVar("T")


class Outbox:
    """The durable queue. Open it with `Outbox.open`. Call all methods on the loop.

    `port`: for adapters and the downlink, which store arrivals. `streams`: for the uplink, which reads and settles events.
    `failed` completes with a reason when the file fails. `copy`: which copy of the outbox this is. `journal`: the name of its
    journal of commands. `on_commands`: gets the commands that rules gave, after the commit. Without it, the journal has them.
    """

    def __init__(
        self,
        settings: EdgeSettings,
        connection: sqlite3.Connection,
        folder: DataFolder,
        clock: Clock = SYSTEM,
        *,
        export: ExportSpans | None = None,
    ) -> None:
        self.clock = clock
        self.tenant = settings.tenant
        self.gateway = settings.gateway
        self.max_bytes = settings.outbox.max_bytes
        self._folder = folder
        self.copy = CopyFile(folder.path)
        self.journal = journal_name(connection)
        self.on_commands: Callable[[list[Command]], None] = lambda _: None
        self._gathering = Gathering(settings.outbox, clock, self._submit)
        self.port = OutboxPort(settings, self._gathering, dict(connection.execute(SQL["all_kept"]).fetchall()))
        store = OutboxStore(
            connection,
            settings,
            may_wait=partial(may_wait, folder=folder.path),
            clock=clock,
            export=export,
            history=history_of(settings),
        )
        callbacks = WriterCallbacks(
            committed=lambda *each: self._calls.call_on_loop(self._committed, *each),
            commanded=lambda commands: self._calls.call_on_loop(lambda: self.on_commands(commands)),
            messaged=lambda messages: self._calls.call_on_loop(self.port.events.messages, messages),
            full=lambda full: self._calls.call_on_loop(self._set_full, full),
            fatal=lambda why: self._calls.call_on_loop(self._fatal, why),
            closing=self._closing,
        )
        self._statement_s = settings.uplink.statement_s
        self._full_record = FullRecord(folder.path, settings.outbox.max_bytes, clock)
        self._full_record.opened()
        drops = settings.outbox.drops_oldest
        self._writer = Writer(store, callbacks, drops_oldest=drops, statement_s=self._statement_s, record=self._full_record)
        self._calls = LoopCalls(self._writer.submit)
        self.failed = self._calls.failed
        self.streams = UplinkStreams(self._calls)
        self._loop = asyncio.get_running_loop()
        self._statement_timer = self._loop.call_later(self._statement_s, self._statement_is_due)
        if notes := unpublished(connection):
            self.port.act(partial(report_in_doubt, notes), lambda _: None)
        self._windows = WindowTimer(self.port, lambda: windows_due_ms(store), lambda: store.age.ms)

    @classmethod
    def open(
        cls,
        settings: EdgeSettings,
        connect: Connect = connect_file,
        clock: Clock = SYSTEM,
        *,
        export: ExportSpans | None = None,
    ) -> "Outbox":
        """Open the file in `settings.data` for this process alone. A damaged file is salvaged first.

        `export`: takes the spans of stored events, on the writer's thread.
        Raises `Misconfigured`; its subclass `NoRoom` if the disk is full.
        """
        with opening(Path(settings.data)):
            return cls._open(settings, connect, clock, export)

    @classmethod
    def _open(cls, settings: EdgeSettings, connect: Connect, clock: Clock, export: ExportSpans | None) -> "Outbox":
        connection, folder = open_file(settings, connect, clock)
        try:
            outbox = cls(settings, connection, folder, clock, export=export)
            folder.note(RunEnd.OPEN)
        except BaseException as error:  # interrupts too: nothing may stay locked or open
            with contextlib.suppress(OSError):
                folder.note(RunEnd.DAMAGED if is_damage(error) else RunEnd.FAILED)
            connection.close()
            folder.close()
            raise
        outbox._writer.start()
        return outbox

    async def close(self) -> None:
        """Store the waiting arrivals, then close the file. Do not call `port.put` any more."""
        self._statement_timer.cancel()
        self._windows.close()
        self._gathering.submit()
        self.streams.hand_over()
        self._writer.submit(None)
        await asyncio.to_thread(self._writer.join)
        self._folder.close()

    def suspect(self, why: str) -> None:
        """Report a contradiction in the data read: the process must end, and the next start salvages the file."""
        _log.error("the outbox is damaged: %s", why, extra={"reason": "outbox-damaged"})
        self._folder.note(RunEnd.DAMAGED)
        self._fatal(f"the outbox is damaged: {why}")

    async def read_journal(self, read: Callable[[sqlite3.Connection, tuple[str, str]], T]) -> T:
        """Return the result of `read`, which gets the connection and the identity (tenant, gateway)."""
        return await self._calls.call(lambda store: read(store.connection, store.identity))

    async def answers(self) -> None:
        """Return when the writer has answered. Raises `Misconfigured` if the outbox fails."""
        await self._calls.call(lambda _: None)

    def why_full(self) -> str:
        """Return the reason why no events are acknowledged, and what to do about it; "" if there is room."""
        return self._full_record.sentence

    async def empty_quarantine(self, keys: Sequence[EventKey], *, resend: bool) -> int:
        """Delete events from the quarantine for good, or move them to the ends of their lanes' streams.

        Returns the number of events that existed, or were readable. Raises `Unreachable` if there is no room to move them all.
        """
        return await self._calls.call(partial(empty_quarantine, keys=keys, resend=resend))

    def _submit(self, group: list[Waiting | Act]) -> None:
        self.streams.hand_over()
        self._writer.submit(group)

    def _statement_is_due(self) -> None:
        self._statement_timer = self._loop.call_later(self._statement_s, self._statement_is_due)
        self._writer.submit(Settlement())

    # --- the writer's reports

    def _committed(self, results: Results, new_rows: NewRows, groups: int) -> None:
        self.port.committed(results)
        self.streams.committed(new_rows)
        self._gathering.committed(groups)
        self._windows.look()

    def _set_full(self, full: bool) -> None:  # noqa: FBT001 - a state, not an option
        self.streams.set_full(full)
        self.port.set_full(full)

    def _closing(self, failure: Exception | None) -> None:
        if failure is not None:
            self._folder.note(RunEnd.DAMAGED if is_damage(failure) else RunEnd.FAILED)
        elif not self.failed.done():
            self._folder.note(RunEnd.CLOSING)

    def _fatal(self, why: str) -> None:
        if not self.failed.done():
            self.failed.set_result(why)
