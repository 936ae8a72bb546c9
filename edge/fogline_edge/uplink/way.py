"""The way to the bridge: where the gateway connects to, by which security and proxy, and what is between."""

from typing import NamedTuple

from fogline.amqp.login import EXTERNAL, Login
from fogline.amqp.security import ClientSecurity
from fogline.errors import Misconfigured, Unreachable
from fogline.gateway.message_signature import GatewayName
from fogline.process.files.bridge_address import BridgeAddress, parse_bridge
from fogline.process.files.settings_file import require_loopback
from fogline.process.files.tls_files import check_private, client_context
from fogline.process.files.user_file import read_password
from fogline.process.files.via_place import via_place
from fogline.process.files.via_settings import ViaKind
from fogline.transport.proxy.proxy_address import ProxyAddress, parse_proxy, with_password
from fogline_edge.settings import ProxySettings, UplinkSettings
from fogline_edge.uplink.via.identity import GatewayIdentity


class Way(NamedTuple):
    """A place to connect to, and how. `kind`: of what is between, with the `identity` by which messages are signed then."""

    address: BridgeAddress
    security: ClientSecurity
    proxy: ProxyAddress | None
    kind: ViaKind | None = None
    identity: GatewayIdentity | None = None

    @property
    def place(self) -> str:
        """The name of what the gateway connects to, for people."""
        return f"the {self.kind or 'bridge'} at {self.address}"

    def blamed(self, error: Unreachable) -> Unreachable:
        """Return an error that names the router or broker, if there is one: the bridge may be well."""
        return error if self.kind is None else Unreachable(f"{self.place}: {error}")

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Capabilities that links ask for: without a queue, a broker accepts messages for nobody, and they are lost."""
        return ("queue",) if self.kind is ViaKind.BROKER else ()


def require_bridge(settings: UplinkSettings, what: str) -> None:
    """Raise `Misconfigured` for something that needs a bridge which the gateway reaches itself."""
    if settings.via is not None:
        remedy = "Issue a certificate with `fogline ca issue gateway`, or enrol where the bridge can be reached directly"
        raise Misconfigured(f"{what}: not by way of the {settings.via.kind} of [uplink.via]. {remedy}")


def way_to(bridge: str, settings: UplinkSettings, name: GatewayName) -> Way:
    """Return the way to a bridge of the settings, or to a router or broker. Raises `Misconfigured`."""
    proxy = uplink_proxy(settings)
    if settings.via is not None:
        identity = GatewayIdentity(name, settings.tls)
        assert settings.tls is not None, "an identity has files"
        place = via_place(settings.via, settings.tls, "uplink.via")
        return Way(place.address, place.security, proxy, settings.via.kind, identity)
    address = parse_bridge(bridge, "uplink.bridge", tls=settings.tls is not None)
    return Way(address, uplink_security(settings, address), proxy)


def uplink_security(settings: UplinkSettings, bridge: BridgeAddress | None = None) -> ClientSecurity:
    """Return the certificate by which the gateway proves its name, for AMQP as `bridge` speaks it. Raises `Misconfigured`."""
    websocket = bridge.websocket if bridge is not None else None
    if settings.tls is None:
        return ClientSecurity(websocket=websocket)
    if settings.tls.certificate is None:
        raise Misconfigured("[uplink.tls] needs `certificate` and `key`: a gateway proves its name by them")
    return ClientSecurity(Login(EXTERNAL), client_context(settings.tls, "uplink.tls"), websocket)


def uplink_proxy(settings: UplinkSettings) -> ProxyAddress | None:
    """Return the proxy on the way to the bridge, None for none. Raises `Misconfigured`."""
    proxy = proxy_of(settings.proxy, "uplink.proxy")
    if proxy is not None and settings.tls is None:
        require_loopback(proxy.host, "uplink.proxy.url")
    return proxy


def proxy_of(settings: ProxySettings | None, key: str) -> ProxyAddress | None:
    """Return a proxy with its password, None for none. Raises `Misconfigured`, which names `key`."""
    if settings is None:
        return None
    proxy, file = parse_proxy(settings.url, key), settings.password_file
    if file is not None:
        check_private(file, key)
        return with_password(proxy, read_password(file, key), key)
    if proxy.user:
        raise Misconfigured(f"{key}: user {proxy.user!a} needs a password: name the file that has it")
    return proxy
