"""What a client of a WebSocket asks for, and the error of both sides, without the library that `websocket` takes (3 MB)."""

import msgspec


class WebSocketError(Exception):
    """No WebSocket, or no longer one. The text is one line."""


class WebSocketRequest(msgspec.Struct, frozen=True):
    """What a client asks a server for. `authority`: host and port as the header Host has them."""

    authority: str
    path: str = "/"
