"""Peers of the MQTT listener that do not prove their names, or never end their handshake."""

from edge.sockets.bad_peers import NO_DEVICE, NO_HANDSHAKE, NO_TLS, MakeContext, Peer, with_bytes, with_tls
from fogline_edge.adapters.mqtt.protocol.packets import Connect, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V5
from fogline_lab.credentials.mqtt_tls_files import MqttTlsFiles
from fogline_lab.mqtt_packets import encode


def greeting(**login) -> bytes:
    """CONNECT and PUBLISH, at once."""
    packets = (Connect(version=V5, client_id="evil", **login), Publish(topic="t//hub", payload=b"evil", qos=1, packet_id=1))
    return b"".join(encode(each, V5) for each in packets)


def greeting_with_tls(make: MakeContext, **login) -> Peer:
    """A peer that speaks TLS, and greets."""
    return with_tls(make, greeting(**login))


PLAIN = greeting()
REFUSED: dict[str, tuple[Peer, str]] = {
    **NO_TLS,
    "plain text": (with_bytes(PLAIN), "the peer does not speak TLS"),
    "HTTP": (with_bytes(b"GET / HTTP/1.1\r\n\r\n"), "the peer does not speak TLS (it sent an HTTP request)"),
    **{name: (greeting_with_tls(make), why) for name, (make, why) in {**NO_HANDSHAKE, **NO_DEVICE}.items()},
    "no device's name": (greeting_with_tls(lambda secured: secured.device("a\x07b")), "user"),
    "no login": (greeting_with_tls(MqttTlsFiles.trusting), "no user name and password"),
    "wrong password": (
        greeting_with_tls(MqttTlsFiles.trusting, username="hub", password=b"guess"),
        "wrong user name or password",
    ),
}
