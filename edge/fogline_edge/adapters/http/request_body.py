"""The body of one request while it comes. Bounded alone, and together with all others."""

from collections.abc import Callable

from fogline_edge.adapters.http.wire import HttpRefused

TOO_MANY = HttpRefused(503, "too-many-bodies", "too many requests are under way", (("retry-after", "1"),))


class RequestBody:
    """The bytes so far. `hold`: counts so many bytes of this request from now on, False if there is no room for them."""

    def __init__(self, most: int, hold: Callable[[int], bool]) -> None:
        self._most = most
        self._hold = hold
        self._parts: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> None:
        """Add received bytes. Raises `HttpRefused` (413, 503)."""
        if self.size + len(data) > self._most:
            raise HttpRefused(413, "too-big", f"a body has at most {self._most} bytes")
        if not self._hold(self.size + len(data)):
            raise TOO_MANY
        self._parts.append(data)
        self.size += len(data)

    def take(self) -> bytes:
        """Return the whole body, and begin the next one."""
        body = b"".join(self._parts)
        self._parts, self.size = [], 0
        self._hold(0)
        return body
