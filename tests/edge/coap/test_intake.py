"""A request to an arrival."""

import pytest

from edge.coap.client import content_format, request
from fogline.events.event import Lane
from fogline.events.identity import Retransmission
from fogline_edge.adapters.coap.exchanges import Exchanges
from fogline_edge.adapters.coap.intake import arrival
from fogline_edge.adapters.coap.paths import PathTarget
from fogline_edge.adapters.coap.requests import read_request
from fogline_edge.adapters.coap.wire import Code, RequestRefused

TARGET = PathTarget("d1", "t//d1", Lane.TELEMETRY, "telemetry")


def stored(payload=b"x", endpoint=("::1", 5, 0, 0), target=TARGET, ttd_s=None, **more):
    message = request("t//d1", payload, **more)
    exchange = Exchanges(1).begin(endpoint, message, 0, 0)
    return arrival(target, read_request(message), payload, exchange, ttd_s)


def test_fields_of_a_stored_request():
    found = stored(ttd_s=5)
    assert (found.device, found.channel, found.adapter, found.ttd_s) == ("d1", "t//d1", "coap", 5)
    assert (found.lane, found.type, found.data) == (Lane.TELEMETRY, "telemetry", b"x")


def test_the_slot_is_endpoint_message_id_and_token():
    first = stored().retransmission
    assert first == Retransmission(b"coap\0::1\x005\0", again=True, window_s=247, number=1, token=b"t")
    others = [stored(mid=2), stored(token=b""), stored(endpoint=("::1", 6, 0, 0)), stored(endpoint=("::2", 5, 0, 0))]
    assert len({first, *(each.retransmission for each in others)}) == 5


@pytest.mark.parametrize(
    ("number", "media_type"),
    [
        (0, "text/plain; charset=utf-8"),
        (42, "application/octet-stream"),
        (50, "application/json"),
        (60, "application/cbor"),
        (110, "application/senml+json"),
        (112, "application/senml+cbor"),
    ],
)
def test_the_content_format_says_the_media_type(number, media_type):
    found = stored(b"{", options=[content_format(number)])
    assert (found.content_type, found.properties) == (media_type, None)


def test_a_content_format_that_is_not_known_stays_with_the_event():
    found = stored(b"{", options=[content_format(65_000)])
    assert (found.content_type, found.properties) == ("application/octet-stream", "content-format=65000")


def test_without_a_content_format_the_settings_say_it_or_the_first_byte():
    assert stored(b"{").content_type == "application/json"
    assert stored(b"\x01").content_type == "application/octet-stream"
    assert stored(b"{", target=PathTarget("d1", "x", Lane.BULK, "log", "a/b")).content_type == "a/b"


def test_the_query_stays_with_the_event_but_for_hono_ttd():
    assert stored(query=["hono-ttd=5"]).properties is None
    assert stored(query=["a=1", "hono-ttd=5", "b=ä &"]).properties == "a=1&b=%C3%A4+%26"


def test_a_query_that_is_too_long_is_refused():
    with pytest.raises(RequestRefused) as refused:
        stored(query=["a=" + "x" * 250] * 5)
    assert refused.value.code == Code.BAD_REQUEST
