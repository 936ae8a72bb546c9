"""The message layer (RFC 7252, section 4): duplicates, empty acknowledgements, separate responses, resets."""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from fogline_edge.adapters.coap.counters import Counters
from fogline_edge.adapters.coap.exchanges import Exchange, Exchanges
from fogline_edge.adapters.coap.limits import Limits, Verdict
from fogline_edge.adapters.coap.wire import (
    Code,
    Endpoint,
    FormatError,
    Kind,
    Message,
    Option,
    Reply,
    decode,
    encode,
    uint,
)
from fogline_edge.settings import CoapSettings

ACK_RANDOM_FACTOR = 1.5
MAX_RETRANSMIT = 4
MAX_SEPARATE = 4096
"""How many separate responses may await their acknowledgement; beyond, they go non-confirmable."""
TOO_MANY_S = 1

_TOO_MANY = Reply(Code.TOO_MANY_REQUESTS, ((Option.MAX_AGE, uint(TOO_MANY_S)),))


@dataclass(slots=True)
class _Separate:
    """A confirmable response of ours that is not acknowledged yet."""

    data: bytes
    exchange: Exchange
    timeout_s: float
    left: int
    told: Callable[[bool], None] | None
    timer: asyncio.TimerHandle | None = None


class Messages:
    """What happens with each datagram. `serve` gets each new request, and owes it one `reply`.

    `send` puts bytes on the wire. Nothing here raises.
    """

    def __init__(
        self,
        settings: CoapSettings,
        counters: Counters,
        send: Callable[[bytes, Endpoint], None],
        serve: Callable[[Message, Exchange], None],
    ) -> None:
        self._counters = counters
        self._send = send
        self._serve = serve
        self._loop = asyncio.get_running_loop()
        self._ack_timeout_s = settings.ack_timeout_s
        self._ack_delay_s = settings.ack_delay_s
        self._exchanges = Exchanges(settings.max_exchanges)
        self._limits = Limits(
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
        """Whether one more separate response can be awaited."""
        return len(self._separate) < MAX_SEPARATE

    def received(self, data: bytes, endpoint: Endpoint) -> None:
        """One datagram came."""
        self._counters.datagrams += 1
        verdict = self._limits.admit(endpoint, self._loop.time())
        if verdict is Verdict.DROP:
            self._counters.dropped += 1
            return
        try:
            message = decode(data)
        except FormatError as error:
            self._counters.malformed += 1
            if error.reject is not None:
                self._reset(endpoint, error.reject)
            return
        if message.kind in (Kind.ACK, Kind.RST):
            self._settle(endpoint, message.mid, acknowledged=message.kind == Kind.ACK)
        elif 0 < message.code < 32:
            self._request(data, message, endpoint, verdict)
        elif message.kind == Kind.CON:  # a ping (section 4.3), or a response that nobody awaits here
            self._reset(endpoint, message.mid)

    def acknowledge(self, exchange: Exchange) -> None:
        """Send the empty acknowledgement now, if the client awaits one: the response will go separately."""
        if exchange.confirmable and not exchange.acknowledged and not exchange.replied:
            exchange.acknowledged = True
            exchange.again = encode(Message(Kind.ACK, Code.EMPTY, exchange.mid))
            self._put(exchange.again, exchange.endpoint)

    def reply(self, exchange: Exchange, reply: Reply, told: Callable[[bool], None] | None = None) -> None:
        """Send the response, once. `told`: send it confirmable, and say whether the client acknowledged it.

        In time: without an acknowledgement that is up to `ack_timeout_s` times 46 later. Not called after `close`.
        """
        if exchange.replied or self._closed:
            return
        if told is not None:
            self.acknowledge(exchange)
        exchange.replied = True
        if exchange.confirmable and not exchange.acknowledged:
            exchange.again = _encoded(Kind.ACK, exchange.mid, exchange, reply)
            self._put(exchange.again, exchange.endpoint)
            return
        mid = self._limits.next_mid(exchange.endpoint, self._loop.time())
        if told is None and not (exchange.confirmable and self.can_confirm):
            self._put(_encoded(Kind.NON, mid, exchange, reply), exchange.endpoint)
            return
        self._counters.separate += 1
        timeout_s = self._ack_timeout_s * random.uniform(1, ACK_RANDOM_FACTOR)
        data = _encoded(Kind.CON, mid, exchange, reply)
        separate = _Separate(data, exchange, timeout_s, MAX_RETRANSMIT, told)
        self._separate[exchange.endpoint, mid] = separate
        self._transmit(mid, separate)

    def withdraw(self, exchange: Exchange) -> None:
        """Do not send a separate response of this exchange any more; nothing is told of it."""
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

    def _request(self, data: bytes, message: Message, endpoint: Endpoint, verdict: Verdict) -> None:
        now_s, fingerprint = self._loop.time(), hash(data)
        known = self._exchanges.known(endpoint, message.mid, fingerprint, now_s)
        if known is not None:
            self._counters.duplicates += 1
            if known.again is not None:
                self._put(known.again, endpoint)
            return
        if verdict is Verdict.REFUSE and message.kind == Kind.NON:
            self._counters.dropped += 1
            return
        exchange = self._exchanges.begin(endpoint, message, fingerprint, now_s, len(data))
        if verdict is Verdict.REFUSE:
            self._counters.too_many += 1
            self.reply(exchange, _TOO_MANY)
            return
        self._serve(message, exchange)
        if exchange.confirmable and not exchange.replied:
            self._unacknowledged.append((now_s + self._ack_delay_s, exchange))
            if self._ack_timer is None:
                self._ack_timer = self._loop.call_later(self._ack_delay_s, self._on_ack_timer)

    def _on_ack_timer(self) -> None:
        """Acknowledge what takes long, so that it is not sent again and again meanwhile (section 5.2.2)."""
        waiting, now_s = self._unacknowledged, self._loop.time()
        while waiting and (waiting[0][0] <= now_s or waiting[0][1].replied):
            self.acknowledge(waiting.popleft()[1])
        self._ack_timer = self._loop.call_at(waiting[0][0], self._on_ack_timer) if waiting else None

    def _transmit(self, mid: int, separate: _Separate) -> None:
        self._put(separate.data, separate.exchange.endpoint)
        separate.timer = self._loop.call_later(separate.timeout_s, self._on_timeout, mid, separate)

    def _on_timeout(self, mid: int, separate: _Separate) -> None:
        if not separate.left:
            self._settle(separate.exchange.endpoint, mid, acknowledged=False)
            return
        separate.left -= 1
        separate.timeout_s *= 2
        self._transmit(mid, separate)

    def _settle(self, endpoint: Endpoint, mid: int, *, acknowledged: bool) -> None:
        separate = self._drop(endpoint, mid)
        if separate is None:
            return
        self._counters.undelivered += not acknowledged
        if separate.told is not None:
            separate.told(acknowledged)

    def _drop(self, endpoint: Endpoint, mid: int) -> _Separate | None:
        separate = self._separate.pop((endpoint, mid), None)
        if separate is not None and separate.timer is not None:
            separate.timer.cancel()
        return separate

    def _reset(self, endpoint: Endpoint, mid: int) -> None:
        self._put(encode(Message(Kind.RST, Code.EMPTY, mid)), endpoint)

    def _put(self, data: bytes, endpoint: Endpoint) -> None:
        if not self._closed:
            self._send(data, endpoint)


def _encoded(kind: Kind, mid: int, exchange: Exchange, reply: Reply) -> bytes:
    """The response. An error is never larger than the request, whose sender may be another than it says (RFC 7252, 11.3).

    What does not fit is left out: the diagnostic payload first, then the options, which all errors do without.
    """
    whole = Message(kind, reply.code, mid, exchange.token, reply.options, reply.payload)
    data = encode(whole)
    if reply.code < Code.BAD_REQUEST or len(data) <= exchange.size:
        return data
    data = encode(msgspec.structs.replace(whole, payload=b""))
    return data if len(data) <= exchange.size else encode(msgspec.structs.replace(whole, payload=b"", options=()))
