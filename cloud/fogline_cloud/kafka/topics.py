"""Names, partitions and retention of a tenant's Kafka topics, the topic of each lane, and other names in Kafka. Pure."""

from collections.abc import Callable, Collection, Iterable

import msgspec

from fogline.errors import Misconfigured
from fogline.events.event import Lane

_DAY_MS = 86_400_000
COMMAND_KEY = "command-key"
"""The purpose of the producer that writes the key for command ids (see `transactional_id`)."""
READER_GROUP = "fogline-reader"
"""The group that consumers without a group name, because librdkafka demands one. It has no members and no offsets."""


class Topic(msgspec.Struct, frozen=True):
    """One topic to create. `config` holds Kafka topic settings. `by_shard`: its partitions are the shards."""

    name: str
    partitions: int
    config: dict[str, str]
    by_shard: bool = False


def _named(prefix: str) -> Callable[[str], str]:
    return lambda tenant: f"{prefix}.{tenant}"


telemetry = _named("hono.telemetry")
"""Raw events of lanes telemetry and bulk; partition = shard. Its partition count is the tenant's shard count."""
event = _named("hono.event")
"""Raw events of lane alarm; partition = shard."""
command_response = _named("hono.command_response")
"""Replies to commands; partition = shard."""
command = _named("hono.command")
"""Commands of applications in the form of Eclipse Hono's Kafka API, key = device; only with `commands.kafka`."""
canonical = _named("fogline.canonical")
"""Readings, at least once, with stable ids."""


def canonical_topic(tenant: str, name: str) -> str:
    """Return the topic of the readings for which a rule names it (`flow.canonical.topics`)."""
    return f"fogline.canonical-{name}.{tenant}"


slow = _named("fogline.slow")
"""Events that took the parser too long."""
dead = _named("fogline.dead")
"""Events that cannot be processed, with the reason."""
fleet = _named("fogline.fleet")
"""Metadata of every event, without its body."""
commands = _named("fogline.commands")
"""The newest record of every command (compacted), key = command id; partition = the gateway's shard."""
audit = _named("fogline.audit")
"""Every decision about a command, key = command id; partition = the gateway's shard."""
checkpoint = _named("fogline.checkpoint")
"""Checkpoints of the shards (compacted); partition = shard."""
devices = _named("fogline.devices")
"""The registry of devices (compacted), key = device, or device and gateway; partition = the shard of the name it is about."""
credentials = _named("fogline.credentials")
"""The sealed keys of devices (compacted), key = device; partition = the device's shard. Only bridges read it."""
crl = _named("fogline.crl")
"""The list of revoked certificates (compacted), in one partition."""
_OF_LANE = {Lane.ALARM: event, Lane.TELEMETRY: telemetry, Lane.BULK: telemetry, Lane.REPLY: command_response}


def transactional_id(tenant: str, what: int | str) -> str:
    """Return the transactional id of a shard's producer, or of one with another purpose."""
    return f"fogline-{tenant}-{what}"


def bridge_group(tenant: str) -> str:
    """Return the consumer group of the tenant's bridges."""
    return f"fogline-bridge-{tenant}"


def command_group(tenant: str) -> str:
    """Return the consumer group of the bridges that read commands."""
    return f"fogline-command-{tenant}"


def consumer_group(tenant: str, *what: str) -> str:
    """Return a consumer group of AMQP consumers: by name, endpoint and selector; `*` stands for all groups."""
    return "/".join((f"fogline-consumer-{tenant}", *what))


def of_lane(lane: Lane, tenant: str) -> str:
    """Return the topic of a lane."""
    return _OF_LANE[lane](tenant)


def raw_topics(tenant: str) -> list[str]:
    """Return the topics of all lanes."""
    return [telemetry(tenant), event(tenant), command_response(tenant)]


def of_lanes(lanes: Collection[Lane], tenant: str) -> list[str]:
    """Return the raw topics of these lanes. Raises `Misconfigured` if a topic holds another lane too."""
    found = [topic for topic in raw_topics(tenant) if any(of_lane(lane, tenant) == topic for lane in lanes)]
    if missing := [lane.value for lane in Lane if lane not in lanes and of_lane(lane, tenant) in found]:
        raise Misconfigured(f"[flow] lanes: add {missing[0]}, which shares a Kafka topic with another lane of this flow")
    return found


def derived_topics(tenant: str, names: Iterable[str] = ()) -> list[str]:
    """Return the topics that the flow writes. `names`: of the further topics of readings."""
    return [canonical(tenant), *(canonical_topic(tenant, name) for name in names), slow(tenant), dead(tenant), fleet(tenant)]


def all_topics(tenant: str, shards: int, *, kafka_commands: bool = False, names: Iterable[str] = ()) -> list[Topic]:
    """Return all topics that `fogline topics create` creates. `names`: of the further topics of readings."""
    kept = {"cleanup.policy": "delete", "retention.ms": str(7 * _DAY_MS)}
    # LogAppendTime: a producer's wrong clock must neither expire a record nor stop Spark.
    raw = {**kept, "message.timestamp.type": "LogAppendTime"}
    long = {"cleanup.policy": "delete", "retention.ms": str(30 * _DAY_MS)}
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.ms": str(_DAY_MS)}
    return [
        *(Topic(name, shards, raw, by_shard=True) for name in raw_topics(tenant)),
        *([Topic(command(tenant), shards, raw)] if kafka_commands else []),
        *(Topic(name, shards, kept) for name in (canonical(tenant), *(canonical_topic(tenant, each) for each in names))),
        Topic(slow(tenant), shards, long),
        Topic(dead(tenant), shards, long),
        Topic(fleet(tenant), shards, kept),
        Topic(commands(tenant), shards, {**compacted, **long, "cleanup.policy": "compact,delete"}, by_shard=True),
        Topic(audit(tenant), shards, {**long, "retention.ms": str(365 * _DAY_MS)}, by_shard=True),
        Topic(checkpoint(tenant), shards, compacted, by_shard=True),
        Topic(devices(tenant), shards, compacted, by_shard=True),
        Topic(credentials(tenant), shards, compacted, by_shard=True),
        Topic(crl(tenant), 1, compacted),
    ]


def require(wanted: Iterable[str], existing: Collection[str]) -> None:
    """Raise `Misconfigured` if a topic does not exist."""
    if missing := [name for name in wanted if name not in existing]:
        raise Misconfigured(
            f"topics are missing, or Kafka hides them from this user: {', '.join(missing)}; run: fogline topics create"
            " (with --acls if Kafka checks ACLs)"
        )
