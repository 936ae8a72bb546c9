"""Sessions of DTLS: whom they belong to, how they move and end, and what is refused in them."""

import pytest

from edge.coap.dtls_talk import HERE, KEY, THERE, Talk, key_of
from fogline_edge.adapters.coap.dtls.replay_window import WINDOW, ReplayWindow
from fogline_edge.adapters.coap.dtls.server import STRANGERS_BURST
from fogline_edge.adapters.coap.dtls.session_table import SESSIONS_OF_A_DEVICE
from fogline_edge.adapters.coap.dtls.wire import ContentType, plain_record
from fogline_lab.device.dtls_client import DtlsClient

CLOSE_NOTIFY, NO_RENEGOTIATION = 0, 100
ELSEWHERE = ("198.51.100.7", 40_000)


def test_records_count_once_in_any_order_within_the_window():
    window = ReplayWindow()
    for number in (0, 5, 3, 4, 70):
        assert window.is_new(number)
        window.note(number)
        assert not window.is_new(number)
    assert window.is_new(70 - WINDOW + 1)
    assert not window.is_new(70 - WINDOW), "too old to know"
    assert not window.is_new(5)
    assert window.is_new(71 + 10 * WINDOW)
    assert window.note(71 + 10 * WINDOW)
    assert not window.is_new(71)


@pytest.mark.fault("S11")
def test_replayed_datagram_is_refused():
    talk = Talk()
    client = talk.connect()
    datagram = client.seal(b"event")
    talk.give(datagram)
    talk.give(datagram)
    talk.give(datagram, THERE)
    assert [each.data for each in talk.received] == [b"event"]
    assert talk.refused == ["replayed", "no-session"]


def test_altered_records_are_refused_and_the_session_goes_on():
    talk = Talk()
    client = talk.connect()
    datagram = client.seal(b"event")
    for at in range(13, len(datagram)):
        talk.give(datagram[:at] + bytes([datagram[at] ^ 1]) + datagram[at + 1 :])
    assert (talk.received, set(talk.refused)) == ([], {"forged"})
    talk.give(datagram)
    assert [each.data for each in talk.received] == [b"event"]


def test_content_without_encryption_is_refused_in_a_session_too():
    talk = Talk()
    client = talk.connect()
    talk.give(plain_record(ContentType.APPLICATION_DATA, 99, b"event"))
    talk.give(b"\x40\x03\0\x01")
    talk.give(b"\xffanything")
    assert (talk.received, talk.refused) == ([], ["unprotected", "plain-coap", "malformed"])
    talk.says(client, b"still here")


def test_one_session_is_not_opened_with_the_keys_of_another():
    talk = Talk()
    one, other = talk.connect("d1", HERE), talk.connect("d2", THERE)
    talk.give(other.seal(b"event"), HERE)
    assert (talk.received, talk.refused) == ([], ["forged"])
    assert talk.says(one, b"one", HERE).device == "d1"
    assert talk.says(other, b"other", THERE).device == "d2"


@pytest.mark.parametrize("own", [b"", b"8 bytes!"], ids=["one way", "both ways"])
def test_session_with_a_connection_id_goes_on_at_a_new_address(own):
    talk = Talk()
    client = talk.connect(cid=own)
    first = talk.says(client, b"before", HERE)
    late = client.seal(b"late")
    assert talk.says(client, b"moved", ELSEWHERE) == first
    (answer,) = talk.answer(b"answer", first)
    assert talk.sent[-1].address == ELSEWHERE
    client.receive(answer)
    assert client.received == [b"answer"]
    talk.give(late, HERE)
    talk.answer(b"again", first)
    assert talk.sent[-1].address == ELSEWHERE, "an older record does not bring the former address back"
    assert talk.counters.moved == 1
    talk.give(late, THERE)
    assert talk.refused == ["replayed"]


def test_address_without_a_connection_id_belongs_to_its_session():
    talk = Talk()
    client = talk.connect()
    talk.give(client.seal(b"event"), ELSEWHERE)
    assert (talk.received, talk.refused) == ([], ["no-session"])


def test_device_that_restarts_at_its_address_gets_a_new_session_and_the_former_stays_until_then():
    talk = Talk()
    former = talk.connect()
    old = talk.says(former, b"before")
    stranger = DtlsClient("d1", b"another key here")
    talk.run(stranger)
    assert talk.says(former, b"still here") == old, "a forged attempt ends nothing"
    new = talk.says(talk.connect(), b"after")
    assert new != old
    assert talk.ended == [old]


def test_device_has_few_sessions_the_newest():
    talk = Talk()
    clients = [talk.connect("d1", ("192.0.2.4", number)) for number in range(SESSIONS_OF_A_DEVICE + 1)]
    assert talk.counters.sessions == SESSIONS_OF_A_DEVICE
    talk.give(clients[0].seal(b"event"), ("192.0.2.4", 0))
    assert talk.refused == ["no-session"]
    for number, client in list(enumerate(clients))[1:]:
        talk.says(client, b"event", ("192.0.2.4", number))


def test_session_that_was_silent_for_longest_ends_for_one_too_many():
    talk = Talk(max_sessions=2)
    first, second = talk.connect("d1", ("192.0.2.4", 1)), talk.connect("d2", ("192.0.2.4", 2))
    talk.says(first, b"event", ("192.0.2.4", 1))
    talk.connect("d3", ("192.0.2.4", 3))
    talk.says(first, b"event", ("192.0.2.4", 1))
    assert [each.device for each in talk.ended] == ["d2"]
    second.receive(talk.sent[-2].data)
    assert (second.alerts, talk.counters.sessions) == ([CLOSE_NOTIFY], 2)


def test_idle_session_ends_and_the_device_is_told():
    talk = Talk(idle_s=100)
    client = talk.connect()
    talk.pass_time(90)
    talk.says(client, b"event")
    assert talk.pass_time(99) == []
    (goodbye,) = talk.pass_time(1)
    client.receive(goodbye)
    assert (client.alerts, len(talk.ended), talk.counters.sessions) == ([CLOSE_NOTIFY], 1, 0)


@pytest.mark.fault("S11")
def test_revoked_key_ends_its_sessions_and_no_other():
    talk = Talk()
    talk.store.when_ended(lambda device, number: talk.perform(list(talk.server.key_ended(device, number))))
    one, other = talk.connect("d1", HERE), talk.connect("d2", THERE)
    talk.store.change([key_of("d1", b"a new key of d1.", 2)])
    one.receive(talk.sent[-1].data)
    assert (one.alerts, [each.device for each in talk.ended], talk.refused) == ([CLOSE_NOTIFY], ["d1"], ["revoked"])
    talk.says(other, b"event", THERE)
    talk.give(one.seal(b"event"), HERE)
    assert talk.refused == ["revoked", "no-session"]


def test_device_may_end_its_session():
    talk = Talk()
    client = talk.connect()
    assert client.protection is not None
    talk.give(client.protection.seal(ContentType.ALERT, b"\x01\0"))
    assert (len(talk.ended), talk.counters.sessions) == (1, 0)


def test_renegotiation_is_refused():
    talk = Talk()
    client = talk.connect()
    endpoint = talk.says(client, b"event")
    assert client.protection is not None
    (refusal,) = talk.give(client.protection.seal(ContentType.HANDSHAKE, client.hello()[13:]))
    client.receive(refusal)
    assert client.alerts == [NO_RENEGOTIATION]
    assert talk.says(client, b"event") == endpoint


def test_flood_of_strangers_leaves_sessions_served():
    talk = Talk()
    client = talk.connect("d1", HERE)
    hello = DtlsClient("d1", KEY).hello()
    for number in range(2 * STRANGERS_BURST):
        talk.give(hello, ("192.0.2.8", number))
    assert talk.counters.dropped > 0
    talk.says(client, b"event", HERE)
    talk.pass_time(1)
    talk.connect("d2", THERE)


def test_nothing_is_sent_to_an_endpoint_whose_session_has_ended():
    talk = Talk()
    client = talk.connect()
    endpoint = talk.says(client, b"event")
    talk.perform(list(talk.server.close()))
    assert talk.ended == [endpoint]
    assert talk.answer(b"answer", endpoint) == []
