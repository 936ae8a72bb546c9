"""The place of a router or a broker of the settings, and the login there."""

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from fogline.amqp.login import EXTERNAL, PLAIN, Login
from fogline.amqp.security import ClientSecurity
from fogline.errors import Misconfigured
from fogline.process.files.bridge_address import BridgeAddress, parse_bridge
from fogline.process.files.tls_files import TlsSettings, check_private, client_context
from fogline.process.files.user_file import read_password
from fogline.process.files.via_settings import ViaSettings
from fogline.transport.loopback import is_loopback

_PORTS = {"amqps": 5671, "amqp": 5672, "wss": 443, "ws": 80}
_EXAMPLE = "expected amqps://host:port, or wss://host/path, with user@ before the host for a login by password"


class ViaPlace(NamedTuple):
    """A router or a broker, and how to log in there."""

    address: BridgeAddress
    security: ClientSecurity

    def __str__(self) -> str:
        return str(self.address)


def via_address(via: ViaSettings, key: str) -> tuple[BridgeAddress, str]:
    """Return the address, and the user name, "" for none. Raises `Misconfigured`, which names `key`."""
    try:
        parts = urlsplit(via.url)
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise Misconfigured(f"{key}.url = {via.url!a}: {_EXAMPLE}") from None
    if parts.password is not None:
        raise Misconfigured(f"{key}.url: no password here, where many may read it; set {key}.password_file")
    if not host or parts.query or parts.fragment:
        raise Misconfigured(f"{key}.url = {via.url!a}: {_EXAMPLE}")
    secure = scheme in ("amqps", "wss")
    if not secure and not is_loopback(host):
        raise Misconfigured(f"{key}.url = {via.url!a}: without TLS only loopback addresses are safe; write amqps:// or wss://")
    if scheme in ("wss", "ws"):
        place = via.url.replace(f"{parts.username}@", "", 1) if parts.username else via.url
        return parse_bridge(place, f"{key}.url", tls=secure), unquote(parts.username or "")
    if parts.path not in ("", "/"):
        raise Misconfigured(f"{key}.url = {via.url!a}: {_EXAMPLE}")
    return BridgeAddress(host, port), unquote(parts.username or "")


def via_place(via: ViaSettings, own: TlsSettings, key: str) -> ViaPlace:
    """Return where and how to connect. `own`: by which this side proves its name to the other. Raises `Misconfigured`."""
    address, user = via_address(via, key)
    tls = (via.tls or own) if urlsplit(via.url).scheme in ("amqps", "wss") else None
    login = Login(EXTERNAL) if tls is not None and tls.certificate is not None else Login()
    if (user != "") != (via.password_file is not None):
        raise Misconfigured(f"{key}: a login by password needs both user@ in `url` and `password_file`")
    if via.password_file is not None:
        check_private(via.password_file, key)
        login = Login(PLAIN, user, read_password(via.password_file, key))
    context = None if tls is None else client_context(tls, f"{key}.tls" if via.tls is not None else key)
    return ViaPlace(address, ClientSecurity(login, context, address.websocket))
