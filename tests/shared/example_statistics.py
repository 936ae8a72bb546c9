"""Statistics that a gateway reports."""

from fogline.events.event import Lane
from fogline.gateway.gateway_statistics import (
    CommandNumbers,
    GatewayStatistics,
    LaneBacklog,
    MachineNumbers,
    OutboxNumbers,
)

STATISTICS = GatewayStatistics(
    version="0.1.0",
    time_ms=1_700_000_000_000,
    clock_synced=True,
    uptime_s=60.5,
    outbox=OutboxNumbers(used_bytes=100, max_bytes=1000, dead=1, lanes={Lane.TELEMETRY: LaneBacklog(7, 3.5)}),
    commands=CommandNumbers(succeeded=2),
    machine=MachineNumbers(disk_size_bytes=32_000_000_000, temperature_c=51.2, undervoltage=False),
    bluetooth=True,
)
