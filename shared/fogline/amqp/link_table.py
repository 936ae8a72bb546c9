"""The links of one connection and the deliveries on them, by proton's objects.

Proton keeps a link until it is freed, and a peer may attach and detach for as long as its connection lives.
"""

from typing import Any

from fogline.amqp.events import Delivery, Link


class LinkTable:
    """Which links are open, which wait for the peer's detach, and which deliveries are not settled."""

    def __init__(self) -> None:
        self._open: dict[Any, Link] = {}
        self._ending: set[Any] = set()
        self._received: set[Delivery] = set()
        self._sent: dict[str, Delivery] = {}

    def __len__(self) -> int:
        """Links that the peer has attached and not detached."""
        return len(self._open) + len(self._ending)

    @property
    def open_count(self) -> int:
        """Links that neither side has ended."""
        return len(self._open)

    @property
    def unsettled(self) -> int:
        """Deliveries of both directions without an outcome."""
        return len(self._received) + len(self._sent)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of messages whose last part has not come."""
        return sum(len(link.partial) for link in self._open.values())

    def add(self, link: Link) -> None:
        """Keep a link, until `end` or `free`."""
        self._open[link.native] = link

    def get(self, native: Any) -> Link | None:
        """The open link that proton means."""
        return self._open.get(native)

    def named(self, name: str, *, sending: bool) -> Link | None:
        """The open link of a name, which is unique per direction (AMQP 1.0 part 2, section 2.6.1)."""
        return next((each for each in self._open.values() if each.name == name and each.sending is sending), None)

    def of_session(self, session: Any) -> list[Link]:
        """The open links of a session."""
        return [link for link in self._open.values() if link.native.session == session]

    def end(self, link: Link) -> None:
        """This side has ended a link: nothing more is done with it, but proton needs it until the peer detaches."""
        self._ending.add(link.native)
        self._forget(link)

    def free(self, native: Any) -> Link | None:
        """The peer has ended a link too: nothing is left of it. Returns it if it was open."""
        link = self._open.get(native)
        if link is not None:
            self._forget(link)
        self._ending.discard(native)
        native.free()
        return link

    def free_session(self, session: Any) -> list[Link]:
        """The peer has ended a session, which takes its links with it. Returns those that were open."""
        links = self.of_session(session)
        for link in links:
            self._forget(link)
        self._ending = {native for native in self._ending if native.session != session}
        session.free()
        return links

    def sent(self, tag: str, delivery: Delivery) -> None:
        """Keep a delivery until the peer settles it."""
        self._sent[tag] = delivery

    def take_sent(self, tag: str) -> Delivery | None:
        """The delivery of a tag, which the peer has settled; `None` if its link is gone."""
        delivery = self._sent.pop(tag, None)
        if delivery is not None:
            delivery.native = None
        return delivery

    def received(self, delivery: Delivery) -> None:
        """Keep a delivery until this side settles it."""
        self._received.add(delivery)

    def settled(self, delivery: Delivery) -> None:
        """This side has settled a delivery."""
        delivery.native = None
        self._received.discard(delivery)

    def _forget(self, link: Link) -> None:
        self._open.pop(link.native, None)
        _close(link)
        for tag in [tag for tag, delivery in self._sent.items() if delivery.link is link]:
            self.take_sent(tag)
        for delivery in [each for each in self._received if each.link is link]:
            self.settled(delivery)

    def release(self) -> None:
        """Let go of every object of proton."""
        for link in self._open.values():
            _close(link)
        for delivery in [*self._received, *self._sent.values()]:
            delivery.native = None
        self._open.clear()
        self._ending.clear()
        self._received.clear()
        self._sent.clear()


def _close(link: Link) -> None:
    link.closed = True
    link.native = None
    link.partial.clear()
