"""The tables of `[rules]`: what the gateway decides about events before it stores them."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fogline.events.identity import Duplicates
from fogline_edge.settings_types import Identifier, StrictTable

MAX_RULES = 256
"""The most tables of one kind: each rule has counts in every statement of the ledger."""
AGGREGATE_PATTERN = r"^(count|mean|min|max|last|p[0-9]{1,2}(\.[0-9]{1,2})?)$"
Aggregate = Annotated[str, Meta(pattern=AGGREGATE_PATTERN)]
"""What a window says about a field. `p95`: the number below which 95 % of the numbers are."""


class RuleTable(StrictTable, frozen=True, kw_only=True):
    """What all rules have: a name, and the events that the rule applies to. An event must fulfil every key that is given."""

    name: Identifier
    """Name of the rule, unique in the file. Metrics, the ledger and `fogline-edge explain` show it."""
    device: Annotated[str, Meta(min_length=1)] = "*"
    """Shell pattern of devices, such as `press-*`."""
    channel: Annotated[str, Meta(min_length=1)] = "#"
    """MQTT topic, CoAP or HTTP path, or characteristic, with MQTT's wildcards `+` and `#`."""
    type: str | None = None
    """CloudEvents type of the events, such as `telemetry`."""
    adapter: Literal["ble", "coap", "http", "mqtt", "mqtt-client"] | None = None
    """Protocol of the device."""


class IdentityTable(RuleTable, frozen=True, kw_only=True):
    """Says which events are the same: by fields of the payload, the device's time, or a counter (docs/rules.md).

    The first table decides that applies to an event and whose fields the event has. It has precedence over the protocol's ids.
    """

    fields: Annotated[list[str], Meta(max_length=16)] = msgspec.field(default_factory=list)
    """Fields whose values are the key: JSON pointers such as `/serial`, which read CBOR too, or bytes such as `bytes:0-7`."""
    time: bool = False
    """`true`: the device's time (MQTT user property `time`, CloudEvents `time`) is part of the key, or all of it."""
    session: str | None = None
    """Field that names the boot or session in which `counter` counts."""
    counter: str | None = None
    """Field with a counter: an integer, or bytes with the most significant one first."""
    counter_bits: Annotated[int, Meta(ge=8, le=64)] | None = None
    """Width of a counter without a `session`, which returns to 0 after its largest value, and when the device restarts."""
    window_s: Annotated[int, Meta(ge=1, le=172_800)] | None = None
    """Time after an event in which its key means the same event, in seconds, for keys that return. Default: 60 s for a counter
    without a session; for all others as long as the gateway remembers the key, which is 48 hours at least."""
    duplicates: Duplicates = Duplicates.DROP
    """`drop`: a second event with the key is not stored. `mark`: it is stored and names the first one. `none`: it is stored."""
    shared: bool = False
    """`true`: other gateways may receive the events. The flow compares the events of all gateways, as `duplicates` says."""


class PrivateTable(RuleTable, frozen=True, kw_only=True):
    """Keeps fields at home: each is dropped, rounded or hashed before anything of the event is stored (docs/private-fields.md).

    Every table that applies to an event is performed.
    """

    drop: Annotated[list[str], Meta(max_length=64)] = msgspec.field(default_factory=list)
    """Fields that are removed: JSON pointers such as `/person/name`, which read CBOR too, or bytes, which become zeros."""
    round: dict[str, Annotated[float, Meta(gt=0)]] = msgspec.field(default_factory=dict)
    """Numbers that are rounded to a multiple: field -> step, such as `{ "/temperature" = 0.5 }`. Other values are removed."""
    hash: Annotated[list[str], Meta(max_length=64)] = msgspec.field(default_factory=list)
    """Fields that are replaced by a hash with the key in `key_file` (BLAKE2b, 128 bits): equal values have equal hashes."""
    key_file: str | None = None
    """File with the key of the hashes, of mode 600 and 16 bytes or more, such as `openssl rand -hex 32` makes."""
    drop_properties: Annotated[list[str], Meta(max_length=64)] = msgspec.field(default_factory=list)
    """Names of properties of the event that are removed: MQTT 5 user properties, and those of Hono's property bag."""


class ReduceTable(RuleTable, frozen=True, kw_only=True):
    """Keeps events of the telemetry and bulk lanes back, and counts them: by report on change, sampling, or windows.

    The first table decides that applies to an event and whose fields the event has (docs/rules.md).
    """

    fields: Annotated[list[str], Meta(max_length=16)] = msgspec.field(default_factory=list)
    """Fields that are compared or aggregated: JSON pointers such as `/state/temperature`. Default: the whole payload."""
    on_change: bool = False
    """`true`: an event is stored if one of the fields has changed since the last stored event."""
    change: Annotated[float, Meta(gt=0)] | None = None
    """As `on_change`, but only if a number has changed by this much at least."""
    change_percent: Annotated[float, Meta(gt=0)] | None = None
    """As `change`, in percent of the last stored number. With both keys, one of the two changes is enough."""
    dead_band: tuple[float, float] | None = None
    """Lowest and highest number of a band in which all numbers are the same, such as `[-0.5, 0.5]`."""
    min_interval_s: Annotated[float, Meta(ge=0)] = 0.0
    """Shortest time between two stored events of a device's channel, in seconds. Alone, it samples one event in this time."""
    max_interval_s: Annotated[float, Meta(gt=0)] | None = None
    """Time after which an unchanged event is stored, in seconds. Default: never."""
    every: Annotated[int, Meta(ge=2)] | None = None
    """Sampling: every n-th event of a device's channel is stored."""
    window_s: Annotated[int, Meta(ge=1, le=86_400)] | None = None
    """Length of windows in seconds: instead of its events, each device's channel gets one event for each window."""
    aggregates: Annotated[list[Aggregate], Meta(min_length=1, max_length=16)] = msgspec.field(
        default_factory=lambda: ["mean", "min", "max"]
    )
    """Aggregates of each field: `count`, `mean`, `min`, `max`, `last`, and quantiles such as `p50` and `p99.9`."""
    late_s: Annotated[int, Meta(ge=0, le=604_800)] | None = None
    """Time after its end in which late events revise a window, in seconds; others are stored. Default: `window_s`."""
    keep_days: Annotated[float, Meta(gt=0, le=366)] | None = None
    """Days for which the events that the rule keeps back stay at the gateway, for `fogline-edge history`. Default: none."""


class LastTable(StrictTable, frozen=True, kw_only=True):
    """The last value of a device, for the `when` of a rule."""

    device: Identifier
    """The device."""
    channel: Annotated[str, Meta(min_length=1)] = "#"
    """MQTT topic, CoAP or HTTP path, or characteristic, with MQTT's wildcards `+` and `#`."""
    max_age_s: Annotated[float, Meta(gt=0)] = 3600.0
    """Age in seconds from which the value is absent."""


class ActionTable(StrictTable, frozen=True, kw_only=True):
    """One action of a rule: a command to a device, an alarm event, or a message to programs on the site.

    It has `command`, `alarm` or `topic`.
    """

    command: Annotated[str, Meta(min_length=1)] | None = None
    """Name of a command, as in `fogline command send`. It passes the journal: the device gets it once, or it ends IN_DOUBT."""
    alarm: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    """Text of an event of the same device on lane `alarm`."""
    topic: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    """Local topic of a message to the users of `[mqtt.subscribers]`, such as `rule/fan`. It is published once at most."""
    device: Identifier | None = None
    """Device that gets the command, which must be one of this gateway. Default: the device of the event."""
    json: Any = None
    """Body as a TOML value, sent as JSON. For an alarm: further fields of its body. Default: none,
    and the event's payload for a message."""
    text: str | None = None
    """Body of the command or message as text."""
    ttl_s: Annotated[float, Meta(ge=2, le=86_400)] = 30.0
    """Time to live of the command: how long it waits for its device, in seconds."""
    reply: bool = True
    """`false`: the device gives no answer (one-way)."""
    idempotent: bool = False
    """`true`: the gateway may send the command again if it does not know whether the device got it."""


class ReactTable(RuleTable, frozen=True, kw_only=True):
    """A rule that acts on new events, also while the bridge is away. docs/rules.md explains it."""

    when: Annotated[str, Meta(min_length=1, max_length=1000)]
    """Condition in CEL over `event`, `last` and `time`, such as `event.value.temperature > 26.0`."""
    then: Annotated[list[ActionTable], Meta(min_length=1, max_length=16)]
    """Actions, in their order."""
    last: dict[Identifier, LastTable] = msgspec.field(default_factory=dict)
    """Last values of devices, by the name that `when` uses: `last.NAME.value`, `last.NAME.age_s`."""
    every: bool = False
    """`true`: act on each event while the condition holds. `false`: act when it becomes true."""
    per_minute: Annotated[float, Meta(gt=0, le=6000)] = 60.0
    """How often the rule may act per minute, in the long run."""
    burst: Annotated[int, Meta(ge=1, le=1000)] = 10
    """How often the rule may act at once."""
    echo_s: Annotated[float, Meta(ge=0, le=3600)] = 2.0
    """Time after a command in which the events of its device are taken for its effect: the rule does not act on them."""


class RuleSettings(StrictTable, frozen=True, kw_only=True):
    """Rules for events. Without any, the gateway stores each event as it comes."""

    private: Annotated[list[PrivateTable], Meta(max_length=MAX_RULES)] = msgspec.field(default_factory=list)
    identity: Annotated[list[IdentityTable], Meta(max_length=MAX_RULES)] = msgspec.field(default_factory=list)
    reduce: Annotated[list[ReduceTable], Meta(max_length=MAX_RULES)] = msgspec.field(default_factory=list)
    history_max_bytes: Annotated[int, Meta(ge=1_000_000)] = 100_000_000
    """Largest size of the file with the events that `keep_days` keeps, beside the outbox, in bytes. The oldest go first."""
    react: Annotated[list[ReactTable], Meta(max_length=MAX_RULES)] = msgspec.field(default_factory=list)

    @property
    def all(self) -> tuple[RuleTable, ...]:
        """All rules, in the order of their steps."""
        return (*self.private, *self.identity, *self.reduce, *self.react)


def resolve_keys(settings: RuleSettings, folder: Path) -> RuleSettings:
    """Return the settings with the key files as paths from `folder`."""
    private = [
        each if each.key_file is None else msgspec.structs.replace(each, key_file=str(folder / each.key_file))
        for each in settings.private
    ]
    return msgspec.structs.replace(settings, private=private)


def names_twice(settings: RuleSettings) -> str | None:
    """Return a name that two rules have, or None."""
    seen: set[str] = set()
    for each in settings.all:
        if each.name in seen:
            return each.name
        seen.add(each.name)
    return None
