"""The exchange with an HTTP proxy: the method CONNECT (RFC 9110 section 9.3.6), with Basic authentication (RFC 7617)."""

import base64
from http import HTTPStatus
from typing import Final

import h11

from fogline.address import shown
from fogline.errors import Unreachable
from fogline.transport.http_framing import MAX_HEAD_BYTES
from fogline.transport.proxy.proxy_address import ProxyAddress, ascii_name, authority, is_address
from fogline.transport.proxy.proxy_errors import bad_answer, login_refused, not_allowed, peer_unreachable, proxy_failed

_PEER_FAULTS: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
"""With these a proxy says that it does not find or reach the peer (RFC 9110 section 15)."""
_LOGIN: Final = (HTTPStatus.PROXY_AUTHENTICATION_REQUIRED, HTTPStatus.UNAUTHORIZED)
"""Of these the first is right (RFC 9110 section 15.5.8); tinyproxy answers a wrong password with the second."""
_RULES: Final = (HTTPStatus.FORBIDDEN, HTTPStatus.METHOD_NOT_ALLOWED)

_TOO_LONG: Final = f"the head of its answer has more than {MAX_HEAD_BYTES} bytes"


class HttpTunnel:
    """See `Tunnel`. The head of the answer has at most `MAX_HEAD_BYTES`, with all interim responses before it."""

    def __init__(self, proxy: ProxyAddress, host: str, port: int) -> None:
        self.done = False
        self.rest = b""
        self._proxy, self._peer = proxy, authority(host if is_address(host) else ascii_name(host), port)
        headers = [("host", self._peer)]
        if proxy.user:
            login = base64.b64encode(f"{proxy.user}:{proxy.password}".encode())
            headers.append(("proxy-authorization", f"Basic {login.decode()}"))
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        request = h11.Request(method="CONNECT", target=self._peer, headers=headers)
        self._to_send = (self._http.send(request) or b"") + (self._http.send(h11.EndOfMessage()) or b"")
        self._count = 0

    def data_to_send(self) -> bytes:
        """See `Tunnel`."""
        data, self._to_send = self._to_send, b""
        return data

    def receive(self, data: bytes) -> None:
        """See `Tunnel`."""
        before, self._count = self._count, self._count + len(data)
        try:
            self._http.receive_data(data)
            while not isinstance(event := self._http.next_event(), h11.Response):
                if event is not h11.NEED_DATA and not isinstance(event, h11.InformationalResponse):
                    raise bad_answer(self._proxy, "it ends its answer before it begins")
                if self._count > MAX_HEAD_BYTES:
                    raise bad_answer(self._proxy, _TOO_LONG)
                if event is h11.NEED_DATA:
                    return
        except h11.RemoteProtocolError as error:
            what = f"it answers {data[:16]!r}" if not before else str(error)
            raise bad_answer(self._proxy, what) from None
        if self._count - len(self._http.trailing_data[0]) > MAX_HEAD_BYTES:
            raise bad_answer(self._proxy, _TOO_LONG)
        if not 200 <= event.status_code < 300:
            raise self._refusal(event.status_code, event.reason)
        self.rest, self.done = self._http.trailing_data[0], True

    def _refusal(self, status: int, reason: bytes) -> Unreachable:
        what = f"status {status} {shown(reason.decode('latin-1'))}" if reason else f"status {status}"
        if status in _LOGIN:
            return login_refused(self._proxy)
        if status in _RULES:
            return not_allowed(self._proxy, self._peer, what)
        if status in _PEER_FAULTS:
            return peer_unreachable(self._proxy, self._peer, what)
        return proxy_failed(self._proxy, self._peer, what)
