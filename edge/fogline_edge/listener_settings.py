"""Settings of listeners for devices on the network: TLS, DTLS and WebSocket."""

from typing import Annotated

import msgspec
from msgspec import Meta

from fogline_edge.settings_types import ORIGIN_PATTERN, URL_PATH_PATTERN, Port, Positive, StrictTable

Origin = Annotated[str, Meta(pattern=ORIGIN_PATTERN)]
UrlPath = Annotated[str, Meta(pattern=URL_PATH_PATTERN)]


class ListenerTlsSettings(StrictTable, frozen=True, kw_only=True):
    """The files of a listener that speaks TLS."""

    certificate: str
    """File with the certificate of this listener, and those between it and the authority's (PEM)."""
    key: str
    """File with the private key of `certificate`. Only its owner may read it (mode 600)."""
    ca: str | None = None
    """File with the authorities whose certificates devices may show. The common name is the device. Default: none may."""
    crl: str | None = None
    """File with the list of revoked certificates of `ca`. If it is out of date, no device gets in by its certificate."""


class MqttTlsSettings(ListenerTlsSettings, frozen=True, kw_only=True):
    """MQTT over TLS, for devices on the network. Each logs in by a certificate of `ca`, or by `users` of `[mqtt]`."""

    host: str = "0.0.0.0"  # noqa: S104 - nobody gets in without a login
    """Address to listen on; `0.0.0.0`: all."""
    port: Port = 8883
    """TCP port; 0: any free one."""


class HttpTlsSettings(ListenerTlsSettings, frozen=True, kw_only=True):
    """HTTPS, for devices on the network. Each logs in by a certificate of `ca`, or by `users` of `[http]`."""

    host: str = "0.0.0.0"  # noqa: S104 - nobody gets in without a login
    """Address to listen on; `0.0.0.0`: all."""
    port: Port = 8443
    """TCP port; 0: any free one."""


class CoapDtlsSettings(StrictTable, frozen=True, kw_only=True):
    """CoAP over DTLS 1.2, for devices on the network. A device proves its key, and speaks for itself only.

    The keys come from the bridge (`fogline device credentials`).
    """

    host: str = "0.0.0.0"  # noqa: S104 - nobody gets in without a key
    """Address to listen on; `0.0.0.0`: all."""
    port: Port = 5684
    """UDP port; 0: any free one."""
    max_sessions: Positive = 1000
    """Largest number of sessions. For one more, the session ends whose device was silent for longest."""
    idle_s: Positive = 86_400
    """Time without a record of the device after which its session ends, in seconds."""
    max_handshakes: Positive = 256
    """Largest number of handshakes at the same time. For one more, the oldest is given up."""
    handshake_timeout_s: Annotated[float, Meta(gt=0)] = 30.0
    """Time limit for a handshake, in seconds."""


class WebSocketSettings(StrictTable, frozen=True, kw_only=True):
    """MQTT over WebSocket, for pages in browsers, and for networks that let only the web through.

    With `[mqtt.tls]` it speaks TLS with the same files. Devices log in as without WebSocket.
    """

    host: str | None = None
    """Address to listen on. Default: that of `[mqtt.tls]`; without TLS that of `[mqtt]`, by the same rules."""
    port: Port = 8083
    """TCP port; 0: any free one."""
    path: UrlPath = "/mqtt"
    """Path of the URL to which clients connect."""
    origins: list[Origin] = msgspec.field(default_factory=list)
    """Origins of the pages whose scripts may connect, for example `https://plant.example`. Default: no page may. Clients that
    are no browsers need none."""
    plain: bool = False
    """`true`: no TLS although there is `[mqtt.tls]`, because a web server on this machine speaks it."""
