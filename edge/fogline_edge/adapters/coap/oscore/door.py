"""Requests under OSCORE on their way to the request handler, and responses on their way back (RFC 8613, section 8)."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

from fogline.errors import Poison
from fogline.events.identity import Retransmission
from fogline.process.log_throttle import LogThrottle
from fogline_edge.adapters.coap.counters import CoapCounters
from fogline_edge.adapters.coap.dtls.replay_window import ReplayWindow
from fogline_edge.adapters.coap.exchanges import EXCHANGE_LIFETIME_S, Exchange
from fogline_edge.adapters.coap.message_layer import MessageLayer
from fogline_edge.adapters.coap.oscore.context import RequestId
from fogline_edge.adapters.coap.oscore.context_table import ContextTable, LiveContext
from fogline_edge.adapters.coap.oscore.object_security import OSCORE, ObjectSecurity, decode_option, encode_option
from fogline_edge.adapters.coap.wire import (
    CoapMessage,
    CoapResponse,
    Code,
    FormatError,
    Option,
    Options,
    RequestRefused,
    decode_inner,
    encode_inner,
)

Serve = Callable[[CoapMessage, Exchange], None]
_OF_PROXIES = (Option.PROXY_URI, Option.PROXY_SCHEME)

_log = logging.getLogger(__name__)
_VARIABLE = re.compile(r" from \S+(?=: )|(?<=sequence number )\d+|(?<=Sender ID )\w+")
_log.addFilter(LogThrottle(variable=_VARIABLE, bounded=True))  # a flood of refused requests must not fill the disk


@dataclass(frozen=True, slots=True)
class _Opened:
    live: LiveContext
    request: RequestId
    code: int
    options: Options
    payload: bytes
    echo: bytes | None

    @property
    def content(self) -> bytes:
        """Code, options and payload, without Echo."""
        return encode_inner(self.code, self.options, self.payload)


class SealedResponses:
    """Seals the responses to one request. See `fogline_edge.adapters.coap.exchanges.Protection`."""

    def __init__(self, table: ContextTable, live: LiveContext, request: RequestId, *, observed: bool) -> None:
        self._table, self._live, self._request, self._observed = table, live, request, observed
        self._own = False

    def takes_own_number(self) -> None:
        """Let the first response have a number of its own too: the request may be answered once more, if it is a replay."""
        self._own = True

    @property
    def key_number(self) -> int:
        """The number of the device's key."""
        return self._live.key_number

    def protect(self, response: CoapResponse, *, again: bool) -> CoapResponse | None:
        """Return the response, sealed. Only the first one takes the nonce of the request, and no notification does."""
        observe = next((value for number, value in response.options if number == Option.OBSERVE), None)
        own = None
        if again or self._own or observe is not None:
            own = self._live.own_piv()
            self._table.reserve(self._live)
            if own is None:
                return None
        inner = response.options
        if observe is not None:
            inner = tuple((number, b"" if number == Option.OBSERVE else value) for number, value in inner)
        sealed = self._live.security.seal(encode_inner(response.code, inner, response.payload), self._request, own)
        outer: Options = ((OSCORE, encode_option(ObjectSecurity(own))),)
        if observe is not None:
            outer = ((int(Option.OBSERVE), observe), *outer)
        return CoapResponse(Code.CONTENT if self._observed else Code.CHANGED, outer, sealed)


class OscoreDoor:
    """Opens requests, and passes all others on as they are. `serve` is the request handler's."""

    def __init__(self, table: ContextTable, messages: MessageLayer, serve: Serve, counters: CoapCounters) -> None:
        self._table, self._messages, self._serve, self._counters = table, messages, serve, counters

    def serve(self, message: CoapMessage, exchange: Exchange) -> None:
        """Serve one request that is not a duplicate of a recent one."""
        values = [value for number, value in message.options if number == OSCORE]
        if not values:
            self._serve(message, exchange)
            return
        try:
            opened = self._open(message, values)
        except RequestRefused as error:
            self._refuse(exchange, error)
            return
        live = opened.live
        exchange.protection = SealedResponses(self._table, live, opened.request, observed=message.code != Code.POST)
        first = live.challenged(opened.echo, opened.content) if opened.echo is not None else None
        if live.window is None:
            if first is None:
                self._challenge(opened, exchange)
                return
            self._counters.synchronized += 1
            live.window = ReplayWindow()
            live.window.begin_at(int.from_bytes(opened.request.piv))
        elif not live.window.is_new(int.from_bytes(opened.request.piv)):
            self._refuse(exchange, _replayed(live, opened.request))
            return
        else:
            live.window.note(int.from_bytes(opened.request.piv))
        exchange.sender = live.device
        exchange.evidence = _evidence(live, first or opened.request.piv)
        outer = tuple(each for each in message.options if each[0] in _OF_PROXIES)
        self._counters.unsealed += 1
        # What the request is recognised by lies in its own number, not in Message ID and Token, which a resend may change.
        inner = CoapMessage(message.kind, opened.code, exchange.evidence.number, b"", (*opened.options, *outer), opened.payload)
        self._serve(inner, exchange)

    def _open(self, message: CoapMessage, values: list[bytes]) -> _Opened:
        try:
            option = decode_option(values[0])
        except Poison as error:
            raise RequestRefused(Code.BAD_OPTION, "bad-oscore", str(error)) from None
        is_form = len(values) == 1 and message.payload and message.code in (Code.POST, Code.FETCH)
        if option.piv is None or option.kid is None or not is_form:
            why = "a request under OSCORE is a POST or FETCH with one kid, one Partial IV, and a payload"
            raise RequestRefused(Code.BAD_OPTION, "bad-oscore", why)
        request, found = RequestId(option.kid, option.piv), self._table.find(option)
        if not found:
            why = f"no key has Sender ID {option.kid.hex()}: {self._table.why_unknown(option)}"
            raise RequestRefused(Code.UNAUTHORIZED, "unknown-key", why)
        for live in found:
            try:
                plaintext = live.security.open(message.payload, request, option.piv)
            except Poison:
                continue
            return _opened(live, request, plaintext)
        why = f"not sealed with the key of {' or '.join(each.device for each in found)}, or changed"
        raise RequestRefused(Code.BAD_REQUEST, "not-decrypted", why)

    def _challenge(self, opened: _Opened, exchange: Exchange) -> None:
        """Let the device show that its request is not a recorded one."""
        echo = opened.live.challenge(opened.request.piv, opened.content)
        self._counters.challenges += 1

        def send() -> None:
            self._messages.reply(exchange, CoapResponse(Code.UNAUTHORIZED, ((int(Option.ECHO), echo),)))

        assert isinstance(exchange.protection, SealedResponses)
        exchange.protection.takes_own_number()
        self._table.when_reserved(opened.live, send)

    def _refuse(self, exchange: Exchange, error: RequestRefused) -> None:
        """Answer without protection (section 8.2)."""
        exchange.protection = None
        self._counters.refused[error.reason] = self._counters.refused.get(error.reason, 0) + 1
        where = "{}:{}".format(*exchange.endpoint[:2])
        extra = {"reason": error.reason}
        _log.info("OSCORE: refused (%s, %s) from %s: %s", error.code.dotted, error.reason, where, error, extra=extra)
        self._messages.reply(exchange, CoapResponse(error.code, ((int(Option.MAX_AGE), b""),), error.reason.encode()))


def _opened(live: LiveContext, request: RequestId, plaintext: bytes) -> _Opened:
    try:
        code, options, payload = decode_inner(plaintext)
    except FormatError as error:
        raise RequestRefused(Code.BAD_REQUEST, "bad-oscore", f"device {live.device} has sealed no message: {error}") from None
    if not 0 < code < 32:
        raise RequestRefused(
            Code.BAD_REQUEST, "bad-oscore", f"device {live.device} has sealed code {code}, which is no request"
        )
    echo = next((value for number, value in options if number == Option.ECHO), None)
    if echo is not None:
        options = tuple(each for each in options if each[0] != Option.ECHO)
    return _Opened(live, request, code, options, payload, echo)


def _replayed(live: LiveContext, request: RequestId) -> RequestRefused:
    number = int.from_bytes(request.piv)
    why = f"device {live.device}: sequence number {number} of key {live.key_number} came before, or is too old to know"
    return RequestRefused(Code.UNAUTHORIZED, "replayed", why)


def _evidence(live: LiveContext, piv: bytes) -> Retransmission:
    """Return how the outbox recognises the request, also after a restart: by its sequence number, whoever brings it again."""
    number = int.from_bytes(piv) & 0xFFFF
    return Retransmission(live.slot, again=True, window_s=EXCHANGE_LIFETIME_S, number=number, token=piv)
