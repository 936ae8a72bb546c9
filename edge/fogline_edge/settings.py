"""The gateway's settings: one TOML file, decoded into these types. docs/reference/settings.md is generated from them."""

from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from fogline.errors import Misconfigured
from fogline.events.event import Lane
from fogline.process.files.settings_file import convert_settings, load_toml
from fogline.process.files.tls_files import TlsSettings, resolve_tls
from fogline.process.files.unused_settings import refuse_unused
from fogline.process.files.via_settings import ViaSettings, resolve_via
from fogline.tracing.settings import TracingSettings, resolve_tracing
from fogline_edge.ble_settings import BleSettings
from fogline_edge.body_settings import BodySettings
from fogline_edge.broker_settings import MqttClientSettings, TopicSettings
from fogline_edge.listener_settings import CoapDtlsSettings, HttpTlsSettings, MqttTlsSettings, WebSocketSettings
from fogline_edge.rule_settings import RuleSettings, names_twice, resolve_keys
from fogline_edge.settings_types import DeviceLane, Identifier, Port, Positive, StrictTable, check_content_type
from fogline_edge.unused_settings import UNUSED

_Table = TypeVar("_Table", bound=StrictTable)
_Listener = TypeVar("_Listener", "MqttSettings", "HttpSettings")


class OutboxSettings(StrictTable, frozen=True, kw_only=True):
    """The durable queue of events on the gateway's disk."""

    max_bytes: Annotated[int, Meta(ge=1_000_000)] = 1_000_000_000
    """Upper limit of the database file in bytes. A tenth is reserved for replies. Rejected events take at most a tenth, open
    commands a twentieth, and open commands of one device a quarter of that."""
    group_commit_ms: Annotated[int, Meta(ge=0, le=1000)] = 10
    """Longest time that an event waits for others to share its commit, in milliseconds."""
    group_commit_events: Annotated[int, Meta(ge=1, le=10_000)] = 256
    """Largest number of events in one commit."""
    when_full: dict[DeviceLane, Literal["block", "drop_oldest"]] = msgspec.field(default_factory=dict)
    """What happens to a lane when the outbox is nearly full. `block` (default): devices are not acknowledged until there is
    room. `drop_oldest`: the oldest events of the lane are deleted, and a gap record names them."""
    when_expired: dict[DeviceLane, Literal["send", "drop"]] = msgspec.field(default_factory=dict)
    """What happens to an event whose message expiry passes while it waits. `send` (default): it is sent. `drop`: a gap record
    (`expired`) replaces it."""

    @property
    def drops_expired(self) -> frozenset[Lane]:
        """The lanes that drop expired events."""
        return frozenset(Lane(lane) for lane, what in self.when_expired.items() if what == "drop")

    @property
    def drops_oldest(self) -> frozenset[Lane]:
        """The lanes that drop their oldest events."""
        return frozenset(Lane(lane) for lane, what in self.when_full.items() if what == "drop_oldest")


class ProxySettings(StrictTable, frozen=True, kw_only=True):
    """A proxy on the gateway's way to the bridge. TLS is with the bridge, inside the proxy's tunnel."""

    url: str
    """`socks5://host:port`, or `http://host:port` for HTTP's method CONNECT; `user@` before the host for a login."""
    password_file: str | None = None
    """File whose first line is the password. Only its owner may read it (mode 600)."""


class UplinkSettings(StrictTable, frozen=True, kw_only=True):
    """The one AMQP connection to the bridge."""

    bridge: str | Annotated[list[str], Meta(min_length=1)] = "127.0.0.1:5672"
    """Address of the bridge as `host:port`, or a list of the bridges of this tenant. Without `uplink.tls` only loopback."""
    renew: bool = False
    """`true`: the gateway renews the certificate that `fogline-edge enroll` has got for it."""
    tls: TlsSettings | None = None
    proxy: ProxySettings | None = None
    via: ViaSettings | None = None
    batch_events: Annotated[int, Meta(ge=1, le=5000)] = 500
    """Largest number of events in one AMQP message."""
    batches_in_flight: Annotated[int, Meta(ge=1, le=100)] = 8
    """Largest number of batches of a stream that wait for their settlement."""
    statement_s: Annotated[float, Meta(gt=0)] = 10.0
    """Interval at which the gateway sends its counts for the ledger, in seconds."""
    backfill: dict[DeviceLane, Literal["oldest", "newest"]] = msgspec.field(default_factory=dict)
    """Events that go first after an outage. `oldest` (default): all in order. `newest`: new ones, in a stream of their own."""
    backfill_events: Positive = 10_000
    """Size of the backlog from which `backfill = newest` applies, in events."""
    max_kib_s: Annotated[float, Meta(ge=0)] = 0.0
    """Largest rate of telemetry and bulk together in KiB/s; 0: no limit. It never delays alarms, replies and commands."""
    idle_timeout_s: Annotated[float, Meta(ge=1)] = 15.0
    """Time without a byte from the bridge after which the connection is dead, in seconds. The bridge sends an empty frame in a
    quarter of it: about 3 MB a day at 15 s, 0.8 MB at 60 s. Until then commands wait."""
    retry_s: Annotated[float, Meta(gt=0)] = 1.0
    """Longest pause after the first failed connection attempt, in seconds. It doubles with each further failure."""
    retry_cap_s: Annotated[float, Meta(gt=0)] = 60.0
    """Longest pause between two connection attempts, in seconds."""

    @property
    def newest_first(self) -> frozenset[Lane]:
        """The lanes that send the newest events first after an outage."""
        return frozenset(Lane(lane) for lane, what in self.backfill.items() if what == "newest")

    @property
    def bridges(self) -> list[str]:
        """All bridges; the router or broker, if there is one between."""
        if self.via is not None:
            return [self.via.url]
        return [self.bridge] if isinstance(self.bridge, str) else self.bridge


class CommandKeySettings(StrictTable, frozen=True, kw_only=True):
    """Commands from the bridge."""

    keys: dict[str, str] = msgspec.field(default_factory=dict)
    """Public Ed25519 keys (base64) by key id. If there is any, the gateway refuses commands without a valid signature."""


class LimitSettings(StrictTable, frozen=True, kw_only=True):
    """Rate of one device at the MQTT and HTTP listeners. A faster device is read more slowly, or gets 429; nothing is lost."""

    device_events_s: Annotated[float, Meta(gt=0)] = 1000.0
    """Events per second of one device, in the long run."""
    device_burst: Positive = 10_000
    """Events of one device at once."""


class MqttSettings(StrictTable, frozen=True, kw_only=True):
    """The MQTT listener for devices. Without this table there is none."""

    host: str = "127.0.0.1"
    """Address to listen on without TLS. Only loopback is allowed, unless `plain_on_lan` is set."""
    port: Port | None = None
    """TCP port without TLS; 0: any free one. Default: 1883; with `[mqtt.tls]` none, so that only TLS is spoken."""
    plain_on_lan: bool = False
    """`true`: `host` may be of a network, although passwords and events cross it in clear text. It needs `users`."""
    tls: MqttTlsSettings | None = None
    websocket: WebSocketSettings | None = None
    max_packet_bytes: Annotated[int, Meta(ge=256, le=700_000)] = 262_144
    """Largest packet that is held whole, in bytes. A larger PUBLISH is stored as it comes (`[bodies]`)."""
    receive_maximum: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """Receive Maximum that the gateway grants to MQTT 5 clients. A client that exceeds it is disconnected with 0x93. Without
    a value there is no such limit, because paho 2 ignores it when it reconnects; a client that is too fast is read more
    slowly."""
    max_connections: Positive = 1000
    """Largest number of connections."""
    connect_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    """Time limit for the TLS handshake and CONNECT together, in seconds."""
    max_keep_alive_s: Annotated[int, Meta(ge=10, le=65535)] = 3600
    """Longest Keep Alive that is granted, in seconds."""
    users: str | None = None
    """Password file of `mosquitto_passwd`. With it, clients must log in, and speak only for the device of their name."""
    acl: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Further devices that a user, or the device of a certificate, speaks for: shell patterns such as `press-*`; `*`: all."""
    subscribers: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Programs that only read events: user -> topic filters such as `telemetry/#` (docs/local-subscribers.md)."""
    topics: list[TopicSettings] = msgspec.field(default_factory=list)
    """Topics beside Hono's."""

    @property
    def plain_port(self) -> int | None:
        """The port without TLS; None if only TLS is spoken."""
        return 1883 if self.port is None and self.tls is None else self.port

    @property
    def websocket_tls(self) -> MqttTlsSettings | None:
        """The TLS of WebSocket; None if it has none."""
        return None if self.websocket is None or self.websocket.plain else self.tls

    @property
    def websocket_host(self) -> str:
        """The address of WebSocket."""
        given = None if self.websocket is None else self.websocket.host
        return given or (self.host if self.websocket_tls is None else self.websocket_tls.host)


class PathSettings(StrictTable, frozen=True, kw_only=True):
    """Map a family of CoAP or HTTP paths to a device and a lane. The first matching entry applies."""

    path: str
    """Path with `{device}` for exactly one segment, and the wildcards `+` and `#` of MQTT."""
    lane: Lane = Lane.TELEMETRY
    """Lane of the events."""
    type: str = "telemetry"
    """CloudEvents type of the events."""
    content_type: str | None = None
    """Content type of requests that name none. Default: JSON for a body that begins with `{` or `[`, else octet-stream."""

    def __post_init__(self) -> None:
        check_content_type(self.content_type)


class ServingSettings(StrictTable, frozen=True, kw_only=True):
    """A device that is a CoAP server. A command is a POST to `{uri}/{name of the command}`."""

    device: Identifier
    """Name of the device."""
    uri: str
    """Base URI. A host name in it is resolved for each command."""


class CoapSettings(StrictTable, frozen=True, kw_only=True):
    """The CoAP listener for devices. Without this table there is none."""

    host: str = "127.0.0.1"
    """Address to listen on without DTLS. Only loopback is allowed, unless `plain_on_lan` is set."""
    port: Port | None = None
    """UDP port without DTLS; 0: any free one. Default: 5683; with `[coap.dtls]` and without `oscore` none, so that only DTLS is
    spoken."""
    plain_on_lan: bool = False
    """`true`: `host` may be of a network, although everybody there can then speak for any device without a key."""
    oscore: bool = False
    """`true`: devices with keys may use OSCORE (RFC 8613). If `host` is of a network and `plain_on_lan` is not set, only they
    are served without DTLS."""
    dtls: CoapDtlsSettings | None = None
    max_body_bytes: Annotated[int, Meta(ge=64, le=262_144)] = 262_144
    """Largest body that an event carries itself, in bytes. A larger one, in blocks, is stored as they come (`[bodies]`)."""
    rate_s: Annotated[float, Meta(gt=0)] = 5000.0
    """Datagrams per second from all endpoints."""
    burst: Positive = 10_000
    """Datagrams from all endpoints at once."""
    endpoint_rate_s: Annotated[float, Meta(gt=0)] = 500.0
    """Datagrams per second from one endpoint."""
    endpoint_burst: Positive = 1000
    """Datagrams from one endpoint at once."""
    max_endpoints: Positive = 4096
    """Endpoints that are remembered."""
    max_exchanges: Positive = 20_000
    """Messages that are remembered, to recognise retransmissions."""
    max_transfers: Positive = 64
    """Block-wise transfers at the same time."""
    transfer_timeout_s: Annotated[float, Meta(gt=0)] = 60.0
    """Time after its last block at which a transfer is forgotten, in seconds."""
    max_asks: Positive = 1000
    """Devices that wait for a command (`hono-ttd`) at the same time."""
    max_ttd_s: Annotated[int, Meta(ge=1, le=3600)] = 60
    """Longest `hono-ttd`, in seconds."""
    max_observers: Positive = 1000
    """Devices that observe their commands (RFC 7641) at the same time."""
    observation_s: Annotated[int, Meta(ge=1, le=86_400)] = 900
    """Time after its registration at which an observation ends, in seconds: Max-Age of the response."""
    ack_timeout_s: Annotated[float, Meta(gt=0)] = 2.0
    """ACK_TIMEOUT of RFC 7252, section 4.8, in seconds."""
    ack_delay_s: Annotated[float, Meta(gt=0)] = 0.5
    """Time after which a request is acknowledged with an empty message, in seconds."""
    command_timeout_s: Annotated[float, Meta(gt=0)] = 93.0
    """Time that a serving device has to answer a command, in seconds."""
    paths: list[PathSettings] = msgspec.field(default_factory=list)
    """Paths beside Hono's."""
    devices: Annotated[list[ServingSettings], Meta(max_length=64)] = msgspec.field(default_factory=list)
    """Devices that are CoAP servers."""

    @property
    def plain_port(self) -> int | None:
        """The port without DTLS; None if only DTLS is spoken."""
        return 5683 if self.port is None and (self.oscore or self.dtls is None) else self.port


class HttpSettings(StrictTable, frozen=True, kw_only=True):
    """The HTTP listener for devices, in the form of Eclipse Hono's HTTP adapter. Without this table there is none."""

    host: str = "127.0.0.1"
    """Address to listen on without TLS. Only loopback is allowed, unless `users` and `plain_on_lan` are set."""
    port: Port | None = None
    """TCP port without TLS; 0: any free one. Default: 8080; with `[http.tls]` none, so that only TLS is spoken."""
    plain_on_lan: bool = False
    """`true`: `host` may be of a network, although passwords and events cross it in clear text. It needs `users`."""
    tls: HttpTlsSettings | None = None
    users: str | None = None
    """Password file of `mosquitto_passwd`, for example that of `[mqtt]`. With it, requests must log in (Basic), and speak only
    for the device of their name."""
    acl: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Further devices that a user, or the device of a certificate, speaks for: shell patterns such as `press-*`; `*`: all."""
    max_body_bytes: Annotated[int, Meta(ge=64, le=262_144)] = 262_144
    """Largest body that an event carries itself, in bytes. A larger one is stored as it comes (`[bodies]`)."""
    max_connections: Positive = 500
    """Largest number of connections."""
    request_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    """Time limit for a request to come whole, and for the TLS handshake, in seconds."""
    idle_timeout_s: Annotated[float, Meta(gt=0)] = 60.0
    """Time after which a connection without requests is closed, in seconds."""
    max_asks: Positive = 250
    """Devices that wait for a command (`hono-ttd`) at the same time."""
    max_ttd_s: Annotated[int, Meta(ge=1, le=3600)] = 60
    """Longest `hono-ttd`, in seconds."""
    paths: list[PathSettings] = msgspec.field(default_factory=list)
    """Paths beside Hono's."""

    @property
    def plain_port(self) -> int | None:
        """The port without TLS; None if only TLS is spoken."""
        return 8080 if self.port is None and self.tls is None else self.port


class EdgeSettings(StrictTable, frozen=True, kw_only=True):
    """The gateway."""

    tenant: Identifier
    """Tenant of the gateway and its devices."""
    gateway: Identifier
    """Name of the gateway, unique within the tenant."""
    data: str
    """Folder of the outbox, relative to the settings file."""
    metrics: str | None = None
    """Address of `/metrics` and `/healthz` as `host:port`, for example `127.0.0.1:9464`; only loopback. Default: none."""
    one_cpu: bool = True
    """`true`: all threads run on one CPU at a time, which takes less CPU time (docs/proofs/performance.md)."""
    outbox: OutboxSettings = msgspec.field(default_factory=OutboxSettings)
    uplink: UplinkSettings = msgspec.field(default_factory=UplinkSettings)
    commands: CommandKeySettings = msgspec.field(default_factory=CommandKeySettings)
    limits: LimitSettings = msgspec.field(default_factory=LimitSettings)
    mqtt: MqttSettings | None = None
    coap: CoapSettings | None = None
    http: HttpSettings | None = None
    bodies: BodySettings = msgspec.field(default_factory=BodySettings)
    ble: BleSettings | None = None
    mqtt_clients: list[MqttClientSettings] = msgspec.field(default_factory=list)
    rules: RuleSettings = msgspec.field(default_factory=RuleSettings)
    tracing: TracingSettings | None = None


def load(path: Path) -> EdgeSettings:
    """Read and check the settings. Relative paths start at the folder of the file's name. Raises `Misconfigured`."""
    raw = load_toml(path)
    settings = convert_settings(raw, EdgeSettings, str(path))
    refuse_unused(raw, UNUSED, path)
    mqtt = None if settings.mqtt is None else _resolve_listener(path, settings.mqtt)
    http = None if settings.http is None else _resolve_listener(path, settings.http)
    clients = [_resolve(path, each, "password_file", "ca_file") for each in settings.mqtt_clients]
    if len({each.name for each in clients}) < len(clients):
        raise Misconfigured(f"{path}: two entries of mqtt_clients have the same name")
    if (name := names_twice(settings.rules)) is not None:
        raise Misconfigured(f"{path}: two rules have the name {name}: each needs a name of its own")
    data, ble, uplink = str(path.parent / settings.data), _resolve_ble(path, settings.ble), settings.uplink
    if uplink.tls is not None:
        uplink = msgspec.structs.replace(uplink, tls=resolve_tls(uplink.tls, path.parent))
    if uplink.via is not None:
        uplink = msgspec.structs.replace(uplink, via=resolve_via(uplink.via, path.parent))
    if uplink.proxy is not None:
        uplink = msgspec.structs.replace(uplink, proxy=_resolve(path, uplink.proxy, "password_file"))
    tracing = resolve_tracing(settings.tracing, path.parent)
    return msgspec.structs.replace(
        settings,
        data=data,
        uplink=uplink,
        mqtt=mqtt,
        http=http,
        mqtt_clients=clients,
        ble=ble,
        tracing=tracing,
        rules=resolve_keys(settings.rules, path.parent),
    )


def _resolve_ble(path: Path, ble: BleSettings | None) -> BleSettings | None:
    if ble is None:
        return None

    def resolve(profile: str) -> str:
        return str(path.parent / profile) if profile.endswith(".toml") else profile

    devices = [msgspec.structs.replace(each, profile=resolve(each.profile)) for each in ble.devices]
    return msgspec.structs.replace(ble, profiles=[resolve(each) for each in ble.profiles], devices=devices)


def _resolve_listener(path: Path, listener: _Listener) -> _Listener:
    tls = listener.tls if listener.tls is None else _resolve(path, listener.tls, "certificate", "key", "ca", "crl")
    return msgspec.structs.replace(_resolve(path, listener, "users"), tls=tls)


def _resolve(path: Path, settings: _Table, *keys: str) -> _Table:
    """Return settings whose files, named by `keys`, start at the settings file's folder."""
    files = {key: str(path.parent / name) for key in keys if (name := getattr(settings, key)) is not None}
    return msgspec.structs.replace(settings, **files)
