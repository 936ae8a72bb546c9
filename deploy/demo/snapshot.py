"""Current state of every stage: written by the probes, read by screen, killer and soak."""

from collections import Counter, deque
from dataclasses import dataclass, field

from fogline.commands.command import CommandState

RATE_WINDOW_S = 1.0


@dataclass(slots=True)
class Meter:
    """A growing count, and its rate over the last `window_s`."""

    window_s: float = RATE_WINDOW_S
    total: int = 0
    _samples: deque[tuple[float, int]] = field(default_factory=deque)

    def set(self, total: int, now_s: float) -> None:
        """Set the count at `now_s`."""
        self.total = max(total, self.total)
        self._samples.append((now_s, self.total))
        while len(self._samples) > 2 and self._samples[1][0] <= now_s - self.window_s:
            self._samples.popleft()

    def rate(self, now_s: float) -> float:
        """Return the rate per second; 0 if the last sample is older than three windows."""
        if len(self._samples) < 2 or now_s - self._samples[-1][0] > 3 * self.window_s:
            return 0.0
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        return (last - first) / (ended - began) if ended > began else 0.0


@dataclass(slots=True)
class DeviceStats:
    """State of the MQTT and CoAP devices, from their output. `waiting_at`: messages without acknowledgement, by gateway."""

    acknowledged: Meter = field(default_factory=Meter)
    waiting: int = 0
    waiting_at: dict[int, int] = field(default_factory=dict)
    connected: int = 0
    connections: int = 0
    refused: int = 0
    unknown: int = 0
    p50_ms: float | None = None
    p99_ms: float | None = None
    sent: dict[str, int] | None = None


@dataclass(slots=True)
class GatewayStats:
    """State of one outbox."""

    stored: Meter = field(default_factory=lambda: Meter(3.0))
    settled: int = 0
    backlog: int = 0
    duplicate: int = 0


@dataclass(slots=True)
class KafkaStats:
    """Committed records of the raw topics. `records` counts all, `events` those of devices.

    `ble`: events of Bluetooth devices; `heard`: their names. `latency_ms`: from the gateway's commit to the read here.
    `highest`: the highest sequence of each stream.
    """

    events: Meter = field(default_factory=lambda: Meter(2.0))
    records: int = 0
    lanes: dict[str, int] = field(default_factory=dict)
    latency_ms: deque[float] = field(default_factory=lambda: deque(maxlen=400))
    highest: dict[str, int] = field(default_factory=dict)
    ble: int = 0
    heard: set[str] = field(default_factory=set)


@dataclass(slots=True)
class AirStats:
    """State of the Bluetooth devices: values advertised, devices connected, links ended on purpose."""

    said: int = 0
    linked: int = 0
    cycles: int = 0


@dataclass(slots=True)
class FlowStats:
    """State of the flow: `rows` and `newest` batch of table `events`, last finished batch, `batches` since Spark's start."""

    rows: Meter = field(default_factory=lambda: Meter(10.0))
    newest: int = -1
    batch: int = -1
    batch_events: int = 0
    batch_s: float = 0.0
    batches: int = 0


@dataclass(slots=True)
class CommandStats:
    """State of the operator: commands sent, their results by state, and the times to an answer."""

    sent: int = 0
    states: Counter[CommandState] = field(default_factory=Counter)
    latency_ms: deque[float] = field(default_factory=lambda: deque(maxlen=400))

    @property
    def waiting(self) -> int:
        """Commands without a result."""
        return self.sent - self.states.total()


@dataclass(frozen=True, slots=True)
class LastReading:
    """One canonical reading, `late_s` after the gateway had stored its event."""

    device: str
    metric: str
    value: str
    late_s: float


@dataclass(slots=True)
class Snapshot:
    """State of all stages. `readings`: the last one of each kind of device. `down`: parts that are killed and not back.

    `census`: counts that each part printed (see `fogline.process.monitoring.statistics`).
    """

    gateways: dict[str, GatewayStats]
    devices: DeviceStats = field(default_factory=DeviceStats)
    kafka: KafkaStats = field(default_factory=KafkaStats)
    flow: FlowStats = field(default_factory=FlowStats)
    commands: CommandStats = field(default_factory=CommandStats)
    air: AirStats = field(default_factory=AirStats)
    readings: dict[str, LastReading] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    census: dict[str, dict[str, int]] = field(default_factory=dict)
    doing: str = "starting"
    journal: deque[str] = field(default_factory=lambda: deque(maxlen=8))

    @property
    def backlog(self) -> int:
        """Events that wait in the outboxes."""
        return sum(each.backlog for each in self.gateways.values())

    @property
    def state(self) -> str:
        """One line: the parts that are down, else the current step."""
        return f"{' and '.join(sorted(self.down))} down" if self.down else self.doing

    @property
    def lag(self) -> int:
        """Number of records in Kafka that are not in the table."""
        return max(0, self.kafka.records - self.flow.rows.total)


def middle(values: deque[float]) -> float | None:
    """Return the median."""
    found = sorted(values)
    return found[len(found) // 2] if found else None
