"""Where the broker is and how to get in: checked once at the start, read from the files at every attempt."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from fogline.errors import Misconfigured
from fogline.settings import split_endpoint
from fogline_edge.settings import MqttClientSettings

_FORBIDDEN = set("+#\0")


@dataclass(frozen=True, slots=True)
class Access:
    """What a connection needs. The password never shows."""

    host: str
    port: int
    username: str | None
    password: str | None = field(repr=False)
    tls: ssl.SSLContext | None


def check_client(settings: MqttClientSettings) -> None:
    """What the types cannot say. Raises `Misconfigured` naming the client and the key."""
    where = f"mqtt_clients {settings.name}"
    host, port = split_endpoint(settings.broker, f"{where}: broker")
    if not port:
        raise Misconfigured(f"{where}: broker = {settings.broker!r}: the port of a broker is not 0")
    if settings.qos != 1:
        raise Misconfigured(
            f"{where}: qos = {settings.qos}: set 1; at QoS 2 the library answers the broker before a message is stored, and a "
            "loss of power would lose it (what devices publish at QoS 2 arrives at QoS 1, and resends are recognised)"
        )
    if settings.password_file is not None and settings.username is None:
        raise Misconfigured(f"{where}: password_file needs a username")
    if settings.ca_file is not None and not settings.tls:
        raise Misconfigured(f"{where}: ca_file needs tls = true")
    if settings.password_file is not None and not settings.tls and not _is_loopback(host):
        raise Misconfigured(
            f"{where}: broker = {settings.broker!r}: a password would cross the network in clear text; set tls = true "
            "(and ca_file, for a certificate of your own)"
        )
    _check_profile(settings, where)


def _check_profile(settings: MqttClientSettings, where: str) -> None:
    if settings.topics and settings.profile != "plain":
        raise Misconfigured(f"{where}: topics are of profile = 'plain', not of {settings.profile!r}")
    base = settings.base_topic
    if not base.strip("/") or base != base.strip("/") or set(base) & _FORBIDDEN or base.startswith("$"):
        raise Misconfigured(f"{where}: base_topic = {base!r}: expected words with / between them, for example 'zigbee2mqtt'")


def load_access(settings: MqttClientSettings) -> Access:
    """Read the files. Raises `Misconfigured`. Blocks for a moment: call it in a thread."""
    host, port = split_endpoint(settings.broker, "broker")
    return Access(host, port, settings.username, _password(settings), _tls(settings))


def _password(settings: MqttClientSettings) -> str | None:
    if settings.password_file is None:
        return None
    try:
        lines = Path(settings.password_file).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Misconfigured(f"mqtt_clients {settings.name}: password_file {settings.password_file}: {why}") from None
    if not lines or not lines[0]:
        raise Misconfigured(f"mqtt_clients {settings.name}: password_file {settings.password_file}: its first line is empty")
    return lines[0]


def _tls(settings: MqttClientSettings) -> ssl.SSLContext | None:
    if not settings.tls:
        return None
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise Misconfigured(f"mqtt_clients {settings.name}: ca_file {settings.ca_file}: {error.strerror or error}") from None


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
