"""The sessions of a gateway, by endpoint, by address and by connection id, within their bounds. Pure."""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile

from fogline_edge.adapters.coap.dtls.session import Session, SessionEndpoint
from fogline_edge.adapters.coap.wire import Endpoint

SESSIONS_OF_A_DEVICE = 4
"""Sessions that a device may have at a time. A device that restarts leaves sessions behind, which it uses no more."""


class SessionTable:
    """At most `most` sessions. The one whose client was silent for longest goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: OrderedDict[SessionEndpoint, Session] = OrderedDict()
        self._by_address: dict[Endpoint, Session] = {}
        self._by_cid: dict[bytes, Session] = {}
        self._of_device: dict[str, list[Session]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._all.values()))

    @property
    def oldest(self) -> Session | None:
        """The session whose client was silent for longest."""
        return next(iter(self._all.values()), None)

    def at(self, endpoint: SessionEndpoint) -> Session | None:
        """Return the session of an endpoint."""
        return self._all.get(endpoint)

    def find(self, cid: bytes, address: Endpoint) -> Session | None:
        """Return the session of a record: by its connection id, or without one by its address."""
        return self._by_cid.get(cid) if cid else self._by_address.get(address)

    def of_device(self, device: str) -> list[Session]:
        """Return the sessions of a device, the one whose client was silent for longest first."""
        return sorted(self._of_device.get(device, ()), key=lambda each: each.last_s)

    def touch(self, session: Session, now_s: float) -> None:
        """Note a record of the client."""
        session.last_s = now_s
        self._all.move_to_end(session.endpoint)

    def add(self, session: Session) -> list[Session]:
        """Add a session. Return those that must end for it."""
        surplus = []
        own = self.of_device(session.endpoint.device)
        if not session.protection.cid_in:
            former = self._by_address.get(session.address)
            surplus += [former] if former is not None else []
        surplus += [each for each in own if each not in surplus][: max(0, len(own) + 1 - SESSIONS_OF_A_DEVICE)]
        if not surplus and len(self._all) >= self._most:
            surplus = [self.oldest] if self.oldest is not None else []
        for each in surplus:
            self.remove(each)
        self._all[session.endpoint] = session
        self._of_device.setdefault(session.endpoint.device, []).append(session)
        if session.protection.cid_in:
            self._by_cid[session.protection.cid_in] = session
        else:
            self._by_address[session.address] = session
        return surplus

    def remove(self, session: Session) -> None:
        """Forget a session. Safe to call twice."""
        if self._all.pop(session.endpoint, None) is None:
            return
        own = self._of_device[session.endpoint.device]
        own.remove(session)
        if not own:
            del self._of_device[session.endpoint.device]
        self._by_cid.pop(session.protection.cid_in, None)
        if self._by_address.get(session.address) is session:
            del self._by_address[session.address]

    def idle_since(self, before_s: float) -> list[Session]:
        """Return the sessions whose client was silent since before a time."""
        return list(takewhile(lambda each: each.last_s <= before_s, self._all.values()))
