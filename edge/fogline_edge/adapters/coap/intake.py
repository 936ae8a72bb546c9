"""A request, and from where it came, to an `Arrival`: pure."""

from urllib.parse import urlencode

from fogline.event import Arrival
from fogline.identity import Retransmission
from fogline_edge.adapters.coap.exchanges import EXCHANGE_LIFETIME_S, Exchange
from fogline_edge.adapters.coap.formats import OCTETS, media_type
from fogline_edge.adapters.coap.paths import Target
from fogline_edge.adapters.coap.requests import EMPTY, TTD, Request
from fogline_edge.adapters.coap.wire import Code, Refusal

ADAPTER = "coap"
JSON = "application/json"
MAX_PROPERTIES = 1024
"""The most characters of a query that go along with an event."""


def arrival(target: Target, request: Request, body: bytes, exchange: Exchange, ttd_s: int | None) -> Arrival:
    """What to store. Raises `Refusal` for a query that is too long."""
    return Arrival(
        device=target.device,
        channel=target.channel,
        lane=target.lane,
        type=target.type,
        content_type=content_type(request, target.content_type, body),
        data=body,
        adapter=ADAPTER,
        retransmission=Retransmission(
            slot(exchange), again=True, window_s=EXCHANGE_LIFETIME_S, number=exchange.mid, token=exchange.token
        ),
        ttd_s=ttd_s,
        properties=_properties(request),
    )


def slot(exchange: Exchange) -> bytes:
    """Whose message ids these are: the endpoint's (RFC 7252, section 4.5)."""
    host, port = exchange.endpoint[:2]
    return f"{ADAPTER}\0{host}\0{port}\0".encode()


def content_type(request: Request, declared: str | None, body: bytes) -> str:
    """What the Content-Format says, else the settings; where nobody says, the first byte decides if it may be JSON.

    A number that is not known here makes octets, and stays with the event as property `content-format`.
    """
    if request.content_format is not None:
        return media_type(request.content_format) or OCTETS
    return declared or (JSON if body[:1] in (b"{", b"[") else OCTETS)


def _properties(request: Request) -> str | None:
    said = [each for each in request.query if each[0] not in (TTD, EMPTY)]
    if request.content_format is not None and media_type(request.content_format) is None:
        said.append(("content-format", str(request.content_format)))
    if not said:
        return None
    properties = urlencode(said)
    if len(properties) > MAX_PROPERTIES:
        raise Refusal(Code.BAD_REQUEST, "long-query", f"a query may have {MAX_PROPERTIES} characters")
    return properties
