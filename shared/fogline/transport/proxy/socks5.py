"""The exchange with a SOCKS5 proxy (RFC 1928), with a user name and a password if it asks for them (RFC 1929)."""

import ipaddress
from collections.abc import Callable
from typing import Final

from fogline.errors import Unreachable
from fogline.transport.proxy.proxy_address import ProxyAddress, ascii_name, authority, is_address
from fogline.transport.proxy.proxy_errors import bad_answer, login_refused, not_allowed, peer_unreachable, proxy_failed

_VERSION: Final = 5
_LOGIN_VERSION: Final = 1
_NO_LOGIN, _PASSWORD, _NONE_ACCEPTABLE = 0x00, 0x02, 0xFF
_CONNECT: Final = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_ADDRESS_BYTES: Final = {_IPV4: 4, _IPV6: 16}
_NOT_ALLOWED: Final = 2
_PEER_FAULTS: Final = {
    3: "network unreachable",
    4: "host unreachable, or its name is unknown",
    5: "connection refused",
    6: "TTL expired",
}
_PROXY_FAULTS: Final = {1: "general failure", 7: "it has no command CONNECT", 8: "it does not take this kind of address"}
"""What the reply says (RFC 1928 section 6)."""


class Socks5Tunnel:
    """See `Tunnel`. Raises `Unreachable` if no host has such a name."""

    def __init__(self, proxy: ProxyAddress, host: str, port: int) -> None:
        self.done = False
        self.rest = b""
        self._proxy, self._peer = proxy, authority(host, port)
        self._request = bytes((_VERSION, _CONNECT, 0)) + _address(host) + port.to_bytes(2, "big")
        methods = bytes((_NO_LOGIN, _PASSWORD)) if proxy.user else bytes((_NO_LOGIN,))
        self._to_send = bytes((_VERSION, len(methods))) + methods
        self._received = b""
        self._take: Callable[[bytes], int] = self._take_method

    def data_to_send(self) -> bytes:
        """See `Tunnel`."""
        data, self._to_send = self._to_send, b""
        return data

    def receive(self, data: bytes) -> None:
        """See `Tunnel`."""
        self._received += data
        while self._received and not self.done and (used := self._take(self._received)):
            self._received = self._received[used:]
        if self.done:
            self.rest, self._received = self._received, b""

    def _take_method(self, data: bytes) -> int:
        """Take the method that the proxy has chosen. Returns the bytes used, 0 if more are needed."""
        if data[:1] != bytes((_VERSION,)):
            raise bad_answer(self._proxy, f"it answers {data[:16]!r}")
        if len(data) < 2:
            return 0
        if data[1] == _NONE_ACCEPTABLE or (data[1] == _PASSWORD and not self._proxy.user):
            raise login_refused(self._proxy)
        if data[1] == _PASSWORD:
            user, password = self._proxy.user.encode(), self._proxy.password.encode()
            self._to_send += bytes((_LOGIN_VERSION, len(user))) + user + bytes((len(password),)) + password
            self._take = self._take_login
        elif data[1] == _NO_LOGIN:
            self._ask()
        else:
            raise bad_answer(self._proxy, f"it chooses method {data[1]}, which was not offered")
        return 2

    def _take_login(self, data: bytes) -> int:
        if data[:1] != bytes((_LOGIN_VERSION,)):
            raise bad_answer(self._proxy, f"it answers the login with {data[:16]!r}")
        if len(data) < 2:
            return 0
        if data[1] != 0:
            raise login_refused(self._proxy)
        self._ask()
        return 2

    def _ask(self) -> None:
        self._to_send += self._request
        self._take = self._take_reply

    def _take_reply(self, data: bytes) -> int:
        if data[:1] != bytes((_VERSION,)):
            raise bad_answer(self._proxy, f"it answers the request with {data[:16]!r}")
        if len(data) < 2:
            return 0
        if (why := self._refusal(data[1])) is not None:
            raise why
        if len(data) < 5:
            return 0
        size = 1 + data[4] if data[3] == _NAME else _ADDRESS_BYTES.get(data[3])
        if data[2] != 0 or size is None:
            raise bad_answer(self._proxy, f"its reply is {data[:16]!r}")
        used = 4 + size + 2
        if len(data) < used:
            return 0
        self.done = True
        return used

    def _refusal(self, reply: int) -> Unreachable | None:
        if reply == 0:
            return None
        if reply == _NOT_ALLOWED:
            return not_allowed(self._proxy, self._peer, "its rules forbid it")
        if (what := _PEER_FAULTS.get(reply)) is not None:
            return peer_unreachable(self._proxy, self._peer, what)
        return proxy_failed(self._proxy, self._peer, _PROXY_FAULTS.get(reply, f"reply {reply}"))


def _address(host: str) -> bytes:
    if not is_address(host):
        name = ascii_name(host).encode()
        return bytes((_NAME, len(name))) + name
    found = ipaddress.ip_address(host)
    return bytes((_IPV4 if found.version == 4 else _IPV6,)) + found.packed
