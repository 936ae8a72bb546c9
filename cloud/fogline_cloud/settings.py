"""The cloud side's settings: one TOML file for bridge, flow and ledger, decoded once into these types."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from fogline.errors import Misconfigured
from fogline.settings import load_settings

Identifier = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:\-]{1,64}$")]
Scalar = str | int | float | bool


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An unknown key is an error."""


class BridgeSettings(_Strict, frozen=True, kw_only=True):
    """The AMQP listener and its transactions. `advertised` is where gateways reach this bridge (default: `listen`).

    `gateways`: the names that may connect; left out: any (only sensible on loopback). `hellos_s`: how many gateways may
    come in a second, in the long run; when more come at once, the others are told when to come back. `queue_bytes`,
    `queue_connection_bytes`: the most that may wait for a Kafka transaction, of all connections and of one; senders get no
    credit meanwhile. `one_cpu`: all of the bridge on one CPU at a time, for which it does more (docs/performance.md); more
    bridges share the shards.
    """

    name: Identifier = "bridge-1"
    listen: str = "127.0.0.1:5672"
    advertised: str | None = None
    gateways: list[Identifier] | None = None
    max_connections: Annotated[int, Meta(ge=1)] = 1000
    hellos_s: Annotated[float, Meta(gt=0)] = 100.0
    transaction_events: Annotated[int, Meta(ge=1)] = 5000
    transaction_ms: Annotated[int, Meta(ge=1, le=5000)] = 20
    checkpoint_s: Annotated[float, Meta(gt=0)] = 5.0
    queue_bytes: Annotated[int, Meta(ge=1_048_576)] = 268_435_456
    queue_connection_bytes: Annotated[int, Meta(ge=1_048_576)] = 16_777_216
    one_cpu: bool = True


class CommandSettings(_Strict, frozen=True, kw_only=True):
    """Operators' commands.

    `max_ttl_s`: the longest that one may wait for its device; `direct_ttl_s`: how long one that does not wait may take,
    unless it says; `grace_s`: how long after its end the gateway's word is waited for, before it is in doubt.
    `signing_key`: a file with the private key that signs commands (base64), `key_id` its name at the gateways.
    """

    max_ttl_s: Annotated[float, Meta(gt=0, le=604_800)] = 604_800
    direct_ttl_s: Annotated[float, Meta(gt=0)] = 30.0
    grace_s: Annotated[float, Meta(ge=0)] = 10.0
    signing_key: str | None = None
    key_id: Identifier = "key-1"


class Strategy(StrEnum):
    """What becomes of an event that another gateway told of first.

    `DROP`: it is a duplicate. `MARK`: it is kept, and column `again` says so. `NONE`: it is kept, and nobody asks.
    """

    DROP = "drop"
    MARK = "mark"
    NONE = "none"


class SharedSettings(_Strict, frozen=True, kw_only=True):
    """Which events of devices that several gateways hear are one: an entry of `[[flow.shared]]`; the first that fits counts.

    `device`, `subject`: patterns as of a shell, for the device and the channel. `window_s`: how far apart, by their
    gateways' clocks, two copies may lie; less than it takes the device's counter to come round.
    """

    device: str = "*"
    subject: str = "*"
    strategy: Strategy = Strategy.DROP
    window_s: Annotated[float, Meta(gt=0, le=86_400)] = 30.0

    @property
    def window_us(self) -> int:
        """The window in microseconds; -1, so that nothing lies in it, where nobody asks."""
        return -1 if self.strategy is Strategy.NONE else round(self.window_s * 1_000_000)


class FlowSettings(_Strict, frozen=True, kw_only=True):
    """The Spark flow. `tables` and `checkpoint` are folders (relative to the settings file) or URLs of Spark.

    `master`: where Spark runs. `spark`: any further Spark settings. `storage`: options of delta-rs's object store for
    `tables`, where they are a URL (Spark's own stand in `spark`). `parsers`: content type -> parser name, over the
    default choice. `parse_limit_ms`: CPU time that a parser may take for one event. `ble_keys`: a file with the keys of
    Bluetooth devices (see `fogline_cloud.flows.key_file`).
    """

    name: Identifier = "main"
    tables: str = "tables"
    checkpoint: str = "checkpoint"
    master: str = "local[2]"
    trigger_ms: Annotated[int, Meta(ge=0)] = 1000
    max_events_per_batch: Annotated[int, Meta(ge=1)] = 50_000
    parse_limit_ms: Annotated[int, Meta(ge=1)] = 1000
    spark: dict[str, Scalar] = msgspec.field(default_factory=dict)
    storage: dict[str, str] = msgspec.field(default_factory=dict)
    parsers: dict[str, str] = msgspec.field(default_factory=dict)
    ble_keys: str | None = None
    shared: Annotated[list[SharedSettings], Meta(max_length=1000)] = msgspec.field(default_factory=list)


class Settings(_Strict, frozen=True, kw_only=True):
    """Everything.

    `kafka` takes any librdkafka key; `bootstrap.servers` is a must. `shards` is fixed for ever once the topics are made.
    """

    tenant: Identifier
    kafka: dict[str, Scalar]
    shards: Annotated[int, Meta(ge=1, le=1024)] = 8
    bridge: BridgeSettings = msgspec.field(default_factory=BridgeSettings)
    commands: CommandSettings = msgspec.field(default_factory=CommandSettings)
    flow: FlowSettings = msgspec.field(default_factory=FlowSettings)


def load(path: Path) -> Settings:
    """Read and check the settings. Folders become absolute. Raises `Misconfigured`."""
    settings = load_settings(path, Settings)
    if not settings.kafka.get("bootstrap.servers"):
        raise Misconfigured(f'{path}: missing key "bootstrap.servers" in [kafka], for example "127.0.0.1:9092"')
    flow = msgspec.structs.replace(
        settings.flow,
        tables=_absolute(settings.flow.tables, path),
        checkpoint=_absolute(settings.flow.checkpoint, path),
        ble_keys=None if settings.flow.ble_keys is None else _absolute(settings.flow.ble_keys, path),
    )
    commands = settings.commands
    if commands.signing_key is not None:
        commands = msgspec.structs.replace(commands, signing_key=_absolute(commands.signing_key, path))
    return msgspec.structs.replace(settings, flow=flow, commands=commands)


def _absolute(folder: str, beside: Path) -> str:
    return folder if "://" in folder else str((beside.parent / folder).resolve())
