"""The TLS layer without IO: Python's `ssl` between the bytes of a socket and those of the protocol above."""

import contextlib
import ssl
from collections.abc import Iterable
from typing import Any, Final

from fogline.transport.certificate_names import CertificateNames

TLS_HANDSHAKE: Final = 0x16
"""First byte of a TLS connection: the type of its first record (RFC 8446, section 5.1)."""
_READ_BYTES: Final = 64 * 1024


class TlsError(Exception):
    """The handshake or the connection has failed."""


class Tls:
    """One side of a TLS connection. After each call take `data_to_send`. `hostname`: the server's, which a client checks."""

    def __init__(self, context: ssl.SSLContext, *, server: bool, hostname: str = "") -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._server = server
        name = None if server else hostname
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=server, server_hostname=name)
        self.ready = False
        self.peer_ended = False
        """The peer has said that nothing follows (close_notify)."""
        self._advance()

    def data_to_send(self) -> bytes:
        """Return the bytes to write to the socket now."""
        return self._outgoing.read()

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the socket. Returns those of the protocol above. Raises `TlsError`; then send `data_to_send` first."""
        self._incoming.write(data)
        if not self.ready:
            self._advance()
        return self._read() if self.ready else b""

    def wrap(self, data: bytes) -> bytes:
        """Return the bytes to write to the socket for bytes of the protocol above. Raises `TlsError`."""
        try:
            self._ssl.write(data)
        except ssl.SSLError as error:
            raise TlsError(tls_reason(error)) from None
        return self._outgoing.read()

    def close(self) -> None:
        """Say that nothing follows (close_notify)."""
        with contextlib.suppress(ssl.SSLError):
            self._ssl.unwrap()

    def peer_certificate(self) -> bytes | None:
        """Return the peer's verified certificate (DER, RFC 5280); None if it has shown none."""
        return self._ssl.getpeercert(binary_form=True)

    def peer_names(self) -> CertificateNames | None:
        """Return the names in the peer's verified certificate; None if it has shown none."""
        found: dict[str, Any] = self._ssl.getpeercert() or {}
        return CertificateNames(_unique(found["subject"]), _unique(found["issuer"])) if found else None

    def _advance(self) -> None:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise TlsError(tls_reason(error)) from None
        self.ready = True

    def _read(self) -> bytes:
        parts: list[bytes] = []
        try:
            while part := self._ssl.read(_READ_BYTES):
                parts.append(part)
            self.peer_ended = True
        except ssl.SSLZeroReturnError:
            self.peer_ended = True
        except (ssl.SSLWantReadError, ssl.SSLEOFError):
            pass
        except ssl.SSLError as error:
            raise TlsError(tls_reason(error)) from None
        return b"".join(parts)


def tls_reason(error: ssl.SSLError) -> str:
    """Return what went wrong in plain words: who refused what."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is refused: {error.verify_message}"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    for old, new in _PLAIN_WORDS.items():
        if old in reason:
            return new
    if "alert" in reason:
        alert = reason.partition("alert ")[2] or reason
        return _ALERTS.get(alert, f"the peer refused TLS: {alert}")
    return f"no TLS: {reason}"


def _unique(name: Iterable[Iterable[tuple[str, str]]]) -> dict[str, str]:
    values = [pair for relative in name for pair in relative]
    return {key: value for key, value in values if [each for each, _ in values].count(key) == 1}


_ALERTS: Final = {
    "certificate expired": "the peer refuses this side's certificate: it has expired",
    "certificate revoked": "the peer refuses this side's certificate: it is revoked",
    "unknown ca": "the peer refuses this side's certificate: it does not know the authority that issued it",
    "bad certificate": "the peer refuses this side's certificate",
    "certificate unknown": "the peer refuses this side's certificate",
    "certificate required": "the peer requires a certificate of this side",
}
"""What the peer's alerts say (RFC 8446 6.2), with whose certificate is meant."""
_PLAIN_WORDS: Final = {
    "http request": "the peer does not speak TLS (it sent an HTTP request)",
    "wrong version number": "the peer does not speak TLS",
    "record layer failure": "the peer does not speak TLS",
    "did not return a certificate": "the peer has no certificate",
    "unsupported protocol": "the peer offers only versions before TLS 1.2",
    "alert protocol version": "the peer takes no TLS version of this side",
}
