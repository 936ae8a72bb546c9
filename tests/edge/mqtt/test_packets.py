"""The codec: an encoded packet decodes to the same, and no bytes raise any other error than `PacketError`."""

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fogline_edge.adapters.mqtt.protocol import packets as server
from fogline_edge.adapters.mqtt.protocol.framing import Framer
from fogline_edge.adapters.mqtt.protocol.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Ping,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
    Will,
)
from fogline_edge.adapters.mqtt.protocol.primitives import (
    V3,
    V5,
    MalformedPacket,
    PacketError,
    PacketType,
    ProtocolError,
    Reason,
)
from fogline_edge.adapters.mqtt.protocol.properties import MAX_USER_PROPERTIES, NONE, Properties
from fogline_lab.mqtt_packets import decode, encode

LARGE = 1_000_000

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
topics = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0+#"), min_size=1, max_size=20)
filters = st.sampled_from(["a", "a/b", "+", "#", "a/+/c", "/", "command/+/+/req/#", "$share/g/t"])
numbers = st.integers(1, 65535)
blobs = st.binary(max_size=40)
pairs = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
flags = st.integers(0, 1)


def optional(strategy):
    return st.none() | strategy


def properties(**fields):
    made = st.builds(Properties, user=pairs, **{name: optional(values) for name, values in fields.items()})
    return made.map(lambda each: NONE if each == NONE else each)


MESSAGE = {
    "payload_format": flags,
    "message_expiry_s": st.integers(0, 2**32 - 1),
    "content_type": texts,
    "response_topic": topics,
    "correlation_data": blobs,
}
REASONED = properties(reason_string=texts)
connects = st.builds(
    Connect,
    version=st.just(V5),
    client_id=texts,
    clean_start=st.booleans(),
    keep_alive_s=st.integers(0, 65535),
    will=optional(
        st.builds(Will, topics, blobs, st.integers(0, 2), st.booleans(), properties(will_delay_s=st.integers(0, 9), **MESSAGE))
    ),
    username=optional(texts),
    password=optional(blobs),
    properties=properties(
        session_expiry_s=st.integers(0, 2**32 - 1),
        receive_maximum=numbers,
        maximum_packet_bytes=st.integers(1, 2**32 - 1),
        topic_alias_maximum=st.integers(0, 65535),
        request_problem_information=flags,
        request_response_information=flags,
        authentication_method=texts,
    ),
)
publishes = st.one_of(
    st.builds(Publish, topic=topics, payload=blobs, retain=st.booleans(), properties=properties(**MESSAGE)),
    st.builds(
        Publish,
        topic=topics,
        payload=blobs,
        qos=st.integers(1, 2),
        packet_id=numbers,
        dup=st.booleans(),
        retain=st.booleans(),
        properties=properties(**MESSAGE),
    ),
)
packets = st.one_of(
    connects,
    publishes,
    st.builds(
        Connack,
        code=st.integers(0, 255),
        session_present=st.booleans(),
        properties=properties(
            receive_maximum=numbers,
            maximum_qos=flags,
            retain_available=flags,
            assigned_client_id=texts,
            server_keep_alive_s=st.integers(0, 65535),
            wildcard_subscriptions=flags,
            subscription_ids=flags,
            shared_subscriptions=flags,
            response_information=texts,
            server_reference=texts,
        ),
    ),
    st.builds(
        Ack,
        kind=st.sampled_from([PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP]),
        packet_id=numbers,
        code=st.integers(0, 255),
        properties=REASONED,
    ),
    st.builds(
        Subscribe,
        packet_id=numbers,
        filters=st.lists(st.tuples(filters, st.integers(0, 2)), min_size=1, max_size=3).map(tuple),
        properties=st.builds(
            Properties, user=pairs, subscription_id=st.lists(st.integers(1, 268_435_455), max_size=1).map(tuple)
        ).map(lambda each: NONE if each == NONE else each),
    ),
    st.builds(
        Unsubscribe, packet_id=numbers, filters=st.lists(filters, min_size=1, max_size=3).map(tuple), properties=properties()
    ),
    st.builds(
        Suback,
        kind=st.sampled_from([PacketType.SUBACK, PacketType.UNSUBACK]),
        packet_id=numbers,
        codes=st.lists(st.integers(0, 255), max_size=3).map(tuple),
        properties=REASONED,
    ),
    st.builds(Ping, st.sampled_from([PacketType.PINGREQ, PacketType.PINGRESP])),
    st.builds(
        Disconnect,
        kind=st.sampled_from([PacketType.DISCONNECT, PacketType.AUTH]),
        code=st.integers(0, 255),
        properties=REASONED,
    ),
)


def one(data, first=None):
    """The one packet that `data` is."""
    framer = Framer(LARGE, first)
    framer.feed(data)
    packet = framer.next_packet()
    assert framer.next_packet() is None
    return packet


@given(packets)
def test_an_encoded_packet_decodes_to_the_same(packet):
    assert decode(*one(encode(packet, V5)), V5) == packet


@given(
    st.one_of(
        publishes.map(lambda each: Publish(topic=each.topic, payload=each.payload, qos=each.qos, packet_id=each.packet_id))
    )
)
def test_a_publish_of_3_1_1_has_no_properties(publish):
    assert decode(*one(encode(publish, V3)), V3) == publish


def test_a_connect_of_3_1_1_comes_back():
    connect = Connect(
        version=V3,
        client_id="d1",
        clean_start=False,
        keep_alive_s=60,
        will=Will("e", b"gone", 1, retain=True),
        username="u",
        password=b"p",
    )
    assert decode(*one(encode(connect, V3)), V3) == connect


@given(st.integers(0, 255), st.binary(max_size=80), st.sampled_from([V3, V5]))
def test_any_bytes_raise_nothing_but_packet_error(header, body, version):
    with contextlib.suppress(PacketError):
        server.decode(header, body, version)


@given(packets, st.data())
def test_a_packet_with_changed_bytes_raises_nothing_but_packet_error(packet, data):
    header, body = one(encode(packet, V5))
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(0, 3))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(changed[: data.draw(st.integers(0, len(changed)))])
    with contextlib.suppress(PacketError):
        server.decode(header, cut, data.draw(st.sampled_from([V3, V5])))


@given(connects, st.data())
def test_a_connect_cut_anywhere_is_malformed(connect, data):
    header, body = one(encode(connect, V5))
    with pytest.raises(PacketError):
        server.decode(header, body[: data.draw(st.integers(0, len(body) - 1))], V5)


def publish(tail, flags=0x02, topic=b"t"):
    return 0x30 | flags, len(topic).to_bytes(2) + topic + tail


@pytest.mark.parametrize(
    ("packet", "version", "error", "code"),
    [
        pytest.param(publish(b"\0\0x"), V3, ProtocolError, Reason.PROTOCOL_ERROR, id="packet id 0"),
        pytest.param(publish(b"\0\1x", 0x06), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="QoS 3"),
        pytest.param(publish(b"x", 0x08), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="DUP at QoS 0"),
        pytest.param(publish(b"x", 0, b"a/#"), V3, MalformedPacket, Reason.TOPIC_NAME_INVALID, id="wildcard #"),
        pytest.param(publish(b"x", 0, b"a/+/b"), V3, MalformedPacket, Reason.TOPIC_NAME_INVALID, id="wildcard +"),
        pytest.param(publish(b"x", 0, b""), V3, ProtocolError, Reason.PROTOCOL_ERROR, id="empty topic"),
        pytest.param(publish(b"x", 0, b"a\0b"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="U+0000"),
        pytest.param(publish(b"x", 0, b"\xed\xa0\x80"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="surrogate"),
        pytest.param(publish(b"x", 0, b"\xc0\xaf"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="overlong UTF-8"),
        pytest.param((0x32, b"\0\1t\0"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="cut in the packet id"),
        pytest.param((0x30, b"\0\5t"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="cut in the topic"),
        pytest.param(publish(b"\x03\x23\0\0", 0), V5, ProtocolError, Reason.TOPIC_ALIAS_INVALID, id="topic alias 0"),
        pytest.param(publish(b"\x00", 0, b""), V5, ProtocolError, Reason.PROTOCOL_ERROR, id="no topic, no alias"),
        pytest.param(publish(b"\x04\x01\1\x01\1", 0), V5, ProtocolError, Reason.PROTOCOL_ERROR, id="property twice"),
        pytest.param(publish(b"\x02\x01\2", 0), V5, ProtocolError, Reason.PROTOCOL_ERROR, id="flag of 2"),
        pytest.param(publish(b"\x05\x11\0\0\0\1", 0), V5, ProtocolError, Reason.PROTOCOL_ERROR, id="property of CONNECT"),
        pytest.param(publish(b"\x02\x7e\0", 0), V5, MalformedPacket, Reason.MALFORMED_PACKET, id="no such property"),
        pytest.param(publish(b"\x05\x08\0\2a#", 0), V5, MalformedPacket, Reason.TOPIC_NAME_INVALID, id="wildcard to answer to"),
        pytest.param(publish(b"\x80\x00", 0), V5, MalformedPacket, Reason.MALFORMED_PACKET, id="padded length"),
        pytest.param(publish(b"\xff\xff\xff\xff\x01", 0), V5, MalformedPacket, Reason.MALFORMED_PACKET, id="endless length"),
        pytest.param((0x82, b"\0\1"), V3, ProtocolError, Reason.PROTOCOL_ERROR, id="SUBSCRIBE to nothing"),
        pytest.param((0x82, b"\0\1\0\1a"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="SUBSCRIBE cut before its option"),
        pytest.param((0x82, b"\0\1\0\1a\x04"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="reserved option"),
        pytest.param((0x82, b"\0\1\0\1a\x03"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="SUBSCRIBE QoS 3"),
        pytest.param(
            (0x82, b"\0\1\0\3a/b#\0"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="filter too long for its length"
        ),
        pytest.param((0x82, b"\0\1\0\2a#\0"), V3, MalformedPacket, Reason.TOPIC_FILTER_INVALID, id="# within a level"),
        pytest.param((0xA2, b"\0\0\0\1a"), V3, ProtocolError, Reason.PROTOCOL_ERROR, id="UNSUBSCRIBE with id 0"),
        pytest.param((0x20, b"\0\0"), V3, ProtocolError, Reason.PROTOCOL_ERROR, id="CONNACK from a client"),
        pytest.param((0x90, b"\0\1\0"), V3, ProtocolError, Reason.PROTOCOL_ERROR, id="SUBACK from a client"),
        pytest.param((0xC0, b"x"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="PINGREQ with a body"),
        pytest.param((0xE0, b"\0"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="3.1.1 DISCONNECT with a body"),
        pytest.param((0x40, b"\0\1\0"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="3.1.1 PUBACK with a code"),
        pytest.param((0xF0, b""), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="AUTH in 3.1.1"),
        pytest.param((0x10, b"\0\4MQTT\4\3\0\0\0\0"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="reserved CONNECT flag"),
        pytest.param((0x10, b"\0\4MQTT\4\x1e\0\0\0\0"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="will QoS 3"),
        pytest.param(
            (0x10, b"\0\4MQTT\4\x22\0\0\0\0"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="retain without a will"
        ),
        pytest.param(
            (0x10, b"\0\4MQTT\4\x42\0\0\0\0"), V3, MalformedPacket, Reason.MALFORMED_PACKET, id="password without a name"
        ),
        pytest.param((0x10, b"\0\4HTTP\4\2\0\0\0\0"), V3, ProtocolError, Reason.PROTOCOL_ERROR, id="another protocol"),
        pytest.param((0x10, b"\0\6MQIsdp\3\2\0\0\0\0"), V3, ProtocolError, Reason.UNSUPPORTED_PROTOCOL_VERSION, id="MQTT 3.1"),
        pytest.param(
            (0x10, b"\0\4MQTT\5\2\0\0\3\x21\0\0\0\0"), V5, ProtocolError, Reason.PROTOCOL_ERROR, id="receive maximum 0"
        ),
    ],
)
def test_invalid_bytes_are_refused(packet, version, error, code):
    with pytest.raises(error) as caught:
        server.decode(*packet, version)
    assert caught.value.code == code


def test_too_many_user_properties_are_refused():
    many = Publish(topic="t", payload=b"", properties=Properties(user=(("a", "b"),) * (MAX_USER_PROPERTIES + 1)))
    with pytest.raises(ProtocolError, match="user properties"):
        decode(*one(encode(many, V5)), V5)


def test_a_password_without_a_name_is_right_in_5():
    connect = Connect(version=V5, client_id="a", password=b"token")
    assert decode(*one(encode(connect, V5)), V5) == connect


@given(st.lists(packets, max_size=5), st.data())
@example([], None)
def test_packets_come_whole_however_the_stream_is_cut(sent, data):
    stream = b"".join(encode(packet, V5) for packet in sent)
    framer = Framer(LARGE, None)
    found = []
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, 9) | st.just(len(stream)))
        framer.feed(stream[at : at + size])
        at += size
        if data.draw(st.booleans()) or at >= len(stream):
            while (packet := framer.next_packet()) is not None:
                found.append(decode(*packet, V5))
    assert found == sent


@given(st.binary(max_size=60), st.integers(1, 7))
def test_any_stream_raises_nothing_but_packet_error(stream, size):
    framer = Framer(4096)
    try:
        for at in range(0, len(stream), size):
            framer.feed(stream[at : at + size])
            while (packet := framer.next_packet()) is not None:
                server.decode(*packet, V5)
    except PacketError:
        pass


@pytest.mark.fault("D10")
def test_a_packet_too_large_is_refused_before_its_body_is_there():
    framer = Framer(300, None)
    framer.feed(b"\x30\xaa\x02")
    with pytest.raises(ProtocolError) as caught:
        framer.next_packet()
    assert caught.value.code == Reason.PACKET_TOO_LARGE


def test_the_largest_packet_is_taken():
    framer = Framer(300, None)
    packet = Publish(topic="t", payload=bytes(300 - 2 - 4)).encode(V5)
    assert len(packet) == 300 + 1
    framer.feed(packet[:-1])
    with pytest.raises(ProtocolError):
        framer.next_packet()
    framer = Framer(301, None)
    framer.feed(packet)
    assert framer.next_packet() is not None


@pytest.mark.parametrize(
    "begin",
    [b"\x16", b"G", b"\x00", b"\x11", b"\x30", b"\x30\x00", b"\x10\xff\xff\xff\xff"],
    ids=["TLS", "HTTP", "type 0", "CONNECT with flags", "PUBLISH", "whole PUBLISH", "length of 5 bytes"],
)
def test_bytes_that_cannot_begin_a_connect_are_refused_at_once(begin):
    framer = Framer(4096)
    framer.feed(begin)
    with pytest.raises(PacketError):
        framer.next_packet()


def test_reading_may_stop_between_two_packets_and_go_on_later():
    ping = Ping(PacketType.PINGREQ).encode(V5)
    framer = Framer(4096, None)
    framer.feed(ping + ping + ping[:1])
    assert framer.next_packet() == (0xC0, b"")
    framer.feed(ping[1:] + ping)
    assert [framer.next_packet() for _ in range(4)] == [(0xC0, b"")] * 3 + [None]
