"""The routes of the API, and its problems."""

import logging
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fogline.errors import Poison
from fogline_cloud.api.command_routes import CommandRoutes
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.desired_routes import DesiredRoutes
from fogline_cloud.api.device_routes import DeviceRoutes
from fogline_cloud.api.event_routes import EventRoutes
from fogline_cloud.api.http_rules import conforming
from fogline_cloud.api.openapi import document
from fogline_cloud.api.parsers.parser_routes import ParserRoutes
from fogline_cloud.api.problems import PROBLEM_JSON, Problem, of_poison
from fogline_cloud.api.requests import as_json
from fogline_cloud.api.stream_route import StreamRoute

_log = logging.getLogger("fogline.api")


def make_app(context: ApiContext, pages: Sequence[Route] = ()) -> ASGIApp:
    """Return the application. `pages`: further routes, which are not part of the API."""
    handlers = {Problem: _on_problem, Poison: _on_poison, HTTPException: _on_http, Exception: _on_error}
    app = Starlette(routes=[*routes_of(context), *pages], exception_handlers=handlers)
    app.router.redirect_slashes = False  # an address with a further slash is another one, and none of ours
    return conforming(_counting(app, context))


def routes_of(context: ApiContext) -> list[Route]:
    """Return the routes of all requests."""
    commands, devices, events = CommandRoutes(context), DeviceRoutes(context), EventRoutes(context)
    parsers = ParserRoutes(context)
    desired, openapi = DesiredRoutes(context), as_json(document())

    async def serve_document(_: Request) -> Response:
        return Response(openapi, media_type="application/json")

    async def serve_life(_: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def serve_health(_: Request) -> Response:
        why = _not_ready(context)
        return Response(f"{why or 'ok'}\n", 503 if why else 200, media_type="text/plain")

    return [
        Route("/v1/devices/{device}/commands", commands.post, methods=["POST"]),
        Route("/v1/devices", devices.listing, methods=["GET"]),
        Route("/v1/devices/{device}", devices.get, methods=["GET"]),
        Route("/v1/devices/{device}/desired", desired.get, methods=["GET"]),
        Route("/v1/devices/{device}/desired", desired.put, methods=["PUT"]),
        Route("/v1/commands", commands.listing, methods=["GET"]),
        Route("/v1/commands/{id}", commands.get, methods=["GET"]),
        Route("/v1/commands/{id}", commands.delete, methods=["DELETE"]),
        Route("/v1/commands/{id}/approval", commands.approve, methods=["POST"]),
        Route("/v1/telemetry/{device}", events.telemetry, methods=["POST"]),
        Route("/v1/events/stream", StreamRoute(context), methods=["GET"]),
        Route("/v1/events/{device}", events.event, methods=["POST"]),
        Route("/v1/parsers", parsers.listing, methods=["GET"]),
        Route("/v1/parsers/{parser}", parsers.put, methods=["PUT"]),
        Route("/v1/parsers/{parser}/rollback", parsers.roll_back, methods=["POST"]),
        Route("/livez", serve_life, methods=["GET"]),
        Route("/readyz", serve_health, methods=["GET"]),
        Route("/healthz", serve_health, methods=["GET"]),
        Route("/openapi.json", serve_document, methods=["GET"]),
    ]


def _not_ready(context: ApiContext) -> str:
    """Return why this process cannot serve, or an empty text. Anyone may read it, so details are in the log alone."""
    if context.stopping:
        return "the API is stopping"
    if context.tail_loaded and context.tail.behind:
        return "Kafka does not answer; the log of the API says why"
    return "" if context.tail_loaded else "the API is reading what Kafka has"


def _counting(app: ASGIApp, context: ApiContext) -> ASGIApp:
    """Count the responses by the first digit of their status."""

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        async def observe(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.counters.requests[f"{message['status'] // 100}xx"] += 1
            await send(message)

        await app(scope, receive, observe)

    return counted


def _response(problem: Problem) -> Response:
    return Response(problem.body(), problem.status, problem.headers, PROBLEM_JSON)


async def _on_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _response(error)


async def _on_poison(_: Request, error: Exception) -> Response:
    assert isinstance(error, Poison)
    return _response(of_poison(error))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return _response(Problem(405, f"{request.method} is not possible here", headers={"allow": _allowed(request)}))
    detail = (
        "there is no such address; see /openapi.json" if error.status_code == 404 else f"{request.method} is not possible here"
    )
    return _response(Problem(error.status_code, detail, headers=error.headers))


def _allowed(request: Request) -> str:
    """Return all methods of an address (RFC 9110 section 10.2.1). Starlette names those of the first route that fits."""
    fitting = (each for each in request.app.routes if each.path_regex.match(request.scope["path"]))
    return ", ".join(sorted({method for each in fitting for method in each.methods}))


async def _on_error(_: Request, error: Exception) -> Response:
    _log.error("a request failed: %r", error)
    return _response(Problem(500, "the request failed; the log of the API says why"))
