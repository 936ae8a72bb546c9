"""The broker's address and credentials. The settings are checked at the start, the files are read at every attempt."""

import ssl
from dataclasses import dataclass, field

from fogline.errors import Misconfigured
from fogline.process.files.settings_file import split_endpoint
from fogline.process.files.user_file import read_password
from fogline.transport.loopback import is_loopback
from fogline_edge.adapters.mqtt_client.profiles import KeptOfClient, build_profiles
from fogline_edge.broker_settings import MqttClientSettings

_FORBIDDEN = set("+#\0")


@dataclass(frozen=True, slots=True)
class Access:
    """Address and credentials. The password is not part of its `repr`."""

    host: str
    port: int
    username: str | None
    password: str | None = field(repr=False)
    tls: ssl.SSLContext | None


def check_client(settings: MqttClientSettings) -> None:
    """Check the values of the settings. Raises `Misconfigured` with the client and the key."""
    where = f"mqtt_clients {settings.name}"
    host, port = split_endpoint(settings.broker, f"{where}: broker")
    if not port:
        raise Misconfigured(f"{where}: broker = {settings.broker!r}: the port of a broker cannot be 0")
    if settings.qos != 1:
        raise Misconfigured(
            f"{where}: qos = {settings.qos}: set 1; at QoS 2 the library acknowledges a message before it is stored, and a "
            "power cut would lose it (messages of devices at QoS 2 arrive at QoS 1, and retransmissions are recognised)"
        )
    if settings.password_file is not None and settings.username is None:
        raise Misconfigured(f"{where}: password_file needs a username")
    if settings.ca_file is not None and not settings.tls:
        raise Misconfigured(f"{where}: ca_file needs tls = true")
    if settings.password_file is not None and not settings.tls and not is_loopback(host):
        raise Misconfigured(
            f"{where}: broker = {settings.broker!r}: the password would cross the network in clear text; set tls = true "
            "(and ca_file for a private certificate)"
        )
    if settings.topics and settings.profile != "plain":
        raise Misconfigured(f"{where}: only profile = 'plain' has topics, not {settings.profile!r}")
    if settings.commands and not (settings.profile == "plain" and settings.send_commands):
        raise Misconfigured(f"{where}: [[mqtt_clients.commands]] needs profile = 'plain' and send_commands = true")
    if settings.profile == "plain" and settings.send_commands and not settings.commands:
        raise Misconfigured(
            f"{where}: send_commands needs [[mqtt_clients.commands]], for example topic = 'plant/{{device}}/set'"
        )
    base = settings.base_topic
    if not base.strip("/") or base != base.strip("/") or set(base) & _FORBIDDEN or base.startswith("$"):
        raise Misconfigured(f"{where}: base_topic = {base!r}: expected words with / between them, for example 'zigbee2mqtt'")
    build_profiles(settings, "", KeptOfClient())


def load_access(settings: MqttClientSettings) -> Access:
    """Read the files. Raises `Misconfigured`. Blocks on the disk: call it in a thread."""
    host, port = split_endpoint(settings.broker, "broker")
    return Access(host, port, settings.username, _password(settings), _tls(settings))


def _password(settings: MqttClientSettings) -> str | None:
    if settings.password_file is None:
        return None
    return read_password(settings.password_file, f"mqtt_clients {settings.name}: password_file")


def _tls(settings: MqttClientSettings) -> ssl.SSLContext | None:
    if not settings.tls:
        return None
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise Misconfigured(f"mqtt_clients {settings.name}: ca_file {settings.ca_file}: {error.strerror or error}") from None
