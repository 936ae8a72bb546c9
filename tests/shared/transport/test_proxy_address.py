"""The address of a proxy in the settings."""

import pytest

from fogline.errors import Misconfigured
from fogline.transport.proxy.proxy_address import ProxyKind, parse_proxy, with_password


def test_a_url_names_protocol_host_port_and_user():
    found = parse_proxy("socks5://gw-1@proxy.site:1080", "uplink.proxy.url")
    assert (found.kind, found.host, found.port, found.user) == (ProxyKind.SOCKS5, "proxy.site", 1080, "gw-1")
    found = parse_proxy("http://[fd00::7]:3128", "uplink.proxy.url")
    assert (found.kind, found.host, found.port, found.user, str(found)) == (
        ProxyKind.HTTP,
        "fd00::7",
        3128,
        "",
        "http://[fd00::7]:3128",
    )


def test_a_user_name_may_be_percent_encoded():
    assert parse_proxy("http://site%40acme@proxy:3128", "x").user == "site@acme"


@pytest.mark.parametrize(
    "url",
    [
        *("", "proxy:1080", "socks4://proxy:1080", "https://proxy:443", "socks5://proxy", "socks5://:1080"),
        *("http://proxy:99999", "http://proxy:3128/path", "http://proxy:3128?x", "http://[fd00::7", "socks5://proxy:port"),
    ],
)
def test_a_wrong_url_is_refused_with_an_example(url):
    with pytest.raises(Misconfigured, match=r"uplink\.proxy\.url = .*expected socks5://host:port or http://host:port"):
        parse_proxy(url, "uplink.proxy.url")


@pytest.mark.parametrize("url", ["socks5://gw-1:secret@proxy:1080", "ftp://gw-1:secret@proxy", "http://gw-1:secret@:1"])
def test_a_password_in_the_url_is_refused_and_not_repeated(url):
    with pytest.raises(Misconfigured) as refused:
        parse_proxy(url, "uplink.proxy.url")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "password"),
    [
        ("socks5://proxy:1080", "x"),
        ("socks5://gw-1@proxy:1080", "x" * 256),
        ("http://gw%3A1@proxy:3128", "x"),
        ("http://gw-1@proxy:3128", "x\r"),
    ],
    ids=["no user", "too long for SOCKS5", "colon in a user of HTTP", "control character"],
)
def test_a_login_that_the_protocol_cannot_carry_is_refused(url, password):
    with pytest.raises(Misconfigured):
        with_password(parse_proxy(url, "x"), password, "uplink.proxy")


def test_a_password_stands_in_no_text_of_the_proxy():
    proxy = with_password(parse_proxy("http://gw-1@proxy:3128", "x"), "secret", "x")
    assert "secret" not in f"{proxy} {proxy!r}"
