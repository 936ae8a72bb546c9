"""The right to subscribe to commands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline_edge.adapters.device_acl import DeviceAcl
from fogline_edge.adapters.mqtt.hono.intake import Client
from fogline_edge.adapters.mqtt.hono.subscriptions import MAX_SUBSCRIPTIONS, Subscription, Subscriptions, grant
from fogline_edge.adapters.mqtt.protocol.packets import Disconnect, Suback, Subscribe, Unsubscribe
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, PacketType, Reason
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_edge.adapters.mqtt.session.effects import CloseReason, SetReachable
from fogline_lab.commands import make_command
from fogline_lab.device.mqtt_talk import MqttTalk

ANYONE = Client("lamp-1")
USER = Client("any id", "lamp-1")
HUB = Client("any id", "hub", DeviceAcl({"hub": ["lamp-*", "d*", "Wohnzimmer:20*"]}, "mqtt.acl").others("hub"))


@pytest.mark.parametrize("client", [ANYONE, USER])
@pytest.mark.parametrize(
    ("topic_filter", "topic"),
    [
        ("command///req/#", "command///req/CMD-1/switch"),
        ("c///q/#", "c///q/CMD-1/switch"),
        ("command//lamp-1/req/#", "command//lamp-1/req/CMD-1/switch"),
        ("command/acme/lamp-1/req/#", "command/acme/lamp-1/req/CMD-1/switch"),
        ("c/acme/lamp-1/q/#", "c/acme/lamp-1/q/CMD-1/switch"),
        ("command/+/+/req/#", "command///req/CMD-1/switch"),
        ("command/acme/+/req/#", "command/acme//req/CMD-1/switch"),
    ],
)
def test_a_device_gets_its_own_commands_in_the_shape_of_its_filter(client, topic_filter, topic):
    found = grant(client, "acme", topic_filter, 1)
    assert found == Subscription(topic_filter, "lamp-1", 1)
    assert found.topic(make_command()) == topic
    assert found.matches(topic)


@pytest.mark.parametrize("client", [Client("Wohnzimmer Lampe"), HUB])
def test_a_command_goes_to_the_name_as_the_device_spells_it(client):
    """G14."""
    found = grant(client, "acme", "command//Wohnzimmer Lampe/req/#", 1)
    assert found.device == "Wohnzimmer:20Lampe"
    assert found.topic(make_command(device=found.device)) == "command//Wohnzimmer Lampe/req/CMD-1/switch"
    assert found.response_topic(make_command()) == "command//Wohnzimmer Lampe/res/CMD-1/200"


def test_another_devices_commands_are_refused_however_its_name_is_spelt():
    for topic_filter in ("command//Flur Lampe/req/#", "command//Flur:20Lampe/req/#"):
        assert grant(Client("Wohnzimmer Lampe"), "acme", topic_filter, 1) is Reason.NOT_AUTHORIZED
        assert grant(USER, "acme", topic_filter, 1) is Reason.NOT_AUTHORIZED


def test_a_command_without_a_reply_has_no_request_id():
    found = grant(ANYONE, "acme", "command///req/#", 0)
    assert found.topic(make_command(reply=False)) == "command///req//switch"


@pytest.mark.parametrize(
    ("topic_filter", "reply_to"),
    [("command/acme/lamp-1/req/#", "command/acme/lamp-1/res/CMD-1/200"), ("c///q/#", "c///s/CMD-1/200")],
)
def test_the_response_topic_has_the_shape_of_the_filter_too(topic_filter, reply_to):
    assert grant(ANYONE, "acme", topic_filter, 0).response_topic(make_command()) == reply_to


@pytest.mark.parametrize(
    ("client", "topic_filter", "code"),
    [
        (ANYONE, "command//lamp-2/req/#", Reason.NOT_AUTHORIZED),
        (USER, "c//lamp-2/q/#", Reason.NOT_AUTHORIZED),
        (USER, "command/other/lamp-1/req/#", Reason.NOT_AUTHORIZED),
        (HUB, "command/+/+/req/#", Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED),
        (HUB, "command//a\x07b/req/#", Reason.TOPIC_FILTER_INVALID),
        (USER, "command///req/x/switch", Reason.TOPIC_FILTER_INVALID),
        (USER, "command///q/#", Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED),
        (USER, "c///req/#", Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED),
        (USER, "#", Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED),
        (USER, "command/#", Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED),
        (USER, "command///req/+/switch", Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED),
        (USER, "telemetry", Reason.TOPIC_FILTER_INVALID),
        (USER, "$SYS/broker", Reason.TOPIC_FILTER_INVALID),
        (USER, "$share/group/command///req/#", Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED),
        (USER, "$share/group", Reason.TOPIC_FILTER_INVALID),
        (USER, "$share//t", Reason.TOPIC_FILTER_INVALID),
        (USER, "$share/+/t", Reason.TOPIC_FILTER_INVALID),
    ],
)
def test_everything_else_is_refused(client, topic_filter, code):
    assert grant(client, "acme", topic_filter, 2) is code


def test_a_user_gets_the_commands_of_the_devices_that_its_patterns_match():
    assert grant(HUB, "acme", "command//lamp-2/req/#", 2).device == "lamp-2"
    assert grant(HUB, "acme", "command//press-2/req/#", 2) is Reason.NOT_AUTHORIZED
    assert grant(HUB, "acme", "command///req/#", 2).device == "hub"


@given(st.text(st.sampled_from("command/req+#$aé "), max_size=30), st.sampled_from([ANYONE, USER]))
def test_no_filter_delivers_commands_of_another_device(topic_filter, client):
    found = grant(client, "acme", topic_filter, 0)
    assert isinstance(found, Reason) or found.device == "lamp-1"


def test_a_session_has_so_many_subscriptions_and_no_more():
    mine = Subscriptions()
    codes = [mine.add(HUB, "acme", f"c//d{number}/q/#", 1, 0) for number in range(MAX_SUBSCRIPTIONS + 1)]
    assert codes == [1] * MAX_SUBSCRIPTIONS + [Reason.QUOTA_EXCEEDED]
    assert mine.add(HUB, "acme", "c//d1/q/#", 2, 0) == 2


def suback(*codes, number=5):
    return Suback(kind=PacketType.SUBACK, packet_id=number, codes=codes)


@pytest.mark.parametrize(("version", "refused"), [(V3, (0x80, 0x80)), (V5, (Reason.NOT_AUTHORIZED, 0x8F))])
def test_every_filter_is_answered_in_its_place(version, refused):
    talk = MqttTalk(version, with_commands=True)
    talk.connect("lamp-1")
    filters = (("c//lamp-2/q/#", 1), ("command///req/#", 2), ("telemetry", 0))
    first, last = refused
    assert talk.settled(Subscribe(packet_id=5, filters=filters)) == [
        suback(first, 2, last),
        SetReachable("lamp-1", True),
    ]


@pytest.mark.parametrize(("version", "code"), [(V3, 0x80), (V5, Reason.IMPLEMENTATION_SPECIFIC)])
def test_without_commands_there_is_nothing_to_subscribe_to(version, code):
    talk = MqttTalk(version)
    talk.connect("lamp-1")
    assert talk.say(Subscribe(packet_id=5, filters=(("command///req/#", 1),))) == [suback(code)]


@pytest.mark.parametrize(("version", "codes"), [(V3, ()), (V5, (0, Reason.NO_SUBSCRIPTION_EXISTED))])
def test_unsubscribe_ends_a_subscription(version, codes):
    talk = MqttTalk(version, with_commands=True)
    talk.connect("lamp-1")
    talk.say(Subscribe(packet_id=5, filters=(("command///req/#", 1),)))
    assert talk.settled(Unsubscribe(packet_id=6, filters=("command///req/#", "telemetry"))) == [
        SetReachable("lamp-1", reachable=False),
        Suback(kind=PacketType.UNSUBACK, packet_id=6, codes=codes),
    ]


def test_no_local_on_a_shared_subscription_breaks_the_protocol():
    talk = MqttTalk(with_commands=True)
    talk.connect("lamp-1")
    end = (Disconnect(code=Reason.PROTOCOL_ERROR), CloseReason.MALFORMED)
    assert talk.say(Subscribe(packet_id=5, filters=(("$share/a/b", 4),))) == [end]


def test_a_device_is_reached_until_its_last_subscription_ends():
    talk = MqttTalk(with_commands=True)
    talk.connect("lamp-1")
    one, two = "command///req/#", "c///q/#"
    assert talk.settled(Subscribe(packet_id=5, filters=((one, 0), (two, 0)))) == [
        suback(0, 0),
        SetReachable("lamp-1", True),
    ]
    assert talk.settled(Subscribe(packet_id=5, filters=((one, 1),))) == [suback(1)]
    assert len(talk.settled(Unsubscribe(packet_id=6, filters=(one,)))) == 1
    assert SetReachable("lamp-1", reachable=False) in talk.settled(Unsubscribe(packet_id=6, filters=(two,)))


@pytest.mark.parametrize("version", [V3, V5])
def test_a_lasting_session_is_reached_again_without_a_word_and_a_clean_one_is_not(version):
    more = {"clean_start": False, "properties": Properties(session_expiry_s=100) if version == V5 else Properties()}
    talk = MqttTalk(version, with_commands=True)
    talk.connect("lamp-1", **more)
    talk.settled(Subscribe(packet_id=5, filters=(("command///req/#", 1),)))
    assert talk.end() == [SetReachable("lamp-1", reachable=False)]
    talk = MqttTalk(version, context=talk.context)
    opened, connack, reach = talk.through(talk.connect("lamp-1", **more))
    assert (opened.resumed, connack.session_present, reach) == (True, True, SetReachable("lamp-1", True))
    talk.end()
    talk = MqttTalk(version, context=talk.context)
    assert len(talk.through(talk.connect("lamp-1", clean_start=True))) == 2
