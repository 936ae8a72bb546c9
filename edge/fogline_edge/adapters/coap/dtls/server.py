"""The DTLS server: datagrams in, effects out. Pure; times are of one monotonic clock.

A client proves its key in a handshake before it has a session. A session stays until the new one of the same client has proved
its key (RFC 6347, section 4.2.8), so that nobody can end it with a forged ClientHello.
"""

import secrets
from collections.abc import Iterable, Iterator

from fogline.errors import Poison
from fogline.process.rates import Bucket
from fogline_edge.adapters.coap.dtls.dtls_counters import DtlsCounters
from fogline_edge.adapters.coap.dtls.effects import Effect, Refusal, SendDatagram, SessionContent, SessionEnded
from fogline_edge.adapters.coap.dtls.handshake import DtlsRefused, Finished
from fogline_edge.adapters.coap.dtls.handshake_table import NEVER_S, HandshakeTable
from fogline_edge.adapters.coap.dtls.session import Session, SessionEndpoint
from fogline_edge.adapters.coap.dtls.session_table import SessionTable
from fogline_edge.adapters.coap.dtls.wire import (
    DTLS_1_0,
    DTLS_1_2,
    Alert,
    ContentType,
    HandshakeType,
    Record,
    alert,
    fragments_of,
    is_record,
    records_of,
)
from fogline_edge.adapters.coap.wire import Endpoint
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.listener_settings import CoapDtlsSettings

STRANGERS_S, STRANGERS_BURST = 2000.0, 4000
"""Datagrams per second of clients that have neither session nor handshake. More are dropped."""


class DtlsServer:
    """All handshakes and sessions."""

    def __init__(self, settings: CoapDtlsSettings, credentials: CredentialStore, counters: DtlsCounters) -> None:
        self._settings = settings
        self._counters = counters
        self._strangers = Bucket(STRANGERS_S, STRANGERS_BURST, 0.0)
        self._handshakes = HandshakeTable(settings, credentials, counters)
        self._sessions = SessionTable(settings.max_sessions)

    @property
    def due_s(self) -> float:
        """Time at which `on_time` must be called, at the latest; infinite if there is nothing to do."""
        oldest = self._sessions.oldest
        return min(self._handshakes.due_s, oldest.last_s + self._settings.idle_s if oldest is not None else NEVER_S)

    def receive(self, datagram: bytes, address: Endpoint, now_s: float) -> list[Effect]:
        """Take in a datagram."""
        effects: list[Effect] = []
        if not is_record(datagram):
            if self._admit(now_s):
                effects.append(self._refused(*_not_dtls(datagram), address))
            return effects
        for record in records_of(datagram):
            session = self._sessions.find(record.cid, address) if record.epoch == 1 else None
            if session is None and not self._handshakes.has(address) and not self._admit(now_s):
                break
            try:
                if session is not None and not self._handshakes.awaits(record, address):
                    effects += self._on_protected(record, session, address, now_s)
                else:
                    effects += self._of_stranger(record, address, now_s)
            except DtlsRefused as error:
                effects.append(self._refused(error.reason, str(error), address))
                effects.append(self._handshakes.refuse(error.alert, address, record.sequence))
            except Poison as error:
                effects.append(self._refused(error.reason, str(error), address))
        return effects

    def send(self, data: bytes, endpoint: SessionEndpoint) -> SendDatagram | None:
        """Send content to the client of a session; if it has ended, nothing."""
        session = self._sessions.at(endpoint)
        if session is None:
            return None
        return SendDatagram(session.protection.seal(ContentType.APPLICATION_DATA, data), session.address)

    def on_time(self, now_s: float) -> Iterator[Effect]:
        """Do what is due: send flights again, give handshakes up, end idle sessions."""
        yield from self._handshakes.on_time(now_s)
        idle = self._sessions.idle_since(now_s - self._settings.idle_s)
        self._counters.idle += len(idle)
        yield from self._ended(idle)

    def key_ended(self, device: str, key_number: int) -> Iterator[Effect]:
        """End the sessions that a key has opened, because it was revoked or its time is over."""
        found = [each for each in self._sessions.of_device(device) if each.key_number == key_number]
        self._counters.revoked += len(found)
        for each in found:
            why = f"the session of device {device} ends: its key was revoked, or has expired"
            yield self._refused("revoked", why, each.address)
        yield from self._ended(found)

    def close(self) -> Iterator[Effect]:
        """End everything, and say so to the clients."""
        self._handshakes.clear()
        yield from self._ended(list(self._sessions))

    def _admit(self, now_s: float) -> bool:
        admitted = self._strangers.take(now_s)
        self._counters.dropped += not admitted
        return admitted

    def _of_stranger(self, record: Record, address: Endpoint, now_s: float) -> Iterator[Effect]:
        """Take in a record of a client that has no session, or is about to open a new one."""
        if record.epoch == 0:
            yield from self._on_plain(record, address, now_s)
        elif self._handshakes.awaits(record, address):
            end = self._handshakes.finish(record, address)
            if end is not None:
                yield from self._open(end, record, address, now_s)
        elif not self._handshakes.is_early(address):
            yield self._refused("no-session", "a record of a session that is not, or no longer, open", address)

    def _on_plain(self, record: Record, address: Endpoint, now_s: float) -> Iterator[Effect]:
        """Take in a record of epoch 0. Alerts and ChangeCipherSpec there prove nothing, and change nothing."""
        if record.kind == ContentType.APPLICATION_DATA:
            yield self._refused("unprotected", "content without encryption", address)
        if record.kind != ContentType.HANDSHAKE or record.version not in (DTLS_1_0, DTLS_1_2):
            return
        for fragment in fragments_of(record.body):
            if fragment.kind == HandshakeType.CLIENT_HELLO:
                yield self._handshakes.on_hello(fragment, record.sequence, address, now_s)
            else:
                self._handshakes.on_message(fragment, address)

    def _open(self, end: Finished, record: Record, address: Endpoint, now_s: float) -> Iterator[Effect]:
        """Open the session of a client that has proved its key."""
        session = Session(
            SessionEndpoint(f"dtls/{end.owner.device}", secrets.randbits(48)),
            address,
            key_number=end.owner.key.number,
            protection=end.protection,
            repeat=end.repeat,
            now_s=now_s,
        )
        session.window.note(record.sequence)
        surplus = self._sessions.add(session)
        self._counters.handshakes += 1
        self._counters.replaced += len(surplus)
        yield from self._ended(surplus)
        yield SendDatagram(end.answer, address)

    def _on_protected(self, record: Record, session: Session, address: Endpoint, now_s: float) -> Iterable[Effect]:
        device = session.endpoint.device
        if not session.window.is_new(record.sequence):
            return [self._refused("replayed", f"a record of device {device} came twice, or very late", address)]
        opened = session.protection.open(record)
        if opened is None:
            return [self._refused("forged", f"a record is not of device {device}, or was altered", address)]
        is_newest = session.window.note(record.sequence)
        if is_newest and record.cid and address != session.address:
            session.address = address  # RFC 9146, section 6
            self._counters.moved += 1
        self._sessions.touch(session, now_s)
        kind, content = opened
        if kind == ContentType.APPLICATION_DATA:
            session.repeat = None
            return [SessionContent(content, session.endpoint)]
        return self._on_control(session, kind, content)

    def _on_control(self, session: Session, kind: int, content: bytes) -> Iterable[Effect]:
        """Take in an alert, or a handshake message: a Finished that came again, or the wish to renegotiate."""
        if kind == ContentType.ALERT and (content[:1] == b"\x02" or content[1:] == bytes([Alert.CLOSE_NOTIFY])):
            return self._ended([session])
        if kind != ContentType.HANDSHAKE:
            return []
        if session.repeat is not None:
            return [SendDatagram(session.repeat(), session.address)]
        refusal = session.protection.seal(ContentType.ALERT, alert(Alert.NO_RENEGOTIATION))
        return [SendDatagram(refusal, session.address)]

    def _ended(self, sessions: Iterable[Session]) -> Iterator[Effect]:
        """Forget sessions, and say so to their clients."""
        for each in sessions:
            self._sessions.remove(each)
            self._counters.ended += 1
            goodbye = each.protection.seal(ContentType.ALERT, alert(Alert.CLOSE_NOTIFY))
            yield SendDatagram(goodbye, each.address)
            yield SessionEnded(each.endpoint)
        self._counters.sessions = len(self._sessions)

    def _refused(self, reason: str, what: str, address: Endpoint) -> Refusal:
        self._counters.refuse(reason)
        return Refusal(reason, address, what)


def _not_dtls(datagram: bytes) -> tuple[str, str]:
    if datagram and datagram[0] >> 6 == 1:  # version 1 (RFC 7252, section 3)
        return "plain-coap", "CoAP without DTLS on the secure port: use coaps://"
    return "malformed", "a datagram that is not DTLS"
