"""The outbox as the event loop sees it: the port that adapters put arrivals into, and what the uplink reads and settles."""

import asyncio
import contextlib
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fogline.errors import SlowDown
from fogline.event import Arrival, Lane, Receipt
from fogline.hello import Own
from fogline_edge.boot import SYSTEM, Clock, Moment, moment
from fogline_edge.outbox import quarantine, work
from fogline_edge.outbox.between import Between
from fogline_edge.outbox.damage import is_damage
from fogline_edge.outbox.folder import Ending, Folder
from fogline_edge.outbox.ingest import Act, Group, Ingest, Waiting
from fogline_edge.outbox.opening import open_file
from fogline_edge.outbox.quarantine import Place
from fogline_edge.outbox.queries import SQL
from fogline_edge.outbox.room import may_wait, opening
from fogline_edge.outbox.schema import Connect, connect_file
from fogline_edge.outbox.streams import Row
from fogline_edge.outbox.work import StreamView
from fogline_edge.outbox.writer import Writer
from fogline_edge.outbox.writer_queue import FAILED, Settlement, Told
from fogline_edge.settings import Settings

MAX_WAITING_EVENTS = 10_000
MAX_WAITING_BYTES = 32 * 1024 * 1024
"""The most that may wait for the writer: events, answers, what is to be kept or forgotten, and what waits for room."""
_SETTLE_DELAY_S = 0.1

_log = logging.getLogger("fogline.outbox")
T = TypeVar("T")


class Outbox:
    """Open it with `Outbox.open`; a `Port` for adapters. All methods are called on the loop.

    `on_commit` is called on the loop after each commit that added events.
    """

    def __init__(self, settings: Settings, connection: sqlite3.Connection, folder: Folder, clock: Clock = SYSTEM) -> None:
        self.clock = clock
        self.tenant = settings.tenant
        self.gateway = settings.gateway
        self.max_bytes = settings.outbox.max_bytes
        self.on_commit: Callable[[], None] = lambda: None
        self._between = Between()
        self.failed = self._between.failed
        self._settings = settings.outbox
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        self._group: list[Waiting | Act] = []
        self._group_when: Moment = moment(clock)
        self._full_group = settings.outbox.group_commit_events - 1
        self._flush: asyncio.TimerHandle | None = None
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
        self._writer = Writer(
            connection,
            tenant=settings.tenant,
            gateway=settings.gateway,
            max_bytes=settings.outbox.max_bytes,
            lets_go=settings.outbox.lets_go,
            expires=settings.outbox.expires,
            in_flight=settings.uplink.batch_events * settings.uplink.batches_in_flight,
            statement_s=settings.uplink.statement_s,
            clock=clock,
            may_wait=partial(may_wait, folder=folder.path),
            told=Told(
                committed=lambda results: self._between.tell(self._committed, results),
                full=lambda full: self._between.tell(self._set_full, full),
                fatal=lambda why: self._between.tell(self._fatal, why),
                closing=self._closing,
            ),
        )

    @classmethod
    def open(cls, settings: Settings, connect: Connect = connect_file, clock: Clock = SYSTEM) -> "Outbox":
        """Open the file in `settings.data` for this process alone; one that is damaged is salvaged first.

        Raises `Misconfigured`, and of it `NoRoom` where the disk is full.
        """
        with opening(Path(settings.data)):
            return cls._open(settings, connect, clock)

    @classmethod
    def _open(cls, settings: Settings, connect: Connect, clock: Clock) -> "Outbox":
        connection, folder = open_file(settings, connect, clock)
        try:
            outbox = cls(settings, connection, folder, clock)
            folder.note(Ending.OPEN)
        except BaseException as error:  # whatever it is: nothing stays locked or open
            with contextlib.suppress(OSError):
                folder.note(Ending.DAMAGED if is_damage(error) else Ending.FAILED)
            connection.close()
            folder.close()
            raise
        outbox._writer.start()
        return outbox

    async def close(self) -> None:
        """Store what waits, then close the file. Nothing may be put any more."""
        self._statement_timer.cancel()
        self._hand_over()
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
        """As `put`, for what was taken already and cannot be refused any more: it waits for room, and counts meanwhile."""
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
        group = self._group
        if not group:
            self._group_when = moment(self.clock)
        elif len(group) < self._full_group:
            self._waiting_events += 1
            group.append(Waiting(arrival, self._group_when, done))
            return
        self._gather(Waiting(arrival, self._group_when, done))

    def _gather(self, work: Waiting | Act) -> None:
        """Into the group that is committed next."""
        self._waiting_events += 1
        if isinstance(work, Act):
            self._waiting_bytes += work.size
        self._group.append(work)
        if len(self._group) >= self._settings.group_commit_events:
            self._hand_over()
        elif self._flush is None:
            self._flush = self._loop.call_later(self._settings.group_commit_ms / 1000, self._hand_over)

    def when_room(self, call: Callable[[], None]) -> None:
        """See `fogline_edge.adapters.port.Port.when_room`."""
        self._room_wanted.append(call)
        self._tell_room()

    def forget(self, device: str, slot: bytes, done: Callable[[], None], number: int = 0) -> None:
        """See `fogline_edge.adapters.port.Port.forget`."""
        self.act(lambda ingest, _: ingest.forget(device, slot, number), lambda _: done(), size=len(slot))

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
        """Have `run` done in the next transaction, after everything put before; `done` gets its result after the commit.

        It is taken even when the outbox is full: `run` must write little. `urgent`: the transaction begins at the next
        turn of the loop, and waits for nothing else. `size`: the bytes that `run` holds in memory.
        """
        if not self._group:
            self._group_when = moment(self.clock)
        self._gather(Act(run, done, size))
        if urgent and self._group:
            if self._flush is not None:
                self._flush.cancel()
            self._flush = self._loop.call_later(0, self._hand_over)

    @property
    def crowded(self) -> bool:
        """See `fogline_edge.adapters.port.Port.crowded`."""
        late = len(self._late)
        return self._waiting_events + late >= MAX_WAITING_EVENTS or self._waiting_bytes + self._late_bytes >= MAX_WAITING_BYTES

    def _hand_over(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._group:
            self._writer.submit(self._group)
            self._group = []

    def _committed(self, results: list[tuple[Waiting | Act, Any]]) -> None:
        for work_done, result in results:
            self._waiting_events -= 1
            self._waiting_bytes -= work_done.size
            if result is FAILED:
                continue
            try:
                work_done.done(result)
            except Exception:  # noqa: BLE001 - an adapter's error: the others of the group are durable too, and are to be told
                _log.exception("what was told of a commit raised")
        self._tell_room()
        self.on_commit()

    def _set_full(self, full: bool) -> None:  # noqa: FBT001 - a state, not an option
        self._full = full
        self._tell_room()

    def _has_room(self, share: int) -> bool:
        """Return True if less than one `share`-th of what may wait does."""
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
        """What was read cannot be: the process has to end, and the next start salvages the file."""
        _log.error("the outbox is damaged: %s", why)
        self._folder.note(Ending.DAMAGED)
        self._fatal(f"the outbox is damaged: {why}")

    def _closing(self, failure: Exception | None) -> None:
        if failure is not None:
            self._folder.note(Ending.DAMAGED if is_damage(failure) else Ending.FAILED)
        elif not self.failed.done():
            self._folder.note(Ending.CLOSING)

    def _fatal(self, why: str) -> None:
        if not self.failed.done():
            self.failed.set_result(why)

    # --- the uplink's side

    async def streams(self) -> list[StreamView]:
        """Every stream that the bridge has to hear of: open ones, and closed ones with unsettled rows."""
        self._hand_over_settlement()
        return await self._between.call(self._writer, work.pending)

    async def own(self, stream: str, chain_sequence: int) -> Own | None:
        """What hello needs to know of a stream, `None` if there is none of that name.

        `chain_sequence`: where the bridge's newest chain value stands.
        """
        return await self._between.call(self._writer, partial(work.own, name=stream, chain_sequence=chain_sequence))

    async def read(self, stream: str, after: int, limit: int, limit_bytes: int | None = None) -> list[Row]:
        """At most `limit` events of a stream with sequences above `after`, in order.

        Their bodies have at most `limit_bytes` together, unless it is one alone.
        """
        run = partial(work.read, name=stream, after=after, limit=limit, limit_bytes=limit_bytes)
        return await self._between.call(self._writer, run)

    def settle(self, stream: str, upto: int) -> None:
        """The bridge accepted everything up to `upto`. Written with the next transaction, within a moment."""
        self._settlement.upto[stream] = max(upto, self._settlement.upto.get(stream, 0))
        self._settle_soon()

    def count_sent(self, stream: str, events: int) -> None:
        """`events` were handed to the connection."""
        self._settlement.sent[stream] = self._settlement.sent.get(stream, 0) + events
        self._settle_soon()

    async def quarantine(self, stream: str, sequence: int, condition: str, description: str) -> bool:
        """Set one refused event aside; a gap record takes its place in the stream.

        `False` if a gap record stands there: nothing takes the place of that.
        """
        refusal = work.Refusal(stream, sequence, condition, description)
        done = await self._between.call(self._writer, partial(work.quarantine, refusal=refusal))
        self.on_commit()  # what had to go for it has a gap record at the end of its stream
        return done

    async def delete_refused(self, places: Sequence[Place]) -> int:
        """Delete events from the quarantine for good. Returns how many there were."""
        return await self._between.call(self._writer, partial(quarantine.delete, places=places))

    async def resend_refused(self, places: Sequence[Place]) -> int:
        """Move events from the quarantine to the ends of their streams. Returns how many could be read.

        Raises `Unreachable` if there is no room; then none was moved.
        """
        return await self._between.call(self._writer, partial(quarantine.resend, places=places))

    async def read_journal(self, read: Callable[[sqlite3.Connection, tuple[str, str]], T]) -> T:
        """What `read` finds in the file; it is given the connection, and tenant and gateway."""
        return await self._between.call(self._writer, lambda writer: read(writer.connection, writer.identity))

    async def reopen(self, stream: str, upto: int, why: str) -> None:
        """Move everything of a stream above `upto` to a new one, marked `replayed`: its numbering cannot be trusted."""
        _log.error("stream %s begins anew: %s", stream, why)
        await self._between.call(self._writer, partial(work.reopen, name=stream, upto=upto, why=why))
        self.on_commit()

    async def part(self, lanes: frozenset[Lane], events: int) -> None:
        """Let what is new of `lanes` go before what waits, where that is more than `events`.

        Raises `Unreachable` if there is no room to write that down.
        """
        self._hand_over_settlement()
        for each in await self._between.call(self._writer, partial(work.part, lanes=lanes, events=events)):
            _log.warning("lane %s: %d events wait, what is new goes before them", each.lane, each.backlog)

    def _statement_is_due(self) -> None:
        self._statement_timer = self._loop.call_later(self._statement_s, self._statement_is_due)
        self._writer.submit(Settlement())

    def _settle_soon(self) -> None:
        if self._settle_timer is None:
            self._settle_timer = self._loop.call_later(_SETTLE_DELAY_S, self._hand_over_settlement)

    def _hand_over_settlement(self) -> None:
        if self._settle_timer is not None:
            self._settle_timer.cancel()
            self._settle_timer = None
        if self._settlement.upto or self._settlement.sent:
            self._writer.submit(self._settlement)
            self._settlement = Settlement()
