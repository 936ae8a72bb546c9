"""The SASL layer of AMQP 1.0 without IO, both sides (OASIS AMQP 1.0 part 5, section 5.3).

Written here because proton takes passwords only from Cyrus SASL's files, and EXTERNAL only from TLS of its own.
"""

from collections.abc import Sequence
from typing import Any, Final

import proton

from fogline.amqp.login import ANONYMOUS, EXTERNAL, PLAIN, Login, LoginVerdict
from fogline.amqp.native import UNREADABLE
from fogline.transport.byte_budget import LOGIN_BYTES

MAX_FRAME_BYTES: Final = 512
"""Limit of a SASL frame (part 5, section 5.3.1)."""
MAX_EARLY_BYTES: Final = LOGIN_BYTES
"""Limit of the bytes that a client may send behind its password before the answer to it."""
AMQP_HEADER, SASL_HEADER = b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"
_MECHANISMS, _INIT, _OUTCOME = 0x40, 0x41, 0x44
_OK, _AUTH, _SYS_TEMP = 0, 1, 4  # part 5, section 5.3.3.6
_CODES = {LoginVerdict.ACCEPTED: _OK, LoginVerdict.REFUSED: _AUTH, LoginVerdict.BUSY: _SYS_TEMP}
_TLS_RECORDS = (b"\x16\x03", b"\x15\x03")
"""How a handshake and an alert of TLS begin (RFC 8446 5.1)."""

REFUSED = "the peer refuses"
"""How the reason begins if a server does not take this side's login."""
BUSY: Final = "the peer cannot check a login at present"
"""How the reason begins if a server has not checked it: the next attempt may succeed."""


class SaslError(Exception):
    """The negotiation has failed: no AMQP follows."""


class ServerSasl:
    """The server's side. `mechanisms`: those offered; with ANONYMOUS among them a client may also leave out the layer.

    After each call take `data_to_send`. `login` is set once the client has stated it; for PLAIN, call `answer` then.
    """

    def __init__(self, mechanisms: Sequence[str]) -> None:
        self.done = False
        self.login: Login | None = None
        self._mechanisms = mechanisms
        self._in, self._out = bytearray(), bytearray()
        self._greeted = False

    def __str__(self) -> str:
        return f"this side offers {_either(self._mechanisms)}"

    def data_to_send(self) -> bytes:
        """Return the bytes to send now."""
        return _take(self._out, len(self._out))

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the client. Returns those of the AMQP layer. Raises `SaslError`; then send `data_to_send` first."""
        self._in += data
        if not self._greeted and not self._take_header():
            return b""
        if self.login is None and (found := _take_frame(self._in)) is not None:
            self._take_init(*found)
        if self.done:
            return _take(self._in, len(self._in))
        if len(self._in) > MAX_EARLY_BYTES:
            raise SaslError("the peer does not wait for the answer to its password")
        return b""

    def answer(self, verdict: LoginVerdict) -> bytes:
        """Answer a password. Returns the bytes of the AMQP layer that came meanwhile. Raises `SaslError` if it is refused."""
        self._out += _frame(_OUTCOME, _ubyte(_CODES[verdict]))
        user = f"{self.login.user[:64]!a}" if self.login else "nobody"
        if verdict is LoginVerdict.BUSY:
            raise SaslError(f"too many others log in: the password of {user} is not checked")
        if verdict is LoginVerdict.REFUSED:
            raise SaslError(f"wrong user name or password for {user}")
        self.done = True
        return _take(self._in, len(self._in))

    def _take_header(self) -> bool:
        header = bytes(self._in[: len(SASL_HEADER)])
        if header == SASL_HEADER:
            del self._in[: len(SASL_HEADER)]
            self._greeted = True
            self._out += SASL_HEADER + _frame(_MECHANISMS, _symbols(self._mechanisms))
        elif header == AMQP_HEADER and ANONYMOUS in self._mechanisms:
            self._greeted = self.done = True
            self.login = Login()
        elif not (SASL_HEADER.startswith(header) or AMQP_HEADER.startswith(header)):
            self._out += SASL_HEADER  # part 2, section 2.2: a server that refuses a header sends the one that it takes
            raise SaslError(_odd_header(header))
        elif header == AMQP_HEADER:
            self._out += SASL_HEADER
            raise SaslError(f"the peer does not log in: {_either(self._mechanisms)} is required")
        return self._greeted

    def _take_init(self, code: int, fields: list[Any]) -> None:
        if code != _INIT or not fields:
            raise SaslError("expected sasl-init")
        mechanism = str(fields[0])
        if mechanism not in self._mechanisms:
            self._out += _frame(_OUTCOME, _ubyte(_AUTH))
            raise SaslError(f"mechanism {ascii(mechanism)[:64]} is refused: {_either(self._mechanisms)} is required")
        if mechanism == PLAIN:
            self.login = _plain_login(fields[1] if len(fields) > 1 else b"")
            return
        self.login = Login(mechanism)
        self._out += _frame(_OUTCOME, _ubyte(_OK))
        self.done = True


class ClientSasl:
    """The client's side: states `login` if the server offers its mechanism. `hostname`: the host that the client asks for."""

    def __init__(self, login: Login, hostname: str) -> None:
        self.done = False
        self._login, self._hostname = login, hostname
        self._in, self._out = bytearray(), bytearray(SASL_HEADER)
        self._greeted = False

    def __str__(self) -> str:
        return f"this side uses {self._login.mechanism}"

    def data_to_send(self) -> bytes:
        """Return the bytes to send now."""
        return _take(self._out, len(self._out))

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the server. Returns those of the AMQP layer. Raises `SaslError`."""
        self._in += data
        if not self._greeted:
            header = bytes(self._in[: len(SASL_HEADER)])
            if not SASL_HEADER.startswith(header):
                raise SaslError(_odd_header(header))
            if header != SASL_HEADER:
                return b""
            del self._in[: len(SASL_HEADER)]
            self._greeted = True
        while not self.done and (found := _take_frame(self._in)) is not None:
            self._take(*found)
        return _take(self._in, len(self._in)) if self.done else b""

    def _take(self, code: int, fields: list[Any]) -> None:
        login = self._login
        if code == _MECHANISMS and fields:
            offered = [str(each) for each in (fields[0].elements if isinstance(fields[0], proton.Array) else fields[:1])]
            if login.mechanism not in offered:
                unseen = login.mechanism == EXTERNAL  # this side has a certificate to show
                why = ". The peer has seen no certificate: TLS must reach it, so no proxy between may end TLS" if unseen else ""
                raise SaslError(f"the peer offers {_either(offered)}, not {login.mechanism}{why}")
            response = f"\0{login.user}\0{login.password}".encode() if login.mechanism == PLAIN else b""
            self._out += _frame(_INIT, _init(login.mechanism, response, self._hostname))
        elif code == _OUTCOME and fields and fields[0] == _OK:
            self.done = True
        elif code == _OUTCOME and fields and fields[0] != _AUTH:
            raise SaslError(f"{BUSY} (SASL outcome {fields[0]})")
        else:
            refused = f"the password of {login.user}" if login.mechanism == PLAIN else "this side's proof of its name"
            raise SaslError(f"{REFUSED} {refused} ({login.mechanism})")


def _plain_login(response: Any) -> Login:
    """Return user and password of RFC 4616. Raises `SaslError`."""
    parts = bytes(response or b"").split(b"\0")
    try:
        _, user, password = (part.decode() for part in parts)
    except ValueError:
        raise SaslError("PLAIN without a user name and a password") from None
    return Login(PLAIN, user, password)


def _odd_header(header: bytes) -> str:
    if header[:2] in _TLS_RECORDS:
        return "the peer speaks TLS, and this side does not"
    return f"the peer does not speak AMQP 1.0 with SASL: {ascii(header)[1:]}"


def _either(mechanisms: Sequence[str]) -> str:
    return ascii(" or ".join(mechanisms) or "nothing")[1:-1][:100]


def _take(buffer: bytearray, size: int) -> bytes:
    taken = bytes(buffer[:size])
    del buffer[:size]
    return taken


def _take_frame(buffer: bytearray) -> tuple[int, list[Any]] | None:
    """Take the first frame: code of its performative, and fields. Returns None until it is whole. Raises `SaslError`."""
    if len(buffer) < 8:
        return None
    size, offset, kind = int.from_bytes(buffer[:4], "big"), buffer[4] * 4, buffer[5]
    if not 8 <= offset <= size <= MAX_FRAME_BYTES or kind != 1:
        raise SaslError(f"expected a SASL frame of at most {MAX_FRAME_BYTES} bytes")
    if len(buffer) < size:
        return None
    body, data = _take(buffer, size)[offset:], proton.Data()
    try:
        data.decode(body)
        data.rewind()
        data.next()
        described = data.get_object()
        # A binary is a view of the memory of `data`, which ends here.
        return int(described.descriptor), [bytes(each) if isinstance(each, memoryview) else each for each in described.value]
    except UNREADABLE as error:
        raise SaslError(f"a SASL frame cannot be read: {error}") from None


def _frame(code: int, fields: proton.Data) -> bytes:
    body: bytes = b"\x00\x53" + bytes((code,)) + fields.encode()
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


def _symbols(names: Sequence[str]) -> proton.Data:
    array = proton.Array(proton.UNDESCRIBED, proton.Data.SYMBOL, *[proton.symbol(each) for each in names])
    return _list(array)


def _init(mechanism: str, response: bytes, hostname: str) -> proton.Data:
    return _list(proton.symbol(mechanism), response, hostname or None)


def _ubyte(value: int) -> proton.Data:
    return _list(proton.ubyte(value))


def _list(*values: Any) -> proton.Data:
    data = proton.Data()
    data.put_object(list(values))
    return data
