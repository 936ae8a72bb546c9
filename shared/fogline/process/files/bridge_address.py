"""The address of a bridge in the settings: `host:port`, or `wss://host/path` for AMQP over WebSocket (OASIS WSB 1.0). Pure."""

from typing import NamedTuple
from urllib.parse import urlsplit

from fogline.errors import Misconfigured
from fogline.process.files.settings_file import is_host, split_endpoint
from fogline.transport.loopback import is_loopback
from fogline.transport.proxy.proxy_address import authority
from fogline.transport.websocket_request import WebSocketRequest

_PORTS = {"wss": 443, "ws": 80}


class BridgeAddress(NamedTuple):
    """Where a bridge listens. `scheme`: "wss", "ws" (without TLS), or "" for AMQP on the socket itself; `path`: of its URL."""

    host: str
    port: int
    scheme: str = ""
    path: str = ""

    def __str__(self) -> str:
        place = authority(self.host, self.port)
        return f"{self.scheme}://{place}{self.path}" if self.scheme else place

    @property
    def websocket(self) -> WebSocketRequest | None:
        """What to ask the server for before AMQP, None for nothing."""
        if not self.scheme:
            return None
        host = authority(self.host, self.port)
        return WebSocketRequest(host if self.port != _PORTS[self.scheme] else host.rpartition(":")[0], self.path)

    def at(self, host: str, port: int) -> "BridgeAddress":
        """Return the address of another bridge of the tenant, which has told where it speaks AMQP on the socket itself.

        Over WebSocket all bridges have the same port and path, since a bridge names its own AMQP port only.
        """
        return BridgeAddress(host, port) if not self.scheme else self._replace(host=host)


def parse_bridge(text: str, key: str, *, tls: bool) -> BridgeAddress:
    """Return the address. `tls`: this side has settings for TLS; without it, only loopback. Raises `Misconfigured`."""
    address = _websocket(text, key, tls=tls) if "://" in text else BridgeAddress(*split_endpoint(text, key))
    if not tls and not is_loopback(address.host):
        raise Misconfigured(f"{key} = {text!r}: without credentials only loopback addresses are safe; use 127.0.0.1")
    return address


def _websocket(text: str, key: str, *, tls: bool) -> BridgeAddress:
    try:
        parts = urlsplit(text)
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        scheme, host, port = "", "", 0
    path = parts.path or "/" if scheme else ""
    plain = all("!" <= each <= "~" for each in path)
    if scheme not in _PORTS or not is_host(host) or not plain or "@" in parts.netloc or parts.query or parts.fragment:
        raise Misconfigured(f"{key} = {text!a}: expected host:port, or wss://host/path for AMQP over WebSocket")
    if tls != (scheme == "wss"):
        raise Misconfigured(f"{key} = {text!a}: " + ("with TLS, write wss://" if tls else "wss:// needs [uplink.tls]"))
    return BridgeAddress(host, port, scheme, path)
