"""A large body that comes in blocks: the client gets the response to a block when the next one may come."""

from collections.abc import Callable

import msgspec

from fogline.events.event import Arrival, Receipt
from fogline.events.identity import Retransmission
from fogline_edge.adapters.bodies.uploads import BodyUploads


class PacedUpload:
    """Used on the loop. `size`: of the body, as far as it is known. Raises `Poison` and `SlowDown`, see `BodyUploads.begin`."""

    def __init__(self, bodies: BodyUploads, event: Arrival, size: int) -> None:
        self._upload = bodies.begin(event, self._on_room, size)
        self._waiting: Callable[[], None] | None = None

    @property
    def crowded(self) -> bool:
        """See `StoredBody.crowded`."""
        return self._upload.crowded

    def when_room(self, call: Callable[[], None]) -> None:
        """Call `call` when the next block may come: now, or after a commit."""
        if self._upload.crowded:
            self._waiting = call
        else:
            call()

    def write(self, data: bytes) -> None:
        """See `StoredBody.write`."""
        self._upload.write(data)

    def give_up(self) -> None:
        """See `StoredBody.give_up`."""
        self._upload.give_up()

    def finish(self, retransmission: Retransmission, done: Callable[[Receipt], None]) -> None:
        """Store the event. `retransmission`: how a copy of the last block is recognised."""
        self._upload.event = msgspec.structs.replace(self._upload.event, retransmission=retransmission)
        self._upload.finish(done)

    def _on_room(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting()
