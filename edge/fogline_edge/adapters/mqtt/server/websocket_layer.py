"""MQTT over WebSocket (MQTT 5: 6.0; RFC 6455): a layer between a socket, or TLS, and a client's connection.

MQTT sees one stream of bytes: a packet may span frames, and a frame may hold several packets. No frame is kept: its bytes go on
as they come.
"""

import asyncio

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.frame_protocol import CloseReason as CloseCode

from fogline.transport.certificate_names import CertificateNames
from fogline.transport.websocket_handshake import HandshakeRefused, OpeningHandshake
from fogline_edge.adapters.mqtt.server.connection import ClientConnection
from fogline_edge.adapters.sockets.layer import LayeredConnection, LayerTransport
from fogline_edge.adapters.sockets.shared_buffer import Room

READ_BYTES = 4096
"""Bytes that are read at once, at most: 700 empty frames, which take 15 ms (docs/decisions/0059)."""
_NAME = "WebSocket"


class WebSocketTransport(LayerTransport):
    """Writes binary frames. Until the connection is open there are none, so nothing is written."""

    def __init__(self, below: asyncio.Transport) -> None:
        super().__init__(below)
        self.frames: Connection | None = None

    @property
    def is_open(self) -> bool:
        """True if frames can be sent."""
        return self.frames is not None and self.frames.state is ConnectionState.OPEN

    def send(self, event: Event) -> None:
        """Send a frame."""
        assert self.frames is not None
        self.below.write(bytes(self.frames.send(event)))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `asyncio.WriteTransport.write`: one frame."""
        if self.is_open:
            self.send(BytesMessage(data=bytes(data)))

    def write_eof(self) -> None:
        """Say that nothing follows. The client answers that, and then the layer closes the connection."""
        if self.is_open:
            self.send(CloseConnection(code=CloseCode.NORMAL_CLOSURE))
        elif self.frames is None:
            self.below.write_eof()

    def close(self) -> None:
        """See `asyncio.BaseTransport.close`."""
        if self.is_open:
            self.send(CloseConnection(code=CloseCode.NORMAL_CLOSURE))
        self.below.close()


class _FrameRoom:
    """Bounds of what is read: those of the packets, and the time that frames take."""

    def __init__(self, packets: Room) -> None:
        self._packets = packets

    @property
    def room_bytes(self) -> int:
        """See `Room.room_bytes`."""
        return min(READ_BYTES, self._packets.room_bytes)


class WebSocketLayer(LayeredConnection):
    """Takes frames apart for `above`, which gets a `WebSocketTransport`.

    The time limit of the handshake is that of the connection.
    """

    _transport: WebSocketTransport

    def __init__(self, opening: OpeningHandshake, above: ClientConnection) -> None:
        self._opening: OpeningHandshake | None = opening
        self._above = above
        self._ended = False  # the client sends nothing more, or what is no WebSocket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol.connection_made`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = WebSocketTransport(transport)
        self._above.handshake = self.handshake or _NAME
        self._above.connection_made(self._transport)
        self.reader = _FrameRoom(self._above.reader)

    def secured(self, names: CertificateNames | None) -> None:
        """See `LayeredConnection.secured`."""
        self._above.handshake = _NAME
        self._above.secured(names)

    def refuse(self, why: str) -> None:
        """See `LayeredConnection.refuse`."""
        self._ended = True
        self._above.refuse(why)

    def receive(self, data: bytes) -> None:
        """Handle received bytes."""
        if self._ended:
            return
        if self._opening is not None:
            self._open(self._opening, data)
        elif self._transport.frames is not None:
            self._transport.frames.receive_data(data)
            self._read(self._transport.frames)

    def eof_received(self) -> bool | None:
        """See `asyncio.BufferedProtocol.eof_received`."""
        self._ended = True
        return self._above.eof_received()

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol.pause_writing`."""
        self._above.pause_writing()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol.resume_writing`."""
        self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol.connection_lost`."""
        self._above.connection_lost(exc)

    def _open(self, opening: OpeningHandshake, data: bytes) -> None:
        try:
            response = opening.receive(data)
        except HandshakeRefused as error:
            self._transport.below.write(opening.refusal(error))
            self.refuse(str(error))
            return
        if response is None:
            self._above.reader.hold_below(opening.held_bytes)
            return
        self._opening = None
        self._transport.below.write(response)
        self._transport.frames = frames = Connection(ConnectionType.SERVER, trailing_data=opening.rest)
        self._above.handshake = ""
        self._above.reader.hold_below(0)
        self._read(frames)

    def _read(self, frames: Connection) -> None:
        for event in frames.events():
            match event:
                case BytesMessage(data=data):
                    if data:
                        self._above.receive(bytes(data))
                case TextMessage():  # MQTT-6.0.0-1
                    self._fail(CloseCode.UNSUPPORTED_DATA, "a text frame, and MQTT is binary")
                    return
                case Ping() if self._transport.is_open:
                    self._transport.send(event.response())
                case CloseConnection():
                    self._on_close(frames, event)
                    return

    def _on_close(self, frames: Connection, event: CloseConnection) -> None:
        """Handle the client's Close, or what `wsproto` makes of an error of the client's: then the state has not changed."""
        if frames.state is ConnectionState.OPEN:
            self._fail(event.code, str(event.reason) if event.code == CloseCode.PROTOCOL_ERROR else f"code {event.code}")
            return
        self._ended = True
        if frames.state is ConnectionState.REMOTE_CLOSING:
            self._transport.send(event.response())
        if not self._above.eof_received():
            self._transport.close()

    def _fail(self, code: int, why: str) -> None:
        """End the connection, because the client has broken the protocol (RFC 6455, section 7.1.7)."""
        if self._transport.is_open:
            self._transport.send(CloseConnection(code=code))
        self.refuse(f"WebSocket: {why}")
