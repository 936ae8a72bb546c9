"""The handshakes of all clients. Pure.

Nothing is kept of a client before it has returned a cookie. Of the handshakes, the oldest is given up for one too many.
"""

import secrets
from collections import OrderedDict
from collections.abc import Iterator

from fogline_edge.adapters.coap.dtls.client_hello import read_client_hello
from fogline_edge.adapters.coap.dtls.cookies import COOKIE_BYTES, Cookies
from fogline_edge.adapters.coap.dtls.dtls_counters import DtlsCounters
from fogline_edge.adapters.coap.dtls.effects import Effect, Refusal, SendDatagram
from fogline_edge.adapters.coap.dtls.handshake import Finished, Handshake
from fogline_edge.adapters.coap.dtls.wire import (
    CID_BYTES,
    DTLS_1_0,
    Alert,
    ContentType,
    DtlsFormatError,
    Fragment,
    HandshakeType,
    Record,
    alert,
    handshake_message,
    plain_record,
    vector,
)
from fogline_edge.adapters.coap.wire import Endpoint
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.listener_settings import CoapDtlsSettings

FIRST_TIMEOUT_S, LONGEST_TIMEOUT_S = 1.0, 8.0
"""Time after which the gateway's flight is sent again, and its bound: it doubles (RFC 6347, section 4.2.4.1)."""
NEVER_S = float("inf")


class _HalfOpen:
    """A handshake under way."""

    __slots__ = ("born_s", "due_s", "handshake", "timeout_s")

    def __init__(self, handshake: Handshake, now_s: float) -> None:
        self.handshake = handshake
        self.born_s = now_s
        self.timeout_s = FIRST_TIMEOUT_S
        self.due_s = now_s + FIRST_TIMEOUT_S


class HandshakeTable:
    """At most `max_handshakes` of the settings, by address."""

    def __init__(self, settings: CoapDtlsSettings, credentials: CredentialStore, counters: DtlsCounters) -> None:
        self._settings = settings
        self._credentials = credentials
        self._counters = counters
        self._cookies = Cookies()
        self._half_open: OrderedDict[Endpoint, _HalfOpen] = OrderedDict()
        self.due_s = NEVER_S
        """Time at which `on_time` must be called, at the latest."""

    def __len__(self) -> int:
        return len(self._half_open)

    def on_hello(self, fragment: Fragment, sequence: int, address: Endpoint, now_s: float) -> SendDatagram:
        """Answer a ClientHello: ask for a cookie, or begin. Raises `DtlsFormatError`, `DtlsRefused`."""
        self._counters.hellos += 1
        if fragment.length != len(fragment.body):
            raise DtlsFormatError("a ClientHello in fragments: it must fit into a datagram")
        hello = read_client_hello(fragment.body)
        where = "{}|{}".format(*address[:2])
        if len(hello.cookie) != COOKIE_BYTES or not self._cookies.verify(hello.cookie, hello.fixed, where, now_s):
            body = DTLS_1_0.to_bytes(2) + vector(self._cookies.make(hello.fixed, where, now_s), 1)
            message = handshake_message(HandshakeType.HELLO_VERIFY_REQUEST, fragment.sequence, body)
            return SendDatagram(plain_record(ContentType.HANDSHAKE, sequence, message, DTLS_1_0), address)
        half = self._half_open.get(address)
        if half is not None and half.handshake.hello.random == hello.random:
            return SendDatagram(half.handshake.flight(), address)
        self._half_open.pop(address, None)
        handshake = Handshake(hello, fragment, sequence, secrets.token_bytes(CID_BYTES), self._credentials)
        while len(self._half_open) >= self._settings.max_handshakes:
            self._half_open.popitem(last=False)
        half = self._half_open[address] = _HalfOpen(handshake, now_s)
        self.due_s = min(self.due_s, half.due_s)
        return SendDatagram(handshake.flight(), address)

    def on_message(self, fragment: Fragment, address: Endpoint) -> None:
        """Take in another message than a ClientHello. Raises `DtlsRefused`."""
        half = self._half_open.get(address)
        if half is not None:
            half.handshake.receive(fragment)

    def has(self, address: Endpoint) -> bool:
        """Return True if a client has a handshake under way: it has returned its cookie."""
        return address in self._half_open

    def awaits(self, record: Record, address: Endpoint) -> bool:
        """Return True if a protected record may be the Finished of a handshake: its content type or connection id says so."""
        half = self._half_open.get(address)
        if half is None or record.epoch != 1 or not half.handshake.awaits_finished:
            return False
        cid = half.handshake.cid
        return record.cid == cid if cid else record.kind == ContentType.HANDSHAKE

    def is_early(self, address: Endpoint) -> bool:
        """Return True if a client has a handshake whose keys are to come: its Finished has overtaken them."""
        half = self._half_open.get(address)
        return half is not None and not half.handshake.awaits_finished

    def finish(self, record: Record, address: Endpoint) -> Finished | None:
        """Take in the Finished of a handshake; see `Handshake.finish`. Raises `DtlsFormatError`, `DtlsRefused`."""
        end = self._half_open[address].handshake.finish(record)
        if end is not None:
            del self._half_open[address]
        return end

    def refuse(self, description: Alert, address: Endpoint, sequence: int) -> SendDatagram:
        """End a handshake, or one that cannot begin. `sequence`: of the client's record."""
        half, body = self._half_open.pop(address, None), alert(description)
        data = plain_record(ContentType.ALERT, sequence, body) if half is None else half.handshake.alert(body)
        return SendDatagram(data, address)

    def on_time(self, now_s: float) -> Iterator[Effect]:
        """Send flights again, and give handshakes up."""
        for address, half in list(self._half_open.items()):
            if now_s - half.born_s >= self._settings.handshake_timeout_s:
                del self._half_open[address]
                self._counters.refuse("unfinished")
                yield Refusal("unfinished", address, "the client did not finish the handshake in time")
            elif half.due_s <= now_s:
                half.timeout_s = min(LONGEST_TIMEOUT_S, half.timeout_s * 2)
                half.due_s = now_s + half.timeout_s
                if not half.handshake.awaits_finished:
                    self._counters.retransmitted += 1
                    yield SendDatagram(half.handshake.flight(), address)
        timeout_s = self._settings.handshake_timeout_s
        self.due_s = min((min(each.due_s, each.born_s + timeout_s) for each in self._half_open.values()), default=NEVER_S)

    def clear(self) -> None:
        """Give all handshakes up."""
        self._half_open.clear()
