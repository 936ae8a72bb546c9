"""The message layer (RFC 7252, section 4): duplicates, Empty Acknowledgements, separate responses, Resets."""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

import msgspec

from fogline_edge.adapters.coap.counters import CoapCounters
from fogline_edge.adapters.coap.exchanges import Exchange, Exchanges
from fogline_edge.adapters.coap.limits import TOO_MANY, EndpointLimits, RateVerdict
from fogline_edge.adapters.coap.wire import CoapMessage, CoapResponse, Code, Endpoint, FormatError, MessageType, decode, encode
from fogline_edge.settings import CoapSettings

ACK_RANDOM_FACTOR = 1.5
MAX_RETRANSMIT = 4
MAX_SEPARATE = 4096
"""Separate responses that may await their Acknowledgement; further ones are Non-confirmable."""


class Confirmation(Enum):
    """The outcome of a Confirmable response. `RESET`: the client rejected its only copy, so it has not processed it."""

    ACKNOWLEDGED = auto()
    RESET = auto()
    UNKNOWN = auto()


OnOutcome = Callable[[Confirmation], None]


@dataclass(slots=True)
class _Separate:
    data: bytes
    exchange: Exchange
    timeout_s: float
    left: int  # retransmissions
    on_outcome: OnOutcome | None
    in_time: Callable[[], bool]
    timer: asyncio.TimerHandle | None = None


Serve = Callable[[CoapMessage, Exchange], None]


class MessageLayer:
    """Exchanges with all endpoints. `send` sends a datagram. No method raises."""

    def __init__(self, settings: CoapSettings, counters: CoapCounters, send: Callable[[bytes, Endpoint], None]) -> None:
        self._counters = counters
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._ack_timeout_s = settings.ack_timeout_s
        self._ack_delay_s = settings.ack_delay_s
        self._exchanges = Exchanges(settings.max_exchanges)
        self._limits = EndpointLimits(
            all_s=settings.rate_s,
            all_burst=settings.burst,
            each_s=settings.endpoint_rate_s,
            each_burst=settings.endpoint_burst,
            endpoints=settings.max_endpoints,
        )
        self._unacknowledged: deque[tuple[float, Exchange]] = deque()
        self._ack_timer: asyncio.TimerHandle | None = None
        self._separate: dict[tuple[Endpoint, int], _Separate] = {}
        self._closed = False

    @property
    def can_confirm(self) -> bool:
        """True if one more separate response may await its Acknowledgement."""
        return len(self._separate) < MAX_SEPARATE

    def received(self, data: bytes, endpoint: Endpoint, serve: Serve) -> None:
        """Take in a datagram. `serve` gets each new request, and answers it with one `reply`, now or later."""
        self._counters.datagrams += 1
        verdict = self._limits.admit(endpoint, self._loop.time())
        if verdict is RateVerdict.DROP:
            self._counters.dropped += 1
            return
        try:
            message = decode(data)
        except FormatError as error:
            self._counters.malformed += 1
            if error.reject is not None:
                self._reset(endpoint, error.reject)
            return
        if message.kind in (MessageType.ACK, MessageType.RST):
            self._finish(endpoint, message.mid, MessageType(message.kind))
        elif 0 < message.code < 32:
            self._request(data, message, endpoint, verdict, serve)
        elif message.kind == MessageType.CON:  # a CoAP ping (section 4.3), or an unexpected response
            self._reset(endpoint, message.mid)

    def acknowledge(self, exchange: Exchange) -> None:
        """Send the Empty Acknowledgement now if the request needs one; the response goes separately."""
        if exchange.confirmable and not exchange.acknowledged and not exchange.replied:
            exchange.acknowledged = True
            exchange.cached = encode(CoapMessage(MessageType.ACK, Code.EMPTY, exchange.mid))
            self._put(exchange.cached, exchange.endpoint)

    def reply(
        self,
        exchange: Exchange,
        reply: CoapResponse,
        on_outcome: OnOutcome | None = None,
        *,
        notification: bool = False,
        in_time: Callable[[], bool] = lambda: True,
    ) -> None:
        """Send the response, once; or one more, a `notification` (RFC 7641). With `on_outcome` it is Confirmable.

        `on_outcome` is called once: without an Acknowledgement after at most 46 times `ack_timeout_s`; after `close`, never.
        `in_time`: asked before each retransmission, which is left out if it returns False.
        """
        if self._closed or (exchange.replied and not notification):
            return
        if on_outcome is not None:
            self.acknowledge(exchange)
        exchange.replied = True
        if exchange.confirmable and not exchange.acknowledged and not notification:
            exchange.cached = _encoded(MessageType.ACK, exchange.mid, exchange, reply, again=False)
            self._put(exchange.cached, exchange.endpoint)
            return
        mid = self._limits.next_mid(exchange.endpoint, self._loop.time())
        if on_outcome is None and (notification or not (exchange.confirmable and self.can_confirm)):
            self._put(_encoded(MessageType.NON, mid, exchange, reply, again=notification), exchange.endpoint)
            return
        self._counters.separate += 1
        timeout_s = self._ack_timeout_s * random.uniform(1, ACK_RANDOM_FACTOR)
        data = _encoded(MessageType.CON, mid, exchange, reply, again=notification)
        separate = _Separate(data, exchange, timeout_s, MAX_RETRANSMIT, on_outcome, in_time)
        self._separate[exchange.endpoint, mid] = separate
        self._transmit(mid, separate)

    def withdraw(self, exchange: Exchange) -> None:
        """Stop the retransmission of this exchange's separate response; its `on_outcome` is not called."""
        for (endpoint, mid), separate in list(self._separate.items()):
            if separate.exchange is exchange:
                self._drop(endpoint, mid)

    def close(self) -> None:
        """Stop all timers."""
        self._closed = True
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        for endpoint, mid in list(self._separate):
            self._drop(endpoint, mid)

    def _request(self, data: bytes, message: CoapMessage, endpoint: Endpoint, verdict: RateVerdict, serve: Serve) -> None:
        now_s, fingerprint = self._loop.time(), hash(data)
        known = self._exchanges.known(endpoint, message.mid, fingerprint, now_s)
        if known is not None:
            self._counters.duplicates += 1
            if known.cached is not None:
                self._put(known.cached, endpoint)
            return
        if verdict is RateVerdict.REFUSE and message.kind == MessageType.NON:
            self._counters.dropped += 1
            return
        exchange = self._exchanges.begin(endpoint, message, fingerprint, now_s, len(data))
        if verdict is RateVerdict.REFUSE:
            self._counters.too_many += 1
            self.reply(exchange, TOO_MANY)
            return
        serve(message, exchange)
        if exchange.confirmable and not exchange.replied:
            self._unacknowledged.append((now_s + self._ack_delay_s, exchange))
            if self._ack_timer is None:
                self._ack_timer = self._loop.call_later(self._ack_delay_s, self._on_ack_timer)

    def _on_ack_timer(self) -> None:
        """Acknowledge requests that take long, so that the client does not retransmit them (section 5.2.2)."""
        waiting, now_s = self._unacknowledged, self._loop.time()
        while waiting and (waiting[0][0] <= now_s or waiting[0][1].replied):
            self.acknowledge(waiting.popleft()[1])
        self._ack_timer = self._loop.call_at(waiting[0][0], self._on_ack_timer) if waiting else None

    def _transmit(self, mid: int, separate: _Separate) -> None:
        self._put(separate.data, separate.exchange.endpoint)
        separate.timer = self._loop.call_later(separate.timeout_s, self._on_timeout, mid, separate)

    def _on_timeout(self, mid: int, separate: _Separate) -> None:
        if not (separate.left and separate.in_time()):
            self._finish(separate.exchange.endpoint, mid, None)
            return
        separate.left -= 1
        separate.timeout_s *= 2
        self._transmit(mid, separate)

    def _finish(self, endpoint: Endpoint, mid: int, kind: MessageType | None) -> None:
        """End a separate response with an ACK, with a RST, or with neither."""
        separate = self._drop(endpoint, mid)
        if separate is None:
            return
        outcome = Confirmation.ACKNOWLEDGED if kind is MessageType.ACK else Confirmation.UNKNOWN
        if kind is MessageType.RST and separate.left == MAX_RETRANSMIT:
            outcome = Confirmation.RESET
        self._counters.undelivered += outcome is not Confirmation.ACKNOWLEDGED
        if separate.on_outcome is not None:
            separate.on_outcome(outcome)

    def _drop(self, endpoint: Endpoint, mid: int) -> _Separate | None:
        separate = self._separate.pop((endpoint, mid), None)
        if separate is not None and separate.timer is not None:
            separate.timer.cancel()
        return separate

    def _reset(self, endpoint: Endpoint, mid: int) -> None:
        self._put(encode(CoapMessage(MessageType.RST, Code.EMPTY, mid)), endpoint)

    def _put(self, data: bytes, endpoint: Endpoint) -> None:
        if data and not self._closed:
            self._send(data, endpoint)


def _encoded(kind: MessageType, mid: int, exchange: Exchange, reply: CoapResponse, *, again: bool) -> bytes:
    """Encode the response; nothing, if it cannot be sealed.

    An error without protection is cut to the size of its request, whose source may be forged (RFC 7252, section 11.3).
    """
    if exchange.protection is not None:
        sealed = exchange.protection.protect(reply, again=again)
        if sealed is None:
            return b""
        return encode(CoapMessage(kind, sealed.code, mid, exchange.token, sealed.options, sealed.payload))
    whole = CoapMessage(kind, reply.code, mid, exchange.token, reply.options, reply.payload)
    data = encode(whole)
    if reply.code < Code.BAD_REQUEST or len(data) <= exchange.size:
        return data
    data = encode(msgspec.structs.replace(whole, payload=b""))
    return data if len(data) <= exchange.size else encode(msgspec.structs.replace(whole, payload=b"", options=()))
