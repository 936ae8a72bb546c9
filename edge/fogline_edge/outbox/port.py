"""The port of the outbox: it takes arrivals as long as there is room, and reports commits and room to adapters."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from fogline.errors import SlowDown
from fogline.events.event import Arrival, Lane, Receipt
from fogline.process.loop_calls import call_soon
from fogline_edge.outbox.gathering import Gathering
from fogline_edge.outbox.rows.group import Group
from fogline_edge.outbox.writer.ingest import Act, Ingest, keep_value
from fogline_edge.outbox.writer.writer_queue import FAILED, Results
from fogline_edge.rules.message import RuleMessage
from fogline_edge.settings import EdgeSettings

MAX_WAITING_EVENTS = 10_000
MAX_WAITING_BYTES = 32 * 1024 * 1024
"""The most items and bytes that may wait for the writer or for room."""

_log = logging.getLogger("fogline.outbox")
T = TypeVar("T")


class OutboxEvents:
    """The events that the writer has committed. See `fogline_edge.adapters.port.CommittedEvents`."""

    def __init__(self, port: "OutboxPort") -> None:
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._publish: Callable[[Sequence[RuleMessage]], None] | None = None
        self._unpublished: list[RuleMessage] = []

    def listen(self, call: Callable[[Sequence[bytes]], None] | None) -> None:
        """See `fogline_edge.adapters.port.CommittedEvents.listen`."""
        tap = None if call is None else partial(call_soon, self._loop, call)
        self._port.act(lambda ingest, _: ingest.tap.set(tap), lambda _: None)

    def publish_by(self, call: Callable[[Sequence[RuleMessage]], None] | None) -> None:
        """See `fogline_edge.adapters.port.CommittedEvents.publish_by`."""
        self._publish = call
        waiting, self._unpublished = self._unpublished, []
        if waiting:
            self.messages(waiting)

    def messages(self, messages: list[RuleMessage]) -> None:
        """Publish committed messages, as soon as somebody can."""
        if self._publish is None:
            self._unpublished += messages  # the reactor bounds them
        else:
            self._publish(messages)


class OutboxPort:
    """A `Port` for adapters, and the changes of the file that the downlink makes. Used on the loop.

    `kept`: the values in the file that adapters keep.
    """

    def __init__(self, settings: EdgeSettings, gathering: Gathering, kept: dict[str, bytes]) -> None:
        self.tenant = settings.tenant
        self.gateway = settings.gateway
        self._gathering = gathering
        self._kept = kept
        self._loop = asyncio.get_running_loop()
        self._waiting_events = 0
        self._waiting_bytes = 0
        self._late: deque[tuple[Arrival, Callable[[Receipt], None]]] = deque()
        self._late_bytes = 0
        self._full = False
        self._room_wanted: list[Callable[[], None]] = []
        self.events = OutboxEvents(self)

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

    def forget(self, slot: bytes, done: Callable[[], None], number: int = 0) -> None:
        """See `fogline_edge.adapters.port.Port.forget`."""
        self.act(lambda ingest, _: ingest.duplicates.resends.forget(slot, number), lambda _: done(), size=len(slot))

    def keep(self, key: str, value: bytes | None, done: Callable[[], None]) -> None:
        """See `fogline_edge.adapters.port.Port.keep`."""
        if value is None:
            self._kept.pop(key, None)
        else:
            self._kept[key] = value
        self.act(
            lambda ingest, _: keep_value(ingest.connection, key, value), lambda _: done(), size=len(key) + len(value or b"")
        )

    def kept(self, prefix: str) -> Mapping[str, bytes]:
        """See `fogline_edge.adapters.port.Port.kept`."""
        return {key: value for key, value in self._kept.items() if key.startswith(prefix)}

    def act(
        self,
        run: Callable[[Ingest, Group], T],
        done: Callable[[T], None],
        *,
        urgent: bool = False,
        size: int = 0,
        reserve: bool = True,
    ) -> None:
        """Call `run` in the next transaction, after all earlier items; `done` gets its result after the commit.

        It runs even when the outbox is full, so `run` must write little; without `reserve`, it waits for room. `urgent`: the
        transaction begins in the next iteration of the loop, without waiting for others. `size`: the bytes that `run` holds in
        memory.
        """
        self._waiting_events += 1
        self._waiting_bytes += size
        self._gathering.act(Act(run, done, size, reserve), urgent=urgent)

    @property
    def crowded(self) -> bool:
        """See `fogline_edge.adapters.port.Port.crowded`."""
        late = len(self._late)
        return self._waiting_events + late >= MAX_WAITING_EVENTS or self._waiting_bytes + self._late_bytes >= MAX_WAITING_BYTES

    # --- the outbox's side

    def committed(self, results: Results) -> None:
        """Call `done` of each committed item."""
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

    def set_full(self, full: bool) -> None:  # noqa: FBT001 - a state, not an option
        """Note whether the outbox is full. Then `put` takes replies only."""
        self._full = full
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
