"""DTLS on a UDP socket: performs the effects of the server, and wakes it on time."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable

from fogline.process.log_throttle import LogThrottle
from fogline_edge.adapters.coap.dtls.dtls_counters import DtlsCounters
from fogline_edge.adapters.coap.dtls.effects import Effect, Refusal, SendDatagram, SessionContent
from fogline_edge.adapters.coap.dtls.handshake_table import NEVER_S
from fogline_edge.adapters.coap.dtls.server import DtlsServer
from fogline_edge.adapters.coap.dtls.session import SessionEndpoint
from fogline_edge.adapters.coap.udp_socket import UdpSocket
from fogline_edge.adapters.coap.wire import Endpoint
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.listener_settings import CoapDtlsSettings

_log = logging.getLogger(__name__)
# What a stranger chooses is variable, so that a flood of them does not fill the disk.
_log.addFilter(LogThrottle(variable=re.compile(r" from \S+(?=: )| \[.*\]$"), bounded=True))


class DtlsTransport:
    """Sessions over one socket. `received` gets what a device sends in its session; `ended` each session that has ended."""

    def __init__(
        self,
        udp: UdpSocket,
        settings: CoapDtlsSettings,
        credentials: CredentialStore,
        received: Callable[[bytes, SessionEndpoint], None],
        ended: Callable[[SessionEndpoint], None],
    ) -> None:
        self.counters = DtlsCounters()
        self._udp = udp
        self._received = received
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._server = DtlsServer(settings, credentials, self.counters)
        self._timer: asyncio.TimerHandle | None = None
        credentials.when_ended(lambda device, number: self._perform(self._server.key_ended(device, number)))
        udp.listen(self._on_datagram)

    @property
    def address(self) -> Endpoint:
        """Host and port."""
        return self._udp.address

    def send(self, data: bytes, endpoint: SessionEndpoint) -> None:
        """Send to a device in its session; if that has ended, nothing is sent."""
        datagram = self._server.send(data, endpoint)
        if datagram is not None:
            self._udp.send(*datagram)

    def close(self) -> None:
        """End all sessions. Safe to call twice."""
        self._perform(self._server.close())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._udp.close()

    def _on_datagram(self, datagram: bytes, address: Endpoint) -> None:
        self._perform(self._server.receive(datagram, address, self._loop.time()))
        self._arm()

    def _arm(self) -> None:
        """Set the timer, if the server is due earlier than it."""
        due_s = self._server.due_s
        if due_s == NEVER_S or (self._timer is not None and self._timer.when() <= due_s):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._perform(self._server.on_time(self._loop.time()))
        self._arm()

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in list(effects):  # before any of them can call the server
            match effect:
                case SessionContent(data, endpoint):
                    self._received(data, endpoint)
                case SendDatagram(data, address):
                    self._udp.send(data, address)
                case Refusal(reason, address, what):
                    where = "{}:{}".format(*address[:2])
                    _log.info("DTLS: refused (%s) from %s: %s", reason, where, what, extra={"reason": reason})
                case _:
                    self._ended(effect.endpoint)
