"""The handshake of one client, from its ClientHello with a cookie to its Finished (RFC 6347, section 4.2; RFC 4279). Pure.

Each message of the client must come in order; others are dropped, because the client sends its flight again. What the gateway
has sent last, it sends again when the client repeats itself, and after a timeout.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import NamedTuple

from fogline.errors import Poison
from fogline_edge.adapters.coap.dtls.cipher_suites import SUITES, CipherSuite, RecordProtection, premaster, prf
from fogline_edge.adapters.coap.dtls.client_hello import ClientHello, Extension
from fogline_edge.adapters.coap.dtls.diffie_hellman import GROUPS, EphemeralKey
from fogline_edge.adapters.coap.dtls.wire import (
    DTLS_1_2,
    Alert,
    ContentType,
    DtlsFormatError,
    DtlsReader,
    Fragment,
    HandshakeType,
    Record,
    fragments_of,
    handshake_message,
    plain_record,
    vector,
)
from fogline_edge.credentials.credential_store import CredentialStore, PskOwner

MAX_IDENTITY_BYTES = 128
MAX_HELLOS, MAX_SEQUENCE = 255, 2**32
"""The highest message number and record number of a ClientHello: the gateway counts on from both (RFC 6347, section 4.2.1)."""
_FINISHED_BYTES = 12


class DtlsRefused(Poison):
    """A handshake that must end. `alert` goes to the client; `reason` and the text to counters and log."""

    def __init__(self, alert: Alert, reason: str, what: str) -> None:
        super().__init__(reason, what)
        self.alert = alert


class Finished(NamedTuple):
    """The end of a handshake. `answer`: the gateway's last flight as one datagram; `repeat` makes it again."""

    owner: PskOwner
    protection: RecordProtection
    suite: CipherSuite
    answer: bytes
    repeat: Callable[[], bytes]


class Handshake:
    """One handshake. Raises `DtlsRefused` if the client offers nothing in common.

    `cid`: the connection id for the client's records, used if the client knows such. `sequence`: of the record of the hello.
    """

    def __init__(self, hello: ClientHello, first: Fragment, sequence: int, cid: bytes, credentials: CredentialStore) -> None:
        if first.sequence > MAX_HELLOS or sequence > MAX_SEQUENCE:
            raise DtlsRefused(Alert.ILLEGAL_PARAMETER, "bad-handshake", "the numbers of a ClientHello begin with 0")
        self.hello = hello
        self._credentials = credentials
        self._suite, self._ephemeral = _chosen(hello)
        self._cid_in, self._cid_out = (b"", b"") if hello.cid is None else (cid, hello.cid)
        self._random = secrets.token_bytes(32)
        self._plain_sent = sequence
        self._expected = first.sequence + 1
        self._message = first.sequence  # of the gateway's next message; HelloVerifyRequest had the one before, or the same
        self._joined = b""  # of a message in fragments
        self._owner: PskOwner | None = None  # of the key; None also if nobody has this identity
        self._identity = b""
        self._master = b""
        self._protection: RecordProtection | None = None
        self._transcript = handshake_message(first.kind, first.sequence, first.body)
        self._flight = self._messages()
        self._transcript += b"".join(self._flight)

    @property
    def cid(self) -> bytes:
        """The connection id that the client's records will have; empty for none."""
        return self._cid_in

    @property
    def awaits_finished(self) -> bool:
        """True if the keys are there, and the client's Finished is to come."""
        return self._protection is not None

    def flight(self) -> bytes:
        """Return the gateway's flight as one datagram: ServerHello to ServerHelloDone."""
        return b"".join(self._plain(ContentType.HANDSHAKE, each) for each in self._flight)

    def alert(self, body: bytes) -> bytes:
        """Return an alert that ends the handshake."""
        return self._plain(ContentType.ALERT, body)

    def receive(self, fragment: Fragment) -> None:
        """Take in a message, or a part of one, that follows the ClientHello. Raises `DtlsRefused`."""
        if fragment.sequence != self._expected or self._protection is not None:
            return
        if fragment.kind != HandshakeType.CLIENT_KEY_EXCHANGE:
            raise DtlsRefused(Alert.UNEXPECTED_MESSAGE, "bad-handshake", f"handshake message {fragment.kind} is out of place")
        if fragment.offset == 0:
            self._joined = fragment.body
        elif fragment.offset == len(self._joined):  # fragments come in order; others are dropped
            self._joined += fragment.body
        if len(self._joined) == fragment.length:
            self._on_key_exchange(self._joined)

    def finish(self, record: Record) -> Finished | None:
        """Take in a protected record; None if it is not of the handshake. Raises `DtlsRefused`, also for another key."""
        assert self._protection is not None
        opened = self._protection.open(record)
        if opened is None or self._owner is None:
            raise self._not_the_key()
        if self._credentials.psk(self._identity) != self._owner:
            self._owner = None  # revoked since the client has named it
            raise self._not_the_key()
        kind, content = opened
        if kind != ContentType.HANDSHAKE:
            return None
        fragment = next(fragments_of(content), None)
        wanted = prf(self._master, b"client finished", self._digest(), _FINISHED_BYTES)
        if fragment is None or fragment.kind != HandshakeType.FINISHED or not hmac.compare_digest(fragment.body, wanted):
            raise DtlsRefused(Alert.DECRYPT_ERROR, "bad-handshake", "the client has seen another handshake")
        self._transcript += handshake_message(HandshakeType.FINISHED, fragment.sequence, fragment.body)
        own = prf(self._master, b"server finished", self._digest(), _FINISHED_BYTES)
        message = handshake_message(HandshakeType.FINISHED, self._message, own)

        def answer(protection: RecordProtection) -> bytes:
            return self._plain(ContentType.CHANGE_CIPHER_SPEC, b"\x01") + protection.seal(ContentType.HANDSHAKE, message)

        protection = self._protection
        return Finished(self._owner, protection, self._suite, answer(protection), lambda: answer(protection))

    def _messages(self) -> list[bytes]:
        """Return ServerHello, ServerKeyExchange if the suite needs it, and ServerHelloDone."""
        found = [self._next(HandshakeType.SERVER_HELLO, self._server_hello())]
        if self._ephemeral is not None:
            curve = b"\x03" + self._ephemeral.group.to_bytes(2) + vector(self._ephemeral.public, 1)
            found.append(self._next(HandshakeType.SERVER_KEY_EXCHANGE, vector(b"", 2) + curve))
        found.append(self._next(HandshakeType.SERVER_HELLO_DONE, b""))
        return found

    def _next(self, kind: int, body: bytes) -> bytes:
        message = handshake_message(kind, self._message, body)
        self._message += 1
        return message

    def _server_hello(self) -> bytes:
        offered = self.hello.extensions
        extensions = []
        if Extension.EXTENDED_MASTER_SECRET in offered:
            extensions.append((Extension.EXTENDED_MASTER_SECRET, b""))
        if self.hello.renegotiates_securely:
            extensions.append((Extension.RENEGOTIATION, b"\0"))
        if self._cid_in:
            extensions.append((Extension.CONNECTION_ID, vector(self._cid_in, 1)))
        if self._ephemeral is not None and Extension.POINT_FORMATS in offered:
            extensions.append((Extension.POINT_FORMATS, b"\x01\0"))
        body = DTLS_1_2.to_bytes(2) + self._random + vector(b"", 1) + self._suite.number.to_bytes(2) + b"\0"
        listed = b"".join(number.to_bytes(2) + vector(value, 2) for number, value in extensions)
        return body + vector(listed, 2) if listed else body

    def _on_key_exchange(self, body: bytes) -> None:
        reader = DtlsReader(body)
        try:
            self._identity = identity = reader.vector(2)
            point = reader.vector(1) if self._ephemeral is not None else b""
            reader.end()
            shared = self._ephemeral.agree(point) if self._ephemeral is not None else None
        except (DtlsFormatError, ValueError) as error:
            raise DtlsRefused(Alert.DECODE_ERROR, "bad-handshake", f"ClientKeyExchange: {error}") from None
        if not 1 <= len(identity) <= MAX_IDENTITY_BYTES:
            raise DtlsRefused(Alert.ILLEGAL_PARAMETER, "bad-handshake", f"an identity has 1 to {MAX_IDENTITY_BYTES} bytes")
        self._transcript += handshake_message(HandshakeType.CLIENT_KEY_EXCHANGE, self._expected, body)
        self._expected += 1
        self._owner = self._credentials.psk(identity)
        # An unknown identity ends as a wrong key does, so that nobody can find out which there are (RFC 4279, section 2).
        psk = self._owner.key.key if self._owner is not None else secrets.token_bytes(16)
        self._master = self._master_secret(premaster(psk, shared))
        randoms = self._random + self.hello.random
        self._protection = RecordProtection(self._suite, self._master, randoms, self._cid_in, self._cid_out)

    def _master_secret(self, secret: bytes) -> bytes:
        if Extension.EXTENDED_MASTER_SECRET in self.hello.extensions:
            return prf(secret, b"extended master secret", self._digest(), 48)
        return prf(secret, b"master secret", self.hello.random + self._random, 48)

    def _not_the_key(self) -> DtlsRefused:
        named = self._identity.decode("ascii", "backslashreplace")
        if self._owner is None:
            why = f"no key has this identity: {self._credentials.reasons.of_psk(self._identity)}"
            return DtlsRefused(Alert.DECRYPT_ERROR, "unknown-identity", f"{why} [{named!a}]")
        why = f"the client has another key than device {self._owner.device}"
        return DtlsRefused(Alert.DECRYPT_ERROR, "wrong-key", f"{why} [{named!a}]")

    def _plain(self, kind: int, body: bytes) -> bytes:
        record = plain_record(kind, self._plain_sent, body)
        self._plain_sent += 1
        return record

    def _digest(self) -> bytes:
        return hashlib.sha256(self._transcript).digest()


def _chosen(hello: ClientHello) -> tuple[CipherSuite, EphemeralKey | None]:
    """Return the suite, and the key for one with Diffie-Hellman. Raises `DtlsRefused`."""
    if hello.version > DTLS_1_2:  # versions count downwards
        why = "the client speaks DTLS 1.0; the gateway speaks DTLS 1.2"
        raise DtlsRefused(Alert.PROTOCOL_VERSION, "old-version", why)
    if not hello.has_null_compression:
        raise DtlsRefused(Alert.ILLEGAL_PARAMETER, "bad-handshake", "the client insists on compression")
    group = next((each for each in GROUPS if each in hello.groups), None)
    for suite in SUITES:
        if suite.number in hello.suites and not (suite.ecdhe and group is None):
            return suite, EphemeralKey(group) if suite.ecdhe and group is not None else None
    offered = " ".join(f"{each:04x}" for each in hello.suites[:16])
    why = f"the client offers no authenticated encryption with a pre-shared key that the gateway speaks [{offered}]"
    raise DtlsRefused(Alert.HANDSHAKE_FAILURE, "weak-suites", why)
