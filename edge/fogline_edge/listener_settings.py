"""Settings of listeners for devices on the network: their TLS."""

from fogline_edge.settings_types import Port, StrictTable


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
