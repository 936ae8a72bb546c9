"""Translates proton's events about sessions, links and deliveries into `EngineEvent`s, and enforces the limits of a peer."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import proton

from fogline.amqp.events import Credit, Delivery, EngineEvent, Link, LinkClosed, LinkRequested, Received, Settled
from fogline.amqp.link_table import LinkTable
from fogline.amqp.links import LocalLinks
from fogline.amqp.native import condition_of, filters_of, outcome_of, plain
from fogline.amqp.outcome import LINK_STOLEN, MESSAGE_SIZE_EXCEEDED, NOT_IMPLEMENTED, RESOURCE_LIMIT, TRANSFER_LIMIT, Condition

MAX_LINKS: Final = 64
"""Limit of open links on one connection, and of sessions."""
MAX_UNFINISHED_BYTES: Final = 8 * 1024 * 1024
"""Limit of the bytes of unfinished messages on one connection, over all of its links."""


class PeerViolation(Exception):
    """The peer has broken a limit that ends its whole connection."""

    def __init__(self, condition: Condition) -> None:
        super().__init__(str(condition))
        self.condition = condition


class PeerEvents:
    """Updates the link table by the peer's events. Refuses links and messages beyond the limits."""

    def __init__(self, links: LocalLinks, table: LinkTable, max_message_bytes: int, hold: Callable[[int], bool]) -> None:
        self._hold = hold
        self._links = links
        self._table = table
        self._max_message_bytes = max_message_bytes

    def translate(self, native: Any) -> Iterator[EngineEvent]:
        """Yield the events that one proton event means. Raises `PeerViolation` or one of `native.UNREADABLE`."""
        match native.type:
            case proton.Event.DELIVERY:
                yield from self._on_delivery(native.delivery)
            case proton.Event.LINK_FLOW:
                link = self._table.get(native.link)
                if link is not None and link.sending:
                    yield Credit(link, native.link.credit, native.link.drain_mode)
            case proton.Event.LINK_REMOTE_OPEN:
                yield from self._on_link_opened(native.link)
            case proton.Event.LINK_REMOTE_CLOSE | proton.Event.LINK_REMOTE_DETACH:
                yield from self._on_link_closed(native.link)
            case proton.Event.SESSION_REMOTE_OPEN:
                if native.session.state & proton.Endpoint.LOCAL_UNINIT:
                    native.session.open()
            case proton.Event.SESSION_REMOTE_CLOSE:
                yield from self._on_session_closed(native.session)

    def _on_link_opened(self, native: Any) -> Iterator[EngineEvent]:
        if not native.state & proton.Endpoint.LOCAL_UNINIT:
            return
        remote = native.remote_source if native.is_sender else native.remote_target
        unsupported = remote.dynamic or remote.type == proton.Terminus.COORDINATOR
        link = Link(native.name, remote.address or "", native.is_sender, plain(native.remote_properties), native)
        if native.is_sender:
            link.filters = filters_of(remote)
        if (former := self._table.find(link.name, sending=link.sending)) is not None:
            stolen = Condition(LINK_STOLEN, f"link {link.name} was attached again")
            self._links.refuse(former, stolen)
            yield LinkClosed(former, stolen)
        self._table.add(link)
        # A peer that never answers a detach keeps the ended links in proton's memory.
        if len(self._table) > 2 * MAX_LINKS:
            raise PeerViolation(Condition(RESOURCE_LIMIT, f"the peer has not detached {MAX_LINKS} links that were ended here"))
        if self._table.open_count > MAX_LINKS:
            self._links.refuse(link, Condition(RESOURCE_LIMIT, f"at most {MAX_LINKS} links a connection"))
        elif unsupported:
            self._links.refuse(link, Condition(NOT_IMPLEMENTED, "dynamic addresses and transactions are not supported"))
        else:
            yield LinkRequested(link)

    def _on_link_closed(self, native: Any) -> Iterator[EngineEvent]:
        native.close()
        condition = condition_of(lambda: native.remote_condition)
        link = self._table.remove(native)
        self._hold(self._table.unfinished_bytes)
        native.free()  # proton keeps an ended link until then, and a peer may attach and detach without end
        if link is not None:
            yield LinkClosed(link, condition)

    def _on_session_closed(self, native: Any) -> Iterator[EngineEvent]:
        condition = condition_of(lambda: native.remote_condition)
        native.close()
        links = self._table.remove_session(native)
        self._hold(self._table.unfinished_bytes)
        native.free()
        for link in links:
            yield LinkClosed(link, condition)

    def _on_delivery(self, native: Any) -> Iterator[EngineEvent]:
        link = self._table.get(native.link)
        if link is None:
            native.settle()
        elif link.sending:
            if native.updated and (native.remote_state or native.settled):
                delivery = self._table.deliveries.take_sent(native.tag)
                if delivery is not None:
                    yield Settled(delivery, outcome_of(native))
                native.settle()
        elif native.aborted:
            link.partial.clear()
            self._hold(self._table.unfinished_bytes)
            native.settle()
            link.native.flow(1)  # the aborted message took one credit from the peer
        elif native.readable:
            yield from self._on_bytes(link, native)

    def _on_bytes(self, link: Link, native: Any) -> Iterator[EngineEvent]:
        if native.pending:
            link.partial += link.native.recv(native.pending) or b""
        if link.credit <= 0:
            self._links.refuse(link, Condition(TRANSFER_LIMIT, "the peer sent more messages than it had credit for"))
        elif len(link.partial) > self._max_message_bytes:
            self._links.refuse(link, Condition(MESSAGE_SIZE_EXCEEDED, f"a message may have {self._max_message_bytes} bytes"))
        elif native.partial:
            if (size_bytes := self._table.unfinished_bytes) > MAX_UNFINISHED_BYTES:
                self._links.refuse(
                    link, Condition(RESOURCE_LIMIT, f"unfinished messages may have {MAX_UNFINISHED_BYTES} bytes")
                )
            elif not self._hold(size_bytes):
                raise PeerViolation(Condition(RESOURCE_LIMIT, "there is no room for the peer's unfinished messages"))
        else:
            data = bytes(link.partial)
            link.partial.clear()
            self._hold(self._table.unfinished_bytes)
            link.credit -= 1
            link.native.advance()
            delivery = Delivery(link, native)
            self._table.deliveries.add_received(delivery)
            yield Received(delivery, data)
