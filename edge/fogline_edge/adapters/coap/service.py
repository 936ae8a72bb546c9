"""Requests to the port and to the commands' side, and their answers after the commit."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fogline.command import MAX_COMMAND_BYTES, Answer
from fogline.errors import SlowDown
from fogline.event import Receipt
from fogline_edge.adapters.coap.asks import Asks
from fogline_edge.adapters.coap.blocks import NO_TRANSFER, Transfers
from fogline_edge.adapters.coap.counters import Counters
from fogline_edge.adapters.coap.exchanges import Exchange
from fogline_edge.adapters.coap.finals import Finals
from fogline_edge.adapters.coap.intake import arrival, content_type
from fogline_edge.adapters.coap.messages import Messages
from fogline_edge.adapters.coap.paths import Paths, Response, Target
from fogline_edge.adapters.coap.requests import EMPTY, Request, read_request, seconds, status
from fogline_edge.adapters.coap.wire import Code, Message, Option, Options, Refusal, Reply, shown_code, uint
from fogline_edge.adapters.port import Commands, Port
from fogline_edge.settings import CoapSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Case:
    """One request that is being served. `echo`: the options that its answer repeats."""

    message: Message
    exchange: Exchange
    request: Request
    echo: Options


class Service:
    """Serves requests. `messages` has to be set before the first one."""

    messages: Messages

    def __init__(
        self,
        port: Port,
        settings: CoapSettings,
        *,
        paths: Paths,
        commands: Commands | None,
        asks: Asks | None,
        counters: Counters,
    ) -> None:
        self._port = port
        self._paths = paths
        self._commands = commands
        self._asks = asks
        self._counters = counters
        self._max_ttd_s = settings.max_ttd_s
        self._finals = Finals(port)
        self._loop = asyncio.get_running_loop()
        self._transfers = Transfers(
            most=settings.max_transfers, max_bytes=settings.max_body_bytes, timeout_s=settings.transfer_timeout_s
        )

    def serve(self, message: Message, exchange: Exchange) -> None:
        """Take one request that is no duplicate of one just seen."""
        try:
            self._take(message, exchange)
        except Refusal as error:
            self._refuse(exchange, error)
        except SlowDown as error:
            self._counters.slowed += 1
            retry_s = uint(max(1, math.ceil(error.retry_after_s)))
            self.messages.reply(exchange, Reply(Code.SERVICE_UNAVAILABLE, ((Option.MAX_AGE, retry_s),)))

    def _take(self, message: Message, exchange: Exchange) -> None:
        request = read_request(message)
        target = self._paths.resolve(request.path)
        if request.method not in (Code.POST, Code.PUT):
            raise Refusal(Code.METHOD_NOT_ALLOWED, "bad-method", "events are sent with POST or PUT")
        if request.block2 is not None and request.block2.number:
            raise Refusal(Code.BAD_REQUEST, "bad-block", "no answer here has more than one block")
        block = request.block1
        case = _Case(message, exchange, request, ((Option.BLOCK1, block.encode()),) if block else ())
        try:
            body = self._transfers.feed(exchange.endpoint, request, self._loop.time())
        except Refusal as error:
            if error.reason != NO_TRANSFER or not self._finals.knows(message, exchange):
                raise
            self._answered(case)
            return
        if body is None:
            self._counters.blocks += 1
            self.messages.reply(exchange, Reply(Code.CONTINUE, case.echo))
        elif isinstance(target, Response):
            self._answer(target, case, body)
        else:
            self._store(target, case, body)

    def _store(self, target: Target, case: _Case, body: bytes) -> None:
        if not body and case.request.parameter(EMPTY) is None:
            raise Refusal(Code.BAD_REQUEST, "no-payload", f"a request without a payload says so: ?{EMPTY}")
        ttd_s = seconds(case.request, self._max_ttd_s) if self._asks is not None else None
        done = partial(self._stored, target.device, case, ttd_s)
        block = case.request.block1
        both = _Both(done) if block is not None and block.number else None
        self._port.put(arrival(target, case.request, body, case.exchange, ttd_s), both.stored if both else done)
        if both is not None:
            self._finals.keep(case.message, case.exchange, both.kept)
        self._counters.received += 1

    def _stored(self, device: str, case: _Case, ttd_s: int | None, receipt: Receipt) -> None:
        """It is durable. A resend is not given a second command."""
        if ttd_s and self._asks is not None and receipt is Receipt.STORED:
            self._counters.acknowledged += 1
            self._asks.hold(device, case.request, case.exchange, ttd_s, case.echo)
        else:
            self._answered(case)

    def _answer(self, target: Response, case: _Case, body: bytes) -> None:
        if self._commands is None:
            raise Refusal(Code.NOT_FOUND, "no-command", "no command was sent")
        if len(body) > MAX_COMMAND_BYTES:
            size1 = ((Option.SIZE1, uint(MAX_COMMAND_BYTES)),)
            raise Refusal(Code.REQUEST_ENTITY_TOO_LARGE, "too-big", f"an answer may have {MAX_COMMAND_BYTES} bytes", size1)
        said = content_type(case.request, None, body) if body else None
        answer = Answer(status(case.request), body, said)
        self._commands.answer(target.device, target.command_id, answer, partial(self._answer_stored, case))
        self._counters.answers += 1

    def _answer_stored(self, case: _Case, receipt: Receipt) -> None:
        if receipt is Receipt.DEAD:
            self._refuse(case.exchange, Refusal(Code.NOT_FOUND, "no-command", "no such command awaits an answer"))
        else:
            self._answered(case)

    def _answered(self, case: _Case) -> None:
        self._counters.acknowledged += 1
        self.messages.reply(case.exchange, Reply(Code.CHANGED, case.echo))

    def _refuse(self, exchange: Exchange, error: Refusal) -> None:
        """Say no; the first time for a reason in the log as well."""
        before = self._counters.refused.get(error.reason, 0)
        self._counters.refused[error.reason] = before + 1
        if not before:
            where = "{}:{}".format(*exchange.endpoint[:2])
            _log.info("refused (%s, %s) first from %s: %s", shown_code(error.code), error.reason, where, error)
        self.messages.reply(exchange, Reply(error.code, error.options, error.reason.encode()))


class _Both:
    """Calls `done` once a body is stored and its last block is kept, whichever comes later."""

    __slots__ = ("_done", "_kept", "_receipt")

    def __init__(self, done: Callable[[Receipt], None]) -> None:
        self._done = done
        self._receipt: Receipt | None = None
        self._kept = False

    def stored(self, receipt: Receipt) -> None:
        self._receipt = receipt
        if self._kept:
            self._done(receipt)

    def kept(self) -> None:
        self._kept = True
        if self._receipt is not None:
            self._done(self._receipt)
