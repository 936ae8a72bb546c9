"""Events of proton's engine on the connections of a router, as calls of its `Routing`."""

from typing import Any

import proton

from fogline_lab.intermediary.amqp_socket import AmqpSocket
from fogline_lab.intermediary.passage import Ingress, Parcel
from fogline_lab.intermediary.routing import Routing


class LinkEvents:
    """The open connections of a router, in `sockets`, and what their peers do."""

    def __init__(self, routing: Routing) -> None:
        self.sockets: list[AmqpSocket] = []
        self._routing = routing

    def event(self, connection: AmqpSocket, event: Any) -> None:
        """See `SocketOwner`."""
        match event.type:
            case proton.Event.CONNECTION_REMOTE_OPEN:
                connection.open()
                self.sockets.append(connection)
            case proton.Event.CONNECTION_REMOTE_CLOSE:
                connection.close()
            case proton.Event.SESSION_REMOTE_OPEN:
                event.session.open()
            case proton.Event.SESSION_REMOTE_CLOSE:
                self._end_links(lambda native: native.session == event.session)
                event.session.close()
            case proton.Event.LINK_REMOTE_OPEN:
                self._attach(connection, event.link)
            case proton.Event.LINK_REMOTE_CLOSE | proton.Event.LINK_REMOTE_DETACH:
                self._routing.link_ended(event.link)
                event.link.close()
                event.link.free()
            case proton.Event.LINK_FLOW:
                self._flow(connection, event.link)
            case proton.Event.DELIVERY if event.delivery.link.is_sender:
                self._routing.outcome(event.delivery)
            case proton.Event.DELIVERY:
                self._arriving(event.delivery)
        connection.soon()

    def ended(self, connection: AmqpSocket) -> None:
        """See `SocketOwner`."""
        if connection in self.sockets:
            self.sockets.remove(connection)
        self._end_links(lambda native: native.connection == connection.native)

    def _end_links(self, condition: Any) -> None:
        for native in [each for each in (*self._routing.links.receivers, *self._routing.links.senders) if condition(each)]:
            self._routing.link_ended(native)

    def _attach(self, connection: AmqpSocket, native: Any) -> None:
        if not native.state & proton.Endpoint.LOCAL_UNINIT:
            return
        native.source.copy(native.remote_source)
        native.target.copy(native.remote_target)
        if native.is_sender:
            self._routing.links.attach_receiver(connection, native)
            native.open()
        else:
            native.open()
            self._routing.links.attach_sender(connection, native)

    def _flow(self, connection: AmqpSocket, native: Any) -> None:
        if native.is_sender:
            if native.drain_mode and not connection.outgoing.waits(native):
                native.drained()
        elif (sender := self._routing.links.senders.get(native)) is not None and (given_back := native.drained()):
            self._routing.links.replenish(sender, given_back)

    def _arriving(self, native: Any) -> None:
        sender = self._routing.links.senders.get(native.link)
        if sender is None:
            native.settle()
        elif native.aborted:
            self._routing.abort(sender)
            native.settle()
            self._routing.links.replenish(sender, 1)
        elif native.readable:
            self._read(sender, native)
        elif native.settled:  # the sender wants no outcome any more
            parcel = sender.unanswered.pop(native, None)
            if parcel is not None:
                parcel.native = None
                self._routing.links.replenish(sender, 1)
            native.settle()

    def _read(self, sender: Ingress, native: Any) -> None:
        parcel = sender.unfinished
        if parcel is None:
            parcel = sender.unfinished = sender.unanswered[native] = Parcel(sender.address, bytearray(), sender, native)
        if native.pending:
            parcel.data += sender.native.recv(native.pending) or b""
        if native.partial:
            if parcel.address:
                self._routing.take(parcel)
            return
        sender.unfinished = None
        parcel.complete = True
        parcel.address = parcel.address or _to_of(parcel.data)
        sender.native.advance()
        if native.settled:
            parcel.settled = True
            del sender.unanswered[native]
            parcel.native = None
            native.settle()
            self._routing.links.replenish(sender, 1)
        self._routing.take(parcel)


def _to_of(data: bytearray) -> str:
    """Return the address in a message's properties, for the anonymous relay."""
    message = proton.Message()
    message.decode(bytes(data))
    return message.address or ""
