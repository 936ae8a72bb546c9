"""The Kafka topics of a tenant: names, partitions, retention (pure), and the lanes that land in them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from fogline.errors import Misconfigured
from fogline.event import Lane

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as it should be. `config` holds Kafka topic settings."""

    name: str
    partitions: int
    config: dict[str, str]


def telemetry(tenant: str) -> str:
    """Raw telemetry and bulk; partition = shard. Its partition count is the tenant's shard count."""
    return f"hono.telemetry.{tenant}"


def event(tenant: str) -> str:
    """Raw alarms; partition = shard."""
    return f"hono.event.{tenant}"


def command_response(tenant: str) -> str:
    """Replies to commands; partition = shard."""
    return f"hono.command_response.{tenant}"


def canonical(tenant: str) -> str:
    """Readings, at least once with stable ids."""
    return f"fogline.canonical.{tenant}"


def slow(tenant: str) -> str:
    """What the parser gave up on in time."""
    return f"fogline.slow.{tenant}"


def dead(tenant: str) -> str:
    """What cannot be processed, with the reason."""
    return f"fogline.dead.{tenant}"


def fleet(tenant: str) -> str:
    """Metadata of every event, without its body."""
    return f"fogline.fleet.{tenant}"


def commands(tenant: str) -> str:
    """The newest record of every command (compacted), key = command id; partition = the gateway's shard."""
    return f"fogline.commands.{tenant}"


def audit(tenant: str) -> str:
    """Every decision about a command, key = command id; partition = the gateway's shard."""
    return f"fogline.audit.{tenant}"


def checkpoint(tenant: str) -> str:
    """Where to begin reading a shard (compacted); partition = shard."""
    return f"fogline.checkpoint.{tenant}"


_OF_LANE = {Lane.ALARM: event, Lane.TELEMETRY: telemetry, Lane.BULK: telemetry, Lane.REPLY: command_response}


def of_lane(lane: Lane, tenant: str) -> str:
    """The one topic that a lane lands in."""
    return _OF_LANE[lane](tenant)


def raw_topics(tenant: str) -> list[str]:
    """The topics that lanes land in."""
    return [telemetry(tenant), event(tenant), command_response(tenant)]


def all_topics(tenant: str, shards: int) -> list[Topic]:
    """Everything that `fogline topics create` makes."""
    kept = {"cleanup.policy": "delete", "retention.ms": str(7 * _DAY_MS)}
    raw = {
        **kept,
        "message.timestamp.type": "LogAppendTime",
    }  # a producer's wrong clock neither expires a record nor stops Spark
    long = {"cleanup.policy": "delete", "retention.ms": str(30 * _DAY_MS)}
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.ms": str(_DAY_MS)}
    return [
        *(Topic(name, shards, raw) for name in raw_topics(tenant)),
        Topic(canonical(tenant), shards, kept),
        Topic(slow(tenant), shards, long),
        Topic(dead(tenant), shards, long),
        Topic(fleet(tenant), shards, kept),
        Topic(commands(tenant), shards, {**compacted, "cleanup.policy": "compact,delete", "retention.ms": str(30 * _DAY_MS)}),
        Topic(audit(tenant), shards, {"cleanup.policy": "delete", "retention.ms": str(365 * _DAY_MS)}),
        Topic(checkpoint(tenant), shards, compacted),
    ]


def require(wanted: Iterable[str], there: Collection[str]) -> None:
    """Raise `Misconfigured` if one of the topics is not there."""
    if missing := [name for name in wanted if name not in there]:
        raise Misconfigured(f"topics are missing: {', '.join(missing)}; run: fogline topics create")
