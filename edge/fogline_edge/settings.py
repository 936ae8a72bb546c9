"""The gateway's settings: one TOML file, decoded once into these types."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fogline.errors import Misconfigured, Poison
from fogline.event import Lane
from fogline.media_type import check_media_type
from fogline.settings import load_settings

Identifier = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:\-]{1,64}$")]
Port = Annotated[int, Meta(ge=0, le=65535)]
Positive = Annotated[int, Meta(ge=1)]
DeviceLane = Literal["alarm", "telemetry", "bulk"]
"""A lane that devices fill: replies to commands have one of their own."""


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An unknown key is an error."""


class OutboxSettings(_Strict, frozen=True, kw_only=True):
    """The durable queue. `max_bytes` bounds the database file.

    A tenth of it is kept for replies, and events that the bridge refused for good take a tenth at most.

    Commands that are not over take at most a twentieth of it, and those for one device a quarter of that.

    `when_full`: what a lane does then. `block`: devices are not acknowledged until the bridge has taken events.
    `drop_oldest`: its oldest events go, a gap record says which. A lane that blocks waits only when nothing may go.

    `when_expired`: what becomes of an event that expired while it waited (MQTT 5 message expiry). `send`: it is sent all the
    same. `drop`: a gap record (`expired`) takes its place; nothing expires while the gateway's clock is not known to be right.
    """

    max_bytes: Annotated[int, Meta(ge=1_000_000)] = 1_000_000_000
    group_commit_ms: Annotated[int, Meta(ge=0, le=1000)] = 10
    group_commit_events: Annotated[int, Meta(ge=1, le=10_000)] = 256
    when_full: dict[DeviceLane, Literal["block", "drop_oldest"]] = msgspec.field(default_factory=dict)

    when_expired: dict[DeviceLane, Literal["send", "drop"]] = msgspec.field(default_factory=dict)

    @property
    def expires(self) -> frozenset[Lane]:
        """The lanes that drop events which expired."""
        return frozenset(Lane(lane) for lane, what in self.when_expired.items() if what == "drop")

    @property
    def lets_go(self) -> frozenset[Lane]:
        """The lanes that drop their oldest events."""
        return frozenset(Lane(lane) for lane, what in self.when_full.items() if what == "drop_oldest")


class UplinkSettings(_Strict, frozen=True, kw_only=True):
    """The one connection. `bridge` is `host:port`, or a list of them: of bridges that stand in for each other.

    `retry_s`: the longest pause after a first failure; it doubles with each further one, up to `retry_cap_s`.

    `backfill`: what of a lane goes first when more than `backfill_events` of it wait as a connection begins. `oldest`: all in
    its order. `newest`: what comes from then on, in a stream of its own; what has waited goes behind it, on a smaller share.

    `max_kib_s`: how much of the line telemetry and bulk may take together, 0 for all of it: for lines that are paid by the
    megabyte, or shared. Alarms, replies and commands are never held up.
    """

    bridge: str | Annotated[list[str], Meta(min_length=1)] = "127.0.0.1:5672"
    batch_events: Annotated[int, Meta(ge=1, le=5000)] = 500
    batches_in_flight: Annotated[int, Meta(ge=1, le=100)] = 8
    statement_s: Annotated[float, Meta(gt=0)] = 10.0
    backfill: dict[DeviceLane, Literal["oldest", "newest"]] = msgspec.field(default_factory=dict)
    backfill_events: Positive = 10_000
    max_kib_s: Annotated[float, Meta(ge=0)] = 0.0
    retry_s: Annotated[float, Meta(gt=0)] = 1.0
    retry_cap_s: Annotated[float, Meta(gt=0)] = 60.0

    @property
    def newest_first(self) -> frozenset[Lane]:
        """The lanes of which the newest goes first."""
        return frozenset(Lane(lane) for lane, what in self.backfill.items() if what == "newest")

    @property
    def bridges(self) -> list[str]:
        """All of them."""
        return [self.bridge] if isinstance(self.bridge, str) else self.bridge


class CommandSettings(_Strict, frozen=True, kw_only=True):
    """Commands from the bridge. `keys`: public keys (base64) by key id; with any, unsigned commands are refused.

    `partial_signatures`: take commands of a bridge of the version before, whose signature does not cover `durable` and
    `correlation`. Set it to false once every bridge is newer.
    """

    keys: dict[str, str] = msgspec.field(default_factory=dict)
    partial_signatures: bool = True


class LimitSettings(_Strict, frozen=True, kw_only=True):
    """How fast one device may send through the MQTT listener: `device_events_s` in the long run, `device_burst` at once.

    One that is faster is read more slowly; nothing of it is lost, and the others go on as before.
    """

    device_events_s: Annotated[float, Meta(gt=0)] = 1000.0
    device_burst: Positive = 10_000


def _check_content_type(given: str) -> None:
    """Raise `ValueError` if no device could give this content type either."""
    try:
        check_media_type(given)
    except Poison as error:
        raise ValueError(f"content_type: {error}") from None


class TopicSettings(_Strict, frozen=True, kw_only=True):
    """How one family of free topics maps to a device and a lane: `topic = "plant/{device}/#"`.

    `{device}` stands for exactly one level; `+` and `#` are MQTT's. The first entry that matches decides.
    """

    topic: str
    lane: Lane = Lane.TELEMETRY
    type: str = "telemetry"
    content_type: str = "application/octet-stream"

    def __post_init__(self) -> None:
        _check_content_type(self.content_type)


class MqttSettings(_Strict, frozen=True, kw_only=True):
    """The MQTT listener.

    `users`: a file as `mosquitto_passwd` writes it; then every client must log in, and speaks only for the device of
    that name, but for the names in `publish_for_others`. Without it only loopback is listened on. `receive_maximum`: how many
    messages at QoS 1 and 2 an MQTT 5 client may have in flight; one that sends more is ended with 0x93. By default there is
    no such limit, since widely used clients do not keep it (paho 2 sends all that it has when it connects again): a client
    that sends faster than the gateway stores is read more slowly.
    """

    host: str = "127.0.0.1"
    port: Port = 1883
    max_packet_bytes: Annotated[int, Meta(ge=256, le=700_000)] = 262_144
    receive_maximum: Annotated[int, Meta(ge=1, le=65535)] | None = None
    max_connections: Positive = 1000
    connect_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    max_keep_alive_s: Annotated[int, Meta(ge=10, le=65535)] = 3600
    users: str | None = None
    publish_for_others: list[str] = msgspec.field(default_factory=list)
    topics: list[TopicSettings] = msgspec.field(default_factory=list)


class MqttClientSettings(_Strict, frozen=True, kw_only=True):
    """A client of an MQTT broker that is there already; each entry of `[[mqtt_clients]]` is one.

    `broker` is `host:port`; it must speak MQTT 5. `client_id`: by default of tenant, gateway and name. `password_file`: its
    first line. `ca_file`: whom `tls` trusts, by default whom the system does. `base_topic` is of profile `zigbee2mqtt`,
    `full_topic` of `tasmota`, `topics` of `plain`. `session_expiry_s`: for how long the broker keeps messages while the
    gateway is away. `receive_maximum`: how many it sends ahead of their acknowledgement.
    """

    name: Identifier
    profile: Literal["zigbee2mqtt", "tasmota", "plain"]
    broker: str = "127.0.0.1:1883"
    client_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    username: str | None = None
    password_file: str | None = None
    tls: bool = False
    ca_file: str | None = None
    base_topic: str = "zigbee2mqtt"
    full_topic: str = "%prefix%/%topic%/"
    topics: list[TopicSettings] = msgspec.field(default_factory=list)
    qos: Annotated[int, Meta(ge=1, le=2)] = 1
    keep_alive_s: Annotated[int, Meta(ge=5, le=3600)] = 30
    connect_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    session_expiry_s: Annotated[int, Meta(ge=60, le=4_294_967_295)] = 604_800
    receive_maximum: Annotated[int, Meta(ge=1, le=1000)] = 100
    max_payload_bytes: Annotated[int, Meta(ge=256, le=700_000)] = 262_144


class PathSettings(_Strict, frozen=True, kw_only=True):
    """How one family of free CoAP paths maps to a device and a lane: `path = "plant/{device}/#"`.

    `{device}` stands for exactly one segment and has to be there; `+` and `#` are as in MQTT. The first that matches
    decides. `content_type`: for requests without a Content-Format.
    """

    path: str
    lane: Lane = Lane.TELEMETRY
    type: str = "telemetry"
    content_type: str = "application/octet-stream"

    def __post_init__(self) -> None:
        _check_content_type(self.content_type)


class ServingSettings(_Strict, frozen=True, kw_only=True):
    """A device that is a CoAP server: a command goes to `{uri}/{name of the command}`, as a POST.

    A host name in `uri` is looked up once, for the first command.
    """

    device: Identifier
    uri: str


class CoapSettings(_Strict, frozen=True, kw_only=True):
    """The CoAP listener. It knows no credentials yet, so only loopback is listened on.

    `rate_s`, `burst`: datagrams a second that are read, from all endpoints and from each. `max_endpoints` and
    `max_exchanges`: how many endpoints and messages are remembered; `max_transfers`: how many bodies may be under way
    in blocks, each forgotten `transfer_timeout_s` after its last one. `max_asks`: how many devices may wait for a
    command (`hono-ttd`), for up to `max_ttd_s`. `ack_timeout_s`: ACK_TIMEOUT of RFC 7252, section 4.8; `ack_delay_s`:
    how long a request may take before it is acknowledged with an empty message. `command_timeout_s`: how long a device
    that serves may take to answer.
    """

    host: str = "127.0.0.1"
    port: Port = 5683
    max_body_bytes: Annotated[int, Meta(ge=64, le=262_144)] = 262_144
    rate_s: Annotated[float, Meta(gt=0)] = 5000.0
    burst: Positive = 10_000
    endpoint_rate_s: Annotated[float, Meta(gt=0)] = 500.0
    endpoint_burst: Positive = 1000
    max_endpoints: Positive = 4096
    max_exchanges: Positive = 20_000
    max_transfers: Positive = 64
    transfer_timeout_s: Annotated[float, Meta(gt=0)] = 60.0
    max_asks: Positive = 1000
    max_ttd_s: Annotated[int, Meta(ge=1, le=3600)] = 60
    ack_timeout_s: Annotated[float, Meta(gt=0)] = 2.0
    ack_delay_s: Annotated[float, Meta(gt=0)] = 0.5
    command_timeout_s: Annotated[float, Meta(gt=0)] = 93.0
    paths: list[PathSettings] = msgspec.field(default_factory=list)
    devices: Annotated[list[ServingSettings], Meta(max_length=64)] = msgspec.field(default_factory=list)


class BleDeviceSettings(_Strict, frozen=True, kw_only=True):
    """A Bluetooth LE device, by its address. `profile`: a name, or the path of a profile of one's own (`.toml`).

    `device`: its name, by default the profile's. `silence_s`, `min_interval_s`: its own, instead of `device_silence_s` and
    what the profile says.
    """

    address: Annotated[str, Meta(pattern=r"^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$")]
    profile: str
    device: Identifier | None = None
    silence_s: Annotated[float, Meta(gt=0)] | None = None
    min_interval_s: Annotated[float, Meta(ge=0)] | None = None


class BleSettings(_Strict, frozen=True, kw_only=True):
    """Bluetooth LE, by BlueZ. What is heard of `profiles` is taken from whatever device, up to `max_devices` of them.

    Only a device that is listed is connected to, and only if its profile says what to read, hear or write there.
    `adapter`: its name (`hci0`) or address; by default the first that is on. `device_events_s`, `device_burst`: how much one
    device may say, news or not; Bluetooth cannot be slowed down, so what is more is let go. `silence_s`: a scanner that hears
    nothing for so long is taken for dead. `device_silence_s`: so is the link of a listed device. `power_on`: an adapter that
    is off is switched on, after `power_on_s`. `pause_scanning`: pause scanning until a connection is made, because a Pi's own
    radio cannot do both at once; docs/bluetooth.md has the budget of these pauses. `longest_retry_s`: between two attempts
    to connect. `status_s`: how often it is written down how it goes.
    """

    adapter: str | None = None
    profiles: list[str] = msgspec.field(default_factory=list)
    devices: Annotated[list[BleDeviceSettings], Meta(max_length=256)] = msgspec.field(default_factory=list)
    max_devices: Positive = 1000
    device_events_s: Annotated[float, Meta(gt=0)] = 100.0
    device_burst: Positive = 1000
    silence_s: Annotated[float, Meta(gt=0)] = 20.0
    device_silence_s: Annotated[float, Meta(gt=0)] = 600.0
    power_on: bool = True
    power_on_s: Annotated[float, Meta(ge=0)] = 5.0
    pause_scanning: bool = True
    connect_timeout_s: Annotated[float, Meta(gt=0)] = 20.0
    longest_retry_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    status_s: Annotated[float, Meta(gt=0)] = 30.0


class Settings(_Strict, frozen=True, kw_only=True):
    """Everything. `data` is the folder of the outbox, relative to the settings file.

    `one_cpu`: all of the gateway on one CPU at a time, for which it takes less of it (docs/performance.md).
    """

    tenant: Identifier
    gateway: Identifier
    data: str
    one_cpu: bool = True
    outbox: OutboxSettings = msgspec.field(default_factory=OutboxSettings)
    uplink: UplinkSettings = msgspec.field(default_factory=UplinkSettings)
    commands: CommandSettings = msgspec.field(default_factory=CommandSettings)
    limits: LimitSettings = msgspec.field(default_factory=LimitSettings)
    mqtt: MqttSettings | None = None
    coap: CoapSettings | None = None
    ble: BleSettings | None = None
    mqtt_clients: list[MqttClientSettings] = msgspec.field(default_factory=list)


def load(path: Path) -> Settings:
    """Read and check the settings; files and folders are beside the settings file. Raises `Misconfigured`."""
    settings = load_settings(path, Settings)
    mqtt = settings.mqtt
    if mqtt is not None and mqtt.users is not None:
        mqtt = msgspec.structs.replace(mqtt, users=str(path.parent / mqtt.users))
    clients = [_beside(path, each) for each in settings.mqtt_clients]
    if len({each.name for each in clients}) < len(clients):
        raise Misconfigured(f"{path}: two entries of mqtt_clients have the same name")
    data, ble = str(path.parent / settings.data), _ble_beside(path, settings.ble)
    return msgspec.structs.replace(settings, data=data, mqtt=mqtt, mqtt_clients=clients, ble=ble)


def _ble_beside(path: Path, ble: BleSettings | None) -> BleSettings | None:
    """`ble` with the profiles of one's own beside the settings file."""
    if ble is None:
        return None

    def beside(profile: str) -> str:
        return str(path.parent / profile) if profile.endswith(".toml") else profile

    devices = [msgspec.structs.replace(each, profile=beside(each.profile)) for each in ble.devices]
    return msgspec.structs.replace(ble, profiles=[beside(each) for each in ble.profiles], devices=devices)


def _beside(path: Path, client: MqttClientSettings) -> MqttClientSettings:
    """`client` with its files beside the settings file."""
    files = {"password_file": client.password_file, "ca_file": client.ca_file}
    return msgspec.structs.replace(client, **{key: str(path.parent / name) for key, name in files.items() if name is not None})
