"""What RFC 9110 and RFC 9112 ask of a server, and uvicorn leaves to the application."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from email.utils import formatdate
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fogline.transport.http_framing import MAX_HEAD_BYTES, head_bytes, is_host, must_close
from fogline_cloud.api.problems import PROBLEM_JSON, Problem

_SCHEMES = ("http://", "https://")


def conforming(app: ASGIApp) -> ASGIApp:
    """Return the application behind these rules.

    A response has a Date (RFC 9110 section 6.6.1). A target may be in absolute form (RFC 9112 section 3.2.2). A request is
    refused without a valid Host (section 3.2), and with a head beyond `MAX_HEAD_BYTES`. The connection ends with the
    response if both lengths of a body are given (section 6.1).
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        fields: list[tuple[bytes, bytes]] = scope["headers"]
        problem = _refusal(scope, fields)
        closing = problem is not None or must_close(fields)
        respond = _completed(send, closing=closing)
        if problem is not None:
            await _respond(problem, respond)
        else:
            with suppress(ClientDisconnect):  # nobody is there for a response
                await app(_origin_form(scope), receive, respond)

    return serve


def _refusal(scope: Scope, fields: list[tuple[bytes, bytes]]) -> Problem | None:
    target = scope["raw_path"] + b"?" + scope["query_string"]
    if head_bytes(scope["method"].encode(), target, fields) > MAX_HEAD_BYTES:
        return Problem(431, f"the head of a request may have {MAX_HEAD_BYTES} bytes")
    hosts = [value.decode("latin-1") for name, value in fields if name == b"host"]
    if not all(map(is_host, hosts)):
        return Problem(400, "Host: expected a name or an address, and a port if it is another one")
    return None


def _origin_form(scope: Scope) -> Scope:
    path: str = scope["path"]
    if not path.lower().startswith(_SCHEMES):
        return scope
    plain = "/" + path.partition("://")[2].partition("/")[2]
    raw = b"/" + scope["raw_path"].partition(b"://")[2].partition(b"/")[2]
    return {**scope, "path": plain, "raw_path": raw}


def _completed(send: Send, *, closing: bool) -> Callable[[Message], Awaitable[None]]:
    async def respond(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [(b"date", formatdate(usegmt=True).encode())] + [(b"connection", b"close")] * closing
            message = {**message, "headers": [*message.get("headers", []), *more]}
        await send(message)

    return respond


async def _respond(problem: Problem, send: Callable[[Message], Awaitable[None]]) -> None:
    body = problem.body()
    headers: list[tuple[bytes, Any]] = [(b"content-type", PROBLEM_JSON.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
