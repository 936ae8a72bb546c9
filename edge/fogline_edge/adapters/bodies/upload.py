"""One large body while it comes: its chunks go to the port, and the event of the device follows them."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec

from fogline.errors import Poison, SlowDown
from fogline.events.event import Arrival, Lane, Receipt
from fogline.events.large_body import (
    CHUNK_BYTES,
    CHUNK_CONTENT_TYPE,
    BodyChunk,
    BodyDigests,
    BodyNote,
    BodyRef,
    end_of_body,
    new_body_id,
    unfinished_key,
)
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_edge.adapters.port import Port
from fogline_edge.body_settings import BodySettings

NO_ROOM_RETRY_S = 30
WINDOW = 8
"""Chunks of a body that may wait for their commit. Beyond that the adapter should read no more of it.

With half of them a body needs nearly twice the commits, and waits for each (docs/proofs/performance.md).
"""

Done = Callable[[Receipt], None]


class UploadOwner(Protocol):
    """The uploads, as one of them sees them. `most`: limit of a body, in bytes."""

    port: Port
    settings: BodySettings
    most: int

    def ended(self, upload: "BodyUpload", *, whole: bool) -> None:
        """Take note that the upload has come whole, or was given up."""

    def committed(self, upload: "BodyUpload") -> None:
        """Take note that the event or the end of the upload is durable, so that nothing of it is in memory any more."""


class BodyUpload:
    """A body that comes. Used on the loop.

    `event`: the device's event, without data. `id`: of the body. `on_room`: called when the adapter may read on after
    `crowded`: at most once a commit, and when the body is given up because of its idle time. Then `write` says why.
    """

    def __init__(self, owner: UploadOwner, event: Arrival, on_room: Callable[[], None]) -> None:
        self.event = event
        self.size = 0
        self.over = False
        self.id = new_body_id(time.time())
        self._owner = owner
        self._most = owner.most
        self._loop = asyncio.get_running_loop()
        self._until_s = self._loop.time() + owner.settings.max_time_s
        self._on_room = on_room
        self._digests = BodyDigests(event.channel)
        self._buffer = bytearray()
        self._chunks = 0
        self._to_put: deque[tuple[Arrival, Done]] = deque()
        self._uncommitted = 0
        self._waits_for_room = False
        self._starved = False
        self._written_s = self._loop.time()
        self._idle = self._loop.call_later(owner.settings.idle_timeout_s, self._look)
        note = msgspec.json.encode(BodyNote(event.device, event.channel, event.adapter, event.type))
        owner.port.keep(unfinished_key(self.id), note, lambda: None)

    @property
    def crowded(self) -> bool:
        """True while so many chunks wait for their commit that no more of the body should be read.

        Also after the body was given up while they waited.
        """
        return self._starved or len(self._to_put) + self._uncommitted >= WINDOW

    def write(self, data: bytes) -> None:
        """Add the next bytes of the body.

        Raises `Poison` (`too-big`, `late`), and `SlowDown` if the body was given up for want of room. Then it is over.
        """
        self._check_time()
        self._written_s = self._loop.time()
        if self.size + len(data) > self._most:
            self.give_up()
            raise Poison("too-big", f"a body has at most {self._most} bytes")
        self.size += len(data)
        self._digests.update(data)
        self._buffer += data
        while len(self._buffer) >= CHUNK_BYTES:
            self._cut()
        self._put()

    def finish(self, done: Done) -> None:
        """Store the event: the body has come whole. `done` is called as by `Port.put`. Raises as `write` does."""
        self._check_time()
        if self._buffer:
            self._cut()
        self._end()
        ref = BodyRef(self.id, self._chunks, self.size, self._digests.sha256)
        event = msgspec.structs.replace(
            self.event, lane=Lane.BULK, data=b"", dataref=str(ref), body_digest=self._digests.identity
        )
        self._to_put.append((event, partial(self._stored, done)))
        self._put()
        self._owner.ended(self, whole=True)

    def give_up(self) -> None:
        """End the body, which does not come whole. Ignored after `finish`, and the second time."""
        if self.over:
            return
        self._end()
        self._buffer.clear()
        self._to_put.clear()
        self._to_put.append((end_of_body(self.event, self.id), lambda _: self._owner.committed(self)))
        self._put()
        self._owner.ended(self, whole=False)

    def _end(self) -> None:
        self.over = True
        self._on_room = lambda: None
        self._idle.cancel()

    def _check_time(self) -> None:
        if not self.over and self._loop.time() > self._until_s:
            self.give_up()
        if self._starved:
            raise SlowDown("there was no room for the body in time", retry_after_s=NO_ROOM_RETRY_S)
        if self.over:
            raise Poison("late", "the body did not come whole in time")

    def _look(self) -> None:
        """Give the body up if no byte has come for too long, which may be because there was no room to read any."""
        idle_s = self._loop.time() - self._written_s
        if idle_s >= self._owner.settings.idle_timeout_s:
            self._starved, on_room = self.crowded, self._on_room
            self.give_up()
            on_room()
        else:
            self._idle = self._loop.call_later(self._owner.settings.idle_timeout_s - idle_s, self._look)

    def _cut(self) -> None:
        data = bytes(self._buffer[:CHUNK_BYTES])
        del self._buffer[:CHUNK_BYTES]
        event = self.event
        chunk = Arrival(
            device=event.device,
            channel=event.channel,
            lane=Lane.BULK,
            content_type=CHUNK_CONTENT_TYPE,
            data=data,
            adapter=event.adapter,
            type=event.type,
            dataref=str(BodyChunk(self.id, self._chunks)),
            body_digest=b"",  # chunks are not compared, so it need not be computed
        )
        self._chunks += 1
        self._to_put.append((chunk, lambda _: None))

    def _put(self) -> None:
        """Put what waits, in order, as far as the port takes it."""
        while self._to_put and not self._waits_for_room:
            arrival, done = self._to_put[0]
            try:
                self._owner.port.put(arrival, partial(self._committed, done))
            except SlowDown:
                self._waits_for_room = True
                self._owner.port.when_room(self._go_on)
            else:
                self._to_put.popleft()
                self._uncommitted += 1

    def _go_on(self) -> None:
        self._waits_for_room = False
        self._put()

    def _committed(self, done: Done, receipt: Receipt) -> None:
        self._uncommitted -= 1
        done(receipt)
        if not self.crowded:
            self._on_room()

    def _stored(self, done: Done, receipt: Receipt) -> None:
        crash_point(CrashPoint.AFTER_BODY_COMMIT_BEFORE_ACK)
        self._owner.committed(self)
        done(receipt)
