"""Commands to one client, as transcripts. Only at QoS 2, where the client recognises a copy, a command is sent again."""

import pytest

from fogline.commands.command import Deadline
from fogline_edge.adapters.mqtt.hono.subscriptions import Subscription
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Disconnect, Publish, Subscribe, Unsubscribe
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, PacketType, Reason
from fogline_edge.adapters.mqtt.protocol.properties import NONE, Properties
from fogline_edge.adapters.mqtt.session.effects import CloseReason, DeliveryResult, Keep, ReportDelivery, SetReachable
from fogline_edge.adapters.mqtt.session.inflight import MAX_KEPT_BYTES, DeliveryPhase
from fogline_edge.adapters.mqtt.session.session_state import restored
from fogline_edge.adapters.mqtt.session.sessions import Sessions
from fogline_lab.commands import make_command
from fogline_lab.device.mqtt_talk import MqttTalk

VERSIONS = pytest.mark.parametrize("version", [V3, V5])
LATER = Deadline("boot", 60_000)
TOPIC = "command///req/CMD-1/switch"
LASTING = Properties(session_expiry_s=100)


def subscribed(version=V3, qos=1, *, lasting=False, context=None, filters=("command///req/#",), **connect):
    """A client that is subscribed to commands. An existing session keeps its subscriptions."""
    talk = MqttTalk(version, context=context, with_commands=True) if context is None else MqttTalk(version, context=context)
    properties = connect.pop("properties", LASTING if lasting and version == V5 else NONE)
    talk.opening = talk.through(talk.connect("lamp-1", clean_start=not lasting, properties=properties, **connect))
    if not talk.opening[0].resumed:
        talk.settled(Subscribe(packet_id=5, filters=tuple((each, qos) for each in filters)))
    return talk


def answer(kind, number=1, code=0):
    return Ack(kind=kind, packet_id=number, code=code)


def command(number=1, **more):
    return make_command(id=f"CMD-{number}", **{"deadline": LATER, **more})


def publish(qos=1, number=1, **more):
    return Publish(topic=TOPIC, payload=b'{"on":true}', qos=qos, packet_id=number, **more)


def told(fate, number=1):
    return (fate, f"CMD-{number}")


def fates(effects):
    return [each[:2] for each in effects if isinstance(each, ReportDelivery)]


@VERSIONS
def test_at_qos_0_it_is_taken_when_it_is_written(version):
    sent, tell = subscribed(version, 0).execute(command(reply=False))
    assert (sent.topic, sent.qos, sent.packet_id) == ("command///req//switch", 0, 0)
    assert tell == ReportDelivery(DeliveryResult.TAKEN, "CMD-1")


def test_at_qos_1_it_is_taken_with_its_puback():
    talk = subscribed()
    assert talk.execute(command()) == [publish()]
    assert talk.say(answer(PacketType.PUBACK)) == [ReportDelivery(DeliveryResult.TAKEN, "CMD-1")]
    assert talk.say(answer(PacketType.PUBACK)) == []


@VERSIONS
def test_at_qos_2_it_is_taken_with_its_pubcomp(version):
    talk = subscribed(version, 2)
    (sent,) = talk.execute(command())
    assert (sent.qos, sent.packet_id) == (2, 1)
    assert talk.say(answer(PacketType.PUBREC)) == [answer(PacketType.PUBREL)]
    assert talk.say(answer(PacketType.PUBREC)) == [answer(PacketType.PUBREL)]
    assert talk.say(answer(PacketType.PUBCOMP)) == [ReportDelivery(DeliveryResult.TAKEN, "CMD-1")]


def test_command_over_mqtt_5_has_content_type_and_response_topic():
    talk = subscribed(V5, properties=Properties(receive_maximum=9))
    (sent,) = talk.execute(command())
    assert sent.properties == Properties(
        content_type="application/json",
        correlation_data=b"CMD-1",
        response_topic="command///res/CMD-1/200",
        message_expiry_s=60,
    )


def test_a_publish_names_every_subscription_that_it_matches_and_has_the_best_qos_of_them():
    talk = MqttTalk(V5, with_commands=True)
    talk.connect("lamp-1")
    for number, topic_filter, qos in ((7, "command///req/#", 2), (8, "command/+/+/req/#", 0), (9, "c///q/#", 1)):
        properties = Properties(subscription_id=(number,))
        talk.settled(Subscribe(packet_id=1, filters=((topic_filter, qos),), properties=properties))
    (sent,) = talk.execute(command())
    assert (sent.topic, sent.qos, sent.properties.subscription_id) == ("c///q/CMD-1/switch", 1, (9,))
    talk.settled(Unsubscribe(packet_id=1, filters=("c///q/#",)))
    (sent,) = talk.execute(command(2))
    assert (sent.qos, sent.properties.subscription_id) == (2, (7, 8))


def test_command_without_a_subscriber_is_not_sent():
    talk = MqttTalk(with_commands=True)
    talk.connect("lamp-1")
    assert talk.execute(command()) == [ReportDelivery(DeliveryResult.NOT_SENT, "CMD-1")]


def test_a_command_too_large_for_the_client_is_refused():
    talk = subscribed(V5, properties=Properties(maximum_packet_bytes=200))
    assert fates(talk.execute(command(data=bytes(200)))) == [told(DeliveryResult.REFUSED)]
    assert isinstance(talk.execute(command(2, data=b""))[0], Publish)


@pytest.mark.parametrize(("qos", "kind"), [(1, PacketType.PUBACK), (2, PacketType.PUBREC)])
def test_a_command_that_the_device_refuses_is_reported_as_refused(qos, kind):
    talk = subscribed(V5, qos)
    talk.execute(command())
    assert fates(talk.say(answer(kind, code=Reason.QUOTA_EXCEEDED))) == [told(DeliveryResult.REFUSED)]
    assert isinstance(talk.execute(command())[0], Publish)


def test_no_more_is_in_flight_than_the_client_said():
    talk = subscribed(V5, properties=Properties(receive_maximum=1))
    assert len(talk.execute(command(1))) == 1
    assert talk.execute(command(2)) == []
    tell, sent = talk.say(answer(PacketType.PUBACK))
    assert (tell, sent.packet_id) == (ReportDelivery(DeliveryResult.TAKEN, "CMD-1"), 2)


def test_at_the_end_of_a_connection_queued_commands_are_not_sent_and_sent_ones_are_lost():
    talk = subscribed(V5, properties=Properties(receive_maximum=1))
    talk.execute(command(1))
    talk.execute(command(2))
    reach, *rest = talk.end()
    assert reach == SetReachable("lamp-1", reachable=False)
    assert fates(rest) == [told(DeliveryResult.NOT_SENT, 2), told(DeliveryResult.LOST, 1)]


@VERSIONS
def test_at_qos_1_it_is_not_sent_again(version):
    talk = subscribed(version, 1, lasting=True)
    talk.execute(command())
    assert fates(talk.end()) == [told(DeliveryResult.LOST)]
    talk = subscribed(version, lasting=True, context=talk.context)
    assert [type(each).__name__ for each in talk.opening] == ["ClientAccepted", "Connack", "SetReachable"]


def test_unsubscribe_withdraws_queued_commands_and_keeps_sent_ones():
    talk = subscribed(V5, properties=Properties(receive_maximum=1))
    talk.execute(command(1))
    talk.execute(command(2))
    assert fates(talk.settled(Unsubscribe(packet_id=1, filters=("command///req/#",)))) == [told(DeliveryResult.NOT_SENT, 2)]
    assert talk.say(answer(PacketType.PUBACK)) == [ReportDelivery(DeliveryResult.TAKEN, "CMD-1")]


def test_a_command_that_waits_past_its_deadline_is_not_sent():
    talk = subscribed(V5, properties=Properties(receive_maximum=1))
    talk.execute(command(1))
    talk.execute(command(2))
    outbound = talk.session.downstream.state.outbound
    outbound._client = outbound._client._replace(now=lambda: type(talk.context.now())("boot", 60_000))
    assert fates(talk.say(answer(PacketType.PUBACK))) == [told(DeliveryResult.TAKEN, 1), told(DeliveryResult.NOT_SENT, 2)]


@pytest.mark.parametrize(
    ("qos", "last"), [(1, PacketType.PUBCOMP), (1, PacketType.PUBREC), (2, PacketType.PUBACK), (2, PacketType.PUBCOMP)]
)
def test_a_confirmation_that_cannot_be_due_breaks_the_protocol(qos, last):
    talk = subscribed(V5, qos)
    talk.execute(command())
    assert talk.say(answer(last)) == [(Disconnect(code=Reason.PROTOCOL_ERROR), CloseReason.MALFORMED)]


@VERSIONS
def test_puback_and_pubcomp_of_unknown_packet_ids_change_nothing(version):
    talk = subscribed(version)
    assert talk.say(answer(PacketType.PUBACK, 9), answer(PacketType.PUBCOMP, 9)) == []


@VERSIONS
def test_a_session_is_kept_before_each_step_at_qos_2(version):
    talk = subscribed(version, 2, lasting=True)
    (keep,) = talk.execute(command())
    assert isinstance(keep, Keep)
    (sent,) = talk.through([keep])
    assert isinstance(sent, Publish)
    (keep,) = talk.say(answer(PacketType.PUBREC))
    assert b'{"on":true}' not in keep.value, "the body is stored although the PUBLISH is never sent again"
    assert talk.through([keep]) == [answer(PacketType.PUBREL)]
    tell, keep = talk.say(answer(PacketType.PUBCOMP))
    assert (tell, keep.then) == (ReportDelivery(DeliveryResult.TAKEN, "CMD-1"), None)


def test_a_command_is_not_sent_if_the_connection_ends_before_its_commit():
    talk = subscribed(V5, 2, lasting=True)
    (keep,) = talk.execute(command())
    assert fates(talk.end()) == [told(DeliveryResult.NOT_SENT)]
    assert keep.then() == []


def again(talk, version, *, restart=False, **more):
    """The next connection of the session, with or without a restart of the gateway in between."""
    assert fates(talk.end()) == []
    if restart:
        (keep,) = talk.session._state.save(lambda: ())
        talk.context.sessions.__init__(lambda: b"8 bytes.")
        talk.context.sessions.restore([restored(keep.key, keep.value)], 0.0)
    return subscribed(version, lasting=True, context=talk.context, **more)


RESTART = pytest.mark.parametrize("restart", [False, True], ids=["reconnect", "restart"])


@VERSIONS
@RESTART
def test_at_qos_2_a_publish_is_sent_again_with_dup_on_the_next_connection(version, restart):
    talk = subscribed(version, 2, lasting=True)
    (sent,) = talk.through(talk.execute(command()))
    talk = again(talk, version, restart=restart)
    *_, resent, reach = talk.opening
    assert (resent.topic, resent.payload, resent.packet_id, resent.dup) == (sent.topic, sent.payload, sent.packet_id, True)
    assert reach == SetReachable("lamp-1", reachable=True)
    assert talk.settled(answer(PacketType.PUBREC)) == [answer(PacketType.PUBREL)]
    assert fates(talk.settled(answer(PacketType.PUBCOMP))) == [told(DeliveryResult.TAKEN)]


@VERSIONS
@RESTART
def test_and_after_its_pubrec_the_pubrel(version, restart):
    talk = subscribed(version, 2, lasting=True)
    talk.execute(command())[0].then()
    talk.settled(answer(PacketType.PUBREC))
    talk = again(talk, version, restart=restart)
    assert talk.opening[2] == answer(PacketType.PUBREL)
    assert fates(talk.settled(answer(PacketType.PUBCOMP))) == [told(DeliveryResult.TAKEN)]


def test_pubrels_are_sent_again_in_the_order_of_their_pubrecs():
    talk = subscribed(V5, 2, lasting=True)
    for number in (1, 2, 3):
        talk.through(talk.execute(command(number)))
    for number in (3, 1, 2):
        talk.settled(answer(PacketType.PUBREC, number))
    talk = again(talk, V5)
    assert [each.packet_id for each in talk.opening if isinstance(each, Ack)] == [3, 1, 2]


def test_retransmissions_respect_the_receive_maximum_too():
    talk = subscribed(V5, 2, lasting=True)
    for number in (1, 2):
        talk.through(talk.execute(command(number)))
    talk = again(talk, V5, properties=Properties(session_expiry_s=100, receive_maximum=1))
    assert [each.packet_id for each in talk.opening if isinstance(each, Publish)] == [1]
    talk.settled(answer(PacketType.PUBREC))
    _, resent = talk.settled(answer(PacketType.PUBCOMP))
    assert (resent.packet_id, resent.dup) == (2, True)


def test_clean_start_discards_messages_in_flight():
    talk = subscribed(V5, 2, lasting=True)
    talk.through(talk.execute(command()))
    talk.end()
    talk = MqttTalk(context=talk.context)
    assert fates(talk.through(talk.connect("lamp-1", clean_start=True))) == [told(DeliveryResult.LOST)]


def test_second_connection_takes_over_messages_in_flight_and_the_first_is_silent():
    first = subscribed(V5, 2, lasting=True)
    first.through(first.execute(command()))
    second = subscribed(V5, lasting=True, context=first.context)
    assert second.opening[0].resumed
    assert any(isinstance(each, Publish) and each.dup for each in second.opening)
    ended = first.session.end(0.0, taken_over=True, resumed=True)
    assert ended.effects == [SetReachable("lamp-1", reachable=False)]
    second.settled(answer(PacketType.PUBREC))
    assert fates(second.settled(answer(PacketType.PUBCOMP))) == [told(DeliveryResult.TAKEN)]


def test_a_session_that_ends_with_its_connection_has_lost_it_at_qos_2_too():
    talk = subscribed(V5, 2)
    talk.execute(command())
    assert fates(talk.end()) == [told(DeliveryResult.LOST)]


def test_a_session_whose_command_is_too_large_for_the_next_connection_begins_anew():
    talk = subscribed(V5, 2, lasting=True)
    talk.through(talk.execute(command(data=bytes(200))))
    talk = again(talk, V5, properties=Properties(session_expiry_s=100, maximum_packet_bytes=200))
    assert not talk.opening[0].resumed
    assert fates(talk.opening) == [told(DeliveryResult.LOST)]


def test_an_abandoned_command_is_neither_sent_nor_sent_again():
    talk = subscribed(V5, 2, lasting=True, properties=Properties(session_expiry_s=100, receive_maximum=1))
    talk.through(talk.execute(command(1)))
    talk.execute(command(2))
    outbound = talk.session._state.outbound
    assert fates(outbound.abandon("CMD-2")) == [told(DeliveryResult.NOT_SENT, 2)]
    talk.end()
    assert outbound.abandon("CMD-1") == []
    assert not subscribed(V5, 2, lasting=True, context=talk.context).opening[0].resumed


def test_the_same_command_is_not_sent_beside_itself():
    talk = subscribed(V5, 2, lasting=True)
    talk.through(talk.execute(command()))
    assert talk.execute(command()) == []


def test_a_command_too_large_to_be_kept_goes_at_qos_1():
    talk = subscribed(V5, 2, lasting=True)
    (sent,) = talk.execute(command(data=bytes(MAX_KEPT_BYTES + 1)))
    assert sent.qos == 1


def test_while_the_client_does_not_read_nothing_is_begun():
    talk = subscribed()
    assert talk.session.downstream.pause(paused=True) == []
    assert talk.execute(command()) == []
    assert len(talk.session.downstream.pause(paused=False)) == 1


def test_the_session_that_is_away_for_longest_gives_way():
    sessions = Sessions(lambda: b"8 bytes.", most=2)
    first, second = (sessions.open(("", name), clean=False, expiry_s=60, now=0).state for name in "ab")
    sessions.close(second, 1)
    sessions.close(first, 2)
    found = sessions.open(("", "c"), clean=False, expiry_s=60, now=3)
    assert (found.present, found.ended) == (False, [second])
    assert sessions.open(("", "a"), clean=False, expiry_s=60, now=3).present


def test_an_unreadable_session_record_is_ignored():
    state = subscribed(lasting=True).session._state
    (keep,) = state.save(lambda: ())
    assert restored(keep.key, keep.value).subscriptions == state.subscriptions
    for broken in (b"", b"\x90", keep.value[:-1], keep.value + b"x"):
        assert restored(keep.key, broken) is None
    assert restored("mqtt/session/nobody", keep.value) is None


STORED_RECORD = bytes.fromhex(
    "9501c408382062797465732ecd0e109194af636f6d6d616e642f2f2f7265712f23a36875620207820195a5434d442d31a368756282a762"
    "6f6f745f6964a4626f6f74ab626f6f7474696d655f6d73cdea6085a5746f706963ba636f6d6d616e642f2f2f7265712f434d442d312f73"
    "7769746368a77061796c6f6164c4027b7da3716f7302a97061636b65745f696401aa70726f70657274696573de0002b06d657373616765"
    "5f6578706972795f733cac636f6e74656e745f74797065b06170706c69636174696f6e2f6a736f6e030295a5434d442d32a368756282a7"
    "626f6f745f6964a4626f6f74ab626f6f7474696d655f6d73cdea6085a5746f706963ba636f6d6d616e642f2f2f7265712f434d442d322f"
    "737769746368a77061796c6f6164c4027b7da3716f7302a97061636b65745f696402aa70726f70657274696573de0002b06d6573736167"
    "655f6578706972795f733cac636f6e74656e745f74797065b06170706c69636174696f6e2f6a736f6e04"
)
"""A session record as gateways store it: a change of its form needs a new number."""


def test_a_stored_session_record_is_readable():
    state = restored("mqtt/session/hub/lamp-1", STORED_RECORD)
    assert (state.key, state.epoch, state.expiry_s) == (("hub", "lamp-1"), b"8 bytes.", 3600)
    assert list(state.subscriptions.values()) == [Subscription("command///req/#", "hub", 2, 7)]
    inflight = state.outbound.inflight
    assert [(number, each.command_id, each.phase) for number, each in inflight.by_packet_id.items()] == [
        (1, "CMD-1", DeliveryPhase.SENT),
        (2, "CMD-2", DeliveryPhase.RELEASED),
    ]
    properties = Properties(content_type="application/json", message_expiry_s=60)
    sent = Publish(topic="command///req/CMD-1/switch", payload=b"{}", qos=2, packet_id=1, properties=properties)
    assert inflight.by_packet_id[1].publish == sent
