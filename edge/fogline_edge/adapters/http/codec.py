"""HTTP/1.1 (RFC 9112) by h11: bytes to events, responses to bytes. Pure."""

from email.utils import formatdate

import h11

from fogline.transport.http_framing import MAX_HEAD_BYTES, head_bytes, must_close, without_blank_lines
from fogline.transport.tls import TLS_HANDSHAKE
from fogline_edge.adapters.http.wire import HttpRefused, HttpResponse

HttpEvent = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


class HttpCodec:
    """The protocol of one connection."""

    def __init__(self) -> None:
        self._h11 = _connection()
        self._has_body = True  # the response: that to HEAD has none
        self._must_close = False

    def receive(self, data: bytes) -> bool:
        """Add received bytes; none: the client sends nothing more. Returns False for mere empty lines before a request."""
        if data and self._h11.their_state is h11.IDLE and not self._h11.trailing_data[0]:
            data = without_blank_lines(data)
            if not data:
                return False
        self._h11.receive_data(data)
        return True

    @property
    def held_bytes(self) -> int:
        """The bytes that make no event yet. It copies them: do not ask within a body."""
        return len(self._h11.trailing_data[0])

    def next_event(self) -> HttpEvent:
        """Return the next event. Raises `HttpRefused` (400, 431) for what is not HTTP."""
        try:
            event: HttpEvent = self._h11.next_event()
        except h11.RemoteProtocolError as error:
            if self._h11.trailing_data[0][:1] == bytes([TLS_HANDSHAKE]):
                raise HttpRefused(400, "malformed", "the client speaks TLS, and this port does not") from None
            raise HttpRefused(error.error_status_hint, "malformed", str(error)) from None
        if isinstance(event, h11.Request):
            self._has_body = event.method != b"HEAD"
            self._must_close = must_close(event.headers)
            if head_bytes(event.method, event.target, event.headers) > MAX_HEAD_BYTES:
                raise HttpRefused(431, "malformed", f"the head of a request may have {MAX_HEAD_BYTES} bytes")
        return event

    def go_ahead(self) -> bytes:
        """Return a response 100 if the client waits for one before it sends the body, else nothing."""
        if not self._h11.they_are_waiting_for_100_continue:
            return b""
        return self._h11.send(h11.InformationalResponse(status_code=100, headers=[])) or b""

    def encode(self, response: HttpResponse, *, last: bool) -> tuple[bytes, bool]:
        """Return the bytes of a response, and whether it is the connection's last."""
        last = last or self._must_close
        headers = [*response.headers, ("content-length", str(len(response.body))), ("date", formatdate(usegmt=True))]
        if last:
            headers.append(("connection", "close"))
        parts: list[bytes | None] = []
        if self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            parts.append(self._h11.send(h11.Response(status_code=response.status, headers=headers)))
            if response.body and self._has_body:
                parts.append(self._h11.send(h11.Data(data=response.body)))
            parts.append(self._h11.send(h11.EndOfMessage()))
        over = last or self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE
        if not over:
            self._next_request()
        return b"".join(filter(None, parts)), over

    def _next_request(self) -> None:
        waiting, closed = self._h11.trailing_data
        self._h11 = _connection()
        if rest := without_blank_lines(waiting):
            self._h11.receive_data(rest)
        if closed:
            self._h11.receive_data(b"")


def _connection() -> h11.Connection:
    return h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
