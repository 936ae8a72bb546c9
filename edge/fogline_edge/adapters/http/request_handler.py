"""Passes requests to the port and replies of devices to the command port, and responds after the commit."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from fogline.commands.command import MAX_COMMAND_BYTES, Reply
from fogline.errors import Poison, SlowDown
from fogline.events.event import Receipt
from fogline.process.rates import DeviceRates
from fogline_edge.adapters.bodies.upload import BodyUpload
from fogline_edge.adapters.bodies.uploads import BodyUploads
from fogline_edge.adapters.http.access import HttpLogin
from fogline_edge.adapters.http.command_polls import HttpPolls
from fogline_edge.adapters.http.counters import HttpCounters
from fogline_edge.adapters.http.exchange import HttpExchange
from fogline_edge.adapters.http.intake import TTD, arrival, checked_type, seconds, status
from fogline_edge.adapters.http.paths import EventPath, HttpPaths, ReplyPath
from fogline_edge.adapters.http.request_body import refusal_of
from fogline_edge.adapters.http.wire import ACCEPTED, OCTETS, HttpRefused, HttpRequest, HttpResponse, problem
from fogline_edge.adapters.port import CommandPort, Port
from fogline_edge.body_settings import BodySettings
from fogline_edge.settings import HttpSettings

COMMIT_S = 30.0
"""Time limit for the commit of a request's event. Then the client is asked to send it again."""
_METHODS = ("POST", "PUT")
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class HttpRequestHandler:
    """Serves requests. Without `commands` and `polls`, `hono-ttd` is ignored. Without `bodies`, large bodies are refused."""

    port: Port
    settings: HttpSettings
    paths: HttpPaths
    rates: DeviceRates
    commands: CommandPort | None
    polls: HttpPolls | None
    counters: HttpCounters
    bodies: BodyUploads | None = None

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.body_idle_s = (BodySettings() if self.bodies is None else self.bodies.settings).idle_timeout_s

    def target(self, request: HttpRequest) -> EventPath | ReplyPath:
        """Return the target of a request, before its body is read. Raises `HttpRefused`."""
        target = self.paths.resolve(request.path)
        if request.method not in _METHODS:
            raise HttpRefused(405, "bad-method", "events are sent with POST or PUT", (("allow", ", ".join(_METHODS)),))
        return target

    def serve(self, exchange: HttpExchange) -> None:
        """Serve one request."""
        try:
            self._take(exchange)
        except HttpRefused as error:
            exchange.respond(self.refusal(error))
        except Poison as error:
            exchange.respond(self.refusal(refusal_of(error)))
        except SlowDown as error:
            self._slow_down(exchange, error.retry_after_s)

    def begin_body(
        self, request: HttpRequest | None, login: HttpLogin, begun: bytes, on_room: Callable[[], None]
    ) -> BodyUpload:
        """Begin to store a large body of which the first bytes are given. Raises `HttpRefused` (400, 413, 415, 429, 503)."""
        assert request is not None
        target = self.target(request)
        if self.bodies is None or isinstance(target, ReplyPath):
            raise HttpRefused(413, "too-big", f"a body has at most {self.settings.max_body_bytes} bytes")
        device = login.device(target.device)
        self._check_rate(device)
        event = arrival(target, device, request, begun, self._ttd_s(request))
        declared = request.headers.get("content-length", "")
        size = max(len(begun), int(declared) if declared.isdecimal() else 0)
        try:
            return self.bodies.begin(msgspec.structs.replace(event, data=b""), on_room, size)
        except Poison as error:
            raise refusal_of(error) from None
        except SlowDown as error:
            raise HttpRefused(503, "too-many-bodies", str(error), _retry_after(error.retry_after_s)) from None

    def refusal(self, error: HttpRefused) -> HttpResponse:
        """Count an error, and return its response."""
        before = self.counters.refused.get(error.reason, 0)
        self.counters.refused[error.reason] = before + 1
        if not before:
            extra = {"reason": error.reason}
            _log.info("refused (%d, %s) for the first time: %s", error.status, error.reason, error, extra=extra)
        return problem(error)

    def _take(self, exchange: HttpExchange) -> None:
        request = exchange.request
        target = self.target(request)
        device = exchange.login.device(target.device)
        if exchange.upload is None:
            self._check_rate(device)
        if isinstance(target, ReplyPath):
            self._answer(target, device, exchange)
        else:
            self._store(target, device, exchange)

    def _check_rate(self, device: str) -> None:
        if not self.rates.bucket(device, self._loop.time()).take(self._loop.time()):
            self.counters.limited += 1
            raise HttpRefused(429, "too-many", f"device {device} sends too much (limits)", (("retry-after", "1"),))

    def _ttd_s(self, request: HttpRequest) -> int | None:
        asked_s = seconds(request, TTD) if self.polls is not None else None
        return None if asked_s is None else min(asked_s, self.settings.max_ttd_s)

    def _store(self, target: EventPath, device: str, exchange: HttpExchange) -> None:
        ttd_s = self._ttd_s(exchange.request)
        done = partial(self._stored, device, ttd_s, exchange)
        if exchange.upload is None:
            self.port.put(arrival(target, device, exchange.request, exchange.body, ttd_s), done)
        else:
            exchange.upload.finish(done)
        exchange.timer = self._loop.call_later(COMMIT_S, self._slow_down, exchange, COMMIT_S)
        exchange.body = b""
        self.counters.received += 1

    def _stored(self, device: str, ttd_s: int | None, exchange: HttpExchange, _: Receipt) -> None:
        """Respond after the commit. A resend of a device that lost its connection may wait for a command too."""
        if exchange.over:
            return
        self.counters.acknowledged += 1
        if exchange.timer is not None:
            exchange.timer.cancel()
        if ttd_s and self.polls is not None:
            self.polls.hold(device, exchange, ttd_s)
        else:
            exchange.respond(ACCEPTED)

    def _answer(self, target: ReplyPath, device: str, exchange: HttpExchange) -> None:
        if self.commands is None:
            raise HttpRefused(404, "no-command", "no command was sent")
        if len(exchange.body) > MAX_COMMAND_BYTES:
            raise HttpRefused(413, "too-big", f"a reply has at most {MAX_COMMAND_BYTES} bytes")
        content_type = checked_type(exchange.request.headers.get("content-type")) or (OCTETS if exchange.body else None)
        reply = Reply(status(exchange.request), exchange.body, content_type)
        exchange.timer = self._loop.call_later(COMMIT_S, self._slow_down, exchange, COMMIT_S)
        self.commands.answer(device, target.command_id, reply, partial(self._answer_stored, exchange))
        self.counters.answers += 1

    def _answer_stored(self, exchange: HttpExchange, receipt: Receipt) -> None:
        if exchange.over:
            return
        if receipt is Receipt.DEAD:
            exchange.respond(self.refusal(HttpRefused(404, "no-command", "no such command waits for a reply of this device")))
        else:
            self.counters.acknowledged += 1
            exchange.respond(ACCEPTED)

    def _slow_down(self, exchange: HttpExchange, retry_after_s: float) -> None:
        self.counters.slowed += 1
        after = _retry_after(retry_after_s)
        exchange.respond(problem(HttpRefused(503, "no-room", "the gateway has no room now: send it again", after)))


def _retry_after(seconds_: float) -> tuple[tuple[str, str]]:
    return (("retry-after", str(max(1, math.ceil(seconds_)))),)
