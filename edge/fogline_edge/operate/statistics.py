"""The statistics of this gateway, which the uplink sends to the bridge."""

import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fogline.events.event import Lane
from fogline.gateway.gateway_statistics import CommandNumbers, GatewayStatistics, LaneBacklog, OutboxNumbers
from fogline_edge.downlink.runner import DownlinkCounters
from fogline_edge.machine.boot import Clock, moment
from fogline_edge.machine.health import read_machine
from fogline_edge.operate.status import read_oldest, read_status
from fogline_edge.settings import EdgeSettings

_COUNTED = ("dead", "dropped", "quarantined")


class StatisticsReader:
    """Reads the numbers of a running gateway. Created when the outbox is open; then called on a thread.

    The outbox forgets old streams, with their counts, when it is opened. So counts are those since then.
    """

    def __init__(self, settings: EdgeSettings, downlink: DownlinkCounters, clock: Clock) -> None:
        self._folder = Path(settings.data)
        self._max_bytes = settings.outbox.max_bytes
        self._uses_bluetooth = settings.ble is not None
        self._downlink = downlink
        self._clock = clock
        self._began_s = time.monotonic()
        self._version = version("fogline-edge")
        self._former = read_status(self._folder)

    def read(self) -> GatewayStatistics:
        """Return the present statistics. Raises `Misconfigured` if the outbox cannot be read at the moment."""
        now, status, oldest = moment(self._clock), read_status(self._folder), read_oldest(self._folder)
        events = Counter[Lane]()
        for stream in status["streams"]:
            events[Lane(stream["lane"])] += stream["backlog"]
        return GatewayStatistics(
            version=self._version,
            time_ms=max(0, now.time_ns // 1_000_000),
            clock_synced=now.synced,
            uptime_s=time.monotonic() - self._began_s,
            outbox=OutboxNumbers(
                used_bytes=status["used_bytes"],
                max_bytes=self._max_bytes,
                **{name: max(0, status[name] - self._former[name]) for name in _COUNTED},
                lanes={lane: LaneBacklog(count, max(0.0, oldest.get(lane, 0.0))) for lane, count in events.items() if count},
            ),
            commands=_commands(self._downlink),
            machine=read_machine(self._folder),
            bluetooth=_bluetooth(status) if self._uses_bluetooth else None,
        )


def _commands(counters: DownlinkCounters) -> CommandNumbers:
    return CommandNumbers(**{name: getattr(counters, name) for name in CommandNumbers.__struct_fields__})


def _bluetooth(status: dict[str, Any]) -> bool:
    return "ble" in status and status["ble"]["problem"] is None
