"""One connection to a broker: paho, driven by the event loop. No thread, and no call into another one.

paho writes and reads packets and keeps the connection alive; when to read, and what is acknowledged, is decided here.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from fogline_edge.adapters.mqtt_client.access import Access
from fogline_edge.adapters.mqtt_client.acks import Acks
from fogline_edge.adapters.mqtt_client.dial import MAX_PACKET_BYTES, Stream
from fogline_edge.profiles.profile import Filter

_PACKETS_A_TURN = 64
_RETAINED_ALWAYS, _RETAINED_AT_FIRST = 0, 1
_QOS = 1
_CREDENTIALS = (0x86, 0x87)
"""Bad user name or password, not authorized (5: 3.2.2.2)."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a CONNECT says of the client (5: 3.1)."""

    client_id: str
    keep_alive_s: int
    session_expiry_s: int
    receive_maximum: int


class Owner(Protocol):
    """Who is told what happens on a link. None of these may raise."""

    def opened(self, link: "Link", *, session_present: bool) -> None:
        """The broker said yes."""

    def received(self, link: "Link", message: MQTTMessage) -> None:
        """A PUBLISH came; `Link.acks` gives it its place."""

    def subscribed(self, codes: Sequence[int]) -> None:
        """The broker's answer to `subscribe`, a reason code for each filter (5: 3.9.3)."""


class _Paho(Client):
    """paho's client on a socket that is connected already."""

    def __init__(self, stream: Stream, client_id: str) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTv5, reconnect_on_failure=False, manual_ack=True
        )
        self._stream = stream

    def _create_socket(self) -> Stream:
        """Where paho would block for name, TCP and TLS; the only one of its private names that is used here."""
        return self._stream


class _Watch:
    """What the loop watches of a socket, until it is closed."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._reading = False

    def read(self, call: Callable[[], None]) -> None:
        """Call `call` whenever there is something to read."""
        if not self._reading and self._stream.fileno() >= 0:
            self._reading = True
            self._loop.add_reader(self._stream, call)

    def stop_reading(self) -> None:
        """Not any more."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._stream)

    def write(self, call: Callable[[], object]) -> None:
        """Call `call` whenever something can be written."""
        self._loop.add_writer(self._stream, call)

    def stop_writing(self) -> None:
        """Not any more."""
        if self._stream.fileno() >= 0:
            self._loop.remove_writer(self._stream)

    def end(self) -> None:
        """Watch nothing more; before the socket is closed."""
        self.stop_reading()
        self.stop_writing()


class Link:
    """Sends CONNECT at once. `opened` is done when the broker said yes; `ended`, with the reason, when it is over."""

    def __init__(self, stream: Stream, access: Access, terms: Terms, owner: Owner) -> None:
        self.acks = Acks()
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[str] = self._loop.create_future()
        self._stream = stream
        self._owner = owner
        self._paused = False
        self._watch = _Watch(stream)
        self._refusal: str | None = None
        self._paho = self._make(access, terms)
        self._tick_s = min(5.0, terms.keep_alive_s / 4)
        self._timer = self._loop.call_later(self._tick_s, self._tick)

    def _make(self, access: Access, terms: Terms) -> _Paho:
        paho = _Paho(self._stream, terms.client_id)
        if access.username is not None:
            paho.username_pw_set(access.username, access.password)
        paho.on_socket_open = lambda _client, _data, _socket: self._watch.read(self._readable)
        paho.on_socket_close = lambda _client, _data, _socket: self._watch.end()
        paho.on_socket_register_write = lambda _client, _data, _socket: self._watch.write(paho.loop_write)
        paho.on_socket_unregister_write = lambda _client, _data, _socket: self._watch.stop_writing()
        paho.on_connect = self._on_connect
        paho.on_disconnect = self._on_disconnect
        paho.on_message = lambda _client, _data, message: self._owner.received(self, message)
        paho.on_subscribe = lambda _client, _data, _mid, codes, _properties: self._owner.subscribed(
            [each.value for each in codes]
        )
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho leaves it so
        properties.SessionExpiryInterval = terms.session_expiry_s
        properties.ReceiveMaximum = terms.receive_maximum
        properties.MaximumPacketSize = MAX_PACKET_BYTES
        paho.connect(access.host, access.port, terms.keep_alive_s, clean_start=False, properties=properties)
        return paho

    def subscribe(self, filters: Sequence[Filter]) -> None:
        """Subscribe to `filters`; their retained messages come at the first subscription only, or always."""
        if self.ended.done():
            return
        self._paho.subscribe(
            [
                (each.topic, SubscribeOptions(_QOS, retainHandling=_RETAINED_ALWAYS if each.always else _RETAINED_AT_FIRST))
                for each in filters
            ]
        )

    def acknowledge(self, packet_ids: Sequence[int]) -> bool:
        """Send PUBACKs; whether this connection is there still to do so."""
        if self.ended.done():
            return False
        for each in packet_ids:
            self._paho.ack(each, _QOS)
        return True

    def pause(self) -> None:
        """Read nothing more until `resume`.

        Nothing is sent to keep the connection alive meanwhile, since nobody could hear the answer. If that lasts, the broker
        ends the connection and keeps the messages; it is noticed at the next `resume`.
        """
        self._paused = True
        self._watch.stop_reading()

    def resume(self) -> None:
        """Read again."""
        self._paused = False
        if not self.ended.done():
            self._watch.read(self._readable)
            self._loop.call_soon(self._readable)

    async def leave(self, limit_s: float) -> None:
        """Send DISCONNECT after what waits to be sent; the session stays with the broker. Returns when done, or late."""
        if not self.ended.done():
            self._paho.disconnect()
            await asyncio.wait((self.ended,), timeout=limit_s)

    def cut(self) -> None:
        """Close the socket, whatever state it is in. Safe to call twice."""
        self._end("closed")
        self._paho.on_socket_close = None
        self._paho.on_socket_register_write = None
        self._paho.on_socket_unregister_write = None
        self._watch.end()
        self._stream.close()

    def _readable(self) -> None:
        """Read packets until there are no more, or enough for this turn of the loop."""
        for _ in range(_PACKETS_A_TURN):
            if self._paused or self.ended.done():
                return
            try:
                self._paho.loop_read()
            except BaseException:  # whatever it is, the link is of no use any more
                self._end("a packet could not be handled")
                raise
            if self._stream.drained:
                return
        self._loop.call_soon(self._readable)

    def _tick(self) -> None:
        if self.ended.done():
            return
        if not self._paused:
            self._paho.loop_misc()
        self._timer = self._loop.call_later(self._tick_s, self._tick)

    def _on_connect(self, _client: Client, _data: Any, flags: Any, code: ReasonCode, _properties: Any) -> None:
        if code.is_failure:
            hint = "; see username and password_file" if code.value in _CREDENTIALS else ""
            self._refusal = f"the broker refuses: {code}{hint}"
            return
        if self.opened.done():
            return
        self.opened.set_result(None)
        self._owner.opened(self, session_present=flags.session_present)

    def _on_disconnect(self, _client: Client, _data: Any, flags: Any, code: ReasonCode, _properties: Any) -> None:
        told = "the broker ends the connection" if flags.is_disconnect_packet_from_server else "the connection is lost"
        self._end(self._refusal or f"{told}: {code}")

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)
            self._timer.cancel()
