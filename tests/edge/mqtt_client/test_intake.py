"""A message to an arrival, something to pass over, or a dead letter."""

from fogline.dead_letter import decode_dead_letter
from fogline.events.event import Arrival
from fogline.events.identity import Retransmission
from fogline_edge.adapters.mqtt_client.intake import BrokerIntake
from fogline_edge.broker_settings import TopicSettings
from fogline_edge.profiles.plain import Plain
from fogline_edge.profiles.profile import BrokerMessage, Ignored

RESEND = Retransmission(b"slot", again=True)


def read(topic, payload=b"x", *, retained=False, limit=1000):
    intake = BrokerIntake(
        Plain([TopicSettings(topic="plant/{device}/#")]), "gw-1", sender="fogline-acme-gw-1-site", max_payload_bytes=limit
    )
    return intake.read(BrokerMessage(topic, payload, retained), RESEND)


def test_arrival_has_the_protocols_retransmission_data():
    arrival = read("plant/p1/rpm")
    assert isinstance(arrival, Arrival)
    assert (arrival.device, arrival.retransmission) == ("p1", RESEND)


def test_message_that_the_profile_ignores_is_ignored():
    assert isinstance(read("plant/p1/rpm", retained=True), Ignored)


def test_unacceptable_message_is_a_dead_letter_of_the_gateway():
    arrival = read("plant//rpm")
    letter = decode_dead_letter(arrival.data)
    assert (arrival.device, arrival.type, arrival.retransmission) == ("gw-1", "dead", RESEND)
    assert (letter.reason, letter.body, letter.sender) == ("bad-topic", b"x", "'fogline-acme-gw-1-site'")


def test_a_topic_that_is_no_utf_8_is_a_dead_letter():
    topic = b"plant/\xff/rpm".decode("utf-8", "surrogateescape")
    assert decode_dead_letter(read(topic).data).reason == "bad-topic"


def test_dead_letter_of_a_large_body_has_its_start():
    letter = decode_dead_letter(read("plant/p1/log", b"y" * 200_000).data)
    assert letter.reason == "too-big"
    assert letter.body == b"y" * 65_536
