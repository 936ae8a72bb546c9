"""Sessions, links and deliveries of one connection, as this side operates them (AMQP 1.0 part 2, section 2.6)."""

from collections.abc import Mapping, Sequence
from typing import Any

import proton

from fogline.amqp.events import Delivery, Link
from fogline.amqp.link_table import LinkTable
from fogline.amqp.native import NATIVE
from fogline.amqp.outcome import Condition, DeliveryState, Outcome
from fogline.message import Property


class LocalLinks:
    """Operations of this side. `accept`, `refuse`, `grant` and `settle` do nothing on a link that has ended."""

    def __init__(self, connection: proton.Connection, table: LinkTable, max_message_bytes: int) -> None:
        self._connection = connection
        self._table = table
        self._max_message_bytes = max_message_bytes
        self._last_tag = 0

    def open_session(self) -> Any:
        """Return a new session, for `open_sender` and `open_receiver`."""
        session = self._connection.session()
        session.open()
        return session

    def is_session_open(self, session: Any) -> bool:
        """Return True if neither side has ended the session."""
        return not session.state & (proton.Endpoint.LOCAL_CLOSED | proton.Endpoint.REMOTE_CLOSED)

    def open_sender(
        self,
        session: Any,
        name: str,
        address: str,
        properties: Mapping[str, Property] | None = None,
        *,
        capabilities: Sequence[str] = (),
    ) -> Link:
        """Attach a link that sends to `address`. `capabilities`: what it asks of the address, such as `queue`."""
        native = session.sender(name)
        native.target.address = address
        _ask(native.target, capabilities)
        native.source.address = name
        return self._open(native, address, properties or {})

    def open_receiver(
        self,
        session: Any,
        name: str,
        address: str,
        credit: int,
        properties: Mapping[str, Property] | None = None,
        *,
        capabilities: Sequence[str] = (),
    ) -> Link:
        """Attach a link that receives from `address`. `capabilities`: see `open_sender`."""
        native = session.receiver(name)
        native.source.address = address
        _ask(native.source, capabilities)
        native.target.address = name
        native.max_message_size = self._max_message_bytes
        link = self._open(native, address, properties or {})
        self.grant(link, credit)
        return link

    def _open(self, native: Any, address: str, properties: Mapping[str, Property]) -> Link:
        if properties:
            native.properties = {proton.symbol(key): value for key, value in properties.items()}
        native.open()
        link = Link(native.name, address, native.is_sender, properties, native)
        self._table.add(link)
        return link

    def accept(self, link: Link, credit: int = 0) -> None:
        """Attach to a link that the peer requested; grant `credit` if it receives."""
        if link.closed:
            return
        native = link.native
        native.source.copy(native.remote_source)
        native.target.copy(native.remote_target)
        if not link.sending:
            native.max_message_size = self._max_message_bytes
        native.open()
        if credit and not link.sending:
            self.grant(link, credit)

    def refuse(self, link: Link, condition: Condition) -> None:
        """Refuse a requested link or end an open one, with the reason."""
        if link.closed:
            return
        native = link.native
        if native.state & proton.Endpoint.LOCAL_UNINIT:  # attach, so that the peer expects the detach (part 2, section 2.6.3)
            (native.source if native.is_sender else native.target).type = proton.Terminus.UNSPECIFIED
            native.open()
        native.condition = proton.Condition(condition.name, condition.description)
        native.close()
        self._table.detach(link)

    def grant(self, link: Link, credit: int) -> None:
        """Let the peer send `credit` more messages."""
        if not link.closed:
            link.credit += credit
            link.native.flow(credit)

    def has_room(self, link: Link, limit: int) -> bool:
        """Return True if the link's session holds less than `limit` bytes that proton has not framed yet."""
        return not link.closed and bool(link.native.session.outgoing_bytes < limit)

    def drained(self, link: Link) -> bool:
        """Give back the credit of a sending link if the peer asks for it (AMQP 1.0 part 2, section 2.6.7). True if it does."""
        is_drained = not link.closed and bool(link.native.drain_mode)
        if is_drained:
            link.native.drained()
        return is_drained

    def begin(self, link: Link) -> Delivery:
        """Start a message on a sending link."""
        self._last_tag += 1
        tag = f"{self._last_tag:x}"
        delivery = Delivery(link, link.native.delivery(tag))
        self._table.deliveries.add_sent(tag, delivery)
        return delivery

    def send(self, delivery: Delivery, data: bytes, *, last: bool) -> None:
        """Append bytes to the message that `begin` started; `last` ends it."""
        native = delivery.link.native
        native.send(data)
        if last:
            native.advance()

    def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """Settle a received message with `outcome`. A message that is settled already is left alone."""
        if delivery.done or delivery.link.closed:
            return
        delivery.done = True
        native = delivery.native
        if outcome.state is DeliveryState.REJECTED:
            native.local.condition = proton.Condition(outcome.condition, outcome.description)
        if outcome.state is DeliveryState.MODIFIED:
            native.local.failed = True
        if outcome.state in NATIVE:
            native.update(NATIVE[outcome.state])
        native.settle()
        self._table.deliveries.remove_received(delivery)


def _ask(terminus: Any, capabilities: Sequence[str]) -> None:
    """Ask for capabilities of a source or a target (AMQP 1.0 part 3, sections 3.5.3 and 3.5.4)."""
    if capabilities:
        terminus.capabilities.put_object(
            proton.Array(proton.UNDESCRIBED, proton.Data.SYMBOL, *map(proton.symbol, capabilities))
        )
