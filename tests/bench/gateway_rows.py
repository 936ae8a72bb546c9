"""The rows of the gateway: loads, and the goals of their figures. docs/proofs/performance.md says how to read them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

CARD = ("outbox.group_commit_ms = 500",)
"""The settings for an SD card, unless others are given."""
GATEWAY, MOSQUITTO, SQLITE = SYSTEMS = ("gateway", "mosquitto", "sqlite")


@dataclass(frozen=True, slots=True)
class Goal:
    """A least value, or with `at_most` a greatest."""

    value: float
    at_most: bool = True

    def met(self, value: float) -> bool:
        """Return True if a value reaches the goal."""
        return value <= self.value if self.at_most else value >= self.value


@dataclass(frozen=True, slots=True)
class GatewayRow:
    """One load, and the goals of the gateway's figures by column.

    `devices`: of each connection; 0: the device of its client id. `rate`: events per second in all; 0: full speed. `window`:
    packets of a connection that wait for their PUBACK. `card`: with the settings for an SD card. `core`: the share of one CPU
    that the gateway may use, with 512 MB; 0: all, without a limit. `tls`: certificates at both ends of the uplink.
    `settings`: more settings of the gateway, as `table.key = value`. `systems`: what is measured beside the gateway.
    """

    name: str
    connections: int = 1
    devices: int = 100
    rate: float = 0.0
    payload_bytes: int = 120
    window: int = 500
    card: bool = False
    core: float = 0.0
    tls: bool = False
    settings: tuple[str, ...] = ()
    systems: tuple[str, ...] = SYSTEMS
    goals: Mapping[str, Goal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """The choice of rows, by patterns, and of systems. `paced_s`: the length of a row with a rate, in seconds.

    `card`: settings of a gateway on an SD card. `block_device`: measure on a file system of its own.
    """

    rows: tuple[str, ...] = ("*",)
    systems: tuple[str, ...] = SYSTEMS
    paced_s: float = 60.0
    card: tuple[str, ...] = CARD
    block_device: bool = False

    def chosen(self) -> list[GatewayRow]:
        """Return the chosen rows in their order."""
        return [row for row in GATEWAY_ROWS.values() if any(fnmatchcase(row.name, pattern) for pattern in self.rows)]


_CALM_200 = {"cpu": Goal(0.25), "written": Goal(6000), "p50": Goal(8), "p99": Goal(20)}
_CARD_20 = {"cpu": Goal(1.0), "written": Goal(2500), "syncs_s": Goal(5)}
_CALM_20 = {"cpu": Goal(1.0), "written": Goal(9000)}
_EIGHT = {"written": Goal(1000), "events": Goal(20_000, at_most=False), "cpu": Goal(0.03), "wire": Goal(60)}
_ALONE = (GATEWAY, SQLITE)

_ROWS = (
    GatewayRow("one-connection", goals={"ratio": Goal(1.0, at_most=False), "cpu": Goal(0.03), "written": Goal(1000)}),
    GatewayRow("one-connection-200", rate=200, goals=_CALM_200),
    GatewayRow("one-connection-200-card", rate=200, card=True, systems=_ALONE, goals={"written": Goal(1500)}),
    GatewayRow("one-connection-20", rate=20, goals=_CALM_20),
    GatewayRow("one-connection-20-card", rate=20, card=True, systems=_ALONE, goals=_CARD_20),
    GatewayRow("hundred-connections", connections=100, devices=0, window=20, goals={"written": Goal(1000)}),
    GatewayRow("hundred-connections-200", connections=100, devices=0, window=20, rate=200, goals=_CALM_200),
    GatewayRow("hundred-connections-20", connections=100, devices=0, window=20, rate=20, goals=_CALM_20),
    GatewayRow(
        "hundred-connections-20-card",
        connections=100,
        devices=0,
        window=20,
        rate=20,
        card=True,
        systems=_ALONE,
        goals=_CARD_20,
    ),
    GatewayRow("ten-gateways", connections=10, payload_bytes=20, window=50, goals={"written": Goal(1000)}),
    GatewayRow("eight-connections", connections=8, devices=0, window=200, goals=_EIGHT),
    GatewayRow("quarter-core", core=0.25, systems=(GATEWAY,), goals={"events": Goal(5000, at_most=False), "rss": Goal(512)}),
    GatewayRow("quarter-core-200", core=0.25, rate=200, systems=(GATEWAY,), goals={"p99": Goal(60)}),
)
GATEWAY_ROWS = {row.name: row for row in _ROWS}
