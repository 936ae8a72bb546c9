"""Requests as arrivals. Pure."""

from urllib.parse import urlencode

from fogline.documents.media_type import OCTETS, event_type
from fogline.events.event import Arrival
from fogline.events.identity import Retransmission
from fogline_edge.adapters.coap.exchanges import EXCHANGE_LIFETIME_S, Exchange
from fogline_edge.adapters.coap.paths import PathTarget
from fogline_edge.adapters.coap.requests import EMPTY, TTD, Request
from fogline_edge.adapters.coap.wire import Code, RequestRefused, media_type

ADAPTER = "coap"
MAX_PROPERTIES = 1024
"""Longest query that is stored with an event, in characters."""


def arrival(target: PathTarget, request: Request, body: bytes, exchange: Exchange, ttd_s: int | None) -> Arrival:
    """Return the arrival of a request. Raises `RequestRefused` if the query is too long."""
    return Arrival(
        device=target.device,
        channel=target.channel,
        lane=target.lane,
        type=target.type,
        content_type=content_type(request, target.content_type, body),
        data=body,
        adapter=ADAPTER,
        retransmission=retransmission_of(exchange),
        ttd_s=ttd_s,
        properties=_properties(request),
    )


def large_arrival(target: PathTarget, request: Request, begun: bytes, ttd_s: int | None) -> Arrival:
    """Return the arrival of a large body, without data. Raises `RequestRefused` if the query is too long."""
    return Arrival(
        device=target.device,
        channel=target.channel,
        lane=target.lane,
        type=target.type,
        content_type=content_type(request, target.content_type, begun),
        data=b"",
        adapter=ADAPTER,
        ttd_s=ttd_s,
        properties=_properties(request),
    )


def retransmission_of(exchange: Exchange) -> Retransmission:
    """Return how a retransmission of this request is recognised, also after a restart."""
    if exchange.evidence is not None:
        return exchange.evidence
    return Retransmission(slot(exchange), again=True, window_s=EXCHANGE_LIFETIME_S, number=exchange.mid, token=exchange.token)


def slot(exchange: Exchange) -> bytes:
    """Return the scope of the Message ID: the endpoint (RFC 7252, section 4.5), or that of the exchange's evidence."""
    if exchange.evidence is not None:
        return exchange.evidence.slot
    host, port = exchange.endpoint[:2]
    return f"{ADAPTER}\0{host}\0{port}\0".encode()


def content_type(request: Request, declared: str | None, body: bytes) -> str:
    """Return the media type of the Content-Format (octets if unknown), else that of the settings, else a guess from `body`."""
    given = None if request.content_format is None else media_type(request.content_format) or OCTETS
    return event_type(given, declared, body)


def _properties(request: Request) -> str | None:
    kept = [each for each in request.query if each[0] not in (TTD, EMPTY)]
    if request.content_format is not None and media_type(request.content_format) is None:
        kept.append(("content-format", str(request.content_format)))
    if not kept:
        return None
    properties = urlencode(kept)
    if len(properties) > MAX_PROPERTIES:
        raise RequestRefused(Code.BAD_REQUEST, "long-query", f"a query has at most {MAX_PROPERTIES} characters")
    return properties
