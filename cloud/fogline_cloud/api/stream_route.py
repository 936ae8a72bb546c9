"""`/v1/events/stream`: states of commands and latest readings as server-sent events (HTML standard, section 9.2)."""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from fogline.address import addressed_device, shown
from fogline.errors import Poison
from fogline_cloud.access.principal import Principal
from fogline_cloud.api import requests
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.feed import FeedItem
from fogline_cloud.api.logins import LOGIN_S, User
from fogline_cloud.api.problems import Problem, not_at_present, of_poison

HEARTBEAT_S = 15.0
"""A comment is sent if nothing else was for so long, so that proxies keep the connection."""
WRITE_BYTES = 16 * 1024
"""Bytes of a stream that are written at once. The next ones are made when the client has read, but for 64 KiB."""
TURN = 200
"""Items after which other requests have their turn."""
AGAIN_S = 5.0
"""How often a stream logs its user in again, whose connection to the bridge has ended."""
WRITE_S = 30.0
"""A client that does not read for so long is cut."""


class StreamRoute:
    """The handler of streams, as an ASGI application: it decides itself when it sends."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self.serve(Request(scope, receive), send)

    async def serve(self, request: Request, send: Send) -> None:
        """Send events until the client is gone, its login is over, or the process stops. Raises `Problem` before the first."""
        context = self._context
        user = await context.user(request)
        requests.allow(request, "device", "kind")
        device, kind = request.query_params.get("device"), request.query_params.get("kind")
        try:
            if device is not None:
                device = addressed_device(device, "device")
        except Poison as error:
            raise of_poison(error) from None
        if kind not in (None, "command", "reading"):
            raise Problem(400, f"kind={shown(kind or '')}: expected command or reading")
        if context.streams >= context.max_streams:
            raise not_at_present(f"at most {context.max_streams} event streams (api.max_streams)")
        last_id = request.headers.get("last-event-id")
        number = context.feed.end if last_id is None else context.feed.number_of(last_id)
        context.streams += 1
        try:
            await self._send_all(request, send, user, (device, kind), number)
        except TimeoutError:
            abort = request.scope.get("state", {}).get("abort")
            if abort is not None:
                abort()
        finally:
            context.streams -= 1

    async def _send_all(
        self, request: Request, send: Send, user: User, only: tuple[str | None, str | None], number: int | None
    ) -> None:
        feed, gone, loop, again_s = self._context.feed, asyncio.ensure_future(_gone(request)), asyncio.get_running_loop(), 0.0
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        try:
            await _write(send, {"type": "http.response.start", "status": 200, "headers": headers})
            await self._write_text(send, b": fogline\n\n" if number is not None else _missed(feed.id_of(feed.end)))
            number = feed.end if number is None else number
            until_s = loop.time() + LOGIN_S
            while not gone.done() and not self._context.stopping and loop.time() < until_s:
                if user.session.is_closed and loop.time() >= again_s:
                    again_s = loop.time() + AGAIN_S
                    if (found := await self._log_in_again(request, user)) is None:
                        break
                    user = found
                number, text = self._next_text(user.principal, only, number)
                for begin in range(0, len(text), WRITE_BYTES):
                    await self._write_text(send, text[begin : begin + WRITE_BYTES])
                if number < feed.end:
                    await asyncio.sleep(0)
                elif not text:
                    await self._wait({gone, user.session.over}, send, number)
            await _write(send, {"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()

    def _next_text(self, principal: Principal, only: tuple[str | None, str | None], number: int) -> tuple[int, bytes]:
        """Return the text of the next items, of one if it is long, and the number of the last item that was looked at."""
        feed, text = self._context.feed, b""
        for _ in range(TURN):
            item, is_missed = feed.after(number)
            if item is None or (text and len(text) + len(item.data) > WRITE_BYTES):
                break
            if is_missed:
                text += _missed(feed.id_of(item.number - 1))
            number = item.number
            if self._shows(principal, item, only):
                text += _event(feed.id_of(item.number), item.kind, item.data)
        return number, text

    async def _log_in_again(self, request: Request, user: User) -> User | None:
        """Return the user with a new login, or the former one if no bridge can say; None if the bridge refuses the user."""
        try:
            return await self._context.user(request)
        except Problem as problem:
            return user if problem.status == 503 else None

    async def _wait(self, ends: "set[asyncio.Future[Any]]", send: Send, number: int) -> None:
        """Wait for a further item, and for those of `ends` that are not over yet."""
        ends = {each for each in ends if not each.done()}
        change = asyncio.ensure_future(self._changed())
        try:
            await asyncio.wait({*ends, change}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()
        if not any(each.done() for each in ends) and self._context.feed.end == number:
            await self._write_text(send, b": \n\n")

    async def _changed(self) -> None:
        await self._context.feed.change(HEARTBEAT_S)

    def _shows(self, principal: Principal, item: FeedItem, only: tuple[str | None, str | None]) -> bool:
        device, kind = only
        is_asked = device in (None, item.device) and kind in (None, item.kind)
        return is_asked and self._context.may_see(principal, item.device, item.command)

    async def _write_text(self, send: Send, text: bytes) -> None:
        await _write(send, {"type": "http.response.body", "body": text, "more_body": True})


async def _write(send: Send, message: Message) -> None:
    async with asyncio.timeout(WRITE_S):
        await send(message)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _missed(event_id: str) -> bytes:
    return _event(event_id, "missed", b"{}")


def _event(event_id: str, kind: str, data: bytes) -> bytes:
    return f"id: {event_id}\nevent: {kind}\ndata: ".encode() + data + b"\n\n"
