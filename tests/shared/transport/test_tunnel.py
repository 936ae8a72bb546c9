"""The exchange with a proxy as a transcript: what each side sends, for SOCKS5 (RFC 1928, 1929) and CONNECT (RFC 9110)."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.errors import Unreachable
from fogline.transport.proxy.proxy_address import parse_proxy, with_password
from fogline.transport.proxy.tunnel import tunnel_through

SOCKS, HTTP = parse_proxy("socks5://proxy:1080", "x"), parse_proxy("http://proxy:3128", "x")
SOCKS_LOGIN = with_password(parse_proxy("socks5://gw-1@proxy:1080", "x"), "pass", "x")
HTTP_LOGIN = with_password(parse_proxy("http://gw-1@proxy:3128", "x"), "pässword", "x")
OPEN = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50"


def exchange(proxy, *answers, host="fog.example", port=5671):
    """Return the tunnel, and what was sent before and after each answer."""
    tunnel = tunnel_through(proxy, host, port)
    sent = [tunnel.data_to_send()]
    for each in answers:
        tunnel.receive(each)
        sent.append(tunnel.data_to_send())
    return tunnel, sent


def refusal(proxy, *answers):
    with pytest.raises(Unreachable) as refused:
        exchange(proxy, *answers)
    return str(refused.value)


def test_socks5_without_a_login_sends_the_name_for_the_proxy_to_resolve():
    tunnel, sent = exchange(SOCKS, b"\x05\x00", OPEN)
    assert sent == [b"\x05\x01\x00", b"\x05\x01\x00\x03\x0bfog.example\x16\x27", b""]
    assert tunnel.done


def test_socks5_with_a_login_offers_both_methods_and_sends_the_password_only_if_asked():
    _, sent = exchange(SOCKS_LOGIN, b"\x05\x00", OPEN)
    assert sent[0] == b"\x05\x02\x00\x02"
    assert not any(b"pass" in each for each in sent)
    tunnel, sent = exchange(SOCKS_LOGIN, b"\x05\x02", b"\x01\x00", OPEN)
    assert sent[1] == b"\x01\x04gw-1\x04pass"
    assert sent[2][:4] == b"\x05\x01\x00\x03"
    assert tunnel.done


@pytest.mark.parametrize(
    ("host", "address"),
    [("192.0.2.7", b"\x01\xc0\x00\x02\x07"), ("2001:db8::7", bytes.fromhex("0420010db8000000000000000000000007"))],
)
def test_socks5_sends_an_address_as_an_address(host, address):
    _, sent = exchange(SOCKS, b"\x05\x00", host=host)
    assert sent[1] == b"\x05\x01\x00" + address + b"\x16\x27"


@pytest.mark.parametrize(
    "bound",
    [b"\x01" + bytes(6), b"\x04" + bytes(18), b"\x03\x05proxy\x00\x50", b"\x03\x00\x00\x50"],
    ids=["IPv4", "IPv6", "name", "empty name"],
)
def test_socks5_takes_every_kind_of_bound_address_and_keeps_what_follows_it(bound):
    tunnel, _ = exchange(SOCKS, b"\x05\x00", b"\x05\x00\x00" + bound + b"AMQP")
    assert (tunnel.done, tunnel.rest) == (True, b"AMQP")


def test_http_names_the_bridge_in_authority_form():
    tunnel, sent = exchange(HTTP, b"HTTP/1.0 200 Connection established\r\nProxy-agent: x\r\n\r\nAMQP")
    assert sent[0].split(b"\r\n")[:2] == [b"CONNECT fog.example:5671 HTTP/1.1", b"host: fog.example:5671"]
    assert b"authorization" not in sent[0].lower()
    assert (tunnel.done, tunnel.rest) == (True, b"AMQP")
    _, sent = exchange(HTTP, host="2001:db8::7")
    assert sent[0].startswith(b"CONNECT [2001:db8::7]:5671 HTTP/1.1\r\n")


def test_http_logs_in_by_basic_authentication_in_utf_8():
    """RFC 7617 section 2; the expected value is from `printf 'gw-1:pässword' | base64` in a UTF-8 locale."""
    _, sent = exchange(HTTP_LOGIN)
    assert b"proxy-authorization: Basic Z3ctMTpww6Rzc3dvcmQ=\r\n" in sent[0]


def test_http_passes_over_interim_responses():
    tunnel, _ = exchange(HTTP, b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")
    assert tunnel.done


AT_FAULT = {
    "proxy, login": (SOCKS, [b"\x05\xff"], "requires a login", "password_file"),
    "proxy, login asked for": (SOCKS, [b"\x05\x02"], "requires a login", "password_file"),
    "proxy, wrong password": (SOCKS_LOGIN, [b"\x05\x02", b"\x01\x01"], "refuses user 'gw-1'", "password_file"),
    "proxy, rules": (SOCKS, [b"\x05\x00", b"\x05\x02"], "allows no connection to fog.example:5671", "administrator"),
    "proxy, failure": (SOCKS, [b"\x05\x00", b"\x05\x01"], "general failure", "log"),
    "bridge, name": (SOCKS, [b"\x05\x00", b"\x05\x04"], "the bridge at fog.example:5671 cannot be reached", "bridge's address"),
    "bridge, refused": (SOCKS, [b"\x05\x00", b"\x05\x05"], "connection refused", "bridge's address"),
    "http login": (HTTP, [b"HTTP/1.1 407 Auth\r\n\r\n"], "requires a login", "password_file"),
    "http wrong password": (HTTP_LOGIN, [b"HTTP/1.1 407 Auth\r\n\r\n"], "refuses user 'gw-1'", "password_file"),
    "tinyproxy's wrong password": (HTTP_LOGIN, [b"HTTP/1.1 401 Unauthorized\r\n\r\n"], "refuses user 'gw-1'", "password_file"),
    "http rules": (HTTP, [b"HTTP/1.1 403 Filtered\r\n\r\n"], "allows no connection to fog.example:5671", "administrator"),
    "http bridge": (HTTP, [b"HTTP/1.1 502 Bad Gateway\r\n\r\n"], "bridge at fog.example:5671 cannot be reached", "runs"),
    "http failure": (HTTP, [b"HTTP/1.1 500 \x1b[31m\r\n\r\n"], "status 500", "log"),
}


@pytest.mark.parametrize("case", AT_FAULT)
def test_an_error_names_who_is_at_fault_and_what_to_do(case):
    proxy, answers, fault, remedy = AT_FAULT[case]
    text = refusal(proxy, *answers)
    assert fault in text
    assert remedy in text
    assert text.isprintable()


@pytest.mark.fault("N10")
@pytest.mark.parametrize("proxy", [SOCKS, HTTP, SOCKS_LOGIN], ids=str)
@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"AMQP\x03\x01\x00\x00", b"\x16\x03\x01\x02\x00", b"\x00", b"220 mail ESMTP\r\n"]
)
def test_a_peer_that_is_no_proxy_is_named_as_such(proxy, answer):
    assert "does not speak" in refusal(proxy, answer + b"\r\n\r\n")


@pytest.mark.fault("N10")
def test_each_protocol_names_a_proxy_of_the_other():
    assert "does not speak SOCKS5: it answers b'HTTP/1.1 400 Bad" in refusal(SOCKS, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert "does not speak HTTP" in refusal(HTTP, b"\x05\x00" + bytes(30) + b"\r\n\r\n")


@pytest.mark.fault("N10")
@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 4000],
        [b"HTTP/1.1 200 OK\r\nx: "] + [b"y" * 1000] * 30,
        [b"HTTP/1.1 100 Continue\r\n\r\n" * 40] * 30,
        [b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 4000 + b"\r\n"],
    ],
    ids=["many fields", "one long field", "interim responses", "whole at once"],
)
def test_the_head_of_an_answer_is_bounded(pieces):
    assert "does not speak HTTP" in refusal(HTTP, *pieces)


@given(st.sampled_from([SOCKS, HTTP, SOCKS_LOGIN, HTTP_LOGIN]), st.lists(st.binary(max_size=300), max_size=5))
def test_garbage_raises_one_error_only(proxy, pieces):
    with contextlib.suppress(Unreachable):
        exchange(proxy, *pieces)


@given(st.sampled_from([0, 1, 2, 3]), st.data())
def test_an_answer_in_any_pieces_is_the_same_answer(which, data):
    proxy, answer = [
        (SOCKS, b"\x05\x00" + OPEN),
        (SOCKS_LOGIN, b"\x05\x02\x01\x00\x05\x00\x00\x03\x05proxy\x00\x50"),
        (HTTP, b"HTTP/1.1 200 Connection established\r\nvia: x\r\n\r\n"),
        (HTTP_LOGIN, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 299 x\r\n\r\n"),
    ][which]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(answer) - 1), max_size=6)))
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    tunnel, sent = exchange(proxy, *pieces[:-1], pieces[-1] + b"AMQP")
    whole, sent_whole = exchange(proxy, answer)
    assert (tunnel.done, tunnel.rest, b"".join(sent)) == (whole.done, b"AMQP", b"".join(sent_whole))


@pytest.mark.parametrize("proxy", [SOCKS, HTTP], ids=str)
@pytest.mark.parametrize("host", ["", "a..b", "x" * 300, "fog\r\nx: y"], ids=["empty", "empty label", "long", "new line"])
def test_a_name_that_no_host_can_have_is_refused(proxy, host):
    with pytest.raises(Unreachable, match="no host has the name"):
        tunnel_through(proxy, host, 5671)
