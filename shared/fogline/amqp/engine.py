"""AMQP 1.0 without IO (OASIS AMQP 1.0, WSB 1.0): takes bytes, gives bytes and events. Built on proton's engine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import proton

from fogline.amqp.events import AmqpPeer, Closed, ConnectionOpened, EngineEvent, LoginRequested
from fogline.amqp.link_table import LinkTable
from fogline.amqp.links import LocalLinks
from fogline.amqp.login import LoginVerdict
from fogline.amqp.native import UNREADABLE, condition_of, plain
from fogline.amqp.outcome import DECODE_ERROR, UNAUTHORIZED, Condition
from fogline.amqp.peer_events import MAX_LINKS, PeerEvents, PeerViolation
from fogline.amqp.security import ClientSecurity, SecurityError, SecurityLayers, ServerSecurity
from fogline.events.codec import MAX_MESSAGE_BYTES
from fogline.message import Property

SERVER_IDLE_TIMEOUT_S: Final = 30.0
CLIENT_IDLE_TIMEOUT_S: Final = 15.0
"""Idle time-outs (AMQP 1.0 part 2, section 2.4.5): a peer that sends nothing for so long is gone.

A client's is the shorter: who connects again mends the line, and commands wait for it meanwhile.
"""
MAX_FRAME_BYTES: Final = 8 * 1024


class Engine:
    """One side of one connection. After every call take `events` and `data_to_send`. `links` holds the operations on links.

    Deliveries that are unsettled at its end have an unknown outcome. `hostname`: the host that a client asks for, which the
    certificate of a server must name. `security`: that of a server or of a client; default is a client in
    plain text and ANONYMOUS. `idle_timeout_s`: default by the side.
    `hold` counts the bytes of the peer's unfinished messages, and returns False if there is no room for them.
    """

    def __init__(
        self,
        container: str,
        *,
        hostname: str = "",
        properties: Mapping[str, Property] | None = None,
        capabilities: Sequence[str] = (),
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        idle_timeout_s: float | None = None,
        security: ServerSecurity | ClientSecurity | None = None,
        hold: Callable[[int], bool] = lambda _: True,
    ) -> None:
        security = security or ClientSecurity()
        server = isinstance(security, ServerSecurity)
        self._layers = SecurityLayers(security, hostname)
        self._why_not: Condition | None = None
        self._over = self._closed_reported = self._broken_off = False
        self._collector = proton.Collector()
        self._connection = proton.Connection()
        self._connection.collect(self._collector)
        self._connection.container = container
        if hostname:
            self._connection.hostname = hostname
        _describe(self._connection, properties)
        if capabilities:
            self._connection.offered_capabilities = [proton.symbol(each) for each in capabilities]
        self._transport = proton.Transport(proton.Transport.SERVER if server else proton.Transport.CLIENT)
        self._transport.max_frame_size = MAX_FRAME_BYTES
        self._transport.idle_timeout = idle_timeout_s or (SERVER_IDLE_TIMEOUT_S if server else CLIENT_IDLE_TIMEOUT_S)
        self._transport.channel_max = MAX_LINKS - 1
        self._transport.bind(self._connection)
        self._table = LinkTable()
        self.links = LocalLinks(self._connection, self._table, max_message_bytes)
        self._peer_events = PeerEvents(self.links, self._table, max_message_bytes, hold)
        if not server:
            self._connection.open()

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the peer; their events follow from `events`."""
        try:
            self._push(self._layers.receive(data))
        except SecurityError as error:
            self._why_not = Condition(UNAUTHORIZED, str(error))
        if self._layers.over:
            self.receive_eof()

    def answer_login(self, verdict: LoginVerdict) -> None:
        """Answer the peer's `LoginRequested`."""
        try:
            self._push(self._layers.answer(verdict))
        except SecurityError as error:
            self._why_not = Condition(UNAUTHORIZED, str(error))

    def _push(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            room = self._transport.capacity()
            if room <= 0:
                return
            try:
                self._transport.push(bytes(view[:room]))
            except proton.TransportException:
                return
            view = view[room:]

    def receive_eof(self) -> None:
        """Take the end of the peer's bytes."""
        try:
            self._layers.receive_eof()
            self._transport.close_tail()
        except SecurityError as error:
            self._why_not = self._why_not or Condition(UNAUTHORIZED, str(error))
        except proton.TransportException:
            self._over = True

    def data_to_send(self) -> bytes:
        """Return the bytes to write now; empty if there are none."""
        if data := self._layers.data_to_send():
            return data
        if self._why_not is not None:
            return self._layers.closing()
        size = self._transport.pending() if self._layers.ready else 0
        if size <= 0:
            return self._layers.closing() if size < 0 else b""
        data = self._transport.peek(size)
        self._transport.pop(len(data))
        try:
            return self._layers.wrap(data)
        except SecurityError as error:
            self._why_not = Condition(UNAUTHORIZED, str(error))
            return b""

    @property
    def finished(self) -> bool:
        """True if this side will never write again, so that the socket can be closed."""
        return self._over or self._why_not is not None or self._transport.pending() < 0

    def tick(self, now_s: float) -> float:
        """Send due heartbeats and check the idle time-out. Returns the time of the next call on the same clock, 0 for none."""
        deadline: float = self._transport.tick(now_s)
        return deadline

    def open(self, properties: Mapping[str, Property] | None = None) -> None:
        """Answer the peer's open frame (a server that accepts the connection), with these properties."""
        _describe(self._connection, properties)
        self._connection.open()

    def close(self, condition: Condition | None = None, *, heed: bool = True) -> None:
        """Begin to close the connection. `heed`: False drops the peer's unfinished messages, and whatever still comes."""
        if not heed:
            self._broken_off = True
            self._table.drop_unfinished()
            if self._connection.state & proton.Endpoint.LOCAL_UNINIT:
                self._connection.open()
        if condition is not None:
            self._connection.condition = proton.Condition(condition.name, condition.description)
        self._connection.close()

    def release(self) -> None:
        """End the engine: drop all references to proton, which counts them without a lock, before another thread does."""
        self._table.clear()

    def events(self) -> Iterator[EngineEvent]:
        """Yield each event since the last call."""
        if self._why_not is not None:
            yield from self._end(self._why_not)
            return
        if (login := self._layers.take_offered()) is not None:
            yield LoginRequested(login)
        while (native := self._collector.peek()) is not None:
            try:
                if not self._broken_off:
                    yield from self._translate(native)
                elif native.type == proton.Event.DELIVERY:
                    native.delivery.settle()  # proton drops its bytes
            except PeerViolation as error:
                yield from self._break_off(error.condition)
            except UNREADABLE as error:
                why = str(error)[:200] or type(error).__name__
                yield from self._break_off(Condition(DECODE_ERROR, f"cannot be read: {why}"))
            finally:
                self._collector.pop()

    def _translate(self, native: Any) -> Iterator[EngineEvent]:
        match native.type:
            case proton.Event.CONNECTION_REMOTE_OPEN:
                remote = self._connection
                named = remote.remote_container or "", remote.remote_hostname or "", plain(remote.remote_properties)
                yield ConnectionOpened(AmqpPeer(*named, self._layers.login, self._layers.certificate))
            case proton.Event.CONNECTION_REMOTE_CLOSE:
                self._connection.close()
                yield from self._end(condition_of(lambda: self._connection.remote_condition))
            case proton.Event.TRANSPORT_ERROR | proton.Event.TRANSPORT_CLOSED:
                yield from self._end(condition_of(lambda: self._transport.condition))
            case _:
                yield from self._peer_events.translate(native)

    def _break_off(self, condition: Condition) -> Iterator[EngineEvent]:
        self.close(condition, heed=False)
        yield from self._end(condition)

    def _end(self, condition: Condition | None) -> Iterator[EngineEvent]:
        if not self._closed_reported:
            self._closed_reported = True
            yield Closed(condition)


def _describe(connection: Any, properties: Mapping[str, Property] | None) -> None:
    if properties:
        connection.properties = {proton.symbol(name): value for name, value in properties.items()}
