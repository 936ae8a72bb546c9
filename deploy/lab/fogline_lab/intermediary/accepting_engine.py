"""The server's side of one AMQP connection without IO, on proton itself.

It shares no code with `fogline.amqp.engine`, which the tests look at. Only TLS and SASL, below AMQP, are the product's.
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import proton

from fogline.amqp.login import ANONYMOUS, EXTERNAL, PLAIN, Login, LoginVerdict
from fogline.amqp.security import SecurityError, SecurityLayers, ServerSecurity
from fogline_lab.intermediary.outgoing_queues import CHUNK_BYTES

IDLE_S = 16.0


@dataclass
class Door:
    """How peers log in. `users`: passwords by user name; without any, peers are ANONYMOUS, or have a certificate."""

    tls: ssl.SSLContext | None = None
    users: Mapping[str, str] = field(default_factory=dict)

    def security(self) -> ServerSecurity:
        """Return what the server requires of its peers."""
        mechanisms = (EXTERNAL, PLAIN) if self.users else (EXTERNAL, ANONYMOUS) if self.tls else (ANONYMOUS,)
        return ServerSecurity(mechanisms, self.tls)

    def verdict(self, login: Login) -> LoginVerdict:
        """Return whether a user and a password are right."""
        return LoginVerdict.ACCEPTED if self.users.get(login.user) == login.password else LoginVerdict.REFUSED


class AcceptingEngine:
    """Takes bytes of a peer, gives bytes for it and proton's events. A peer that fails to log in is told so."""

    def __init__(self, door: Door, container: str) -> None:
        self._door = door
        self._layers = SecurityLayers(door.security())
        self._refused = False
        self._collector = proton.Collector()
        self.connection = proton.Connection()
        self.connection.container = container
        self.connection.collect(self._collector)
        self._engine = proton.Transport(proton.Transport.SERVER)
        self._engine.max_frame_size = CHUNK_BYTES
        self._engine.idle_timeout = IDLE_S
        self._engine.bind(self.connection)

    def receive(self, data: bytes) -> None:
        """Take bytes of the peer."""
        try:
            self._push(self._layers.receive(data))
            if (offered := self._layers.take_offered()) is not None:
                self._push(self._layers.answer(self._door.verdict(offered)))
        except SecurityError:
            self._refused = True

    def receive_eof(self) -> None:
        """Take the end of the peer's bytes."""
        try:
            self._engine.close_tail()
        except proton.TransportException:
            self._refused = True

    def handle_events(self, handle: Callable[[Any], None]) -> None:
        """Call `handle` with each of proton's events since the last call."""
        while (event := self._collector.peek()) is not None:
            handle(event)
            self._collector.pop()

    def data_to_send(self) -> bytes:
        """Return the bytes to write now; empty if there are none."""
        if data := self._layers.data_to_send():
            return data
        size = self._engine.pending() if self._layers.ready and not self._refused else 0
        if size <= 0:
            return b""
        data = self._engine.peek(size)
        self._engine.pop(len(data))
        return self._layers.wrap(data)

    @property
    def finished(self) -> bool:
        """True if this side will never write again."""
        return self._refused or self._engine.pending() < 0

    def tick(self, now_s: float) -> None:
        """Send due heartbeats and check the idle time-out."""
        self._engine.tick(now_s)

    def _push(self, data: bytes) -> None:
        while data:
            room = self._engine.capacity()
            if room <= 0:
                return
            try:
                self._engine.push(data[:room])
            except proton.TransportException:
                return
            data = data[room:]
