"""The body of one request while it comes. A large one is stored; others are held, bounded alone and together."""

from collections.abc import Callable
from typing import Generic, TypeVar

from fogline.errors import Poison, SlowDown
from fogline_edge.adapters.bodies.stored_body import StoredBody
from fogline_edge.adapters.http.wire import HttpRefused

TOO_MANY = HttpRefused(503, "too-many-bodies", "too many requests are under way", (("retry-after", "1"),))
NO_ROOM = HttpRefused(503, "no-room", "the gateway has no room now: send it again", (("retry-after", "30"),))
LATE = HttpRefused(408, "timeout", "the request did not come whole in time")


Stored = TypeVar("Stored", bound=StoredBody)


class RequestBody(Generic[Stored]):
    """The bytes so far. `most`: of a body that is held. `hold`: counts so many bytes from now on, False if there is no room.

    `begin`: begins to store a body, of which the first bytes are given. Raises `HttpRefused`. `idle_s`: see
    `idle_timeout_s`.
    """

    def __init__(self, most: int, hold: Callable[[int], bool], begin: Callable[[bytes], Stored], idle_s: float) -> None:
        self._most = most
        self._hold = hold
        self._begin = begin
        self._idle_s = idle_s
        self._parts: list[bytes] = []
        self._upload: Stored | None = None
        self.size = 0

    @property
    def idle_timeout_s(self) -> float | None:
        """Time without a byte after which a stored body is given up. None for one that is held."""
        return None if self._upload is None else self._idle_s

    @property
    def crowded(self) -> bool:
        """True while no more of a stored body should be read."""
        return self._upload is not None and self._upload.crowded

    @property
    def lateness(self) -> HttpRefused:
        """The response to a body that has not come whole in time."""
        return NO_ROOM if self.crowded else LATE

    def add(self, data: bytes) -> None:
        """Add received bytes. Raises `HttpRefused` (408, 413, 503)."""
        size = self.size + len(data)
        if self._upload is None and size > self._most:
            self._parts.append(data)
            begun, self._parts = b"".join(self._parts), []
            self._upload = self._begin(begun)
            self._write(self._upload, begun)
        elif self._upload is not None:
            self._write(self._upload, data)
        elif not self._hold(size):
            raise TOO_MANY
        else:
            self._parts.append(data)
        self.size = size

    def take(self) -> tuple[bytes, Stored | None]:
        """Return the whole body, or where it is stored, and begin the next one."""
        body, upload = b"".join(self._parts), self._upload
        self._parts, self._upload, self.size = [], None, 0
        self._hold(0)
        return body, upload

    def drop(self) -> None:
        """Give up a body that does not come whole."""
        if (upload := self.take()[1]) is not None:
            upload.give_up()

    def _write(self, upload: Stored, data: bytes) -> None:
        try:
            upload.write(data)
        except SlowDown:
            raise NO_ROOM from None
        except Poison as error:
            raise refusal_of(error) from None


def refusal_of(error: Poison) -> HttpRefused:
    """Return the response to a large body that cannot be stored."""
    return LATE if error.reason == "late" else HttpRefused(413, error.reason, str(error))
