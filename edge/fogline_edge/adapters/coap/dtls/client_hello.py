"""The ClientHello: what a client offers (RFC 5246, section 7.4.1.2; RFC 6347, section 4.2.1). Pure."""

from typing import NamedTuple

from fogline_edge.adapters.coap.dtls.wire import DtlsFormatError, DtlsReader, vector

RENEGOTIATION_SCSV = 0x00FF


class Extension:
    """Numbers of extensions (IANA, TLS ExtensionType Values)."""

    GROUPS = 10
    POINT_FORMATS = 11
    EXTENDED_MASTER_SECRET = 23
    CONNECTION_ID = 54
    RENEGOTIATION = 0xFF01


class ClientHello(NamedTuple):
    """What a client offers. `fixed`: the parts that it must repeat with its cookie."""

    version: int
    random: bytes
    cookie: bytes
    suites: tuple[int, ...]
    has_null_compression: bool
    extensions: dict[int, bytes]
    fixed: bytes

    @property
    def renegotiates_securely(self) -> bool:
        """True if the client knows RFC 5746."""
        return Extension.RENEGOTIATION in self.extensions or RENEGOTIATION_SCSV in self.suites

    @property
    def cid(self) -> bytes | None:
        """The connection id that the client wants in records to it, perhaps empty; None if it knows none (RFC 9146)."""
        given = self.extensions.get(Extension.CONNECTION_ID)
        if given is None:
            return None
        reader = DtlsReader(given)
        cid = reader.vector(1)
        reader.end()
        return cid

    @property
    def groups(self) -> tuple[int, ...]:
        """The groups for Diffie-Hellman, the client's preferred one first. Without the extension secp256r1 (RFC 8422)."""
        given = self.extensions.get(Extension.GROUPS)
        return (23,) if given is None else _numbers(DtlsReader(given).vector(2))


def read_client_hello(body: bytes) -> ClientHello:
    """Read the body of a ClientHello. Raises `DtlsFormatError`."""
    reader = DtlsReader(body)
    version, random, session_id, cookie = reader.number(2), reader.take(32), reader.vector(1), reader.vector(1)
    suites, compressions = reader.vector(2), reader.vector(1)
    extensions: dict[int, bytes] = {}
    if not reader.is_done:
        inner = DtlsReader(reader.vector(2))
        while not inner.is_done:
            number, value = inner.number(2), inner.vector(2)
            if number in extensions:
                raise DtlsFormatError(f"extension {number} occurs twice")
            extensions[number] = value
    reader.end()
    fixed = b"".join([version.to_bytes(2), random, vector(session_id, 1), vector(suites, 2), vector(compressions, 1)])
    hello = ClientHello(version, random, cookie, _numbers(suites), 0 in compressions, extensions, fixed)
    _ = hello.cid, hello.groups  # raises if they are malformed
    return hello


def _numbers(data: bytes) -> tuple[int, ...]:
    if len(data) % 2:
        raise DtlsFormatError("a list of numbers of two bytes has an odd length")
    return tuple(int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2))
