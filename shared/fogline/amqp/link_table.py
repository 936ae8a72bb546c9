"""Links and unsettled deliveries of one connection. Pure: the tables keep proton's objects and never call them."""

from typing import Any

from fogline.amqp.events import Delivery, Link


class DeliveryTable:
    """Unsettled deliveries of both directions."""

    def __init__(self) -> None:
        self._received: set[Delivery] = set()
        self._sent: dict[str, Delivery] = {}

    def __len__(self) -> int:
        return len(self._received) + len(self._sent)

    def add_sent(self, tag: str, delivery: Delivery) -> None:
        """Keep a delivery until the peer settles it."""
        self._sent[tag] = delivery

    def take_sent(self, tag: str) -> Delivery | None:
        """Remove and return the delivery that the peer settled; `None` if its link is gone."""
        delivery = self._sent.pop(tag, None)
        if delivery is not None:
            delivery.native = None
        return delivery

    def add_received(self, delivery: Delivery) -> None:
        """Keep a delivery until this side settles it."""
        self._received.add(delivery)

    def remove_received(self, delivery: Delivery) -> None:
        """Remove a delivery that this side has settled."""
        delivery.native = None
        self._received.discard(delivery)

    def remove_all_of(self, link: Link) -> None:
        """Remove every delivery of a link that has ended."""
        for tag in [tag for tag, delivery in self._sent.items() if delivery.link is link]:
            self.take_sent(tag)
        for delivery in [each for each in self._received if each.link is link]:
            self.remove_received(delivery)

    def clear(self) -> None:
        """Remove every delivery."""
        for delivery in (*self._received, *self._sent.values()):
            delivery.native = None
        self._received.clear()
        self._sent.clear()


class LinkTable:
    """Links that the peer has attached and not detached, with their unsettled deliveries."""

    def __init__(self) -> None:
        self.deliveries = DeliveryTable()
        self._open: dict[Any, Link] = {}
        self._detaching: set[Any] = set()

    def __len__(self) -> int:
        """Count the open links and those that wait for the peer's detach."""
        return len(self._open) + len(self._detaching)

    @property
    def open_count(self) -> int:
        """Number of links that neither side has ended."""
        return len(self._open)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of the messages whose last transfer frame is still missing."""
        return sum(len(link.partial) for link in self._open.values())

    def drop_unfinished(self) -> None:
        """Drop the bytes of unfinished messages."""
        for link in self._open.values():
            link.partial.clear()

    def add(self, link: Link) -> None:
        """Add an open link."""
        self._open[link.native] = link

    def get(self, native: Any) -> Link | None:
        """Return the open link of a proton link."""
        return self._open.get(native)

    def find(self, name: str, *, sending: bool) -> Link | None:
        """Return the open link of this name, which is unique per direction (AMQP 1.0 part 2, section 2.6.1)."""
        return next((each for each in self._open.values() if each.name == name and each.sending is sending), None)

    def detach(self, link: Link) -> None:
        """Close a link that this side has ended. Proton needs its object until the peer detaches too."""
        self._detaching.add(link.native)
        self._close(link)

    def remove(self, native: Any) -> Link | None:
        """Remove a link that the peer has ended. Returns it if it was open."""
        self._detaching.discard(native)
        link = self._open.get(native)
        if link is not None:
            self._close(link)
        return link

    def remove_session(self, session: Any) -> list[Link]:
        """Remove the links of a session that the peer has ended. Returns those that were open."""
        links = [link for link in self._open.values() if link.native.session == session]
        for link in links:
            self._close(link)
        self._detaching = {native for native in self._detaching if native.session != session}
        return links

    def clear(self) -> None:
        """Close every link and drop every reference to a proton object."""
        for link in list(self._open.values()):
            self._close(link)
        self.deliveries.clear()
        self._detaching.clear()

    def _close(self, link: Link) -> None:
        del self._open[link.native]
        link.closed = True
        link.native = None
        link.partial.clear()
        self.deliveries.remove_all_of(link)
