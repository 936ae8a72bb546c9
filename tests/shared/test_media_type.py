"""Content types as MQTT, CoAP and AMQP clients and settings give them."""

import pytest

from fogline.documents.media_type import check_media_type
from fogline.errors import Poison

GOOD = [
    "text/plain",
    "application/json; charset=utf-8",
    "application/json;charset=utf-8",
    "application/vnd.oma.lwm2m+json;v=1.1; q=a",
    'multipart/mixed; boundary="a b\\"c"',
    "text/plain;",
    "a/b",
]
BAD = [
    "",
    "text plain",
    "text",
    "/plain",
    "text/",
    "text/pla in",
    "text/plain\n",
    "text/plain; charset",
    "text/plain; charset=",
    "text/plain; schema=a/b",
    "text/plain; a=1; A=2",
    'text/plain; a="b',
    "text/plain, text/html",
    "text/pläin",
    "text/plain; a=\ud800",
    "a/" + "b" * 128,
    "a/b; c=" + "d" * 127 + "; e=" + "f" * 127,
]


@pytest.mark.parametrize("given", GOOD)
def test_a_media_type_is_taken_as_it_is(given):
    assert check_media_type(given) == given


@pytest.mark.parametrize("given", BAD)
def test_b15_invalid_media_type_is_refused_with_an_example(given):
    with pytest.raises(Poison, match="is not a media type such as") as refused:
        check_media_type(given)
    assert refused.value.reason == "bad-content-type"


@pytest.mark.parametrize(
    "given", ["application/vnd.fogline-gap+json", "Application/VND.Fogline-x", "application/vnd.fogline- "]
)
def test_type_reserved_for_gateways_is_refused_from_others(given):
    with pytest.raises(Poison) as refused:
        check_media_type(given)
    assert refused.value.reason == "reserved-content-type"
