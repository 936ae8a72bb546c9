"""Commands to one client, as transcripts. No command is given to a device twice, but at QoS 2, where it takes it once."""

import pytest

from edge.mqtt.talking import Talk
from fogline.command import Deadline
from fogline.testing.commands import make_command
from fogline_edge.adapters.mqtt.effects import Fate, Keep, Reach, Tell, Why
from fogline_edge.adapters.mqtt.flights import MAX_KEPT_BYTES
from fogline_edge.adapters.mqtt.kept import restored
from fogline_edge.adapters.mqtt.packets import Answer, Ending, Publish, Subscribe, Unsubscribe
from fogline_edge.adapters.mqtt.properties import NONE, Properties
from fogline_edge.adapters.mqtt.sessions import Sessions
from fogline_edge.adapters.mqtt.wire import V3, V5, Kind, Reason

VERSIONS = pytest.mark.parametrize("version", [V3, V5])
LATER = Deadline("boot", 60_000)
TOPIC = "command///req/CMD-1/switch"
LASTING = Properties(session_expiry_s=100)


def subscribed(version=V3, qos=1, *, lasting=False, border=None, filters=("command///req/#",), **connect):
    """A client that gets commands. A session that is there already keeps its subscriptions."""
    talk = Talk(version, border=border, with_commands=True) if border is None else Talk(version, border=border)
    properties = connect.pop("properties", LASTING if lasting and version == V5 else NONE)
    talk.opening = talk.through(talk.connect("lamp-1", clean_start=not lasting, properties=properties, **connect))
    if not talk.opening[0].resumed:
        talk.settled(Subscribe(packet_id=5, filters=tuple((each, qos) for each in filters)))
    return talk


def answer(kind, number=1, code=0):
    return Answer(kind=kind, packet_id=number, code=code)


def command(number=1, **more):
    return make_command(id=f"CMD-{number}", **{"deadline": LATER, **more})


def publish(qos=1, number=1, **more):
    return Publish(topic=TOPIC, payload=b'{"on":true}', qos=qos, packet_id=number, **more)


def told(fate, number=1):
    return (fate, f"CMD-{number}")


def fates(effects):
    return [each[:2] for each in effects if isinstance(each, Tell)]


@VERSIONS
def test_at_qos_0_it_is_taken_when_it_is_written(version):
    sent, tell = subscribed(version, 0).execute(command(reply=False))
    assert (sent.topic, sent.qos, sent.packet_id) == ("command///req//switch", 0, 0)
    assert tell == Tell(Fate.TAKEN, "CMD-1")


def test_at_qos_1_it_is_taken_with_its_puback():
    talk = subscribed()
    assert talk.execute(command()) == [publish()]
    assert talk.say(answer(Kind.PUBACK)) == [Tell(Fate.TAKEN, "CMD-1")]
    assert talk.say(answer(Kind.PUBACK)) == []


@VERSIONS
def test_at_qos_2_it_is_taken_with_its_pubcomp(version):
    talk = subscribed(version, 2)
    (sent,) = talk.execute(command())
    assert (sent.qos, sent.packet_id) == (2, 1)
    assert talk.say(answer(Kind.PUBREC)) == [answer(Kind.PUBREL)]
    assert talk.say(answer(Kind.PUBREC)) == [answer(Kind.PUBREL)]
    assert talk.say(answer(Kind.PUBCOMP)) == [Tell(Fate.TAKEN, "CMD-1")]


def test_a_5_client_reads_what_it_is_and_where_to_answer():
    talk = subscribed(V5, properties=Properties(receive_maximum=9))
    (sent,) = talk.execute(command())
    assert sent.properties == Properties(
        content_type="application/json",
        correlation_data=b"CMD-1",
        response_topic="command///res/CMD-1/200",
        message_expiry_s=60,
    )


def test_a_publish_names_every_subscription_that_it_matches_and_has_the_best_qos_of_them():
    talk = Talk(V5, with_commands=True)
    talk.connect("lamp-1")
    for number, topic_filter, qos in ((7, "command///req/#", 2), (8, "command/+/+/req/#", 0), (9, "c///q/#", 1)):
        properties = Properties(subscription_id=(number,))
        talk.settled(Subscribe(packet_id=1, filters=((topic_filter, qos),), properties=properties))
    (sent,) = talk.execute(command())
    assert (sent.topic, sent.qos, sent.properties.subscription_id) == ("c///q/CMD-1/switch", 1, (9,))
    talk.settled(Unsubscribe(packet_id=1, filters=("c///q/#",)))
    (sent,) = talk.execute(command(2))
    assert (sent.qos, sent.properties.subscription_id) == (2, (7, 8))


def test_nobody_subscribed_means_not_sent():
    talk = Talk(with_commands=True)
    talk.connect("lamp-1")
    assert talk.execute(command()) == [Tell(Fate.NOT_SENT, "CMD-1")]


def test_what_is_larger_than_the_client_takes_is_refused():
    talk = subscribed(V5, properties=Properties(maximum_packet_bytes=200))
    assert fates(talk.execute(command(data=bytes(200)))) == [told(Fate.REFUSED)]
    assert isinstance(talk.execute(command(2, data=b""))[0], Publish)


@pytest.mark.parametrize(("qos", "kind"), [(1, Kind.PUBACK), (2, Kind.PUBREC)])
def test_what_the_device_refuses_is_refused(qos, kind):
    talk = subscribed(V5, qos)
    talk.execute(command())
    assert fates(talk.say(answer(kind, code=Reason.QUOTA_EXCEEDED))) == [told(Fate.REFUSED)]
    assert isinstance(talk.execute(command())[0], Publish)


def test_no_more_is_in_flight_than_the_client_said():
    talk = subscribed(V5, properties=Properties(receive_maximum=1))
    assert len(talk.execute(command(1))) == 1
    assert talk.execute(command(2)) == []
    tell, sent = talk.say(answer(Kind.PUBACK))
    assert (tell, sent.packet_id) == (Tell(Fate.TAKEN, "CMD-1"), 2)


def test_what_waits_when_the_connection_ends_was_not_sent_and_what_was_sent_is_lost():
    talk = subscribed(V5, properties=Properties(receive_maximum=1))
    talk.execute(command(1))
    talk.execute(command(2))
    reach, *rest = talk.end()
    assert reach == Reach("lamp-1", on=False)
    assert fates(rest) == [told(Fate.NOT_SENT, 2), told(Fate.LOST, 1)]


@VERSIONS
def test_at_qos_1_it_is_not_sent_again(version):
    talk = subscribed(version, 1, lasting=True)
    talk.execute(command())
    assert fates(talk.end()) == [told(Fate.LOST)]
    talk = subscribed(version, lasting=True, border=talk.border)
    assert [type(each).__name__ for each in talk.opening] == ["Opened", "Connack", "Reach"]


def test_what_waits_is_withdrawn_by_unsubscribe_and_what_was_sent_goes_on():
    talk = subscribed(V5, properties=Properties(receive_maximum=1))
    talk.execute(command(1))
    talk.execute(command(2))
    assert fates(talk.settled(Unsubscribe(packet_id=1, filters=("command///req/#",)))) == [told(Fate.NOT_SENT, 2)]
    assert talk.say(answer(Kind.PUBACK)) == [Tell(Fate.TAKEN, "CMD-1")]


def test_what_waits_longer_than_its_deadline_was_not_sent():
    talk = subscribed(V5, properties=Properties(receive_maximum=1))
    talk.execute(command(1))
    talk.execute(command(2))
    pipe = talk.session.downstream._state.outbound
    pipe._pipe = pipe._pipe._replace(now=lambda: type(talk.border.now())("boot", 60_000))
    assert fates(talk.say(answer(Kind.PUBACK))) == [told(Fate.TAKEN, 1), told(Fate.NOT_SENT, 2)]


@pytest.mark.parametrize(("qos", "last"), [(1, Kind.PUBCOMP), (1, Kind.PUBREC), (2, Kind.PUBACK), (2, Kind.PUBCOMP)])
def test_a_confirmation_that_cannot_be_due_breaks_the_protocol(qos, last):
    talk = subscribed(V5, qos)
    talk.execute(command())
    assert talk.say(answer(last)) == [(Ending(code=Reason.PROTOCOL_ERROR), Why.MALFORMED)]


@pytest.mark.parametrize(("version", "code"), [(V3, 0), (V5, Reason.PACKET_IDENTIFIER_NOT_FOUND)])
def test_confirmations_of_what_is_not_known(version, code):
    talk = subscribed(version)
    said = [answer(kind, 9) for kind in (Kind.PUBACK, Kind.PUBREC, Kind.PUBCOMP)]
    assert talk.say(*said) == [answer(Kind.PUBREL, 9, code)]


@VERSIONS
def test_a_session_is_kept_before_each_step_at_qos_2(version):
    talk = subscribed(version, 2, lasting=True)
    (keep,) = talk.execute(command())
    assert isinstance(keep, Keep)
    (sent,) = talk.through([keep])
    assert isinstance(sent, Publish)
    (keep,) = talk.say(answer(Kind.PUBREC))
    assert talk.through([keep]) == [answer(Kind.PUBREL)]
    tell, keep = talk.say(answer(Kind.PUBCOMP))
    assert (tell, keep.then) == (Tell(Fate.TAKEN, "CMD-1"), None)


def test_what_ends_before_it_is_kept_was_not_sent():
    talk = subscribed(V5, 2, lasting=True)
    (keep,) = talk.execute(command())
    assert fates(talk.end()) == [told(Fate.NOT_SENT)]
    assert keep.then() == []


def again(talk, version, *, restart=False, **more):
    """The next connection of the session; or of what a restart of the gateway leaves of it."""
    assert fates(talk.end()) == []
    if restart:
        (keep,) = talk.session._state.save(lambda: ())
        talk.border.sessions.__init__(lambda: b"8 bytes.")
        talk.border.sessions.restore([restored(keep.key, keep.value)], 0.0)
    return subscribed(version, lasting=True, border=talk.border, **more)


RESTART = pytest.mark.parametrize("restart", [False, True], ids=["reconnect", "restart"])


@VERSIONS
@RESTART
def test_at_qos_2_a_publish_is_sent_again_with_dup_on_the_next_connection(version, restart):
    talk = subscribed(version, 2, lasting=True)
    (sent,) = talk.through(talk.execute(command()))
    talk = again(talk, version, restart=restart)
    *_, resent, reach = talk.opening
    assert (resent.topic, resent.payload, resent.packet_id, resent.dup) == (sent.topic, sent.payload, sent.packet_id, True)
    assert reach == Reach("lamp-1", on=True)
    assert talk.settled(answer(Kind.PUBREC)) == [answer(Kind.PUBREL)]
    assert fates(talk.settled(answer(Kind.PUBCOMP))) == [told(Fate.TAKEN)]


@VERSIONS
@RESTART
def test_and_after_its_pubrec_the_pubrel(version, restart):
    talk = subscribed(version, 2, lasting=True)
    talk.execute(command())[0].then()
    talk.settled(answer(Kind.PUBREC))
    talk = again(talk, version, restart=restart)
    assert talk.opening[2] == answer(Kind.PUBREL)
    assert fates(talk.settled(answer(Kind.PUBCOMP))) == [told(Fate.TAKEN)]


def test_pubrels_are_sent_again_in_the_order_of_their_pubrecs():
    talk = subscribed(V5, 2, lasting=True)
    for number in (1, 2, 3):
        talk.through(talk.execute(command(number)))
    for number in (3, 1, 2):
        talk.settled(answer(Kind.PUBREC, number))
    talk = again(talk, V5)
    assert [each.packet_id for each in talk.opening if isinstance(each, Answer)] == [3, 1, 2]


def test_what_is_sent_again_keeps_to_the_receive_maximum_too():
    talk = subscribed(V5, 2, lasting=True)
    for number in (1, 2):
        talk.through(talk.execute(command(number)))
    talk = again(talk, V5, properties=Properties(session_expiry_s=100, receive_maximum=1))
    assert [each.packet_id for each in talk.opening if isinstance(each, Publish)] == [1]
    talk.settled(answer(Kind.PUBREC))
    _, resent = talk.settled(answer(Kind.PUBCOMP))
    assert (resent.packet_id, resent.dup) == (2, True)


def test_a_session_that_begins_anew_has_lost_what_was_under_way():
    talk = subscribed(V5, 2, lasting=True)
    talk.through(talk.execute(command()))
    talk.end()
    talk = Talk(border=talk.border)
    assert fates(talk.through(talk.connect("lamp-1", clean_start=True))) == [told(Fate.LOST)]


def test_a_second_connection_takes_what_is_under_way_and_the_first_says_nothing_more():
    first = subscribed(V5, 2, lasting=True)
    first.through(first.execute(command()))
    second = subscribed(V5, lasting=True, border=first.border)
    assert second.opening[0].resumed
    assert any(isinstance(each, Publish) and each.dup for each in second.opening)
    ended = first.session.end(0.0, taken_over=True, resumed=True)
    assert ended.effects == [Reach("lamp-1", on=False)]
    second.settled(answer(Kind.PUBREC))
    assert fates(second.settled(answer(Kind.PUBCOMP))) == [told(Fate.TAKEN)]


def test_a_session_that_ends_with_its_connection_has_lost_it_at_qos_2_too():
    talk = subscribed(V5, 2)
    talk.execute(command())
    assert fates(talk.end()) == [told(Fate.LOST)]


def test_past_its_deadline_nothing_is_sent_again_and_its_packet_id_is_not_used_again():
    talk = subscribed(V5, 2, lasting=True)
    talk.through(talk.execute(command(deadline=Deadline("another boot", 60_000))))
    talk = again(talk, V5)
    assert fates(talk.opening) == [told(Fate.LOST)]
    assert not any(isinstance(each, Publish) for each in talk.opening)
    assert talk.through(talk.execute(command(2)))[0].packet_id == 2
    outbound = talk.session._state.outbound
    outbound.flights._last = 65_535
    assert talk.through(talk.execute(command(3)))[0].packet_id == 3


def test_what_nobody_waits_for_any_more_is_not_sent_and_not_sent_again():
    talk = subscribed(V5, 2, lasting=True, properties=Properties(session_expiry_s=100, receive_maximum=1))
    talk.through(talk.execute(command(1)))
    talk.execute(command(2))
    outbound = talk.session._state.outbound
    assert fates(outbound.abandon("CMD-2")) == [told(Fate.NOT_SENT, 2)]
    assert outbound.abandon("CMD-1") == []
    talk.end()
    assert fates(outbound.abandon("CMD-1")) == [told(Fate.LOST, 1)]
    assert outbound.abandon("CMD-1") == []


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
    assert talk.session.downstream.slow(slow=True) == []
    assert talk.execute(command()) == []
    assert len(talk.session.downstream.slow(slow=False)) == 1


def test_the_session_that_is_away_for_longest_gives_way():
    sessions = Sessions(lambda: b"8 bytes.", most=2)
    first, second = (sessions.open(("", name), clean=False, expiry_s=60, now=0).state for name in "ab")
    sessions.close(second, 1)
    sessions.close(first, 2)
    found = sessions.open(("", "c"), clean=False, expiry_s=60, now=3)
    assert (found.present, found.gone) == (False, [second])
    assert sessions.open(("", "a"), clean=False, expiry_s=60, now=3).present


def test_what_was_kept_and_cannot_be_read_is_no_session():
    state = subscribed(lasting=True).session._state
    (keep,) = state.save(lambda: ())
    assert restored(keep.key, keep.value).subscriptions == state.subscriptions
    for broken in (b"", b"\x90", keep.value[:-1], keep.value + b"x"):
        assert restored(keep.key, broken) is None
    assert restored("mqtt/session/nobody", keep.value) is None
