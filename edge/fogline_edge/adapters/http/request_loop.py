"""The requests on one connection, one after the other: who sends them, their bodies, and their responses."""

import asyncio
from collections.abc import Callable
from typing import Protocol

import h11

from fogline.transport.byte_budget import ByteBudget
from fogline_edge.adapters.http.access import ConnectionLogin, HttpLogins
from fogline_edge.adapters.http.codec import HttpCodec, HttpEvent
from fogline_edge.adapters.http.counters import HttpCounters
from fogline_edge.adapters.http.exchange import HttpExchange
from fogline_edge.adapters.http.request_body import TOO_MANY, RequestBody
from fogline_edge.adapters.http.request_handler import HttpRequestHandler
from fogline_edge.adapters.http.wire import HttpRefused, HttpRequest, HttpResponse, problem, read_head
from fogline_edge.adapters.send_limit import SendLimit
from fogline_edge.settings import HttpSettings

READ_AHEAD_BYTES = 16_384
"""Bytes that a client may send ahead of a response. Beyond that the socket is not read."""
_TOO_MANY_CONNECTIONS = HttpRefused(503, "too-many-connections", "there are too many connections", (("retry-after", "5"),))

OnRead = Callable[[bool], None]


class HttpContext(Protocol):
    """The listener, as the requests of a connection see it."""

    settings: HttpSettings
    counters: HttpCounters
    logins: HttpLogins
    handler: HttpRequestHandler
    budget: ByteBudget

    def own(self, task: "asyncio.Task[None]") -> None:
        """Keep a task until it ends."""


class RequestSocket(Protocol):
    """The socket, as its requests see it."""

    ending: bool
    stalled: bool
    limit: SendLimit

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def end(self, on_read: OnRead | None) -> None:
        """Send nothing more. `on_read` gets True if the client has read all and closed the connection in time, else False."""

    def leave(self) -> None:
        """Close."""

    def waits(self, *, waits: bool) -> None:
        """Note whether the connection waits for its client. While it does not, there is no time limit."""

    def set_timer(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call `call` after a time, instead of what was set before."""

    def read(self, *, more: bool) -> None:
        """Pause or resume reading."""


class RequestLoop:
    """Serves one connection. `serving`: the request that waits for its response. `address`: the client's.

    `login`: who the client is.
    """

    def __init__(self, context: HttpContext, connection: RequestSocket, address: str) -> None:
        self.serving: HttpExchange | None = None
        self._context = context
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._codec = HttpCodec()
        self._address = address
        self._account = context.budget.open(address, self._give_up)
        self._body = RequestBody(
            context.settings.max_body_bytes,
            self._account.hold,
            lambda begun: context.handler.begin_body(
                self._request, self.login.present, begun, lambda: connection.read(more=True)
            ),
            context.handler.body_idle_s,
        )
        self._request: HttpRequest | None = None
        self.login = ConnectionLogin(context.logins, address)
        self._begun = False  # the first bytes of a request have come, and not the last
        self._busy = False  # the login or the response of a request is awaited
        self._ahead = 0

    def begin(self, *, has_room: bool) -> None:
        """Wait for the first request, or say that there are too many connections."""
        if has_room:
            self._socket.set_timer(self._context.settings.request_timeout_s, self.timed_out)
        else:
            self._socket.write(self._codec.encode(problem(_TOO_MANY_CONNECTIONS), last=True)[0])
            self._socket.end(None)

    def receive(self, data: bytes) -> None:
        """Handle received bytes."""
        if not self._codec.receive(data):
            return
        if self._busy:
            self._ahead += len(data)
            if self._ahead >= READ_AHEAD_BYTES or not self._account.hold(self._ahead):
                self._socket.read(more=False)
            return
        idle_s = self._body.idle_timeout_s
        if not self._begun or idle_s is not None:
            self._begun = True
            self._socket.set_timer(idle_s or self._context.settings.request_timeout_s, self.timed_out)
        self._advance()

    def receive_eof(self) -> None:
        """Note that the client sends nothing more. What it has sent before is served."""
        self._codec.receive(b"")
        if self.serving is not None:
            self.serving.sends_no_more()
        if not self._busy:
            self._advance()

    def close(self) -> None:
        """Give up: the client is gone. A request that is not answered is sent again."""
        self._body.drop()
        self._account.close()
        exchange, self.serving = self.serving, None
        if exchange is not None:
            exchange.gone()

    def timed_out(self) -> None:
        """End the connection: no request came whole in time."""
        self._context.counters.timed_out += 1
        if self._begun:
            self._refuse(self._body.lateness)
        else:
            self._socket.leave()

    def go_on(self) -> None:
        """Continue with the next request, after the response to the last one, once the client has read it."""
        if self._busy and self.serving is None and not (self._socket.ending or self._socket.stalled):
            self._busy = False
            self._ahead = 0
            self._socket.waits(waits=True)
            self._socket.read(more=True)
            self._advance()

    def _advance(self) -> None:
        """Handle what has come."""
        try:
            while not (self._busy or self._socket.ending) and self._handle(self._codec.next_event()):
                pass
        except HttpRefused as error:
            self._context.counters.malformed += error.reason == "malformed"
            self._refuse(error)

    def _handle(self, event: HttpEvent) -> bool:
        """Handle one event. Returns False if more bytes are needed."""
        match event:
            case h11.Request():
                self._head(event)
            case h11.Data():
                self._body.add(bytes(event.data))
                if self._body.crowded:
                    self._socket.read(more=False)
            case h11.EndOfMessage():
                self._serve()
            case h11.ConnectionClosed():
                self._socket.leave()
                return False
            case _:
                self._socket.write(self._codec.go_ahead())
                if not self._body.size and not self._account.hold(self._codec.held_bytes):
                    raise TOO_MANY
                return False
        return True

    def _head(self, event: h11.Request) -> None:
        """Read the head of a request, and check who sends it, before its body is read."""
        self._request = request = read_head(event.method, event.target, list(event.headers))
        self._context.handler.target(request)
        if self.login.is_known(request):
            self._account.admit(self.login.payer)
            return
        self._busy = True
        self._socket.waits(waits=False)
        self._socket.read(more=False)
        self._context.own(self._loop.create_task(self._check_login(request), name="http login"))

    async def _check_login(self, request: HttpRequest) -> None:
        try:
            await self.login.check(request)
        except HttpRefused as error:
            if error.status == 401:
                self._context.counters.logins_refused += 1
            else:
                self._context.counters.logins_postponed += 1
            if not self._socket.ending:
                self._refuse(error)
            return
        self._account.admit(self.login.payer)
        if not self._socket.ending:
            self._socket.set_timer(self._context.settings.request_timeout_s, self.timed_out)
            self.go_on()

    def _serve(self) -> None:
        assert self._request is not None
        self._begun = False
        self._busy = True
        self._socket.waits(waits=False)
        body, upload = self._body.take()
        self.serving = HttpExchange(self._request, self.login.present, body, self._respond, limit=self._socket.limit)
        self.serving.upload = upload
        self._context.handler.serve(self.serving)

    def _respond(self, response: HttpResponse, on_read: OnRead | None) -> None:
        self.serving = None
        if self._socket.ending:
            if on_read is not None:
                on_read(False)
            return
        data, over = self._codec.encode(response, last=on_read is not None)
        self._socket.write(data)
        if over:
            self._socket.end(on_read)
        else:
            self._socket.set_timer(self._context.settings.idle_timeout_s, self._socket.leave)
            self._loop.call_soon(self.go_on)

    def _give_up(self) -> None:
        """Give up the bytes of a request that has not come whole, because other clients need the room."""
        if self._busy:
            self._socket.leave()
        elif not self._socket.ending:
            self._refuse(TOO_MANY)

    def _refuse(self, error: HttpRefused) -> None:
        """Respond with an error and end the connection: the rest of the request is not read."""
        self._body.drop()
        data, _ = self._codec.encode(self._context.handler.refusal(error), last=True)
        self._socket.write(data)
        self._socket.end(None)
