"""QoS 2 from a client, as transcripts: stored once, PUBREC after the commit, PUBCOMP after the packet id is free."""

import pytest

from fogline_edge.adapters.mqtt.protocol.packets import Ack, Disconnect, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, PacketType, Reason
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_edge.adapters.mqtt.session.effects import CloseReason, Forget, Store
from fogline_edge.adapters.mqtt.session.inbound import MAX_UNRELEASED
from fogline_edge.adapters.mqtt.session.session_state import restored
from fogline_lab.device.mqtt_talk import MqttTalk, make_context

TOO_MANY = Disconnect(code=Reason.QUOTA_EXCEEDED)
VERSIONS = pytest.mark.parametrize("version", [V3, V5])


def publish(number=7, topic="t", **more):
    return Publish(topic=topic, payload=b"x", qos=2, packet_id=number, **more)


def pubrec(number=7, code=0):
    return Ack(kind=PacketType.PUBREC, packet_id=number, code=code)


def pubrel(number=7):
    return Ack(kind=PacketType.PUBREL, packet_id=number)


def pubcomp(number=7, code=0):
    return Ack(kind=PacketType.PUBCOMP, packet_id=number, code=code)


def connected(version=V5, **more):
    talk = MqttTalk(version, **more)
    talk.connect()
    return talk


def lasting(version=V5, **more):
    talk = MqttTalk(version, **more)
    talk.connect(clean_start=False, **({"properties": Properties(session_expiry_s=100)} if version == V5 else {}))
    return talk


def committed(talk, store):
    talk.session.ack_order.committed(store.pending)
    return talk.acknowledged()


@VERSIONS
def test_pubrec_comes_after_the_commit_and_pubcomp_after_the_id_is_forgotten(version):
    talk = connected(version)
    (store,) = talk.say(publish())
    assert talk.acknowledged() == []
    assert committed(talk, store) == [(7, 0)]
    (forget,) = talk.say(pubrel())
    assert (forget.slot, forget.packet_id) == (store.arrival.retransmission.slot, 7)
    assert talk.through([forget]) == [pubcomp()]


def test_pubacks_and_pubrecs_come_in_the_order_of_the_publishes():
    talk = connected()
    (first,) = talk.say(publish(1))
    second = talk.publish(2)
    talk.session.ack_order.committed(second.pending)
    assert talk.acknowledged() == []
    assert committed(talk, first) == [(1, 0), (2, 0)]


@VERSIONS
@pytest.mark.parametrize("dup", [False, True])
def test_the_same_id_before_pubrel_is_the_same_message(version, dup):
    talk = connected(version)
    (store,) = talk.say(publish())
    assert talk.say(publish(dup=dup)) == []
    committed(talk, store)
    assert talk.say(publish(dup=dup)) == [pubrec()]


@VERSIONS
def test_after_pubcomp_the_same_id_is_another_message(version):
    talk = connected(version)
    for _ in range(2):
        (store,) = talk.say(publish())
        assert isinstance(store, Store)
        committed(talk, store)
        assert talk.settled(pubrel()) == [pubcomp()]


def test_a_publish_between_pubrel_and_pubcomp_breaks_the_protocol():
    talk = connected()
    committed(talk, talk.say(publish())[0])
    talk.say(pubrel())
    assert talk.say(publish()) == [(Disconnect(code=Reason.PACKET_IDENTIFIER_IN_USE), CloseReason.MALFORMED)]


def test_a_pubrel_before_its_pubrec_waits_and_until_its_pubcomp_the_id_is_in_use():
    """G11: the message may not be stored yet."""
    talk = connected()
    (store,) = talk.say(publish())
    assert talk.say(pubrel(), pubrel()) == []
    assert committed(talk, store) == [(7, 0)]
    (forget,) = talk.session.inbound.release_early()
    assert talk.through([forget]) == [pubcomp()]
    assert talk.session.inbound.release_early() == []
    (store,) = talk.say(publish())
    talk.say(pubrel())
    assert talk.say(publish()) == [(Disconnect(code=Reason.PACKET_IDENTIFIER_IN_USE), CloseReason.MALFORMED)]


@pytest.mark.parametrize(("version", "code"), [(V3, 0), (V5, Reason.PACKET_IDENTIFIER_NOT_FOUND)])
def test_a_pubrel_for_an_unknown_id_is_answered(version, code):
    assert connected(version).say(pubrel()) == [pubcomp(code=code)]


@VERSIONS
def test_a_lasting_session_recognises_every_copy_and_a_clean_one_goes_by_dup(version):
    (store,) = connected(version).say(publish())
    assert not store.arrival.retransmission.again
    (store,) = connected(version).say(publish(dup=True))
    assert store.arrival.retransmission.again
    talk = lasting(version)
    (first,) = talk.say(publish())
    talk.session.end(talk.now)
    again = lasting(version, context=talk.context)
    (second,) = again.say(publish())
    assert first.arrival.retransmission == second.arrival.retransmission
    assert first.arrival.retransmission.again


def test_a_new_session_knows_nothing_of_the_former_ones_ids():
    talk = lasting()
    (first,) = talk.say(publish())
    talk.session.end(talk.now)
    talk = MqttTalk(context=talk.context)
    talk.connect(clean_start=True, properties=Properties(session_expiry_s=100))
    (second,) = talk.say(publish())
    assert first.arrival.retransmission.slot != second.arrival.retransmission.slot


def test_qos_1_and_qos_2_have_slots_of_their_own():
    talk = connected()
    (two,) = talk.say(publish(7))
    assert two.arrival.retransmission.slot != connected().publish(7).arrival.retransmission.slot


@VERSIONS
def test_next_connection_of_a_session_releases_messages_of_the_former_one(version):
    talk = lasting(version)
    committed(talk, talk.say(publish())[-1])
    talk.session.end(talk.now)
    talk = lasting(version, context=talk.context)
    (forget,) = talk.say(pubrel())
    assert isinstance(forget, Forget)
    assert talk.through([forget]) == [pubcomp()]


def restart(talk):
    """The gateway ends; what was kept is there for the next one."""
    state = talk.session._state
    (keep,) = state.save(lambda: ())
    context = make_context()
    assert context.sessions.restore([restored(keep.key, keep.value)], 0.0) == []
    return context


@pytest.mark.parametrize("topic", ["t", "nowhere", "t//d2"], ids=["own", "dead", "other"])
def test_after_a_restart_pubrel_frees_the_packet_id(topic):
    talk = lasting(V3)
    (store,) = talk.say(publish(topic=topic))
    talk = lasting(V3, context=restart(talk))
    (forget,) = talk.say(pubrel())
    assert isinstance(forget, Forget)
    assert forget.slot == store.arrival.retransmission.slot
    assert talk.through([forget]) == [pubcomp()]


def test_a_5_client_reads_in_pubrec_that_it_was_refused_and_may_use_the_id_again():
    talk = lasting()
    for _ in range(2):
        (store,) = talk.say(publish(topic="nowhere"))
        assert (store.arrival.type, store.arrival.retransmission.again) == ("dead", False)
        assert committed(talk, store) == [(7, Reason.TOPIC_NAME_INVALID)]
    assert talk.say(pubrel()) == [pubcomp(code=Reason.PACKET_IDENTIFIER_NOT_FOUND)]


@pytest.mark.parametrize(("version", "end"), [(V3, (CloseReason.MALFORMED,)), (V5, (TOO_MANY, CloseReason.MALFORMED))])
def test_a_client_that_never_releases_is_ended(version, end):
    talk = connected(version, receive_maximum=MAX_UNRELEASED * 2)
    for number in range(1, MAX_UNRELEASED + 1):
        talk.say(publish(number))
    assert talk.say(publish(MAX_UNRELEASED + 1)) == [end]


def test_a_topic_alias_stands_for_its_topic():
    talk = connected()
    (first,) = talk.say(Publish(topic="t//d2", payload=b"1", properties=Properties(topic_alias=32)))
    (second,) = talk.say(Publish(topic="", payload=b"2", properties=Properties(topic_alias=32)))
    assert (first.arrival.device, second.arrival.device) == ("d2", "d2")
    talk.say(Publish(topic="t//d3", payload=b"3", properties=Properties(topic_alias=32)))
    (third,) = talk.say(Publish(topic="", payload=b"4", qos=2, packet_id=1, properties=Properties(topic_alias=32)))
    assert third.arrival.device == "d3"


@pytest.mark.parametrize(("alias", "code"), [(33, Reason.TOPIC_ALIAS_INVALID), (1, Reason.PROTOCOL_ERROR)])
def test_a_topic_alias_that_is_none_ends_the_connection(alias, code):
    end = (Disconnect(code=code), CloseReason.MALFORMED)
    assert connected().say(Publish(topic="", payload=b"", properties=Properties(topic_alias=alias))) == [end]


def test_a_client_names_no_subscription():
    end = (Disconnect(code=Reason.PROTOCOL_ERROR), CloseReason.MALFORMED)
    assert connected().say(Publish(topic="t", payload=b"", properties=Properties(subscription_id=(1,)))) == [end]


def test_a_topic_alias_is_its_connections_own():
    talk = lasting()
    talk.say(Publish(topic="t", payload=b"", properties=Properties(topic_alias=1)))
    talk.session.end(talk.now)
    talk = lasting(context=talk.context)
    end = (Disconnect(code=Reason.PROTOCOL_ERROR), CloseReason.MALFORMED)
    assert talk.say(Publish(topic="", payload=b"", properties=Properties(topic_alias=1))) == [end]
