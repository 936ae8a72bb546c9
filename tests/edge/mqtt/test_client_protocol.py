"""The state machine of one connection, as transcripts of packets and effects. Times are seconds of a simulated clock."""

import pytest

from fogline_edge.adapters.mqtt.protocol.packets import Connack, Disconnect, Ping, Publish, Suback, Unsubscribe, Will
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, PacketType, Reason
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_edge.adapters.mqtt.session.effects import ClientAccepted, CloseReason, Respond, Store, Verify
from fogline_edge.adapters.mqtt.session.sessions import MAX_EXPIRY_S
from fogline_lab.device.mqtt_talk import MqttTalk, make_context


def test_connack_of_mqtt_5_has_the_limits():
    opened, connack = MqttTalk(receive_maximum=7, max_packet_bytes=1000, max_keep_alive_s=60).connect(keep_alive_s=61)
    assert opened == ClientAccepted(("", "d1"), resumed=False)
    assert connack == Connack(
        properties=Properties(
            receive_maximum=7,
            maximum_packet_bytes=1000,
            topic_alias_maximum=32,
            shared_subscriptions=0,
            server_keep_alive_s=60,
        )
    )


def test_3_1_1_client_gets_no_disconnect():
    assert MqttTalk(V3).connect() == [ClientAccepted(("", "d1"), resumed=False), Connack()]


@pytest.mark.parametrize(("version", "assigned"), [(V3, None), (V5, "made-up")])
def test_a_client_without_an_id_is_given_one(version, assigned):
    opened, connack = MqttTalk(version).connect("")
    assert opened.key == ("", "made-up")
    assert connack.properties.assigned_client_id == assigned


@pytest.mark.parametrize(
    ("version", "connect", "code"),
    [
        (V3, {"client_id": "", "clean_start": False}, 2),
        (V3, {"client_id": "x" * 257}, 2),
        (V5, {"client_id": "x" * 257}, Reason.CLIENT_IDENTIFIER_NOT_VALID),
        (V5, {"client_id": "a\nb"}, Reason.CLIENT_IDENTIFIER_NOT_VALID),
        (V5, {"properties": Properties(authentication_method="SCRAM-SHA-1")}, Reason.BAD_AUTHENTICATION_METHOD),
    ],
)
def test_a_connect_is_refused_with_a_reason_code(version, connect, code):
    assert MqttTalk(version).connect(**connect) == [(Connack(code=code), CloseReason.REFUSED)]


def test_another_level_is_refused_as_3_1_1_has_it():
    assert MqttTalk(V3).say(b"\x10\x0e\0\6MQIsdp\3\2\0\0\0\0") == [(Connack(code=1), CloseReason.REFUSED)]


def test_but_not_on_a_connection_that_is_open():
    talk = MqttTalk()
    talk.connect()
    assert talk.say(b"\x10\x0e\0\6MQIsdp\3\2\0\0\0\0")[0][-1] is CloseReason.MALFORMED


def test_the_first_packet_is_connect_and_the_second_is_not():
    assert MqttTalk().say(Ping(PacketType.PINGREQ)) == [(CloseReason.MALFORMED,)]
    talk = MqttTalk()
    talk.connect()
    assert talk.connect() == [(Disconnect(code=Reason.PROTOCOL_ERROR), CloseReason.MALFORMED)]


@pytest.mark.parametrize(("version", "code"), [(V3, 5), (V5, Reason.NOT_AUTHORIZED)])
def test_with_users_every_client_must_log_in(version, code):
    assert MqttTalk(version, with_users=True).connect() == [(Connack(code=code), CloseReason.REFUSED)]


@pytest.mark.parametrize(("version", "code"), [(V3, 4), (V5, Reason.BAD_USER_NAME_OR_PASSWORD)])
def test_with_users_the_password_decides(version, code):
    talk = MqttTalk(version, with_users=True)
    assert talk.connect("any", username="d1", password=b"p") == [Verify("d1", b"p")]
    assert talk.verify(ok=False) == [(Connack(code=code), CloseReason.REFUSED)]
    talk = MqttTalk(version, with_users=True)
    talk.connect("any", username="d1@acme", password=b"p")
    assert talk.verify(ok=True)[0] == ClientAccepted(("d1", "any"), resumed=False)
    assert talk.publish().arrival.device == "d1"


def test_user_of_another_tenant_is_refused_with_any_password():
    talk = MqttTalk(with_users=True)
    talk.connect("any", username="d1@other", password=b"p")
    assert talk.verify(ok=True) == [(Connack(code=Reason.NOT_AUTHORIZED), CloseReason.REFUSED)]


@pytest.mark.parametrize("version", [V3, V5])
def test_pubacks_come_after_the_commit_in_the_order_of_the_publishes(version):
    talk = MqttTalk(version)
    talk.connect()
    first, second, third = talk.publish(7), talk.publish(3), talk.publish(9)
    talk.session.ack_order.committed(second.pending)
    assert talk.acknowledged() == []
    talk.session.ack_order.committed(first.pending)
    assert talk.acknowledged() == [(7, 0), (3, 0)]
    talk.session.ack_order.committed(third.pending)
    assert talk.acknowledged() == [(9, 0)]


def test_qos_0_is_stored_and_not_acknowledged():
    talk = MqttTalk()
    talk.connect()
    talk.session.ack_order.committed(talk.publish().pending)
    assert talk.acknowledged() == []


@pytest.mark.parametrize(("version", "code"), [(V3, 0), (V5, Reason.TOPIC_NAME_INVALID)])
def test_a_refused_message_is_acknowledged_after_its_dead_letter_is_stored(version, code):
    talk = MqttTalk(version)
    talk.connect()
    (store,) = talk.say(Publish(topic="nowhere", payload=b"", qos=1, packet_id=1))
    assert store.arrival.type == "dead"
    talk.session.ack_order.committed(store.pending)
    assert talk.acknowledged() == [(1, code)]


def test_a_retained_and_an_empty_message_are_events_like_others():
    talk = MqttTalk()
    talk.connect()
    (store,) = talk.say(Publish(topic="t", payload=b"", retain=True))
    assert isinstance(store, Store)
    assert store.arrival.data == b""


@pytest.mark.parametrize("version", [V3, V5])
def test_a_client_is_not_read_while_too_much_is_in_flight(version):
    talk = MqttTalk(version, receive_maximum=2)
    talk.connect()
    first = talk.publish(1)
    assert not talk.session.full
    talk.publish()
    assert talk.session.full
    talk.session.ack_order.committed(first.pending)
    assert not talk.session.full


@pytest.mark.parametrize("version", [V3, V5])
def test_qos_0_fills_the_window_too(version):
    talk = MqttTalk(version, receive_maximum=1)
    talk.connect()
    store = talk.publish()
    assert talk.session.full
    talk.session.ack_order.committed(store.pending)
    assert not talk.session.full


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    ("topic", "with_commands", "kind"),
    [
        ("command///res/CMD-1/200", True, Respond),
        ("c///s/CMD-1/200", True, Respond),
        ("command///res/CMD-1/200", False, "dead"),
        ("command///req/CMD-1/switch", True, "dead"),
        ("cold", True, "dead"),
        ("t", True, "telemetry"),
        ("t", False, "telemetry"),
    ],
)
def test_answer_to_a_command_is_distinguished_from_an_event(topic, with_commands, kind, qos):
    talk = MqttTalk(context=make_context(with_commands=with_commands))
    talk.connect()
    (effect,) = talk.say(Publish(topic=topic, payload=b"x", qos=qos, packet_id=min(qos, 1)))
    if kind is Respond:
        assert (type(effect), effect.response.device, effect.response.command_id) == (Respond, "d1", "CMD-1")
    else:
        assert (type(effect), effect.arrival.type) == (Store, kind)


def test_ping():
    talk = MqttTalk()
    talk.connect()
    assert talk.say(Ping(PacketType.PINGREQ)) == [Ping(PacketType.PINGRESP)]


@pytest.mark.parametrize(
    "packet",
    [
        Ping(PacketType.PINGRESP),
        Connack(),
        Disconnect(kind=PacketType.AUTH),
        Suback(kind=PacketType.SUBACK, packet_id=1, codes=(0,)),
    ],
)
def test_a_servers_packet_ends_the_connection(packet):
    talk = MqttTalk()
    talk.connect()
    assert talk.say(packet) == [(Disconnect(code=Reason.PROTOCOL_ERROR), CloseReason.MALFORMED)]


def test_nothing_is_done_after_the_end():
    talk = MqttTalk()
    talk.connect()
    assert talk.say(Disconnect()) == [(CloseReason.LEFT,)]
    talk.session.end(talk.now)
    assert talk.say(Publish(topic="t", payload=b"late")) == []
    assert talk.verify(ok=True) == []


def test_an_answer_larger_than_the_client_takes_is_not_sent():
    talk = MqttTalk()
    talk.connect(properties=Properties(maximum_packet_bytes=40))
    assert talk.say(Unsubscribe(packet_id=1, filters=("a",) * 100)) == []


WILL = Will("event", b"gone")


@pytest.mark.parametrize(
    ("last", "published"),
    [([], True), ([Disconnect(code=Reason.DISCONNECT_WITH_WILL)], True), ([Disconnect()], False)],
    ids=["lost", "DISCONNECT with will", "DISCONNECT"],
)
def test_the_will_is_an_event_of_the_device_unless_it_says_good_bye(last, published):
    talk = MqttTalk()
    talk.connect(will=WILL)
    talk.say(*last)
    will = talk.session.end(1.0).will
    assert (will is not None) == published
    if will is not None:
        assert (will.arrival.device, will.arrival.type, will.arrival.data, will.delay_s) == ("d1", "alarm", b"gone", 0)
    assert talk.session.end(2.0).will is None


DELAYED = Will("event", b"gone", properties=Properties(will_delay_s=30))


@pytest.mark.parametrize(("expiry_s", "delay_s"), [(0, 0), (10, 10), (60, 30)])
def test_a_will_is_delayed_no_longer_than_its_session_lives(expiry_s, delay_s):
    talk = MqttTalk()
    talk.connect(will=DELAYED, properties=Properties(session_expiry_s=expiry_s))
    assert talk.session.end(1.0).will.delay_s == delay_s


@pytest.mark.parametrize(("resumed", "published"), [(True, False), (False, True)])
def test_a_delayed_will_goes_when_the_session_goes_on(resumed, published):
    talk = MqttTalk()
    talk.connect(will=DELAYED, properties=Properties(session_expiry_s=60))
    assert (talk.session.end(1.0, taken_over=True, resumed=resumed).will is not None) == published


def test_a_session_outlives_its_connection_as_long_as_was_asked():
    context = make_context()

    def present(now, *, clean=False):
        talk = MqttTalk(context=context, now=now)
        opened, *_, connack = talk.connect(clean_start=clean, properties=Properties(session_expiry_s=100))
        assert connack.session_present == opened.resumed
        talk.session.end(now)
        return opened.resumed

    assert [present(0), present(50), present(149), present(250)] == [False, True, True, False]
    assert not present(260, clean=True)
    assert present(270)


def test_a_session_of_3_1_1_stays_unless_it_is_clean():
    context = make_context()
    found = []
    for clean in (False, False, True, False, False):
        talk = MqttTalk(V3, context=context)
        found.append(talk.connect(clean_start=clean)[0].resumed)
        talk.session.end(0)
    assert found == [False, True, False, False, True]


def test_a_session_does_not_live_for_ever():
    *_, connack = MqttTalk().connect(properties=Properties(session_expiry_s=2**32 - 1))
    assert connack.properties.session_expiry_s == MAX_EXPIRY_S


def test_disconnect_may_shorten_a_session_but_not_bring_it_to_life():
    context = make_context()
    talk = MqttTalk(context=context)
    talk.connect(properties=Properties(session_expiry_s=100))
    talk.say(Disconnect(properties=Properties(session_expiry_s=0)))
    talk.session.end(0)
    talk = MqttTalk(context=context)
    assert not talk.connect(clean_start=False)[0].resumed
    end = (Disconnect(code=Reason.PROTOCOL_ERROR), CloseReason.MALFORMED)
    assert talk.say(Disconnect(properties=Properties(session_expiry_s=9))) == [end]


def test_silence_ends_a_connection_at_one_and_a_half_keep_alives():
    talk = MqttTalk(now=100.0, connect_timeout_s=10)
    assert talk.session.deadline(109.0) == 110.0
    talk.connect(keep_alive_s=20)
    assert talk.session.deadline(105.0) == 135.0


def test_without_keep_alive_a_3_1_1_client_may_be_silent_and_a_5_client_gets_one():
    talk = MqttTalk(V3)
    talk.connect()
    assert talk.session.deadline(0) is None
    talk = MqttTalk(max_keep_alive_s=60)
    talk.connect()
    assert talk.session.deadline(0) == 90
