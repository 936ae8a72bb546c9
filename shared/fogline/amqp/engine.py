"""AMQP 1.0 without IO: bytes in, bytes and events out, on proton's engine (OASIS AMQP 1.0).

One `Engine` is one side of one connection and is never used for a second one: what was in flight when it ended is
unknown, and its owner says so to whoever waits. Settlement is always explicit.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import proton

from fogline.amqp.events import (
    Closed,
    Credit,
    Delivery,
    EngineEvent,
    Link,
    LinkClosed,
    LinkRequested,
    Opened,
    Peer,
    Received,
    Settled,
)
from fogline.amqp.link_table import LinkTable
from fogline.amqp.native import NATIVE, UNREADABLE, condition_of, outcome_of, plain
from fogline.amqp.outcome import (
    DECODE_ERROR,
    LINK_STOLEN,
    MESSAGE_SIZE_EXCEEDED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT,
    TRANSFER_LIMIT,
    Condition,
    Outcome,
    State,
)
from fogline.codec import MAX_MESSAGE_BYTES
from fogline.message import Property

IDLE_TIMEOUT_S: Final = 30.0
"""A peer that sends nothing for so long is gone; both sides tell the other and keep to it."""
MAX_FRAME_BYTES: Final = 8 * 1024
MAX_LINKS: Final = 64
"""The most links that a peer may have open on one connection, and the most sessions."""
MAX_UNFINISHED_BYTES: Final = 8 * 1024 * 1024
"""The most bytes of messages that a connection has begun and not finished, over all of its links."""


class Engine:
    """One side of one connection. After every call take `events` and `data_to_send`.

    `container`: this side's name; `hostname`: what a client asks for; `properties`: of the open frame;
    `capabilities`: what it offers there.
    """

    def __init__(
        self,
        container: str,
        *,
        server: bool = False,
        hostname: str = "",
        properties: Mapping[str, Property] | None = None,
        capabilities: Sequence[str] = (),
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        self.max_message_bytes = max_message_bytes
        self._links = LinkTable()
        self._tags = 0
        self._over = False
        self._told_end = False
        self._broken_off = False
        self._collector = proton.Collector()
        self._connection = proton.Connection()
        self._connection.collect(self._collector)
        self._connection.container = container
        if hostname:
            self._connection.hostname = hostname
        if properties:
            self._connection.properties = {proton.symbol(name): value for name, value in properties.items()}
        if capabilities:
            self._connection.offered_capabilities = [proton.symbol(each) for each in capabilities]
        self._transport = proton.Transport(proton.Transport.SERVER if server else proton.Transport.CLIENT)
        self._transport.max_frame_size = MAX_FRAME_BYTES
        self._transport.idle_timeout = idle_timeout_s
        self._transport.channel_max = MAX_LINKS - 1
        sasl = self._transport.sasl()
        sasl.allowed_mechs("ANONYMOUS")
        self._transport.bind(self._connection)
        if not server:
            self._connection.open()

    # --- bytes

    def receive_data(self, data: bytes) -> None:
        """Bytes from the peer. What they mean comes out of `events`."""
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
        """The peer will send no more."""
        try:
            self._transport.close_tail()
        except proton.TransportException:
            self._over = True

    def data_to_send(self) -> bytes:
        """What has to be written now; empty if nothing."""
        size = self._transport.pending()
        if size <= 0:
            return b""
        data: bytes = self._transport.peek(size)
        self._transport.pop(len(data))
        return data

    @property
    def finished(self) -> bool:
        """Whether nothing will ever be written again: close the socket."""
        return self._over or self._transport.pending() < 0

    def tick(self, now_s: float) -> float:
        """Let time pass (idle time-outs, heartbeats). Returns when to call again, 0 for never, on the same clock."""
        deadline: float = self._transport.tick(now_s)
        return deadline

    # --- what this side does

    def open(self) -> None:
        """Answer the peer's open (a server that accepts the connection)."""
        self._connection.open()

    def close(self, condition: Condition | None = None) -> None:
        """Begin to close the connection."""
        if condition is not None:
            self._connection.condition = proton.Condition(condition.name, condition.description)
        self._connection.close()

    def open_session(self) -> Any:
        """A new session, for `open_sender` and `open_receiver`."""
        session = self._connection.session()
        session.open()
        return session

    def is_open(self, session: Any) -> bool:
        """Whether neither side has ended a session."""
        return not session.state & (proton.Endpoint.LOCAL_CLOSED | proton.Endpoint.REMOTE_CLOSED)

    def open_sender(self, session: Any, name: str, address: str, properties: Mapping[str, Property] | None = None) -> Link:
        """Attach a link that sends to `address`."""
        native = session.sender(name)
        native.target.address = address
        native.source.address = name
        return self._attach(native, name, address, properties or {})

    def open_receiver(self, session: Any, name: str, address: str, credit: int) -> Link:
        """Attach a link that receives from `address`."""
        native = session.receiver(name)
        native.source.address = address
        native.target.address = name
        native.max_message_size = self.max_message_bytes
        link = self._attach(native, name, address, {})
        self.grant(link, credit)
        return link

    def _attach(self, native: Any, name: str, address: str, properties: Mapping[str, Property]) -> Link:
        if properties:
            native.properties = {proton.symbol(key): value for key, value in properties.items()}
        native.open()
        link = Link(name, address, native.is_sender, properties, native)
        self._links.add(link)
        return link

    def accept_link(self, link: Link, credit: int = 0) -> None:
        """Attach to a link that the peer requested, if it is still there; `credit` for one that receives."""
        if link.closed:
            return
        native = link.native
        native.source.copy(native.remote_source)
        native.target.copy(native.remote_target)
        if not link.sending:
            native.max_message_size = self.max_message_bytes
        native.open()
        if credit and not link.sending:
            self.grant(link, credit)

    def refuse_link(self, link: Link, condition: Condition) -> None:
        """Refuse or end a link, with the reason.

        A refused one is attached without a terminus first: a peer that reads the reply knows that a detach follows
        (AMQP 1.0 part 2, section 2.6.3).
        """
        if link.closed:
            return
        native = link.native
        if native.state & proton.Endpoint.LOCAL_UNINIT:
            (native.source if native.is_sender else native.target).type = proton.Terminus.UNSPECIFIED
            native.open()
        native.condition = proton.Condition(condition.name, condition.description)
        native.close()
        self._links.end(link)

    def grant(self, link: Link, credit: int) -> None:
        """Let the peer send `credit` more messages."""
        if not link.closed:
            link.credit += credit
            link.native.flow(credit)

    def room(self, link: Link, limit: int) -> bool:
        """Whether the link's session holds less than `limit` bytes that are not framed yet."""
        return not link.closed and bool(link.native.session.outgoing_bytes < limit)

    def begin(self, link: Link) -> Delivery:
        """Start a message on a sending link."""
        self._tags += 1
        tag = f"{self._tags:x}"
        delivery = Delivery(link, link.native.delivery(tag))
        self._links.sent(tag, delivery)
        return delivery

    def send(self, delivery: Delivery, data: bytes, *, last: bool) -> None:
        """The next bytes of a message that `begin` started."""
        native = delivery.link.native
        native.send(data)
        if last:
            native.advance()

    def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """Say what became of a received message. A delivery of a link that is gone is passed over."""
        if delivery.done or delivery.link.closed:
            return
        delivery.done = True
        native = delivery.native
        if outcome.state is State.REJECTED:
            native.local.condition = proton.Condition(outcome.condition, outcome.description)
        if outcome.state is State.MODIFIED:
            native.local.failed = True
        if outcome.state in NATIVE:
            native.update(NATIVE[outcome.state])
        native.settle()
        self._links.settled(delivery)

    def release(self) -> None:
        """It is over: nothing but this engine holds an object of proton any more, and nothing is done any more.

        Links and deliveries outlive their connection, in other threads too. Proton counts references without a lock, and its
        binding lets other threads run meanwhile: whoever dropped the last one elsewhere would free what is in use here.
        """
        self._links.release()

    # --- what the peer did

    def events(self) -> Iterator[EngineEvent]:
        """Everything that happened since the last call."""
        while (native := self._collector.peek()) is not None:
            try:
                if not self._broken_off:
                    yield from self._translate(native)
            except UNREADABLE as error:
                yield from self._break_off(
                    Condition(DECODE_ERROR, f"cannot be read: {str(error)[:200] or type(error).__name__}")
                )
            finally:
                self._collector.pop()

    def _translate(self, native: Any) -> Iterator[EngineEvent]:
        match native.type:
            case proton.Event.DELIVERY:
                yield from self._on_delivery(native.delivery)
            case proton.Event.LINK_FLOW:
                link = self._links.get(native.link)
                if link is not None and link.sending:
                    yield Credit(link, native.link.credit)
            case proton.Event.LINK_REMOTE_OPEN:
                yield from self._on_link(native.link)
            case proton.Event.LINK_REMOTE_CLOSE | proton.Event.LINK_REMOTE_DETACH:
                yield from self._on_link_closed(native.link)
            case _:
                yield from self._on_endpoint(native)

    def _on_endpoint(self, native: Any) -> Iterator[EngineEvent]:
        match native.type:
            case proton.Event.CONNECTION_REMOTE_OPEN:
                remote = self._connection
                properties = plain(remote.remote_properties)
                yield Opened(Peer(remote.remote_container or "", remote.remote_hostname or "", properties))
            case proton.Event.SESSION_REMOTE_OPEN:
                if native.session.state & proton.Endpoint.LOCAL_UNINIT:
                    native.session.open()
            case proton.Event.SESSION_REMOTE_CLOSE:
                yield from self._on_session_closed(native.session)
            case proton.Event.CONNECTION_REMOTE_CLOSE:
                self._connection.close()
                yield from self._end(condition_of(lambda: self._connection.remote_condition))
            case proton.Event.TRANSPORT_ERROR | proton.Event.TRANSPORT_CLOSED:
                yield from self._end(condition_of(lambda: self._transport.condition))

    def _break_off(self, condition: Condition) -> Iterator[EngineEvent]:
        """Close the connection of a peer whose frames cannot be understood."""
        self._broken_off = True
        if self._connection.state & proton.Endpoint.LOCAL_UNINIT:
            self._connection.open()
        self.close(condition)
        yield from self._end(condition)

    def _end(self, condition: Condition | None) -> Iterator[EngineEvent]:
        if not self._told_end:
            self._told_end = True
            yield Closed(condition)

    def _on_link(self, native: Any) -> Iterator[EngineEvent]:
        if not native.state & proton.Endpoint.LOCAL_UNINIT:
            return
        remote = native.remote_source if native.is_sender else native.remote_target
        beyond_us = remote.dynamic or remote.type == proton.Terminus.COORDINATOR
        link = Link(native.name, remote.address or "", native.is_sender, plain(native.remote_properties), native)
        if (former := self._links.named(link.name, sending=link.sending)) is not None:
            stolen = Condition(LINK_STOLEN, f"link {link.name} was attached again")
            self.refuse_link(former, stolen)
            yield LinkClosed(former, stolen)
        self._links.add(link)
        if len(self._links) > 2 * MAX_LINKS:
            yield from self._break_off(Condition(RESOURCE_LIMIT, f"{MAX_LINKS} links were ended here and not by the peer"))
        elif self._links.open_count > MAX_LINKS:
            self.refuse_link(link, Condition(RESOURCE_LIMIT, f"at most {MAX_LINKS} links a connection"))
        elif beyond_us:
            self.refuse_link(link, Condition(NOT_IMPLEMENTED, "there are neither temporary addresses nor transactions here"))
        else:
            yield LinkRequested(link)

    def _on_link_closed(self, native: Any) -> Iterator[EngineEvent]:
        native.close()
        condition = condition_of(lambda: native.remote_condition)
        if (link := self._links.free(native)) is not None:
            yield LinkClosed(link, condition)

    def _on_session_closed(self, native: Any) -> Iterator[EngineEvent]:
        """A session takes its links with it (AMQP 1.0 part 2, section 2.5.8); proton says nothing of them."""
        condition = condition_of(lambda: native.remote_condition)
        native.close()
        for link in self._links.free_session(native):
            yield LinkClosed(link, condition)

    def _on_delivery(self, native: Any) -> Iterator[EngineEvent]:
        link = self._links.get(native.link)
        if link is None:
            native.settle()
        elif link.sending:
            if native.updated and (native.remote_state or native.settled):
                delivery = self._links.take_sent(native.tag)
                if delivery is not None:
                    yield Settled(delivery, outcome_of(native))
                native.settle()
        elif native.aborted:
            link.partial.clear()
            native.settle()
            link.native.flow(1)  # the credit that it took
        elif native.readable:
            yield from self._on_bytes(link, native)

    def _on_bytes(self, link: Link, native: Any) -> Iterator[EngineEvent]:
        if native.pending:
            link.partial += link.native.recv(native.pending) or b""
        if link.credit <= 0:
            self.refuse_link(link, Condition(TRANSFER_LIMIT, "more messages than this side has granted credit for"))
        elif len(link.partial) > self.max_message_bytes:
            self.refuse_link(link, Condition(MESSAGE_SIZE_EXCEEDED, f"a message may have {self.max_message_bytes} bytes"))
        elif self._links.unfinished_bytes > MAX_UNFINISHED_BYTES:
            self.refuse_link(link, Condition(RESOURCE_LIMIT, f"unfinished messages may have {MAX_UNFINISHED_BYTES} bytes"))
        elif not native.partial:
            data = bytes(link.partial)
            link.partial.clear()
            link.credit -= 1
            link.native.advance()
            delivery = Delivery(link, native)
            self._links.received(delivery)
            yield Received(delivery, data)
