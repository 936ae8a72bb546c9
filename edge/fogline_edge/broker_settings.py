"""Settings of topics, and of clients of brokers that exist already. docs/reference/settings.md is generated from them."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fogline.events.event import Lane
from fogline_edge.settings_types import Identifier, StrictTable, check_content_type


class TopicSettings(StrictTable, frozen=True, kw_only=True):
    """Map a family of MQTT topics to a device and a lane. The first matching entry applies."""

    topic: str
    """Topic filter with `{device}` for exactly one level, and MQTT's wildcards `+` and `#`."""
    lane: Lane = Lane.TELEMETRY
    """Lane of the events."""
    type: str = "telemetry"
    """CloudEvents type of the events."""
    content_type: str | None = None
    """Content type of messages that name none. Default: JSON for one that begins with `{` or `[`, else octet-stream."""

    def __post_init__(self) -> None:
        check_content_type(self.content_type)


class BrokerCommandSettings(StrictTable, frozen=True, kw_only=True):
    """Commands to the devices of profile `plain`. The first entry that has the command applies.

    In the topics, `{device}`, `{command}` and `{id}` (of the command) each stand for one level.
    """

    topic: str
    """Topic to publish the command's argument to, with `{device}`."""
    commands: Annotated[list[str], Meta(max_length=64)] = msgspec.field(default_factory=list)
    """Names of the commands. Default: every name."""
    echo: str | None = None
    """Topic on which the device shows that it has done the command. Default: none, so that only one-way commands succeed."""
    echo_field: str = ""
    """JSON pointer of the value in the echo. Default: the whole payload."""
    echo_value: str | int | float | bool | None = None
    """Value that the echo must have."""
    echo_argument: str | None = None
    """JSON pointer of the value in the command's argument that the echo must have; empty: the whole argument. Without this and
    `echo_value`, every message on `echo` confirms the command."""
    error: str | None = None
    """Topic on which the device reports that a command has failed."""


class MqttClientSettings(StrictTable, frozen=True, kw_only=True):
    """A client of an MQTT 5 broker that exists already."""

    name: Identifier
    """Name of this entry."""
    profile: Literal["zigbee2mqtt", "tasmota", "shelly", "plain"]
    """Program whose topics and payloads the broker forwards; `plain`: topics as in `topics`."""
    broker: str = "127.0.0.1:1883"
    """Address of the broker as `host:port`."""
    client_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    """MQTT client id. Default: made of tenant, gateway and name."""
    username: str | None = None
    """User name at the broker."""
    password_file: str | None = None
    """File whose first line is the password."""
    tls: bool = False
    """`true`: connect with TLS."""
    ca_file: str | None = None
    """Certificate authorities that TLS trusts. Default: those of the system."""
    base_topic: str = "zigbee2mqtt"
    """Base topic of profile `zigbee2mqtt`."""
    full_topic: str = "%prefix%/%topic%/"
    """Full topic of profile `tasmota`."""
    topic_prefix: str = "{device}"
    """Topic prefix of the devices of profile `shelly` from generation 2 on, with `{device}` for one level."""
    topics: list[TopicSettings] = msgspec.field(default_factory=list)
    """Topics of profile `plain`."""
    commands: list[BrokerCommandSettings] = msgspec.field(default_factory=list)
    """Commands of profile `plain`."""
    send_commands: bool = False
    """`true`: publish the commands to the devices behind the broker. The user at the broker must be allowed to."""
    command_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 15.0
    """Time after which a command is in doubt if no message has decided it, in seconds. Zigbee2MQTT itself waits 10 s."""
    qos: Annotated[int, Meta(ge=1, le=2)] = 1
    """QoS of the subscriptions."""
    keep_alive_s: Annotated[int, Meta(ge=5, le=3600)] = 30
    """Keep Alive in seconds."""
    connect_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    """Time limit for connecting, in seconds."""
    session_expiry_s: Annotated[int, Meta(ge=60, le=4_294_967_295)] = 604_800
    """Time that the broker keeps messages while the gateway is away, in seconds."""
    receive_maximum: Annotated[int, Meta(ge=1, le=1000)] = 100
    """Receive Maximum: messages that the broker sends ahead of their acknowledgement."""
    max_payload_bytes: Annotated[int, Meta(ge=256, le=700_000)] = 262_144
    """Largest payload in bytes."""
