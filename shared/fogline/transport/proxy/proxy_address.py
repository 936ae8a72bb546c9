"""The address of a proxy as settings give it, `socks5://user@host:port` or `http://user@host:port`, and the login there."""

import ipaddress
from enum import StrEnum
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from fogline.errors import Misconfigured, Unreachable

_SOCKS_LIMIT: Final = 255
"""Longest user name and password of SOCKS5 in bytes (RFC 1929 section 2)."""
_NAME_LIMIT: Final = 255
_EXAMPLE: Final = "expected socks5://host:port or http://host:port, with user@ before the host if the proxy requires a login"


class ProxyKind(StrEnum):
    """The protocol of a proxy: SOCKS5 (RFC 1928), or the method CONNECT of HTTP (RFC 9110 section 9.3.6)."""

    SOCKS5 = "socks5"
    HTTP = "http"


class ProxyAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy, and the login there; `user` is "" for none. The proxy resolves the name of the peer behind it."""

    kind: ProxyKind
    host: str
    port: int
    user: str = ""
    password: str = ""

    def __str__(self) -> str:
        return f"{self.kind}://{authority(self.host, self.port)}"

    def __repr__(self) -> str:
        return f"ProxyAddress({self})"  # a password stands in no log and no traceback


def authority(host: str, port: int) -> str:
    """Return `host:port` as URLs have it, with an IPv6 address in brackets (RFC 3986 section 3.2)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_address(host: str) -> bool:
    """Return True for an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def ascii_name(host: str) -> str:
    """Return a host's name as it is sent (IDNA). Raises `Unreachable` if no host can have such a name."""
    try:
        found = host.encode("idna").decode("ascii")
    except UnicodeError:
        found = ""
    if not 0 < len(found) <= _NAME_LIMIT or any(each <= " " or each > "~" for each in found):
        raise Unreachable(f"no host has the name {host[:80]!a}. Check the bridge's address")
    return found


def parse_proxy(url: str, key: str) -> ProxyAddress:
    """Return the proxy that `url` names, without a password. Raises `Misconfigured`, which names `key`."""
    try:
        parts = urlsplit(url)
        kind, host, port = ProxyKind(parts.scheme), parts.hostname, parts.port
    except ValueError:
        raise Misconfigured(f"{key} = {_hidden(url)}: {_EXAMPLE}") from None
    if parts.password is not None:
        raise Misconfigured(f"{key} = {_hidden(url)}: no password here, where many may read it; put it into a file of its own")
    if not host or not port or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise Misconfigured(f"{key} = {_hidden(url)}: {_EXAMPLE}")
    return ProxyAddress(kind=kind, host=host, port=port, user=unquote(parts.username or ""))


def with_password(proxy: ProxyAddress, password: str, key: str) -> ProxyAddress:
    """Return the proxy with a password that it can be sent. Raises `Misconfigured`, which names `key`."""
    if not proxy.user:
        raise Misconfigured(f"{key}: a password needs a user name: write {proxy.kind}://user@host:port")
    if any(not each.isprintable() for each in proxy.user + password):
        raise Misconfigured(f"{key}: user name or password has a control character")
    if proxy.kind is ProxyKind.HTTP and ":" in proxy.user:
        raise Misconfigured(f"{key}: a user name of HTTP has no colon (RFC 7617 section 2)")
    if proxy.kind is ProxyKind.SOCKS5 and max(len(proxy.user.encode()), len(password.encode())) > _SOCKS_LIMIT:
        raise Misconfigured(f"{key}: user name and password of SOCKS5 have at most {_SOCKS_LIMIT} bytes (RFC 1929 section 2)")
    return msgspec.structs.replace(proxy, password=password)


def _hidden(url: str) -> str:
    """Return the URL for an error, without a password that somebody has written into it."""
    before, at, after = url.rpartition("@")
    scheme, slashes, login = before.rpartition("//")
    return repr(f"{scheme}{slashes}{login.partition(':')[0]}{at}{after}")
