"""One request, and its one response."""

import asyncio
from collections.abc import Callable

from fogline_edge.adapters.bodies.upload import BodyUpload
from fogline_edge.adapters.http.access import HttpLogin
from fogline_edge.adapters.http.wire import HttpRequest, HttpResponse
from fogline_edge.adapters.send_limit import SendLimit


class HttpExchange:
    """A request whose body has come whole.

    `over`: it has its response, or its client is gone. `on_gone`: called if the client leaves before the response.
    `on_eof`: called if the client may have left, because it sends nothing more. `eof`: that was so.
    `upload`: where the body is stored, if it is a large one.
    `send`: writes the response. Its second argument, for a command, gets True when the client has read the response and closed
    the connection, else False. `limit`: of the bytes that the client's TCP has not got.
    """

    def __init__(
        self,
        request: HttpRequest,
        login: HttpLogin,
        body: bytes,
        send: Callable[[HttpResponse, Callable[[bool], None] | None], None],
        *,
        limit: SendLimit,
    ) -> None:
        self.request = request
        self.login = login
        self.body = body
        self.upload: BodyUpload | None = None
        self.over = False
        self.on_gone: Callable[[], None] = lambda: None
        self.on_eof: Callable[[], None] = lambda: None
        self.eof = False
        self.timer: asyncio.TimerHandle | None = None
        self.limit = limit
        self._send = send

    def respond(self, response: HttpResponse, read: Callable[[bool], None] | None = None) -> None:
        """Send the response. Ignored if there was one already, or if the client is gone."""
        if self._finish():
            self._send(response, read)

    def sends_no_more(self) -> None:
        """Note that the client has closed its side of the connection."""
        self.eof = True
        self.on_eof()

    def gone(self) -> None:
        """Note that the client is gone."""
        if self._finish():
            self.on_gone()

    def _finish(self) -> bool:
        if self.over:
            return False
        self.over = True
        if self.timer is not None:
            self.timer.cancel()
        return True
