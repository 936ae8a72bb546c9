"""The exchange with a proxy without IO: bytes in, bytes out, until the bytes are those of the peer behind it."""

from typing import Protocol

from fogline.transport.proxy.proxy_address import ProxyAddress, ProxyKind
from fogline.transport.proxy.socks5 import Socks5Tunnel


class Tunnel(Protocol):
    """One exchange. After each call take `data_to_send`. `done`: the peer follows; `rest`: its bytes that have come already."""

    done: bool
    rest: bytes

    def data_to_send(self) -> bytes:
        """Return the bytes to write to the proxy now."""

    def receive(self, data: bytes) -> None:
        """Take bytes of the proxy. Raises `Unreachable`, whose text names who is at fault."""


def tunnel_through(proxy: ProxyAddress, host: str, port: int) -> Tunnel:
    """Begin a tunnel to a peer. Raises `Unreachable` for a host that cannot be asked for."""
    if proxy.kind is ProxyKind.SOCKS5:
        return Socks5Tunnel(proxy, host, port)
    from fogline.transport.proxy.http_connect import HttpTunnel  # noqa: PLC0415 - a gateway without such a proxy needs no HTTP

    return HttpTunnel(proxy, host, port)
