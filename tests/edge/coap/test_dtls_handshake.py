"""The handshake of DTLS: suites, cookies, retransmissions, and what is refused."""

import secrets

import pytest

from edge.coap.dtls_talk import HERE, KEY, THERE, Talk, key_of
from fogline_edge.adapters.coap.dtls.cipher_suites import SUITES, prf
from fogline_edge.adapters.coap.dtls.diffie_hellman import SECP256R1, X25519
from fogline_edge.adapters.coap.dtls.wire import ContentType, HandshakeType, fragments_of, plain_record, records_of
from fogline_lab.device.dtls_client import PSK_CCM_8, DtlsClient

TLS_PSK_WITH_NULL_SHA256 = 0x00B0
TLS_DH_ANON_WITH_AES_128_GCM_SHA256 = 0x00A6
TLS_PSK_WITH_AES_128_CBC_SHA256 = 0x00AE
TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8 = 0xC0AE
DTLS_1_0 = 0xFEFF
DECRYPT_ERROR, HANDSHAKE_FAILURE, ILLEGAL_PARAMETER, PROTOCOL_VERSION = 51, 40, 47, 70


def messages(datagram: bytes) -> list[int]:
    return [each.kind for record in records_of(datagram) if record.epoch == 0 for each in fragments_of(record.body)]


def test_pseudorandom_function_has_the_known_output():
    """A vector of the TLS working group for P_SHA256."""
    secret, seed = bytes.fromhex("9bbe436ba940f017b17652849a71db35"), bytes.fromhex("a0ba9f936cda311827a6f796ffd5198c")
    assert prf(secret, b"test label", seed, 100) == bytes.fromhex(
        "e3f229ba727be17b8d122620557cd453c2aab21d07c3d495329b52d4e61edb5a6b301791e90d35c9c9a46b4e14baf9af0fa022f7077def17abfd3797"
        "c0564bab4fbc91666e9def9b97fce34f796789baa48082d122ee42c5a72e5a5110fff70187347b66"
    )


@pytest.mark.parametrize("suite", SUITES, ids=lambda each: each.name)
@pytest.mark.parametrize("extended", [True, False], ids=["extended master secret", "plain master secret"])
def test_device_with_its_key_gets_a_session_in_each_suite(suite, extended):
    talk = Talk()
    client = talk.connect(suites=(suite.number,), extended=extended)
    endpoint = talk.says(client, b"event")
    assert endpoint.device == "d1"
    for each in talk.answer(b"answer", endpoint):
        client.receive(each)
    assert client.received == [b"answer"]


@pytest.mark.parametrize("group", [X25519, SECP256R1])
def test_ephemeral_keys_are_preferred(group):
    client = Talk().connect(suites=(PSK_CCM_8, 0xD003), group=group)
    assert client.suite is not None
    assert client.suite.name == "ECDHE_PSK_WITH_AES_128_CCM_8_SHA256"


def test_client_without_a_known_group_gets_a_suite_without_ephemeral_keys():
    client = Talk().connect(suites=(0xD003, PSK_CCM_8), group=25)
    assert client.suite is not None
    assert client.suite.number == PSK_CCM_8


@pytest.mark.parametrize(
    "suites",
    [
        (TLS_PSK_WITH_NULL_SHA256,),
        (TLS_DH_ANON_WITH_AES_128_GCM_SHA256,),
        (TLS_PSK_WITH_AES_128_CBC_SHA256, TLS_PSK_WITH_NULL_SHA256),
        (TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8,),
    ],
)
def test_downgrade_to_weak_suites_is_refused(suites):
    talk = Talk()
    client = DtlsClient("d1", KEY, suites=suites)
    talk.run(client)
    assert client.alerts == [HANDSHAKE_FAILURE]
    assert talk.refused == ["weak-suites"]


def test_downgrade_to_an_older_version_is_refused():
    talk = Talk()
    client = DtlsClient("d1", KEY, version=DTLS_1_0)
    talk.run(client)
    assert (client.alerts, talk.refused) == ([PROTOCOL_VERSION], ["old-version"])


@pytest.mark.fault("S11")
@pytest.mark.parametrize(("identity", "key", "reason"), [("d1", KEY[::-1], "wrong-key"), ("nobody", KEY, "unknown-identity")])
def test_wrong_key_and_unknown_identity_look_the_same_to_the_client(identity, key, reason):
    talk = Talk()
    client = DtlsClient(identity, key)
    talk.run(client)
    assert (client.is_open, client.alerts, talk.refused) == (False, [DECRYPT_ERROR], [reason])
    assert len(talk.sent) == 3, "HelloVerifyRequest, the flight, the alert"
    assert talk.counters.sessions == 0


def test_key_that_is_revoked_during_the_handshake_opens_no_session():
    talk = Talk()
    client = DtlsClient("d1", KEY)
    (verify,) = talk.give(client.hello())
    (flight,) = talk.give(client.receive(verify))
    last = client.receive(flight)
    first, finished = last[: last.rindex(b"\x16\xfe\xfd\0\x01")], last[last.rindex(b"\x16\xfe\xfd\0\x01") :]
    talk.give(first)
    talk.store.change([key_of("d1", secrets.token_bytes(16), 2)])
    talk.give(finished)
    assert (talk.refused, talk.counters.sessions) == (["unknown-identity"], 0)


def test_nothing_is_kept_of_a_client_without_a_cookie_and_it_gets_less_than_it_sends():
    talk = Talk()
    for number in range(1000):
        hello = DtlsClient("d1", KEY).hello()
        (verify,) = talk.give(hello, ("192.0.2.9", number + 1))
        assert messages(verify) == [HandshakeType.HELLO_VERIFY_REQUEST]
        assert len(verify) < len(hello)
        talk.now_s += 0.001
    assert len(talk.server._handshakes) == 0


def test_cookie_counts_for_its_address_its_hello_and_its_time():
    talk = Talk()
    client = DtlsClient("d1", KEY)
    (verify,) = talk.give(client.hello())
    second = client.receive(verify)
    assert messages(talk.give(second, THERE)[0]) == [HandshakeType.HELLO_VERIFY_REQUEST], "another address"
    other = DtlsClient("d1", KEY)
    cookie = verify[-16:]
    assert messages(talk.give(other.hello(cookie, 1))[0]) == [HandshakeType.HELLO_VERIFY_REQUEST], "another ClientHello"
    talk.pass_time(59)
    assert messages(talk.give(second)[0])[0] == HandshakeType.SERVER_HELLO
    talk.pass_time(181)
    assert messages(talk.give(second)[0]) == [HandshakeType.HELLO_VERIFY_REQUEST], "too late"


def test_hello_whose_numbers_leave_no_room_is_refused():
    talk = Talk()
    client = DtlsClient("d1", KEY)
    (verify,) = talk.give(client.hello())
    hello = client.hello(verify[-16:], 0xFFFF)
    client.receive(talk.give(hello)[0])
    first = client.hello(verify[-16:], 1)
    client.receive(talk.give(first[:5] + b"\xff" * 6 + first[11:])[0])
    assert (client.alerts, talk.refused) == ([ILLEGAL_PARAMETER] * 2, ["bad-handshake"] * 2)
    assert len(talk.server._handshakes) == 0


def test_flight_that_is_lost_is_sent_again_by_the_clock_until_the_handshake_is_given_up():
    talk = Talk(handshake_timeout_s=30)
    client = DtlsClient("d1", KEY)
    (verify,) = talk.give(client.hello())
    (lost,) = talk.give(client.receive(verify))
    again = talk.pass_time(29)
    assert [messages(each) for each in again] == [messages(lost)] * 5, "after 1, 3, 7, 15 and 23 s"
    numbers = [record.sequence for each in (lost, *again) for record in records_of(each)]
    assert len(set(numbers)) == len(numbers), "no record number is used twice"
    assert talk.pass_time(60) == []
    assert (talk.refused, len(talk.server._handshakes)) == (["unfinished"], 0)


def test_client_that_repeats_its_hello_gets_the_flight_again():
    talk = Talk()
    client = DtlsClient("d1", KEY)
    (verify,) = talk.give(client.hello())
    second = client.receive(verify)
    (lost,) = talk.give(second)
    (again,) = talk.give(second)
    assert messages(again) == messages(lost)
    (last,) = talk.give(client.receive(again))
    client.receive(last)
    assert client.is_open


def test_last_flight_that_is_lost_is_sent_again_when_the_client_repeats_its_finished():
    talk = Talk()
    client = DtlsClient("d1", KEY)
    (verify,) = talk.give(client.hello())
    (flight,) = talk.give(client.receive(verify))
    talk.give(client.receive(flight))
    assert client.protection is not None
    repeated = client.protection.seal(ContentType.HANDSHAKE, client.finished)
    (again,) = talk.give(repeated)
    client.receive(again)
    assert client.is_open
    talk.says(client, b"event")


def test_messages_in_fragments_are_joined():
    talk = Talk()
    client = DtlsClient("d1", KEY)
    (verify,) = talk.give(client.hello())
    (flight,) = talk.give(client.receive(verify))
    whole = records_of(client.receive(flight))[0]
    head, body, rest = whole.body[:12], whole.body[12:], []
    for at in range(len(body)):
        part = head[:6] + at.to_bytes(3) + (1).to_bytes(3) + body[at : at + 1]
        rest.append(plain_record(ContentType.HANDSHAKE, 10 + at, part))
    last = client.last_flight[13 + len(whole.body) :]
    for each in rest:
        assert talk.give(each) == []
    (finished,) = talk.give(last)
    client.receive(finished)
    assert client.is_open


def test_oldest_handshakes_are_given_up_for_new_ones():
    talk = Talk(max_handshakes=3)
    clients = []
    for number in range(5):
        client = DtlsClient("d1", KEY)
        (verify,) = talk.give(client.hello(), ("192.0.2.3", number))
        (flight,) = talk.give(client.receive(verify), ("192.0.2.3", number))
        clients.append((client, client.receive(flight)))
    assert list(talk.server._handshakes._half_open) == [("192.0.2.3", number) for number in (2, 3, 4)]
    (last,) = talk.give(clients[4][1], ("192.0.2.3", 4))
    clients[4][0].receive(last)
    assert clients[4][0].is_open


def test_hostile_bytes_raise_nothing_and_keep_nothing():
    talk = Talk()
    client = DtlsClient("d1", KEY)
    (verify,) = talk.give(client.hello())
    second = client.receive(verify)
    (flight,) = talk.give(second)
    last = client.receive(flight)
    for original in (second, last):
        for at in range(len(original)):
            for flip in (0x01, 0x80, 0xFF):
                talk.now_s += 1.0
                talk.give(original[:at] + bytes([original[at] ^ flip]) + original[at + 1 :], THERE)
            talk.give(original[:at], THERE)
    assert talk.counters.sessions == 0
    assert len(talk.server._handshakes) == 1, "the one of the client itself"
    (done,) = talk.give(last, HERE)
    client.receive(done)
    assert client.is_open
