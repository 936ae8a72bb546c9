"""A DTLS 1.2 client with a pre-shared key, made of bytes: datagrams in, datagrams out. It repeats nothing by itself.

It can do what a sound client does not: offer any suite, any version and any extension, and send the same record twice.
"""

import hashlib
import secrets

from fogline_edge.adapters.coap.dtls.cipher_suites import SUITES, CipherSuite, RecordProtection, premaster, prf
from fogline_edge.adapters.coap.dtls.client_hello import Extension
from fogline_edge.adapters.coap.dtls.diffie_hellman import X25519, EphemeralKey
from fogline_edge.adapters.coap.dtls.wire import (
    DTLS_1_2,
    ContentType,
    DtlsReader,
    Fragment,
    HandshakeType,
    Record,
    fragments_of,
    handshake_message,
    plain_record,
    records_of,
    vector,
)

PSK_CCM_8 = 0xC0A8


class DtlsClient:
    """One client.

    `cid`: the connection id that it wants in records to it, empty or of 8 bytes; None: it knows none. `group`: of its
    Diffie-Hellman. After the handshake `is_open` is True, and `suite` is the chosen one.
    `last_flight`: its last datagram of the handshake; `finished`: the message in it.
    """

    def __init__(
        self,
        identity: str,
        key: bytes,
        *,
        suites: tuple[int, ...] = (PSK_CCM_8,),
        version: int = DTLS_1_2,
        cid: bytes | None = None,
        group: int = X25519,
        extended: bool = True,
    ) -> None:
        self.is_open = False
        self.alerts: list[int] = []
        self.received: list[bytes] = []
        self.suite: CipherSuite | None = None
        self.finished = self.last_flight = b""
        self._identity, self._key = identity.encode(), key
        self._suites, self._version, self._cid, self._group, self._extended = suites, version, cid, group, extended
        self._random = secrets.token_bytes(32)
        self._sent = 0  # records of epoch 0
        self._transcript = b""
        self._server_random = b""
        self._peer_cid: bytes | None = None
        self._peer_point: bytes | None = None
        self._master = b""
        self.protection: RecordProtection | None = None

    def hello(self, cookie: bytes = b"", sequence: int = 0) -> bytes:
        """Return the datagram of a ClientHello."""
        body = self._version.to_bytes(2) + self._random + vector(b"", 1) + vector(cookie, 1)
        body += vector(b"".join(each.to_bytes(2) for each in self._suites), 2) + vector(b"\0", 1)
        extensions = [(Extension.GROUPS, vector(self._group.to_bytes(2), 2)), (Extension.RENEGOTIATION, b"\0")]
        if self._extended:
            extensions.append((Extension.EXTENDED_MASTER_SECRET, b""))
        if self._cid is not None:
            extensions.append((Extension.CONNECTION_ID, vector(self._cid, 1)))
        body += vector(b"".join(number.to_bytes(2) + vector(value, 2) for number, value in extensions), 2)
        self._transcript = handshake_message(HandshakeType.CLIENT_HELLO, sequence, body)
        return self._plain(ContentType.HANDSHAKE, self._transcript)

    def receive(self, datagram: bytes) -> bytes:
        """Take in a datagram. Return the next one to send; empty for none."""
        answer = b""
        for record in records_of(datagram):
            if record.epoch == 0 and record.kind == ContentType.ALERT:
                self.alerts.append(record.body[1])
            elif record.epoch == 0 and record.kind == ContentType.HANDSHAKE:
                for fragment in fragments_of(record.body):
                    answer += self._on_message(fragment)
            elif record.epoch == 1 and self.protection is not None:
                self._on_protected(record)
        return answer

    def seal(self, data: bytes) -> bytes:
        """Return a datagram with content. Only when it is open."""
        assert self.protection is not None
        return self.protection.seal(ContentType.APPLICATION_DATA, data)

    def _on_message(self, fragment: Fragment) -> bytes:
        reader = DtlsReader(fragment.body)
        if fragment.kind == HandshakeType.HELLO_VERIFY_REQUEST:
            reader.take(2)
            return self.hello(reader.vector(1), fragment.sequence + 1)
        if self.protection is not None:
            return b""  # a flight that came again
        self._transcript += handshake_message(fragment.kind, fragment.sequence, fragment.body)
        if fragment.kind == HandshakeType.SERVER_HELLO:
            self._on_server_hello(reader)
        elif fragment.kind == HandshakeType.SERVER_KEY_EXCHANGE:
            reader.vector(2)
            reader.take(3)
            self._peer_point = reader.vector(1)
        elif fragment.kind == HandshakeType.SERVER_HELLO_DONE:
            return self._finish(fragment.sequence)
        return b""

    def _on_server_hello(self, reader: DtlsReader) -> None:
        reader.take(2)
        self._server_random = reader.take(32)
        reader.vector(1)
        chosen = reader.number(2)
        self.suite = next(each for each in SUITES if each.number == chosen)
        reader.take(1)
        if not reader.is_done:
            inner = DtlsReader(reader.vector(2))
            while not inner.is_done:
                number, value = inner.number(2), inner.vector(2)
                if number == Extension.CONNECTION_ID:
                    self._peer_cid = value[1:]

    def _finish(self, sequence: int) -> bytes:
        assert self.suite is not None
        body, shared = vector(self._identity, 2), None
        if self.suite.ecdhe:
            assert self._peer_point is not None
            own = EphemeralKey(self._group)
            body, shared = body + vector(own.public, 1), own.agree(self._peer_point)
        key_exchange = handshake_message(HandshakeType.CLIENT_KEY_EXCHANGE, sequence - self._ahead(), body)
        self._transcript += key_exchange
        secret = premaster(self._key, shared)
        if self._extended:
            self._master = prf(secret, b"extended master secret", hashlib.sha256(self._transcript).digest(), 48)
        else:
            self._master = prf(secret, b"master secret", self._random + self._server_random, 48)
        own_cid = self._cid or b"" if self._peer_cid is not None else b""
        randoms = self._server_random + self._random
        self.protection = _ClientProtection(self.suite, self._master, randoms, own_cid, self._peer_cid or b"")
        verify = prf(self._master, b"client finished", hashlib.sha256(self._transcript).digest(), 12)
        finished = handshake_message(HandshakeType.FINISHED, sequence - self._ahead() + 1, verify)
        self._transcript += finished
        self.finished = finished
        key_exchange_record = self._plain(ContentType.HANDSHAKE, key_exchange)
        sealed = self.protection.seal(ContentType.HANDSHAKE, finished)
        change = self._plain(ContentType.CHANGE_CIPHER_SPEC, b"\x01")
        self.last_flight = key_exchange_record + change + sealed
        return self.last_flight

    def _ahead(self) -> int:
        """Return by how much the number of ServerHelloDone is ahead of the client's next one."""
        return 0 if self._peer_point is None else 1

    def _on_protected(self, record: Record) -> None:
        assert self.protection is not None
        opened = self.protection.open(record)
        if opened is None:
            return
        kind, content = opened
        if kind == ContentType.HANDSHAKE:
            wanted = prf(self._master, b"server finished", hashlib.sha256(self._transcript).digest(), 12)
            self.is_open = next(iter(fragments_of(content))).body == wanted
        elif kind == ContentType.ALERT:
            self.alerts.append(content[1])
        else:
            self.received.append(content)

    def _plain(self, kind: int, body: bytes) -> bytes:
        record = plain_record(kind, self._sent, body)
        self._sent += 1
        return record


class _ClientProtection(RecordProtection):
    """Protection from the client's side: the other keys of the same block."""

    def __init__(self, suite: CipherSuite, master: bytes, randoms: bytes, cid_in: bytes, cid_out: bytes) -> None:
        super().__init__(suite, master, randoms, cid_in, cid_out)
        self._in, self._out = self._out, self._in
        self._salt_in, self._salt_out = self._salt_out, self._salt_in
