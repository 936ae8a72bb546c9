"""An outbox at its bound, and a disk without room."""

import asyncio

from fogline.errors import SlowDown
from fogline_edge.outbox.file import free_space
from fogline_edge.outbox.outbox import Outbox
from fogline_lab.amqp import within
from fogline_lab.disk import DiskOperation
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import settings

KB = 1000


async def full(folder) -> Outbox:
    """An outbox that takes nothing but replies until the bridge has taken events."""
    outbox = Outbox.open(settings(folder, max_bytes=1_000_000, group_commit_ms=0))
    taken = 0
    while not outbox.port._full:
        try:
            outbox.port.put(make_arrival(taken, data=bytes(20 * KB)), lambda _: None)
        except SlowDown:
            break
        taken += 1
        await outbox.streams.pending()
    return outbox


async def heal(outbox: Outbox) -> None:
    """The bridge takes everything."""
    room = asyncio.Event()
    outbox.port.when_room(room.set)
    for stream in await outbox.streams.pending():
        outbox.streams.settle(stream.stream, stream.head)
    await within(room.wait(), "no room came")


class Full:
    """A disk that answers every step of one kind with an error while it is `full`."""

    def __init__(self, monkeypatch, kind: DiskOperation, error) -> None:
        self.full = False
        self.refused = 0
        self._kind, self._error = kind, error
        monkeypatch.setattr(free_space, "_has_room", lambda _: False)

    def __call__(self, kind: DiskOperation, _file: str) -> None:
        if self.full and kind is self._kind:
            self.refused += 1
            raise self._error()
