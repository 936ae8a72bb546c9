"""Passes requests to the port and replies of devices to the command port, and responds after the commit."""

import asyncio
import hashlib
import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fogline.commands.command import MAX_COMMAND_BYTES, Reply
from fogline.errors import Poison, SlowDown
from fogline.events.event import Receipt
from fogline.transport.byte_budget import ByteBudget
from fogline_edge.adapters.bodies.uploads import BodyUploads
from fogline_edge.adapters.coap.access import allows_unprotected
from fogline_edge.adapters.coap.blocks import NO_TRANSFER, BlockTransfers, too_big
from fogline_edge.adapters.coap.command_polls import CommandPolls
from fogline_edge.adapters.coap.counters import CoapCounters
from fogline_edge.adapters.coap.exchanges import Exchange
from fogline_edge.adapters.coap.intake import arrival, content_type, large_arrival, retransmission_of, slot
from fogline_edge.adapters.coap.message_layer import MessageLayer
from fogline_edge.adapters.coap.observations import Observations
from fogline_edge.adapters.coap.paced_upload import PacedUpload
from fogline_edge.adapters.coap.paths import CommandPath, Paths, PathTarget, ResponsePath
from fogline_edge.adapters.coap.requests import EMPTY, Request, read_request, seconds, status
from fogline_edge.adapters.coap.wire import (
    CoapMessage,
    CoapResponse,
    Code,
    Option,
    Options,
    RequestRefused,
    encode,
    uint,
)
from fogline_edge.adapters.port import CommandPort, Port
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.settings import CoapSettings

MAX_LAST_BLOCKS = 256
_LAST_BLOCK = "coap/final/"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Case:
    message: CoapMessage
    exchange: Exchange
    request: Request
    echo: Options  # the options that the response repeats


@dataclass(eq=False)
class CoapRequestHandler:
    """Serves requests. Without `commands`, `polls` and `observations`, no device gets a command."""

    port: Port
    settings: CoapSettings
    paths: Paths
    messages: MessageLayer
    commands: CommandPort | None
    polls: CommandPolls | None
    observations: Observations | None
    counters: CoapCounters
    budget: ByteBudget
    credentials: CredentialStore
    bodies: BodyUploads | None = None

    def __post_init__(self) -> None:
        settings = self.settings
        self._last_blocks = LastBlocks(self.port)
        self._loop = asyncio.get_running_loop()
        self._transfers = BlockTransfers(
            self.budget,
            self._begin_body,
            most=settings.max_transfers,
            max_bytes=settings.max_body_bytes,
            max_stored_bytes=0 if self.bodies is None else self.bodies.most,
            timeout_s=settings.transfer_timeout_s,
        )

    def serve(self, message: CoapMessage, exchange: Exchange) -> None:
        """Serve one request that is not a duplicate of a recent one."""
        try:
            self._take(message, exchange)
        except RequestRefused as error:
            self._refuse(exchange, error)
        except SlowDown as error:
            self.counters.slowed += 1
            retry_s = uint(max(1, math.ceil(error.retry_after_s)))
            self.messages.reply(exchange, CoapResponse(Code.SERVICE_UNAVAILABLE, ((Option.MAX_AGE, retry_s),)))

    def _take(self, message: CoapMessage, exchange: Exchange) -> None:
        request = read_request(message)
        target = self.paths.resolve(request.path, exchange.sender)
        self._check_sender(target.device, exchange.sender)
        _check_method(request, target)
        if request.block2 is not None and request.block2.number:
            raise RequestRefused(Code.BAD_REQUEST, "bad-block", "no response of this server has more than one block")
        if isinstance(target, CommandPath):
            self._observe(target, request, exchange)
            return
        block = request.block1
        case = _Case(message, exchange, request, ((Option.BLOCK1, block.encode()),) if block else ())
        try:
            body = self._transfers.feed(exchange.endpoint, request, self._loop.time(), exchange.sender)
        except RequestRefused as error:
            if error.reason != NO_TRANSFER or not self._last_blocks.knows(message, exchange):
                raise
            self._answered(case)
            return
        if body is None:
            self.counters.blocks += 1
            stored = self._transfers.stored(exchange.endpoint, request, exchange.sender)
            go_on = partial(self.messages.reply, exchange, CoapResponse(Code.CONTINUE, case.echo))
            if stored is None:
                go_on()
            else:
                stored.when_room(go_on)
        elif isinstance(target, ResponsePath):
            assert isinstance(body, bytes)  # `_begin_body` refuses others
            self._answer(target, case, body)
        else:
            self._store(target, case, body)

    def _check_sender(self, device: str, sender: str) -> None:
        """Raise `RequestRefused` if a device speaks for another one, or if protection is missing."""
        if sender and sender != device:
            raise RequestRefused(Code.FORBIDDEN, "other-device", f"the key of device {sender} does not speak for {device}")
        if not sender and self.credentials.is_protected(device):
            why = f"device {device} has a key (fogline device credentials list): without protection nobody speaks for it"
            raise RequestRefused(Code.UNAUTHORIZED, "unprotected", why)
        if not sender and not allows_unprotected(self.settings):
            why = "[coap] plain_on_lan is not set, so a request from the network needs OSCORE or DTLS"
            raise RequestRefused(Code.UNAUTHORIZED, "unprotected", why)

    def _observe(self, target: CommandPath, request: Request, exchange: Exchange) -> None:
        if self.observations is None:
            raise RequestRefused(Code.NOT_FOUND, "no-command", "this gateway takes no commands")
        self.observations.serve(target.device, request, exchange)

    def _begin_body(self, request: Request, begun: bytes, sender: str) -> PacedUpload:
        """Begin to store a large body. Raises `RequestRefused` (4.00, 4.13), and `SlowDown`."""
        target = self.paths.resolve(request.path, sender)
        if self.bodies is None or not isinstance(target, PathTarget):
            raise too_big(self.settings.max_body_bytes)
        event = large_arrival(target, request, begun, self._ttd_s(request))
        try:
            return PacedUpload(self.bodies, event, max(len(begun) + len(request.payload), request.size1 or 0))
        except Poison as error:
            raise too_big(self.settings.max_body_bytes, error.reason, str(error)) from None

    def _ttd_s(self, request: Request) -> int | None:
        return seconds(request, self.settings.max_ttd_s) if self.polls is not None else None

    def _store(self, target: PathTarget, case: _Case, body: bytes | PacedUpload) -> None:
        if isinstance(body, PacedUpload):
            stored, kept = _after_both(partial(self._stored, target.device, case, self._ttd_s(case.request)))
            try:
                body.finish(retransmission_of(case.exchange), stored)
            except Poison as error:
                raise RequestRefused(Code.REQUEST_ENTITY_INCOMPLETE, error.reason, str(error)) from None
            self._last_blocks.keep(case.message, case.exchange, kept)
            self.counters.received += 1
            return
        is_typed = case.request.content_format is not None or target.content_type is not None
        if not body and not is_typed and case.request.parameter(EMPTY) is None:
            raise RequestRefused(
                Code.BAD_REQUEST, "no-payload", f"a request without a payload needs a Content-Format, or ?{EMPTY}"
            )
        ttd_s = self._ttd_s(case.request)
        event, block = arrival(target, case.request, body, case.exchange, ttd_s), case.request.block1
        done = partial(self._stored, target.device, case, ttd_s)
        if block is None or not block.number:
            self.port.put(event, done)
        else:
            stored, kept = _after_both(done)
            self.port.put(event, stored)
            self._last_blocks.keep(case.message, case.exchange, kept)
        self.counters.received += 1

    def _stored(self, device: str, case: _Case, ttd_s: int | None, receipt: Receipt) -> None:
        """Respond after the commit. A retransmission gets no second command."""
        if ttd_s and self.polls is not None and receipt is Receipt.STORED:
            self.counters.acknowledged += 1
            if self.observations is not None:
                self.observations.end(device)
            self.polls.hold(device, case.request, case.exchange, ttd_s, case.echo)
        else:
            self._answered(case)

    def _answer(self, target: ResponsePath, case: _Case, body: bytes) -> None:
        if self.commands is None:
            raise RequestRefused(Code.NOT_FOUND, "no-command", "no command was sent")
        if len(body) > MAX_COMMAND_BYTES:
            size1 = ((Option.SIZE1, uint(MAX_COMMAND_BYTES)),)
            raise RequestRefused(
                Code.REQUEST_ENTITY_TOO_LARGE, "too-big", f"a reply has at most {MAX_COMMAND_BYTES} bytes", size1
            )
        reply = Reply(status(case.request), body, content_type(case.request, None, body) if body else None)
        self.commands.answer(target.device, target.command_id, reply, partial(self._answer_stored, case))
        self.counters.answers += 1

    def _answer_stored(self, case: _Case, receipt: Receipt) -> None:
        if receipt is Receipt.DEAD:
            self._refuse(case.exchange, RequestRefused(Code.NOT_FOUND, "no-command", "no such command waits for a reply"))
        else:
            self._answered(case)

    def _answered(self, case: _Case) -> None:
        self.counters.acknowledged += 1
        self.messages.reply(case.exchange, CoapResponse(Code.CHANGED, case.echo))

    def _refuse(self, exchange: Exchange, error: RequestRefused) -> None:
        before = self.counters.refused.get(error.reason, 0)
        self.counters.refused[error.reason] = before + 1
        if not before:
            where = "{}:{}".format(*exchange.endpoint[:2])
            extra = {"reason": error.reason}
            _log.info("refused (%s, %s) first from %s: %s", error.code.dotted, error.reason, where, error, extra=extra)
        self.messages.reply(exchange, CoapResponse(error.code, error.options, error.reason.encode()))


class LastBlocks:
    """Last blocks of the latest `MAX_LAST_BLOCKS` stored bodies, kept durably by a digest of the message.

    After a restart, a retransmitted last block would get 4.08: the client would send the body again, to be stored once more.
    """

    def __init__(self, port: Port) -> None:
        self._port = port
        self._keys = deque(port.kept(_LAST_BLOCK))
        self._known = set(self._keys)

    def knows(self, message: CoapMessage, exchange: Exchange) -> bool:
        """Return True if this message was the last block of a stored body."""
        return bool(self._known) and _key(message, exchange) in self._known

    def keep(self, message: CoapMessage, exchange: Exchange, done: Callable[[], None]) -> None:
        """Keep it, after the body was put. `done` is called once it is durable."""
        key = _key(message, exchange)
        if key not in self._known:
            self._known.add(key)
            self._keys.append(key)
        while len(self._keys) > MAX_LAST_BLOCKS:
            oldest = self._keys.popleft()
            self._known.discard(oldest)
            self._port.keep(oldest, None, lambda: None)
        self._port.keep(key, b"", done)


def _check_method(request: Request, target: PathTarget | ResponsePath | CommandPath) -> None:
    """Raise `RequestRefused` (4.05) for a method that this target does not have."""
    if isinstance(target, CommandPath):
        if request.method != Code.GET:
            raise RequestRefused(Code.METHOD_NOT_ALLOWED, "bad-method", "commands are observed with GET")
    elif request.method not in (Code.POST, Code.PUT):
        raise RequestRefused(Code.METHOD_NOT_ALLOWED, "bad-method", "events are sent with POST or PUT")


def _key(message: CoapMessage, exchange: Exchange) -> str:
    return _LAST_BLOCK + hashlib.blake2b(slot(exchange) + b"\0" + encode(message), digest_size=16).hexdigest()


def _after_both(done: Callable[[Receipt], None]) -> tuple[Callable[[Receipt], None], Callable[[], None]]:
    """Return callbacks for the body and for its last block: after both, `done` gets the receipt of the body."""
    receipts: list[Receipt | None] = []

    def note(receipt: Receipt | None = None) -> None:
        receipts.append(receipt)
        if len(receipts) == 2:
            done(next(each for each in receipts if each is not None))

    return note, note
