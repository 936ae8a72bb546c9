"""The metrics and the health of a flow."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping

from fogline.errors import FoglineError
from fogline.process.monitoring.metrics import Histogram, Sample
from fogline.tracing.activation import read_tracing
from fogline_cloud.flows.driver.commit import Progress
from fogline_cloud.flows.driver.raw_sink import RawProgress
from fogline_cloud.kafka.clients import KafkaClients, Partition

_LIMIT_S = 2.0  # time limit for the question for the ends of the raw topics

Offsets = Mapping[str, Mapping[str, int]]
"""Spark's offsets of the Kafka source: the next offset by partition by topic."""


class FlowMetrics:
    """Counts what a flow does. Thread-safe."""

    def __init__(self, clients: KafkaClients) -> None:
        self._problems = {"parsing": "", "raw": ""}
        self._clients = clients
        self._batch_seconds = Histogram()
        self._events: Counter[str] = Counter()
        self._readings = self._batches = self._failed_maintenance = self._returned = 0
        self._last_commit = 0.0
        self._offsets: Offsets = {}
        self._raw_offsets: Offsets = {}
        self._raw_records = 0
        self._last_raw_commit = 0.0

    @property
    def problem(self) -> str:
        """The reasons why the queries of the flow wait or retry."""
        return "; ".join(dict.fromkeys(filter(None, self._problems.values())))

    def on_progress(self, progress: Progress) -> None:
        """Count a finished micro-batch."""
        self._problems["parsing"] = ""
        self._batches += 1
        self._events.update(progress.outcomes)
        self._readings += progress.readings
        self._returned += len(progress.returned)
        self._batch_seconds.observe(progress.seconds)
        self._last_commit = time.time()

    def on_offsets(self, offsets: Offsets) -> None:
        """Take note of the offsets that the flow has processed."""
        self._offsets = offsets

    def on_failure(self, why: str) -> None:
        """Take note that the flow waits before it tries again."""
        self._problems["parsing"] = why

    def on_raw_progress(self, progress: RawProgress) -> None:
        """Count a micro-batch in table `raw`."""
        self._problems["raw"] = ""
        self._raw_records += progress.records
        self._last_raw_commit = time.time()

    def on_raw_offsets(self, offsets: Offsets) -> None:
        """Take note of the offsets up to which records are in table `raw`."""
        self._raw_offsets = offsets

    def on_raw_failure(self, why: str) -> None:
        """Take note that the query of table `raw` waits before it tries again."""
        self._problems["raw"] = why

    def on_failed_maintenance(self) -> None:
        """Count a run of maintenance that failed."""
        self._failed_maintenance += 1

    def read(self) -> Iterator[Sample]:
        """Yield the present samples. Asks Kafka for the ends of the raw topics; without an answer there is no lag."""
        yield from read_tracing()
        yield Sample("fogline_flow_batches_total", self._batches)
        yield from (Sample("fogline_flow_events_total", count, (outcome,)) for outcome, count in list(self._events.items()))
        yield Sample("fogline_flow_readings_total", self._readings)
        yield Sample("fogline_flow_batch_seconds", self._batch_seconds)
        yield Sample("fogline_flow_maintenance_failed", self._failed_maintenance)
        yield Sample("fogline_flow_parsers_returned_total", self._returned)
        yield Sample("fogline_flow_last_commit_timestamp_seconds", self._last_commit)
        yield Sample("fogline_flow_raw_records_total", self._raw_records)
        yield Sample("fogline_flow_raw_last_commit_timestamp_seconds", self._last_raw_commit)
        try:
            partitions = self._clients.topics(_LIMIT_S)
            parsed, raw = (_positions(offsets, partitions) for offsets in (self._offsets, self._raw_offsets))
            ends = self._clients.stable_ends({*parsed, *raw}, _LIMIT_S)
        except FoglineError:
            return
        for name, positions in (("fogline_flow_lag", parsed), ("fogline_flow_raw_lag", raw)):
            yield from (Sample(name, lag, (topic,)) for topic, lag in _lag(positions, ends).items())


def _positions(offsets: Offsets, partitions: Mapping[str, int]) -> dict[Partition, int]:
    """Return the next offset of each partition, also of those that were added since: the flow reads them from their begin."""
    return {
        (topic, number): each.get(str(number), 0)
        for topic, each in offsets.items()
        for number in range(partitions.get(topic, 0))
    }


def _lag(positions: Mapping[Partition, int], ends: Mapping[Partition, int]) -> dict[str, int]:
    lag: Counter[str] = Counter()
    for (topic, number), offset in positions.items():
        lag[topic] += max(0, ends[topic, number] - offset)
    return dict(lag)
