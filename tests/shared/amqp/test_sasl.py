"""The SASL layer: every mechanism, in bytes that come in any pieces, and whatever a peer sends instead."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.amqp.login import ANONYMOUS, EXTERNAL, PLAIN, Login, LoginVerdict
from fogline.amqp.sasl import AMQP_HEADER, MAX_EARLY_BYTES, REFUSED, SASL_HEADER, ClientSasl, SaslError, ServerSasl

ALICE = Login(PLAIN, "alice", "söhne: \x01 'n more")


def converse(client: ClientSasl, server: ServerSasl, *, piece: int = 10_000) -> bytes:
    """Carry bytes to and fro until both sides have said all, then AMQP's header. Returns what the server got of AMQP."""
    got = b""
    for _ in range(10):
        for sent, receive in ((client.data_to_send(), server.receive), (server.data_to_send(), client.receive)):
            for at in range(0, len(sent), piece):
                got += receive(sent[at : at + piece])
        if server.login is not None and not server.done:
            got += server.answer(LoginVerdict.ACCEPTED)
    assert client.done, "the client waits for ever"
    return got + server.receive(AMQP_HEADER)


@pytest.mark.parametrize("piece", [1, 7, 10_000])
@pytest.mark.parametrize("login", [Login(), Login(EXTERNAL), ALICE], ids=lambda login: login.mechanism)
def test_a_login_arrives_as_it_was_stated(login, piece):
    server = ServerSasl([PLAIN, EXTERNAL, ANONYMOUS])
    assert converse(ClientSasl(login, "host"), server, piece=piece) == AMQP_HEADER
    assert server.login == login


def test_a_client_that_sends_all_of_it_at_once_is_understood():
    """Clients need not wait for the server's header."""
    client, server = ClientSasl(Login(), "host"), ServerSasl([ANONYMOUS])
    hello = client.data_to_send()
    client.receive(ServerSasl([ANONYMOUS]).data_to_send())
    probe = ServerSasl([ANONYMOUS])
    probe.receive(hello)
    client.receive(probe.data_to_send())
    assert server.receive(hello + client.data_to_send() + AMQP_HEADER + b"open") == AMQP_HEADER + b"open"


def test_a_wrong_password_is_refused_at_both_ends():
    client, server = ClientSasl(ALICE, "host"), ServerSasl([PLAIN])
    server.receive(client.data_to_send())
    client.receive(server.data_to_send())
    server.receive(client.data_to_send())
    with pytest.raises(SaslError, match="wrong user name or password for 'alice'"):
        server.answer(LoginVerdict.REFUSED)
    with pytest.raises(SaslError, match="refuses the password of alice"):
        client.receive(server.data_to_send())


def test_a_server_that_is_busy_says_nothing_about_the_password():
    """The outcome is sys-temp, 4 (part 5, section 5.3.3.6): the client may try the same password again."""
    client, server = ClientSasl(ALICE, "host"), ServerSasl([PLAIN])
    server.receive(client.data_to_send())
    client.receive(server.data_to_send())
    server.receive(client.data_to_send())
    with pytest.raises(SaslError, match="is not checked"):
        server.answer(LoginVerdict.BUSY)
    outcome = server.data_to_send()
    assert outcome.endswith(b"\x50\x04")
    with pytest.raises(SaslError) as told:
        client.receive(outcome)
    assert REFUSED not in str(told.value)


def test_bytes_behind_a_password_wait_for_its_answer_within_a_limit():
    client, server = ClientSasl(ALICE, "host"), ServerSasl([PLAIN])
    server.receive(client.data_to_send())
    client.receive(server.data_to_send())
    assert server.receive(client.data_to_send() + AMQP_HEADER) == b""
    assert server.answer(LoginVerdict.ACCEPTED) == AMQP_HEADER
    other = ServerSasl([PLAIN])
    other.receive(SASL_HEADER)
    with pytest.raises(SaslError, match="does not wait"):
        other.receive(_plain_init() + bytes(MAX_EARLY_BYTES + 1))


def _plain_init() -> bytes:
    client, server = ClientSasl(ALICE, "host"), ServerSasl([PLAIN])
    server.receive(client.data_to_send())
    client.receive(server.data_to_send())
    return client.data_to_send()


def test_a_client_may_leave_out_the_layer_only_where_anybody_may_come():
    assert ServerSasl([ANONYMOUS]).receive(AMQP_HEADER + b"open") == AMQP_HEADER + b"open"
    strict = ServerSasl([EXTERNAL])
    with pytest.raises(SaslError, match="does not log in: EXTERNAL is required"):
        strict.receive(AMQP_HEADER)
    assert strict.data_to_send() == SASL_HEADER


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "does not speak AMQP 1.0 with SASL"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "speaks TLS"),
        (SASL_HEADER + b"\xff" * 64, "SASL frame"),
        (SASL_HEADER + b"\x00\x00\x00\x0c\x02\x01\x00\x00\xff\xff\xff\xff", "cannot be read"),
        (SASL_HEADER + b"\x00\x00\x00\x10\x02\x01\x00\x00\x00\x53\x44\xc0\x03\x01\x50\x00", "expected sasl-init"),
    ],
)
def test_unexpected_message_is_named_in_the_error(data, why):
    with pytest.raises(SaslError, match=why):
        ServerSasl([EXTERNAL]).receive(data)


def test_a_server_without_the_mechanism_is_named_by_the_client():
    client, server = ClientSasl(Login(EXTERNAL), "host"), ServerSasl([PLAIN, ANONYMOUS])
    server.receive(client.data_to_send())
    with pytest.raises(SaslError, match="offers PLAIN or ANONYMOUS, not EXTERNAL"):
        client.receive(server.data_to_send())


@given(st.binary(max_size=600), st.booleans())
def test_no_bytes_raise_anything_else(data, behind_header):
    for side in (ServerSasl([PLAIN, EXTERNAL]), ClientSasl(ALICE, "host")):
        with contextlib.suppress(SaslError):
            side.receive(SASL_HEADER + data if behind_header else data)


def test_a_password_is_in_no_text_of_a_login():
    assert "söhne" not in f"{ALICE!r} {ALICE}"
