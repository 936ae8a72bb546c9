"""Errors of a way through a proxy: each names the side that is at fault, the proxy or the peer behind it, and what to do."""

from fogline.errors import Unreachable
from fogline.transport.proxy.proxy_address import ProxyAddress

_CHECK = "Check [uplink.proxy]"


def cannot_connect(proxy: ProxyAddress, error: Exception) -> Unreachable:
    """Return the error for a proxy that cannot be connected to."""
    why = getattr(error, "strerror", None) or str(error) or "timeout"
    return Unreachable(f"cannot connect to the proxy at {proxy}: {why}. {_CHECK}, and that the proxy runs")


def too_slow(proxy: ProxyAddress, peer: str, limit_s: float) -> Unreachable:
    """Return the error for a proxy that does not answer in time."""
    why = f"the proxy at {proxy} makes no connection to {peer} within {limit_s:.0f} s"
    return Unreachable(f"{why}. Either it does not answer, or the bridge does not answer it")


def bad_answer(proxy: ProxyAddress, what: str) -> Unreachable:
    """Return the error for a proxy that does not keep to its protocol."""
    name = {"socks5": "SOCKS5", "http": "HTTP"}[proxy.kind]
    return Unreachable(f"the proxy at {proxy} does not speak {name}: {what}. {_CHECK}: the protocol, host and port")


def login_refused(proxy: ProxyAddress, what: str = "") -> Unreachable:
    """Return the error for a proxy that does not let this side in."""
    if not proxy.user:
        return Unreachable(f"the proxy at {proxy} requires a login{what}. Give user and password_file in [uplink.proxy]")
    return Unreachable(f"the proxy at {proxy} refuses user {proxy.user!a}{what}. {_CHECK}: the user and password_file")


def not_allowed(proxy: ProxyAddress, peer: str, what: str) -> Unreachable:
    """Return the error for a proxy that allows no connection to the peer."""
    return Unreachable(f"the proxy at {proxy} allows no connection to {peer}: {what}. Ask its administrator to allow it")


def peer_unreachable(proxy: ProxyAddress, peer: str, what: str) -> Unreachable:
    """Return the error for a peer that the proxy cannot reach."""
    text = f"the bridge at {peer} cannot be reached through the proxy at {proxy}: {what}"
    return Unreachable(f"{text}. Check the bridge's address, and that it runs and lets the proxy in")


def proxy_failed(proxy: ProxyAddress, peer: str, what: str) -> Unreachable:
    """Return the error for a proxy that fails without a reason."""
    return Unreachable(f"the proxy at {proxy} makes no connection to {peer}: {what}. Its log may say why")


def proxy_ended(proxy: ProxyAddress, peer: str) -> Unreachable:
    """Return the error for a proxy that ends the connection before its answer is complete."""
    text = f"the proxy at {proxy} ended the connection before it answered"
    return Unreachable(f"{text}. It may not allow this machine, or {peer}; its log may say why")
