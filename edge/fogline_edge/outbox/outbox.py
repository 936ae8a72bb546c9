"""The outbox's interface on the event loop: adapters store arrivals, and the uplink reads and settles events."""

import asyncio
import contextlib
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from fogline.errors import SlowDown
from fogline.event import Arrival, Lane, Receipt
from fogline.hello import Own
from fogline_edge.boot import SYSTEM, Clock
from fogline_edge.outbox import requests
from fogline_edge.outbox.data_folder import DataFolder, RunEnd
from fogline_edge.outbox.free_space import is_damage, may_wait, opening
from fogline_edge.outbox.gathering import Gathering
from fogline_edge.outbox.group import Group
from fogline_edge.outbox.ingest import Act, Ingest, Waiting
from fogline_edge.outbox.live_rows import LiveRows
from fogline_edge.outbox.quarantine import EventKey
from fogline_edge.outbox.queries import SQL
from fogline_edge.outbox.requests import StreamView
from fogline_edge.outbox.schema import Connect, connect_file
from fogline_edge.outbox.startup import open_file
from fogline_edge.outbox.store import PURGED_ROWS, OutboxStore
from fogline_edge.outbox.streams import EventRecord
from fogline_edge.outbox.writer import Writer
from fogline_edge.outbox.writer_queue import FAILED, IGNORE, Call, LoopCalls, NewRows, Results, Settlement, WriterCallbacks
from fogline_edge.settings import EdgeSettings

MAX_WAITING_EVENTS = 10_000
MAX_WAITING_BYTES = 32 * 1024 * 1024
"""The most items and bytes that may wait for the writer or for room."""
_SETTLE_DELAY_S, _SETTLE_DELAY_FULL_S = 5.0, 0.1  # until the writer learns of settlements if nothing else wakes it

_log = logging.getLogger("fogline.outbox")
T = TypeVar("T")


class Outbox:
    """The durable queue; a `Port` for adapters. Open it with `Outbox.open`. Call all methods on the loop.

    `on_commit` is called on the loop with the name of each stream that has new events; None means any stream. `failed`
    completes with a reason when the file fails.
    """

    def __init__(
        self, settings: EdgeSettings, connection: sqlite3.Connection, folder: DataFolder, clock: Clock = SYSTEM
    ) -> None:
        self.clock = clock
        self.tenant = settings.tenant
        self.gateway = settings.gateway
        self.max_bytes = settings.outbox.max_bytes
        self.on_commit: Callable[[str | None], None] = IGNORE
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        self._gathering = Gathering(settings.outbox, clock, self._submit)
        self._live_rows = LiveRows()
        self._waiting_events = 0
        self._waiting_bytes = 0
        self._late: deque[tuple[Arrival, Callable[[Receipt], None]]] = deque()
        self._late_bytes = 0
        self._full = False
        self._room_wanted: list[Callable[[], None]] = []
        self._kept: dict[str, bytes] = dict(connection.execute(SQL["all_kept"]).fetchall())
        self._settlement = Settlement()
        self._settle_timer: asyncio.TimerHandle | None = None
        self._statement_s = settings.uplink.statement_s
        self._statement_timer = self._loop.call_later(self._statement_s, self._statement_is_due)
        store = OutboxStore(
            connection,
            identity=(settings.tenant, settings.gateway),
            max_bytes=settings.outbox.max_bytes,
            drops_expired=settings.outbox.drops_expired,
            in_flight=settings.uplink.batch_events * settings.uplink.batches_in_flight,
            may_wait=partial(may_wait, folder=folder.path),
            clock=clock,
        )
        callbacks = WriterCallbacks(
            committed=lambda *each: self._calls.call_on_loop(self._committed, *each),
            full=lambda full: self._calls.call_on_loop(self._set_full, full),
            fatal=lambda why: self._calls.call_on_loop(self._fatal, why),
            closing=self._closing,
        )
        self._writer = Writer(
            store, callbacks, drops_oldest=settings.outbox.drops_oldest, statement_s=settings.uplink.statement_s
        )
        self._calls = LoopCalls(self._writer.submit)
        self.failed = self._calls.failed

    @classmethod
    def open(cls, settings: EdgeSettings, connect: Connect = connect_file, clock: Clock = SYSTEM) -> "Outbox":
        """Open the file in `settings.data` for this process alone. A damaged file is salvaged first.

        Raises `Misconfigured`; its subclass `NoRoom` if the disk is full.
        """
        with opening(Path(settings.data)):
            return cls._open(settings, connect, clock)

    @classmethod
    def _open(cls, settings: EdgeSettings, connect: Connect, clock: Clock) -> "Outbox":
        connection, folder = open_file(settings, connect, clock)
        try:
            outbox = cls(settings, connection, folder, clock)
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
        """Store the waiting arrivals, then close the file. Do not call `put` any more."""
        self._statement_timer.cancel()
        self._gathering.submit()
        self._hand_over_settlement()
        self._writer.submit(None)
        await asyncio.to_thread(self._writer.join)
        self._folder.close()

    # --- the port

    def put(self, arrival: Arrival, done: Callable[[Receipt], None]) -> None:
        """See `fogline_edge.adapters.port.Port.put`."""
        if self._full and arrival.lane is not Lane.REPLY:
            raise SlowDown("the outbox is full", retry_after_s=30)
        if self._waiting_events >= MAX_WAITING_EVENTS or self._waiting_bytes + self._late_bytes >= MAX_WAITING_BYTES:
            raise SlowDown("too much waits for the disk", retry_after_s=1)
        self._take(arrival, done)

    def put_when_room(self, arrival: Arrival, done: Callable[[Receipt], None]) -> None:
        """Put an arrival that cannot be refused any more. It waits for room, and counts towards the limits meanwhile."""
        self._late.append((arrival, done))
        self._late_bytes += len(arrival.data)
        self._put_late()

    def _put_late(self) -> None:
        while self._late and self._has_room(1):
            arrival, done = self._late.popleft()
            self._late_bytes -= len(arrival.data)
            self._take(arrival, done)

    def _take(self, arrival: Arrival, done: Callable[[Receipt], None]) -> None:
        self._waiting_bytes += len(arrival.data)
        self._waiting_events += 1
        self._gathering.put(arrival, done)

    def when_room(self, call: Callable[[], None]) -> None:
        """See `fogline_edge.adapters.port.Port.when_room`."""
        self._room_wanted.append(call)
        self._tell_room()

    def forget(self, device: str, slot: bytes, done: Callable[[], None], number: int = 0) -> None:
        """See `fogline_edge.adapters.port.Port.forget`."""
        self.act(lambda ingest, _: ingest.duplicates.resends.forget(device, slot, number), lambda _: done(), size=len(slot))

    def keep(self, key: str, value: bytes | None, done: Callable[[], None]) -> None:
        """See `fogline_edge.adapters.port.Port.keep`."""
        if value is None:
            self._kept.pop(key, None)
        else:
            self._kept[key] = value
        self.act(lambda ingest, _: ingest.keep(key, value), lambda _: done(), size=len(key) + len(value or b""))

    def kept(self, prefix: str) -> Mapping[str, bytes]:
        """See `fogline_edge.adapters.port.Port.kept`."""
        return {key: value for key, value in self._kept.items() if key.startswith(prefix)}

    def act(self, run: Callable[[Ingest, Group], T], done: Callable[[T], None], *, urgent: bool = False, size: int = 0) -> None:
        """Call `run` in the next transaction, after all earlier items; `done` gets its result after the commit.

        It runs even when the outbox is full, so `run` must write little. `urgent`: the transaction begins in the next
        iteration of the loop, without waiting for others. `size`: the bytes that `run` holds in memory.
        """
        self._waiting_events += 1
        self._waiting_bytes += size
        self._gathering.act(Act(run, done, size), urgent=urgent)

    @property
    def crowded(self) -> bool:
        """See `fogline_edge.adapters.port.Port.crowded`."""
        late = len(self._late)
        return self._waiting_events + late >= MAX_WAITING_EVENTS or self._waiting_bytes + self._late_bytes >= MAX_WAITING_BYTES

    def _submit(self, group: list[Waiting | Act]) -> None:
        self._hand_over_settlement()
        self._writer.submit(group)

    def _committed(self, results: Results, new_rows: NewRows, groups: int) -> None:
        for name, rows in new_rows:
            if rows is None:
                self._live_rows.leave(name)
            elif not self._live_rows.add(name, rows):
                self._writer.submit(Call(partial(requests.leave, name=name), done=IGNORE, failed=IGNORE))
        for item, result in results:
            self._waiting_events -= 1
            self._waiting_bytes -= item.size
            if result is FAILED:
                continue
            try:
                item.done(result)
            except Exception:  # noqa: BLE001 - an adapter's error: the others of the group are durable and need their callbacks
                _log.exception("the callback of a commit failed")
        self._tell_room()
        self._gathering.committed(groups)
        for name, _ in new_rows:
            self.on_commit(name)

    def _set_full(self, full: bool) -> None:  # noqa: FBT001 - a state, not an option
        self._full = full
        self._hand_over_settlement()
        self._tell_room()

    def _has_room(self, share: int) -> bool:
        """Return True if the waiting items are below 1/`share` of their limits and the file is not full."""
        few = self._waiting_events < MAX_WAITING_EVENTS // share and self._waiting_bytes < MAX_WAITING_BYTES // share
        return few and not self._full

    def _tell_room(self) -> None:
        if not self._has_room(2):
            return
        self._put_late()
        if self._late:
            return
        wanted, self._room_wanted = self._room_wanted, []
        for call in wanted:
            self._loop.call_soon(call)

    def suspect(self, why: str) -> None:
        """Report a contradiction in the data read: the process must end, and the next start salvages the file."""
        _log.error("the outbox is damaged: %s", why)
        self._folder.note(RunEnd.DAMAGED)
        self._fatal(f"the outbox is damaged: {why}")

    def _closing(self, failure: Exception | None) -> None:
        if failure is not None:
            self._folder.note(RunEnd.DAMAGED if is_damage(failure) else RunEnd.FAILED)
        elif not self.failed.done():
            self._folder.note(RunEnd.CLOSING)

    def _fatal(self, why: str) -> None:
        if not self.failed.done():
            self.failed.set_result(why)

    # --- the uplink's side

    async def streams(self) -> list[StreamView]:
        """Return every stream that hello announces: open ones, and closed ones with unsettled rows."""
        self._hand_over_settlement()
        return await self._calls.call(requests.pending)

    async def own(self, stream: str, chain_sequence: int, now_ns: int) -> Own | None:
        """Return a stream's state for hello, or None if there is none of that name.

        `chain_sequence`: the sequence of the bridge's newest chain value. `now_ns`: the bridge's clock.
        """
        return await self._calls.call(partial(requests.own, name=stream, chain_sequence=chain_sequence, now_ns=now_ns))

    async def read(self, stream: str, after: int, limit: int, limit_bytes: int | None = None) -> list[EventRecord]:
        """Return at most `limit` events of a stream with sequences above `after`, in order.

        Their bodies have at most `limit_bytes` in total, unless the first one alone has more.
        """
        rows = self._live_rows.take(stream, after, limit, limit_bytes)
        if rows is not None:
            return rows

        def run(store: OutboxStore) -> list[EventRecord]:
            found, live = requests.read(store, stream, after, limit, limit_bytes)
            if live:  # before any row that is committed later
                self._calls.call_on_loop(self._live_rows.follow, stream, found[-1].sequence if found else after)
            return found

        return await self._calls.call(run)

    def stop_sending(self) -> None:
        """Note that the connection has ended: nothing is sent until the next one reads the streams again."""
        self.on_commit = IGNORE
        self._live_rows.clear()
        self._writer.submit(Call(requests.leave, done=IGNORE, failed=IGNORE))

    def settle(self, stream: str, upto: int) -> None:
        """Note that the bridge accepted everything up to `upto`. The rows are deleted later, many at a time.

        After a crash in between the rows are sent again, and the bridge discards them.
        """
        self._settlement.upto[stream] = max(upto, self._settlement.upto.get(stream, 0))
        if self._settlement.sent.get(stream, 0) >= PURGED_ROWS:
            self._hand_over_settlement()
        else:
            self._settle_soon()

    def count_sent(self, stream: str, events: int) -> None:
        """Count events that were handed to the connection."""
        self._settlement.sent[stream] = self._settlement.sent.get(stream, 0) + events
        self._settle_soon()

    async def quarantine(self, stream: str, sequence: int, condition: str, description: str) -> bool:
        """Move one rejected event to quarantine; a gap record takes its place in the stream.

        Returns False if the event is itself a gap record, which is never quarantined.
        """
        rejected = requests.RejectedEvent(stream, sequence, condition, description)
        done = await self._calls.call(partial(requests.quarantine, rejected=rejected))
        self.on_commit(None)  # events that were deleted to make room have a gap record at the end of a stream
        return done

    async def delete_quarantined(self, keys: Sequence[EventKey]) -> int:
        """Delete events from the quarantine for good. Returns the number of events that existed."""
        return await self._calls.call(partial(requests.empty_quarantine, keys=keys, resend=False))

    async def resend_quarantined(self, keys: Sequence[EventKey]) -> int:
        """Move events from the quarantine to the ends of their lanes' streams. Returns the number of readable events.

        Raises `Unreachable` if there is no room; then no event was moved.
        """
        return await self._calls.call(partial(requests.empty_quarantine, keys=keys, resend=True))

    async def read_journal(self, read: Callable[[sqlite3.Connection, tuple[str, str]], T]) -> T:
        """Return the result of `read`, which gets the connection and the identity (tenant, gateway)."""
        return await self._calls.call(lambda store: read(store.connection, store.identity))

    async def reopen(self, stream: str, upto: int, why: str) -> None:
        """Move a stream's events above `upto` to a new stream, marked `replayed`: its numbering cannot be trusted."""
        _log.error("stream %s: %s. Resending its unconfirmed events in a new stream.", stream, why)
        while await self._calls.call(partial(requests.reopen, name=stream, upto=upto, why=why)):
            pass
        self.on_commit(None)

    async def split_backlog(self, lanes: frozenset[Lane], events: int) -> None:
        """For each lane with more than `events` waiting, send new events first, in a stream of their own.

        Raises `Unreachable` if there is no room for the new stream.
        """
        self._hand_over_settlement()
        for each in await self._calls.call(partial(requests.split_backlog, lanes=lanes, events=events)):
            _log.warning("lane %s: %d events wait; new events are sent before them", each.lane, each.backlog)

    def _statement_is_due(self) -> None:
        self._statement_timer = self._loop.call_later(self._statement_s, self._statement_is_due)
        self._writer.submit(Settlement())

    def _settle_soon(self) -> None:
        if self._settle_timer is None:
            delay_s = _SETTLE_DELAY_FULL_S if self._full else _SETTLE_DELAY_S
            self._settle_timer = self._loop.call_later(delay_s, self._hand_over_settlement)

    def _hand_over_settlement(self) -> None:
        if self._settle_timer is not None:
            self._settle_timer.cancel()
            self._settle_timer = None
        if self._settlement.upto or self._settlement.sent:
            self._writer.submit(self._settlement)
            self._settlement = Settlement()
