"""The gateways of this bridge's shards, connected or not, and the statistics that each one sent last, as metrics."""

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from fogline.events.event import Lane
from fogline.gateway.gateway_statistics import GatewayStatistics
from fogline.gateway.hello import KNOWN_MS
from fogline.process.monitoring.metrics import Sample

MAX_GATEWAYS = 10_000
"""Gateways of which metrics are kept. Beyond it, the one that was silent for longest is left out."""


@dataclass(slots=True)
class FleetMember:
    """One gateway. Times are in seconds since 1970. `received_s`: when `statistics` came."""

    shard_number: int
    seen_s: float = 0.0
    certificate_end_s: float | None = None
    statistics: GatewayStatistics | None = None
    received_s: float = 0.0
    received: int = 0


class FleetStatistics:
    """The gateways by name. Used on the loop. `now_s`: the time since 1970.

    A gateway makes series of its own name only: numbers within limits, its lanes, and one version at a time.
    """

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._members: dict[str, FleetMember] = {}

    def seen(self, name: str, shard_number: int) -> FleetMember:
        """Note a message of a gateway that is connected."""
        member = self._members.get(name)
        if member is None:
            member = self._add(name, FleetMember(shard_number))
        member.seen_s = self._now_s()
        return member

    def reported(self, name: str, shard_number: int, statistics: GatewayStatistics) -> None:
        """Keep the statistics of a gateway."""
        member = self.seen(name, shard_number)
        member.statistics, member.received_s = statistics, member.seen_s
        member.received += 1

    def certified(self, name: str, end: datetime) -> None:
        """Note the end of the certificate of a gateway that is connected."""
        if (member := self._members.get(name)) is not None:
            member.certificate_end_s = end.timestamp()

    def recall(self, shard_number: int, last_ms: Mapping[str, int]) -> None:
        """Add the gateways that Kafka knows of a shard, by the times of their last events, in milliseconds since 1970."""
        for name, at_ms in last_ms.items():
            if name not in self._members and self._is_recent(at_ms / 1000):
                self._add(name, FleetMember(shard_number, at_ms / 1000))

    def read(self, connected: Iterable[str], shards: Container[int]) -> Iterator[Sample]:
        """Yield the samples of the gateways of `shards`. Forget all others, and those that were silent for 30 days."""
        names = frozenset(connected)
        self._members = {
            name: each
            for name, each in self._members.items()
            if each.shard_number in shards and (name in names or self._is_recent(each.seen_s))
        }
        for name, member in self._members.items():
            for metric, value, *labels in _numbers(member):
                yield Sample(f"fogline_gateway_{metric}", value, (name, *labels))
            yield Sample("fogline_gateway_connected", int(name in names), (name,))

    def _is_recent(self, at_s: float) -> bool:
        return at_s > self._now_s() - KNOWN_MS / 1000

    def _add(self, name: str, member: FleetMember) -> FleetMember:
        if len(self._members) >= MAX_GATEWAYS:
            del self._members[min(self._members, key=lambda each: self._members[each].seen_s)]
        self._members[name] = member
        return member


_Number = tuple[str, float] | tuple[str, float, str]


def _numbers(member: FleetMember) -> Iterator[_Number]:
    yield "last_seen_timestamp_seconds", member.seen_s
    yield "statistics_total", member.received
    if member.certificate_end_s is not None:
        yield "certificate_end_timestamp_seconds", member.certificate_end_s
    if (statistics := member.statistics) is None:
        return
    yield "version_info", 1, statistics.version
    yield "uptime_seconds", statistics.uptime_s
    yield "clock_synchronized", int(statistics.clock_synced)
    yield "clock_ahead_seconds", statistics.time_ms / 1000 - member.received_s
    if statistics.bluetooth is not None:
        yield "bluetooth_working", int(statistics.bluetooth)
    for state in statistics.commands.__struct_fields__:
        yield "commands_total", getattr(statistics.commands, state), state.upper()
    yield from _outbox(statistics)
    yield from _machine(statistics)


def _outbox(statistics: GatewayStatistics) -> Iterator[_Number]:
    outbox = statistics.outbox
    for lane in Lane:
        backlog = outbox.lanes.get(lane)
        yield "outbox_events", backlog.events if backlog else 0, lane.value
        yield "outbox_oldest_seconds", backlog.oldest_s if backlog else 0.0, lane.value
    yield "outbox_used_bytes", outbox.used_bytes
    yield "outbox_max_bytes", outbox.max_bytes
    yield "dead_total", outbox.dead
    yield "dropped_total", outbox.dropped
    yield "quarantined_total", outbox.quarantined


_MACHINE = {
    "disk_size_bytes": "disk_size_bytes",
    "disk_free_bytes": "disk_free_bytes",
    "disk_life_used": "disk_life_used_ratio",
    "disk_written_bytes": "disk_written_bytes_total",
    "written_bytes": "written_bytes_total",
    "temperature_c": "temperature_celsius",
    "undervoltage": "undervoltage",
    "throttled": "throttled",
}
"""Metrics by the fields of `MachineNumbers`."""


def _machine(statistics: GatewayStatistics) -> Iterator[_Number]:
    for name, metric in _MACHINE.items():
        value = getattr(statistics.machine, name)
        if value is not None:
            yield metric, float(value)
