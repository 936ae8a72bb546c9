"""Counters of the Bluetooth adapter."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class BleCounters:
    """Counters since the start. `fogline.process.monitoring.metrics` has their meanings."""

    heard: int = 0
    taken: int = 0
    stored: int = 0
    duplicate: int = 0
    filtered: int = 0
    dead: int = 0
    unreadable: int = 0
    slowed: int = 0
    crowded: int = 0
    limited: int = 0
    silent: int = 0
    connected: int = 0
    disconnected: int = 0
    connect_failures: int = 0
    stale_links: int = 0
    notify_retries: int = 0
    values: int = 0
    read_failures: int = 0
    commands: int = 0


@dataclass(slots=True)
class Steps:
    """Observations and actions of the supervisor since the start. `fogline.process.monitoring.metrics` has their meanings."""

    bus_lost: int = 0
    daemon_lost: int = 0
    adapter_lost: int = 0
    powered_off: int = 0
    silences: int = 0
    scan_stopped: int = 0
    start_failures: int = 0
    scanners: int = 0
    new_scanner: int = 0
    new_clients: int = 0
    power_cycle: int = 0
    power_on: int = 0
    reported: int = 0
    recovered: int = 0


@dataclass(slots=True)
class ScanMeter:
    """The reason of the present scan (`scan_mode.ScanReason`), as the one key of `scan`."""

    scan: dict[str, int] = field(default_factory=dict)
