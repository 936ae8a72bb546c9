"""What is said about a WebSocket without the library that `websocket` takes (3 MB)."""

from typing import NamedTuple

import msgspec


class WebSocketError(Exception):
    """No WebSocket, or no longer one. The text is one line."""


class Subprotocol(NamedTuple):
    """What is spoken over a WebSocket. `beginning`: the first bytes of a client that speaks it without one."""

    name: str
    title: str
    beginning: bytes


class WebSocketRequest(msgspec.Struct, frozen=True):
    """What a client asks a server for. `authority`: host and port as the header Host has them."""

    authority: str
    path: str = "/"
