"""What is known of every stage at this moment: written by the watchers, read by screen and killer."""

from collections import Counter, deque
from dataclasses import dataclass, field

from fogline.command import State

RATE_WINDOW_S = 1.0


@dataclass(slots=True)
class Meter:
    """A count that only grows, and how fast it grew in the last `window_s`."""

    window_s: float = RATE_WINDOW_S
    total: int = 0
    _samples: deque[tuple[float, int]] = field(default_factory=deque)

    def set(self, total: int, now_s: float) -> None:
        """The count at `now_s`."""
        self.total = max(total, self.total)
        self._samples.append((now_s, self.total))
        while len(self._samples) > 2 and self._samples[1][0] <= now_s - self.window_s:
            self._samples.popleft()

    def rate(self, now_s: float) -> float:
        """Per second; 0 if nothing was heard for longer than three windows."""
        if len(self._samples) < 2 or now_s - self._samples[-1][0] > 3 * self.window_s:
            return 0.0
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        return (last - first) / (ended - began) if ended > began else 0.0


@dataclass(slots=True)
class DeviceNews:
    """What the devices say."""

    acknowledged: Meter = field(default_factory=Meter)
    waiting: int = 0
    connected: int = 0
    connections: int = 0
    refused: int = 0
    unknown: int = 0
    p50_ms: float | None = None
    p99_ms: float | None = None
    sent: dict[str, int] | None = None


@dataclass(slots=True)
class GatewayNews:
    """What one outbox says."""

    stored: Meter = field(default_factory=lambda: Meter(3.0))
    settled: int = 0
    backlog: int = 0
    duplicate: int = 0


@dataclass(slots=True)
class KafkaNews:
    """What was read, committed, from the raw topics. `records` counts everything, `events` what devices sent.

    `ble`: what of it came by Bluetooth, from the devices `heard`. `latency_ms`: from stored at the gateway to read here.
    `highest`: by gateway's stream.
    """

    events: Meter = field(default_factory=lambda: Meter(2.0))
    records: int = 0
    lanes: dict[str, int] = field(default_factory=dict)
    latency_ms: deque[float] = field(default_factory=lambda: deque(maxlen=400))
    highest: dict[str, int] = field(default_factory=dict)
    ble: int = 0
    heard: set[str] = field(default_factory=set)


@dataclass(slots=True)
class AirNews:
    """What the air says: things that advertisers said, devices that are connected to, links that ended on purpose."""

    said: int = 0
    linked: int = 0
    cycles: int = 0


@dataclass(slots=True)
class FlowNews:
    """`rows` of table `events`, `newest` batch in it; the last batch that was finished; `batches` since Spark's start."""

    rows: Meter = field(default_factory=lambda: Meter(10.0))
    newest: int = -1
    batch: int = -1
    batch_events: int = 0
    batch_s: float = 0.0
    batches: int = 0


@dataclass(slots=True)
class OrderNews:
    """What the operator says: commands sent, what it was told of them, and how long an answer took."""

    sent: int = 0
    states: Counter[State] = field(default_factory=Counter)
    latency_ms: deque[float] = field(default_factory=lambda: deque(maxlen=400))

    @property
    def waiting(self) -> int:
        """Commands without a verdict."""
        return self.sent - self.states.total()


@dataclass(frozen=True, slots=True)
class ReadingNews:
    """One canonical reading, `late_s` after the gateway had stored its event."""

    device: str
    metric: str
    value: str
    late_s: float


@dataclass(slots=True)
class Picture:
    """Everything. `readings`: the last one of each sort of device; `down`: which parts are killed and not back.

    `census`: by part, what it says that it holds (see `fogline.census`).
    """

    gateways: dict[str, GatewayNews]
    devices: DeviceNews = field(default_factory=DeviceNews)
    kafka: KafkaNews = field(default_factory=KafkaNews)
    flow: FlowNews = field(default_factory=FlowNews)
    orders: OrderNews = field(default_factory=OrderNews)
    air: AirNews = field(default_factory=AirNews)
    readings: dict[str, ReadingNews] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    census: dict[str, dict[str, int]] = field(default_factory=dict)
    doing: str = "starting"
    journal: deque[str] = field(default_factory=lambda: deque(maxlen=8))

    @property
    def backlog(self) -> int:
        """Events in the outboxes."""
        return sum(each.backlog for each in self.gateways.values())

    @property
    def state(self) -> str:
        """In words."""
        return f"{' and '.join(sorted(self.down))} down" if self.down else self.doing

    @property
    def lag(self) -> int:
        """Records in Kafka that are not in the table."""
        return max(0, self.kafka.records - self.flow.rows.total)


def middle(values: deque[float]) -> float | None:
    """The median."""
    found = sorted(values)
    return found[len(found) // 2] if found else None
