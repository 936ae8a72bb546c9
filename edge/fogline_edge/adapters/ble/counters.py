"""What the Bluetooth adapter counts: every count and its meaning, in one place."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Since the start.

    `heard`: advertisements that BlueZ told of; `taken`: of those, what a profile fits and was put. `stored`, `duplicate`,
    `filtered`, `dead`: what the port told of these and of values. `unreadable`: advertisements that cannot be put into bytes.
    `slowed`: what was let go because the port had no room (advertisers repeat themselves). `crowded`: advertisements of
    devices beyond `max_devices`. `limited`: what one device said beyond `device_events_s`. `silent`: how often a device fell
    silent for longer than it may.

    `connected`: links that came about; `disconnected`: that ended; `connect_failures`: attempts that failed. `stale_links`:
    links of a former run that were closed. `notify_retries`: how often BlueZ was asked again for notifications. `values`:
    characteristics' values that were put. `read_failures`. `commands`: writes begun.
    """

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
    """What the supervisor has seen and done since the start.

    `bus_lost`: the system bus went away. `daemon_lost`: bluetoothd did, or another took its place. `adapter_lost`: it was
    unplugged. `powered_off`: it was switched off. `silences`: the scanner heard nothing for too long. `scan_stopped`: BlueZ
    stopped scanning, because another program did. `start_failures`: a scanner did not start. `scanners`: scanners started.
    `new_scanner`, `new_clients`, `power_cycle`, `reported`: the rungs of the ladder that were taken. `power_on`: the adapter
    was switched on. `recovered`: troubles that ended.
    """

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
