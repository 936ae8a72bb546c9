"""The last blocks of bodies that are stored, kept durably.

A client that did not get its answer sends the last block again. After a restart the blocks before it are gone, and the
answer would be 4.08: the client would send, and the gateway store, the whole body once more.
"""

import hashlib
from collections import deque
from collections.abc import Callable

from fogline_edge.adapters.coap.exchanges import Exchange
from fogline_edge.adapters.coap.intake import slot
from fogline_edge.adapters.coap.wire import Message, encode
from fogline_edge.adapters.port import Port

MAX_FINALS = 256
_PREFIX = "coap/final/"


class Finals:
    """The latest `MAX_FINALS` of them."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._keys = deque(port.kept(_PREFIX))
        self._known = set(self._keys)

    def knows(self, message: Message, exchange: Exchange) -> bool:
        """Whether this very message was the last block of a body that is stored."""
        return bool(self._known) and _key(message, exchange) in self._known

    def keep(self, message: Message, exchange: Exchange, done: Callable[[], None]) -> None:
        """Keep it; call this after the body was put. `done` is called once it is durable."""
        key = _key(message, exchange)
        if key not in self._known:
            self._known.add(key)
            self._keys.append(key)
        while len(self._keys) > MAX_FINALS:
            oldest = self._keys.popleft()
            self._known.discard(oldest)
            self._port.keep(oldest, None, _nobody_waits)
        self._port.keep(key, b"", done)


def _key(message: Message, exchange: Exchange) -> str:
    return _PREFIX + hashlib.blake2b(slot(exchange) + b"\0" + encode(message), digest_size=16).hexdigest()


def _nobody_waits() -> None:
    """What is no longer kept is nobody's concern."""
