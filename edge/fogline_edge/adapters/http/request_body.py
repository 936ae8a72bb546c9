"""The body of one request while it comes. Bounded alone, and together with all others."""

from collections.abc import Callable

from fogline_edge.adapters.http.wire import HttpRefused


class RequestBody:
    """The bytes so far. `reserve`: takes so many bytes of the memory for all bodies, or gives them back if negative."""

    def __init__(self, most: int, reserve: Callable[[int], bool]) -> None:
        self._most = most
        self._reserve = reserve
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        """Add received bytes. Raises `HttpRefused` (413, 503)."""
        if self._size + len(data) > self._most:
            raise HttpRefused(413, "too-big", f"a body has at most {self._most} bytes")
        if not self._reserve(len(data)):
            raise HttpRefused(503, "too-many-bodies", "too many bodies are under way", (("retry-after", "1"),))
        self._parts.append(data)
        self._size += len(data)

    def take(self) -> bytes:
        """Return the whole body, and begin the next one."""
        body = b"".join(self._parts)
        self._reserve(-self._size)
        self._parts, self._size = [], 0
        return body
