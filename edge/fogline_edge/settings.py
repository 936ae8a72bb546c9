"""The gateway's settings: one TOML file, decoded once into these types."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from fogline.event import Lane
from fogline.settings import load_settings

Identifier = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:\-]{1,64}$")]
Port = Annotated[int, Meta(ge=0, le=65535)]
Positive = Annotated[int, Meta(ge=1)]


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An unknown key is an error."""


class OutboxSettings(_Strict, frozen=True, kw_only=True):
    """The durable queue. `max_bytes` bounds the database file; a tenth of it is kept for replies.

    When it is full, devices are not acknowledged until the bridge has taken events.
    """

    max_bytes: Annotated[int, Meta(ge=1_000_000)] = 1_000_000_000
    group_commit_ms: Annotated[int, Meta(ge=0, le=1000)] = 10
    group_commit_events: Annotated[int, Meta(ge=1, le=10_000)] = 256


class UplinkSettings(_Strict, frozen=True, kw_only=True):
    """The one connection. `bridge` is `host:port`."""

    bridge: str = "127.0.0.1:5672"
    batch_events: Annotated[int, Meta(ge=1, le=5000)] = 200
    batches_in_flight: Annotated[int, Meta(ge=1, le=100)] = 8
    statement_s: Annotated[float, Meta(gt=0)] = 10.0


class TopicSettings(_Strict, frozen=True, kw_only=True):
    """How one family of free topics maps to a device and a lane: `topic = "plant/{device}/#"`.

    `{device}` stands for exactly one level; `+` and `#` are MQTT's. The first entry that matches decides.
    """

    topic: str
    lane: Lane = Lane.TELEMETRY
    type: str = "telemetry"
    content_type: str = "application/octet-stream"


class MqttSettings(_Strict, frozen=True, kw_only=True):
    """The MQTT listener.

    `users`: a file as `mosquitto_passwd` writes it; then every client must log in, and speaks only for the device of
    that name, but for the names in `publish_for_others`. Without it only loopback is listened on.
    """

    host: str = "127.0.0.1"
    port: Port = 1883
    max_packet_bytes: Annotated[int, Meta(ge=256, le=700_000)] = 262_144
    receive_maximum: Annotated[int, Meta(ge=1, le=65535)] = 100
    max_connections: Positive = 1000
    connect_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    max_keep_alive_s: Annotated[int, Meta(ge=10, le=65535)] = 3600
    users: str | None = None
    publish_for_others: list[str] = msgspec.field(default_factory=list)
    topics: list[TopicSettings] = msgspec.field(default_factory=list)


class Settings(_Strict, frozen=True, kw_only=True):
    """Everything. `data` is the folder of the outbox, relative to the settings file."""

    tenant: Identifier
    gateway: Identifier
    data: str
    outbox: OutboxSettings = msgspec.field(default_factory=OutboxSettings)
    uplink: UplinkSettings = msgspec.field(default_factory=UplinkSettings)
    mqtt: MqttSettings | None = None


def load(path: Path) -> Settings:
    """Read and check the settings; files and folders are beside the settings file. Raises `Misconfigured`."""
    settings = load_settings(path, Settings)
    mqtt = settings.mqtt
    if mqtt is not None and mqtt.users is not None:
        mqtt = msgspec.structs.replace(mqtt, users=str(path.parent / mqtt.users))
    return msgspec.structs.replace(settings, data=str(path.parent / settings.data), mqtt=mqtt)
