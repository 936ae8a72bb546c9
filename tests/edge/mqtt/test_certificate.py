"""A client with a verified certificate is the device that the certificate names."""

import pytest

from fogline.transport.certificate_names import CertificateNames
from fogline_edge.adapters.mqtt.hono.intake import Client
from fogline_edge.adapters.mqtt.protocol.packets import Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V3, Reason
from fogline_edge.adapters.mqtt.session.effects import CloseReason, Store
from fogline_lab.device.mqtt_talk import MqttTalk

OURS = {"organizationName": "acme", "commonName": "Fogline acme"}
LAMP = {"organizationName": "acme", "organizationalUnitName": "device", "commonName": "lamp-1"}


def certified(subject, **connect):
    talk = MqttTalk(with_users=True)
    talk.session.certificate = CertificateNames(subject, OURS)
    return talk, talk.connect(**connect)


def test_a_client_with_a_certificate_needs_no_password_and_is_no_other_user():
    talk, _ = certified(LAMP, username="hub", password=b"x")
    assert talk.session.key == ("lamp-1", "d1")
    (store,) = talk.say(Publish(topic="t", payload=b"x"))
    assert isinstance(store, Store)
    assert store.arrival.device == "lamp-1"


@pytest.mark.parametrize("name", ["", "a\x07b"])
def test_a_common_name_that_is_no_device_is_refused(name):
    talk, ((connack, reason),) = certified({**LAMP, "commonName": name})
    assert (connack.code, reason, talk.session.key) == (Reason.NOT_AUTHORIZED, CloseReason.REFUSED, None)


def test_without_a_certificate_the_password_is_asked_for():
    talk = MqttTalk(V3, with_users=True)
    ((connack, reason),) = talk.connect()
    assert (connack.code, reason) == (5, CloseReason.REFUSED)


def test_a_user_and_a_certificate_of_the_same_name_are_the_same_client():
    assert Client("c", "lamp-1").key == ("lamp-1", "c")
