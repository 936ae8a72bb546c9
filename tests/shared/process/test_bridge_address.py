"""The address of a bridge in the settings, also for AMQP over WebSocket."""

import pytest

from fogline.errors import Misconfigured
from fogline.process.files.bridge_address import BridgeAddress, parse_bridge
from fogline.transport.websocket_request import WebSocketRequest


@pytest.mark.parametrize(
    ("text", "tls", "address", "request_"),
    [
        ("fog.example:5671", True, BridgeAddress("fog.example", 5671), None),
        ("127.0.0.1:5672", False, BridgeAddress("127.0.0.1", 5672), None),
        ("wss://fog.example", True, BridgeAddress("fog.example", 443, "wss", "/"), WebSocketRequest("fog.example", "/")),
        (
            "wss://fog.example:8443/amqp",
            True,
            BridgeAddress("fog.example", 8443, "wss", "/amqp"),
            WebSocketRequest("fog.example:8443", "/amqp"),
        ),
        (
            "wss://[2001:db8::7]/a",
            True,
            BridgeAddress("2001:db8::7", 443, "wss", "/a"),
            WebSocketRequest("[2001:db8::7]", "/a"),
        ),
        ("ws://127.0.0.1:8080/", False, BridgeAddress("127.0.0.1", 8080, "ws", "/"), WebSocketRequest("127.0.0.1:8080", "/")),
    ],
)
def test_an_address_is_a_place_and_for_websocket_a_request(text, tls, address, request_):
    found = parse_bridge(text, "uplink.bridge", tls=tls)
    assert found == address
    assert found.websocket == request_
    assert parse_bridge(str(found), "uplink.bridge", tls=tls) == found


@pytest.mark.parametrize(
    ("text", "tls", "why"),
    [
        ("fog.example", True, "expected host:port"),
        ("a..b:5671", True, "expected host:port"),
        ("wss://a..b/amqp", True, "expected host:port, or wss://host/path"),
        ("https://fog.example", True, "expected host:port, or wss://host/path"),
        ("wss://", True, "expected host:port, or wss://host/path"),
        ("wss://fog.example:99999/", True, "expected host:port, or wss://host/path"),
        ("wss://user:secret@fog.example/", True, "expected host:port, or wss://host/path"),
        ("wss://fog.example/?a=b", True, "expected host:port, or wss://host/path"),
        ("wss://fog.example/a b", True, "expected host:port, or wss://host/path"),
        ("ws://fog.example/", True, "with TLS, write wss://"),
        ("wss://fog.example/", False, r"wss:// needs \[uplink.tls\]"),
        ("ws://192.0.2.7/", False, "without credentials only loopback"),
        ("192.0.2.7:5672", False, "without credentials only loopback"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_with_the_reason(text, tls, why):
    with pytest.raises(Misconfigured, match=why):
        parse_bridge(text, "uplink.bridge", tls=tls)


def test_a_redirect_changes_the_host_and_over_websocket_keeps_port_and_path():
    over_websocket = BridgeAddress("fog-1", 443, "wss", "/amqp")
    assert str(over_websocket.at("fog-2", 5671)) == "wss://fog-2:443/amqp"
    assert str(BridgeAddress("fog-1", 5671).at("fog-2", 5672)) == "fog-2:5672"
