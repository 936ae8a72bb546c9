"""One connection to a broker: paho, driven by the event loop, without a thread. It decides when to read and acknowledge."""

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from fogline_edge.adapters.mqtt_client.access import Access
from fogline_edge.adapters.mqtt_client.session import Acks
from fogline_edge.adapters.mqtt_client.socket_stream import MAX_PACKET_BYTES, BufferedSocket
from fogline_edge.broker_settings import MqttClientSettings
from fogline_edge.profiles.profile import Filter

_PACKETS_A_TURN = 64
_MAX_EXPIRY_S = 2**32 - 1
_RETAINED_ALWAYS, _RETAINED_AT_FIRST = 0, 1
_QOS = 1
_ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: the kernel discards what is not sent, and resets the connection
_CREDENTIALS = (0x86, 0x87)  # bad user name or password, not authorized (5: 3.2.2.2)


class BrokerConnectionOwner(Protocol):
    """The callbacks of a connection. None of them may raise."""

    def opened(self, connection: "BrokerConnection", *, session_present: bool) -> None:
        """Handle a successful CONNACK."""

    def received(self, connection: "BrokerConnection", message: MQTTMessage) -> None:
        """Handle a PUBLISH; add it to `connection.acks`."""

    def subscribed(self, codes: Sequence[int]) -> None:
        """Handle SUBACK: one reason code for each filter (5: 3.9.3)."""

    def published(self, connection: "BrokerConnection", packet_id: int, code: int) -> None:
        """Handle PUBACK, with its reason code (5: 3.4.2.1)."""


class _Paho(Client):
    """paho's client on a connected socket."""

    def __init__(self, stream: BufferedSocket, client_id: str) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTv5, reconnect_on_failure=False, manual_ack=True
        )
        self._stream = stream

    def _create_socket(self) -> BufferedSocket:
        # paho would block here for name, TCP and TLS. No other private name of paho is used.
        return self._stream


class _Watch:
    """Tells the loop when to call for a socket. `readable` is called when there is something to read."""

    def __init__(self, stream: BufferedSocket, readable: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stream = stream
        self._readable = readable

    def read(self, *, on: bool) -> None:
        """Watch for something to read, or do not."""
        if self._stream.fileno() >= 0:
            if on:
                self._loop.add_reader(self._stream, self._readable)
            else:
                self._loop.remove_reader(self._stream)

    def stop(self, *, reader: bool = True) -> None:
        """Watch the socket no more; without `reader`, go on reading."""
        if self._stream.fileno() >= 0:
            self._loop.remove_writer(self._stream)
        if reader:
            self.read(on=False)


class BrokerConnection:
    """Sends CONNECT at once. `opened` is done after a successful CONNACK; `ended`, with the reason, after the end."""

    def __init__(
        self, stream: BufferedSocket, access: Access, settings: MqttClientSettings, client_id: str, owner: BrokerConnectionOwner
    ) -> None:
        self.acks = Acks()
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[str] = self._loop.create_future()
        self._stream = stream
        self._watch = _Watch(stream, self._readable)
        self._owner = owner
        self._paused = False
        self._refusal: str | None = None
        self._paho = self._make(access, settings, client_id)
        self._tick_s = min(5.0, settings.keep_alive_s / 4)
        self._timer = self._loop.call_later(self._tick_s, self._tick)

    def _make(self, access: Access, settings: MqttClientSettings, client_id: str) -> _Paho:
        stream = self._stream
        paho = _Paho(stream, client_id)
        if access.username is not None:
            paho.username_pw_set(access.username, access.password)
        paho.on_socket_open = lambda _client, _data, _socket: self._watch.read(on=True)
        paho.on_socket_close = lambda _client, _data, _socket: self._watch.stop()
        paho.on_socket_register_write = lambda _client, _data, _socket: self._loop.add_writer(stream, paho.loop_write)
        paho.on_socket_unregister_write = lambda _client, _data, _socket: self._watch.stop(reader=False)
        paho.on_connect = self._on_connect
        paho.on_disconnect = self._on_disconnect
        paho.on_message = lambda _client, _data, message: self._owner.received(self, message)
        paho.on_subscribe = lambda _client, _data, _mid, codes, _properties: self._owner.subscribed(
            [each.value for each in codes]
        )
        paho.on_publish = lambda _client, _data, packet_id, code, _properties: self._owner.published(
            self, packet_id, code.value
        )
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # untyped in paho
        properties.SessionExpiryInterval = settings.session_expiry_s
        properties.ReceiveMaximum = settings.receive_maximum
        properties.MaximumPacketSize = MAX_PACKET_BYTES
        paho.connect(access.host, access.port, settings.keep_alive_s, clean_start=False, properties=properties)
        return paho

    def subscribe(self, filters: Sequence[Filter]) -> None:
        """Subscribe to `filters`. Their retained messages arrive at the first subscription only, or always."""
        if not self.ended.done():
            handling = {True: _RETAINED_ALWAYS, False: _RETAINED_AT_FIRST}
            self._paho.subscribe(
                [(each.topic, SubscribeOptions(_QOS, retainHandling=handling[each.always])) for each in filters]
            )

    def publish(self, topic: str, payload: bytes, expiry_s: int) -> int | None:
        """Send a PUBLISH at QoS 1, not retained. Returns its packet id; `None` if no byte of it was given to the connection.

        `expiry_s`: time in which the broker may deliver it (5: 3.3.2.3.3).
        """
        if self.ended.done() or self._paused:
            return None
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # untyped in paho
        properties.MessageExpiryInterval = min(expiry_s, _MAX_EXPIRY_S)
        sent = self._paho.publish(topic, payload, _QOS, properties=properties)
        return None if sent.rc in (MQTTErrorCode.MQTT_ERR_NO_CONN, MQTTErrorCode.MQTT_ERR_QUEUE_SIZE) else sent.mid

    def abort(self) -> None:
        """End the connection, and discard what waits to be sent. The broker keeps the session."""
        if self._stream.fileno() >= 0:
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        self._end("given up, because the broker has not confirmed a command by its deadline")
        self.cut()

    def acknowledge(self, packet_ids: Sequence[int]) -> bool:
        """Send PUBACKs. Returns False if the connection has ended."""
        if self.ended.done():
            return False
        for each in packet_ids:
            self._paho.ack(each, _QOS)
        return True

    def pause(self) -> None:
        """Read nothing until `resume`. No PINGREQ is sent meanwhile, because its response would not be read.

        After a long pause the broker ends the connection and keeps the messages; `resume` notices the end.
        """
        self._paused = True
        self._watch.read(on=False)

    def resume(self) -> None:
        """Read again after `pause`."""
        self._paused = False
        if not self.ended.done():
            self._watch.read(on=True)
            self._loop.call_soon(self._readable)

    async def leave(self, limit_s: float) -> None:
        """Send the waiting packets and DISCONNECT, within `limit_s`. The broker keeps the session."""
        if not self.ended.done():
            self._paho.disconnect()
            await asyncio.wait((self.ended,), timeout=limit_s)

    def cut(self) -> None:
        """Close the socket in any state. Safe to call twice."""
        self._end("closed")
        self._paho.on_socket_close = None
        self._paho.on_socket_register_write = None
        self._paho.on_socket_unregister_write = None
        self._watch.stop()
        self._stream.close()

    def _readable(self) -> None:
        for _ in range(_PACKETS_A_TURN):
            if self._paused or self.ended.done():
                return
            try:
                self._paho.loop_read()
            except BaseException:  # after any error paho's state is unknown
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
        elif not self.opened.done():
            self.opened.set_result(None)
            self._owner.opened(self, session_present=flags.session_present)

    def _on_disconnect(self, _client: Client, _data: Any, flags: Any, code: ReasonCode, _properties: Any) -> None:
        event = "the broker ends the connection" if flags.is_disconnect_packet_from_server else "the connection is lost"
        self._end(self._refusal or f"{event}: {code}")

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)
            self._timer.cancel()
