"""The opening handshake, without a network: RFC 6455, sections 4.2.1 and 4.2.2, and which pages may connect."""

import pytest

from fogline.transport.websocket_handshake import (
    MAX_HANDSHAKE_BYTES,
    HandshakeRefused,
    OpeningHandshake,
    OriginRule,
)
from fogline.transport.websocket_request import Subprotocol
from fogline_lab.device.websocket_pipe import ACCEPT, opening

MQTT = Subprotocol("mqtt", "MQTT", b"\x10")
NO_PAGE = OriginRule([], secure=False, loopback=True)


def handshake(rule: OriginRule = NO_PAGE) -> OpeningHandshake:
    return OpeningHandshake(MQTT, rule, "/mqtt")


def fields(response: bytes | None) -> dict[str, str]:
    assert response is not None
    lines = response.decode().partition("\r\n\r\n")[0].split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}


def test_the_example_of_the_standard_is_accepted_in_one_piece_or_many():
    one, many = handshake(), handshake()
    response = one.receive(opening())
    assert response is not None
    assert response.startswith(b"HTTP/1.1 101 ")
    assert fields(response) == {
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-accept": ACCEPT,
        "sec-websocket-protocol": "mqtt",
    }
    *first, last = (bytes([each]) for each in opening())
    assert [many.receive(each) for each in first] == [None] * len(first)
    assert many.held_bytes == len(first)
    assert many.receive(last) == response


@pytest.mark.parametrize(
    "changes",
    [
        {"path": "/mqtt?token=x"},
        {"Connection": "keep-alive, Upgrade"},
        {"Connection": "upgrade", "Upgrade": "WebSocket"},
        {"Sec_WebSocket_Protocol": "mqttv3.1, mqtt"},
        {"Sec_WebSocket_Extensions": "permessage-deflate; client_max_window_bits"},
        {"Content_Length": "0"},
    ],
    ids=str,
)
def test_what_clients_write_in_other_ways_is_accepted_without_extensions(changes):
    found = fields(handshake().receive(opening(**changes)))
    assert "sec-websocket-extensions" not in found


BAD = {
    "another path": (opening("/"), 404, "the path is not /mqtt", {}),
    "a method": (opening(method="POST"), 405, "opened with GET", {"allow": "GET"}),
    "no host": (opening(Host=None), 400, "HTTP/1.1", {}),
    "an empty host": (opening(Host=""), 400, "Host is no name", {}),
    "no upgrade": (opening(Upgrade=None), 426, "asks for no WebSocket", {"upgrade": "websocket"}),
    "another upgrade": (opening(Upgrade="h2c"), 426, "asks for no WebSocket", {}),
    "no connection": (opening(Connection="keep-alive"), 426, "asks for no WebSocket", {}),
    "no version": (opening(Sec_WebSocket_Version=None), 426, "not of version 13", {"sec-websocket-version": "13"}),
    "an old version": (opening(Sec_WebSocket_Version="8"), 426, "not of version 13", {"sec-websocket-version": "13"}),
    "no key": (opening(Sec_WebSocket_Key=None), 400, "no key of 16 bytes", {}),
    "a short key": (opening(Sec_WebSocket_Key="AAAA"), 400, "no key of 16 bytes", {}),
    "a key that is none": (opening(Sec_WebSocket_Key="\xe9" * 24), 400, "no key of 16 bytes", {}),
    "two keys": (opening(sec_websocket_key="dGhlIHNhbXBsZSBub25jZQ=="), 400, "no key of 16 bytes", {}),
    "no subprotocol": (opening(Sec_WebSocket_Protocol=None), 400, "does not offer the subprotocol mqtt", {}),
    "another subprotocol": (opening(Sec_WebSocket_Protocol="mqttv3.1"), 400, "does not offer the subprotocol mqtt", {}),
    "a page": (opening(Origin="https://evil.example"), 403, "origin is not allowed", {}),
    "a page without an origin": (opening(Origin="null"), 403, "origin is not allowed", {}),
    "a body": (opening(Content_Length="5") + b"12345", 400, "without a body", {}),
    "HTTP/1.0": (opening().replace(b"HTTP/1.1", b"HTTP/1.0"), 400, "by HTTP/1.1", {}),
    "one long field": (opening(x="y" * MAX_HANDSHAKE_BYTES), 431, "more than 8192 bytes", {}),
    "a field without an end": (opening()[:-4] + b"\r\nx: " + b"y" * 20_000, 431, "more than 8192 bytes", {}),
    "garbage": (bytes(range(255, 0, -1)), 400, "does not speak HTTP/1.1", {}),
    "TLS": (b"\x16\x03\x01\x02\x00", 400, "the client speaks TLS, and this port does not", {}),
    "MQTT": (b"\x10\x0d\x00\x04MQTT", 400, "MQTT without WebSocket", {}),
}


@pytest.mark.parametrize(("sent", "status", "why", "headers"), BAD.values(), ids=BAD)
def test_a_handshake_that_opens_no_websocket_of_mqtt_is_refused_with_the_reason(sent, status, why, headers):
    opened = handshake()
    with pytest.raises(HandshakeRefused, match=why.replace(".", r"\.")) as caught:
        opened.receive(sent)
    response = opened.refusal(caught.value)
    assert response.startswith(f"HTTP/1.1 {status} ".encode())
    assert headers.items() <= fields(response).items()
    assert fields(response)["connection"] == "close"
    assert response.endswith(f"\r\n\r\n{caught.value}\n".encode())


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        (None, "gw-1.local:8083", True),
        ("http://gw-1.local:8083", "gw-1.local:8083", True),
        ("http://GW-1.local:8083", "gw-1.LOCAL:8083", True),
        ("https://gw-1.local:8083", "gw-1.local:8083", False),
        ("http://gw-1.local", "gw-1.local:8083", False),
        ("http://evil.example", "gw-1.local:8083", False),
        ("https://plant.example", "gw-1.local:8083", True),
        ("https://plant.example:8443", "gw-1.local:8083", False),
        ("https://plant.example.evil.example", "gw-1.local:8083", False),
        ("null", "gw-1.local:8083", False),
        ("", "", False),
    ],
)
def test_only_pages_of_listed_origins_and_clients_that_name_the_address_itself_may_connect(origin, host, allowed):
    assert OriginRule(["https://Plant.example"], secure=False, loopback=False).allows(origin, host) is allowed


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:8083", True),
        ("localhost:8083", True),
        ("[::1]:8083", True),
        ("evil.example:8083", False),
        ("127.0.0.1.evil.example:8083", False),
    ],
)
def test_a_page_that_names_this_machine_after_itself_may_not_connect(host, allowed):
    """DNS rebinding: evil.example has the address 127.0.0.1 now, and browsers take that for the same origin."""
    assert NO_PAGE.allows(f"http://{host}", host) is allowed
