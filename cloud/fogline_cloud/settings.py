"""Settings of the cloud side: one TOML file for bridge, flow and ledger. docs/reference/settings.md is generated from it."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fogline.errors import Misconfigured
from fogline.events.event import Lane
from fogline.installed import credential
from fogline.process.files.settings_file import convert_settings, load_toml
from fogline.process.files.tls_files import TlsSettings, resolve_tls
from fogline.process.files.unused_settings import refuse_unused
from fogline.process.files.via_settings import ViaSettings, resolve_via
from fogline.tracing.settings import TracingSettings, resolve_tracing
from fogline_cloud.api_settings import ApiSettings, resolve_api
from fogline_cloud.canonical_settings import CanonicalSettings
from fogline_cloud.fleet_settings import FleetSettings, require_longer
from fogline_cloud.kafka.connection_settings import resolve_files
from fogline_cloud.sink_settings import SinkSettings, resolve_sinks
from fogline_cloud.table_settings import TablesSettings
from fogline_cloud.unused_settings import UNUSED

Identifier = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:\-]{1,64}$")]
SERVER_PATTERN = "^https?://[^/]+/?$"
Scalar = str | int | float | bool


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of settings, in which an unknown key is an error."""


class BridgeSettings(_Strict, frozen=True, kw_only=True):
    """The AMQP listener and its Kafka transactions."""

    name: Identifier = "bridge-1"
    """Name of the bridge, unique within the tenant."""
    listen: str = "127.0.0.1:5672"
    """Address to listen on as `host:port`. Without `bridge.tls` only loopback is allowed; with it, the usual port is 5671."""
    advertised: str | None = None
    """Address at which gateways reach this bridge. Default: `listen`."""
    websocket: str | None = None
    """Address to listen on for AMQP over WebSocket too, for example `0.0.0.0:443`, with the TLS and logins of `listen`."""
    gateways: list[Identifier] | None = None
    """Names of the gateways that may connect. Default: any. Required for certificates that `fogline ca` has not issued."""
    crl: str | None = None
    """File with the list of revoked certificates (PEM), read again when it changes. `fogline ca` keeps one."""
    users: str | None = None
    """File with the passwords of operators' programs (`fogline user set`). Needs `bridge.tls`. Default: certificates only."""
    access: str | None = None
    """File with the permissions and quotas of peers (docs/access.md), read again when it changes. Default: none."""
    max_connections: Annotated[int, Meta(ge=1)] = 1000
    """Largest number of AMQP connections."""
    hellos_s: Annotated[float, Meta(gt=0)] = 100.0
    """Gateways that may connect per second, in the long run. The bridge tells the others when to try again."""
    statistics_s: Annotated[float, Meta(ge=0, le=3600)] = 60.0
    """Interval at which each gateway sends its statistics for `bridge.metrics`, in seconds. 0: never."""
    transaction_events: Annotated[int, Meta(ge=1)] = 5000
    """Largest number of events in one Kafka transaction."""
    transaction_ms: Annotated[int, Meta(ge=1, le=5000)] = 100
    """Longest wait of telemetry for others, in milliseconds. Alarms and events of clients: a fifth; commands, replies: none."""
    checkpoint_s: Annotated[float, Meta(gt=0)] = 5.0
    """How often a shard writes its checkpoint, in seconds."""
    queue_bytes: Annotated[int, Meta(ge=1_048_576)] = 268_435_456
    """Bytes of messages that may wait for Kafka, a gateway or another bridge. Above half, senders get no credit."""
    queue_connection_bytes: Annotated[int, Meta(ge=1_048_576)] = 16_777_216
    """The same of one connection."""
    max_consumers: Annotated[int, Meta(ge=0)] = 16
    """Largest number of AMQP links that receive events. Each takes a thread and some MiB of memory."""
    metrics: str | None = None
    """Address of `/metrics` and `/healthz` as `host:port`, for example `127.0.0.1:9465`. Only loopback. Default: none."""
    enrolment: bool = False
    """If true, gateways get and renew their certificates here (`fogline gateway add`). Needs the authority's `ca.folder`."""
    tls: TlsSettings | None = None
    via: list[ViaSettings] = msgspec.field(default_factory=list)
    """Routers and brokers between gateways and this bridge, which connects to each of them (docs/way-out.md)."""
    one_cpu: bool = True
    """If true, all Python threads run on one CPU at a time, which costs less CPU time (docs/proofs/performance.md)."""


class CommandPolicySettings(_Strict, frozen=True, kw_only=True):
    """Operators' commands."""

    max_ttl_s: Annotated[float, Meta(gt=0, le=604_800)] = 604_800
    """Longest time to live of a command, in seconds."""
    direct_ttl_s: Annotated[float, Meta(gt=0)] = 30.0
    """Time to live of a direct command without one, in seconds."""
    grace_s: Annotated[float, Meta(ge=0)] = 10.0
    """Seconds that the bridge waits for the gateway's report after a command's time to live, before it reports IN_DOUBT."""
    kafka: bool = False
    """If true, applications may send commands over Kafka, to `hono.command.{tenant}` (docs/clients-kafka.md). Whoever may write
    that topic may send every command: Kafka's ACLs decide, `bridge.access` does not. Then run `fogline topics create` again."""
    signing_key: str | None = None
    """File with the Ed25519 private key (base64) that signs commands. `fogline command key` creates one."""
    key_id: Identifier = "key-1"
    """Name of the key in the gateways' settings."""


class Learn(StrEnum):
    """Devices whose events the registry notes (see `DeviceSettings.learn`)."""

    NONE = "none"
    REGISTERED = "registered"
    ALL = "all"


class DeviceSettings(_Strict, frozen=True, kw_only=True):
    """The registry of devices (docs/device-registry.md)."""

    learn: Learn = Learn.REGISTERED
    """Devices whose last event, gateways and firmware are noted. `all`: also those that nobody has set, until forgotten."""
    seen_every_s: Annotated[float, Meta(ge=1, le=86_400)] = 600.0
    """How often the registry notes that a gateway had events of a device, in seconds."""
    types: str | None = None
    """File with the commands of each type of device (docs/device-registry.md), read again when it changes. Default: none."""
    credentials_key: str | None = None
    """File with the key that seals devices' keys, the same at all bridges (docs/device-credentials.md). Default: none."""


class Strategy(StrEnum):
    """Treatment of an event that another gateway reported first (see `SharedSettings.strategy`)."""

    DROP = "drop"
    MARK = "mark"
    NONE = "none"


class SharedSettings(_Strict, frozen=True, kw_only=True):
    """Rule for events of devices that several gateways receive. The first matching entry applies."""

    device: str = "*"
    """Shell pattern for the device."""
    subject: str = "*"
    """Shell pattern for the channel (`subject` of the event)."""
    strategy: Strategy = Strategy.DROP
    """A copy of a second gateway: `drop`: it is a duplicate; `mark`: kept, and column `again` is true; `none`: unmarked."""
    window_s: Annotated[float, Meta(gt=0, le=86_400)] = 30.0
    """Largest difference between the gateways' times of two copies, in seconds. Less than the counter takes to wrap."""

    @property
    def window_us(self) -> int:
        """The window in microseconds. -1 for strategy `none`, so that no event lies in it."""
        return -1 if self.strategy is Strategy.NONE else round(self.window_s * 1_000_000)


class ParserRuleSettings(_Strict, frozen=True, kw_only=True):
    """Rule that chooses a parser before the content type does. All patterns must match. The first matching entry applies."""

    parser: str
    """Name of the parser."""
    content_type: str = "*"
    """Shell pattern for the content type, without parameters."""
    subject: str = "*"
    """Shell pattern for the channel (`subject` of the event), for example an MQTT topic. `*` matches `/` too."""
    device: str = "*"
    """Shell pattern for the device."""
    type: str = "*"
    """Shell pattern for the event's `type`: `telemetry`, `alarm`, `availability` or another."""
    adapter: str = "*"
    """Shell pattern for the protocol: `mqtt`, `mqtt-client`, `coap`, `ble`, `amqp` or another."""
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    """Shell patterns for properties that the device sent with the event, for example the user property `firmware` of MQTT 5."""


class FlowSettings(_Strict, frozen=True, kw_only=True):
    """The Spark flow."""

    name: Identifier = "main"
    """Name of the flow."""
    metrics: str | None = None
    """Address of `/metrics` and `/healthz` as `host:port`, for example `127.0.0.1:9466`. Only loopback. Default: none."""
    tables: str = "tables"
    """Folder (relative to the settings file) of the tables, or a URL `s3://bucket/folder` (docs/store.md)."""
    checkpoint: str = "checkpoint"
    """Folder (relative to the settings file) of Spark's checkpoint, or a URL `s3://bucket/folder`."""
    raw_days: Annotated[int, Meta(ge=0, le=36500)] | Literal["forever"] = 90
    """Days for which table `raw` keeps the raw records. 0: the flow writes no such table."""
    master: str | None = None
    """Spark master. `fogline flow run --master URL` comes before it. Default: that of spark-submit, else `local[2]`."""
    archive: str | None = None
    """The executors' environment: a file or a URL, which `fogline flow archive` writes (docs/clusters.md). Default: executors
    have the packages installed. Without effect with a local master."""
    min_partitions: Annotated[int, Meta(ge=1)] | None = None
    """Number of tasks that a micro-batch is split into, if the executors have as many cores. Then records of a device may be
    out of order in the derived topics. Default: one task for each partition of the raw topics, of which a shard has three."""
    lanes: Annotated[list[Lane], Meta(min_length=1)] = msgspec.field(default_factory=lambda: list(Lane))
    """Lanes that this flow reads (docs/tables.md, Alarms first). `telemetry` and `bulk` only together. Default: all."""
    trigger_ms: Annotated[int, Meta(ge=0)] = 1000
    """Interval between two micro-batches, in milliseconds."""
    max_events_per_batch: Annotated[int, Meta(ge=1)] = 50_000
    """Largest number of records in one micro-batch."""
    parse_limit_ms: Annotated[int, Meta(ge=1)] = 1000
    """CPU time that a parser may take for one event, in milliseconds."""
    slow_limit_ms: Annotated[int, Meta(ge=0)] = 10_000
    """CPU time that a parser may take when a slow event is tried again, in milliseconds. 0: slow events are not tried again."""
    parse_memory_mib: Annotated[int, Meta(ge=64)] = 1024
    """Memory that a parser may take, in MiB (on Linux)."""
    max_readings: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    """Largest number of readings of one event. Others are not kept; column `detail` says so. The row has the body."""
    key_cache: str | None = None
    """Folder on the driver's disk for copies of the key files of table `events`, if `tables` is a URL. With them the flow finds
    earlier copies of an event without asking the object store. Default: `fogline-keys` in the working folder."""
    key_cache_mib: Annotated[int, Meta(ge=0)] = 4096
    """Largest size of these copies, in MiB. An event takes 8 bytes. 0: no copies."""
    spark: dict[str, Scalar] = msgspec.field(default_factory=dict)
    """Further Spark settings."""
    parsers: dict[str, str] = msgspec.field(default_factory=dict)
    """Parser by content type, instead of the default choice."""
    parser_rules: Annotated[list[ParserRuleSettings], Meta(max_length=1000)] = msgspec.field(default_factory=list)
    """Parsers by topic, device and more, before `flow.parsers` (docs/parsers.md)."""
    ble_keys: str | None = None
    """File with the keys of Bluetooth devices that encrypt (docs/bluetooth-data.md)."""
    shared: Annotated[list[SharedSettings], Meta(max_length=1000)] = msgspec.field(default_factory=list)
    """Devices that several gateways receive."""
    canonical: CanonicalSettings = msgspec.field(default_factory=CanonicalSettings)


class StoreSettings(_Strict, frozen=True, kw_only=True):
    """The object store (S3) of `flow.tables` and `flow.checkpoint`, if these are URLs (docs/store.md)."""

    endpoint: Annotated[str, Meta(pattern=SERVER_PATTERN)] | None = None
    """URL of the store, for example `https://s3.example.org:9000`. Default: Amazon S3."""
    region: str | None = None
    """Region of the bucket. Default: `us-east-1` with an `endpoint`, else the SDKs' own, such as AWS_REGION."""
    key_file: str | None = None
    """File with the keys, in AWS's form (docs/store.md). Only its owner may read it. Default: the SDKs look for keys by
    themselves: in the environment, and with the role of the machine or the pod."""
    path_style: bool | None = None
    """If true, the bucket is in the path of a request, else in the host's name. Default: true with an `endpoint`."""


class OperatorSettings(_Strict, frozen=True, kw_only=True):
    """`fogline command`, `fogline device` and `fogline parser` on an operator's machine, which needs no Kafka."""

    bridge: str | None = None
    """Address of the bridge as `host:port`. Default: `bridge.listen`."""
    api: str | None = None
    """Address of the HTTP API, for example `https://fog.example:8443`. `fogline parser deploy` needs it."""
    user: str | None = None
    """User name at the bridge. Default: the certificate of `operator.tls` tells the name."""
    password_file: str | None = None
    """File with the password of `user`. Only its owner may read it."""
    tls: TlsSettings | None = None


class CaSettings(_Strict, frozen=True, kw_only=True):
    """The certificate authority (`fogline ca`)."""

    folder: str = "ca"
    """Folder of the authority, relative to the settings file."""
    days: Annotated[float, Meta(gt=0, le=3650)] = 30.0
    """How long a certificate is valid, in days."""
    crl_days: Annotated[float, Meta(gt=0, le=3650)] = 7.0
    """How long a list of revoked certificates holds, in days. Bridges refuse new connections when their list is older."""


class CloudSettings(_Strict, frozen=True, kw_only=True):
    """The cloud side."""

    tenant: Identifier
    """Tenant of these bridges, topics and tables."""
    kafka: dict[str, Scalar] = msgspec.field(default_factory=dict)
    """Any librdkafka setting. `bootstrap.servers` is required, except on machines for operators or the authority only. Files
    are relative to the settings file. `KEY_file` names a file with the value of KEY (docs/kafka-security.md)."""
    shards: Annotated[int, Meta(ge=1, le=1024)] = 8
    """Number of shards, which is the number of partitions of each raw topic. `fogline topics reshard` raises it."""
    bridge: BridgeSettings = msgspec.field(default_factory=BridgeSettings)
    commands: CommandPolicySettings = msgspec.field(default_factory=CommandPolicySettings)
    devices: DeviceSettings = msgspec.field(default_factory=DeviceSettings)
    flow: FlowSettings = msgspec.field(default_factory=FlowSettings)
    store: StoreSettings = msgspec.field(default_factory=StoreSettings)
    tables: TablesSettings = msgspec.field(default_factory=TablesSettings)
    fleet: FleetSettings = msgspec.field(default_factory=FleetSettings)
    sinks: dict[Identifier, SinkSettings] = msgspec.field(default_factory=dict)
    """Databases to fill, by the sinks' names."""
    operator: OperatorSettings = msgspec.field(default_factory=OperatorSettings)
    api: ApiSettings = msgspec.field(default_factory=ApiSettings)
    ca: CaSettings = msgspec.field(default_factory=CaSettings)
    tracing: TracingSettings | None = None


def load(path: Path, *, kafka: bool = True) -> CloudSettings:
    """Read and check the settings. Relative paths start at the settings file's folder, as it is named: a link is a file there.

    `kafka`: the command needs Kafka. Raises `Misconfigured`.
    """
    raw = load_toml(path)
    settings = convert_settings(raw, CloudSettings, str(path))
    refuse_unused(raw, UNUSED, path)
    if kafka and not settings.kafka.get("bootstrap.servers"):
        raise Misconfigured(f'{path}: missing key "bootstrap.servers" in [kafka], for example "127.0.0.1:9092"')
    require_longer(settings.fleet, settings.devices.seen_every_s, path)
    flow = msgspec.structs.replace(
        settings.flow,
        tables=_place(settings.flow.tables, path, "tables"),
        checkpoint=_place(settings.flow.checkpoint, path, "checkpoint"),
        archive=_beside(settings.flow.archive, path),
        ble_keys=_beside(settings.flow.ble_keys, path),
        key_cache=_beside(settings.flow.key_cache, path),
    )
    commands, bridge, devices, operator = settings.commands, settings.bridge, settings.devices, settings.operator
    return msgspec.structs.replace(
        settings,
        kafka=resolve_files(settings.kafka, path),
        flow=flow,
        store=msgspec.structs.replace(settings.store, key_file=_secret(settings.store.key_file, path)),
        commands=msgspec.structs.replace(commands, signing_key=_secret(commands.signing_key, path)),
        devices=msgspec.structs.replace(
            devices, types=_beside(devices.types, path), credentials_key=_secret(devices.credentials_key, path)
        ),
        bridge=msgspec.structs.replace(
            bridge,
            access=_beside(bridge.access, path),
            crl=_beside(bridge.crl, path),
            users=_beside(bridge.users, path),
            tls=_tls_beside(bridge.tls, path),
            via=[resolve_via(each, path.parent.absolute()) for each in bridge.via],
        ),
        sinks=resolve_sinks(settings.sinks, path.parent.absolute()),
        operator=msgspec.structs.replace(
            operator, password_file=_secret(operator.password_file, path), tls=_tls_beside(operator.tls, path)
        ),
        api=resolve_api(settings.api, path),
        ca=msgspec.structs.replace(settings.ca, folder=_absolute(settings.ca.folder, path)),
        tracing=resolve_tracing(settings.tracing, path.parent.absolute()),
    )


def _beside(file: str | None, path: Path) -> str | None:
    return None if file is None else _absolute(file, path)


def _secret(file: str | None, path: Path) -> str | None:
    """Return the path of a file with a secret that is read at the start only: a credential of that name comes first."""
    return _beside(file, path) if file is None or (given := credential(file)) is None else str(given)


def _tls_beside(tls: TlsSettings | None, path: Path) -> TlsSettings | None:
    return None if tls is None else resolve_tls(tls, path.parent.absolute())


def _place(place: str, path: Path, key: str) -> str:
    """Return an absolute folder, or a URL of S3 by the scheme that both Spark and delta-rs know."""
    scheme, is_url, rest = place.partition("://")
    if not is_url:
        return _absolute(place, path)
    if scheme not in {"s3", "s3a"} or not rest.strip("/"):
        raise Misconfigured(f"{path}: [flow] {key} = {place}: expected a folder, or a URL such as s3://bucket/folder")
    return f"s3a://{rest}"


def _absolute(folder: str, beside: Path) -> str:
    # No link is followed: Kubernetes replaces the folders behind those of settings and secrets.
    return folder if "://" in folder else os.path.normpath((beside.parent / folder).absolute())
