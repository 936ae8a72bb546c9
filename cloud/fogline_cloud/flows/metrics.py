"""The metrics and the health of a flow."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping

from fogline.errors import FoglineError
from fogline.process.metrics import Histogram, Sample
from fogline_cloud.flows.commit import Progress
from fogline_cloud.kafka import KafkaClients

_LIMIT_S = 2.0  # time limit for the question for the ends of the raw topics

Offsets = Mapping[str, Mapping[str, int]]
"""Spark's offsets of the Kafka source: the next offset by partition by topic."""


class FlowMetrics:
    """Counts what a flow does. Thread-safe. `problem`: the reason why the flow waits or retries, or an empty text."""

    def __init__(self, clients: KafkaClients) -> None:
        self.problem = ""
        self._clients = clients
        self._batch_seconds = Histogram()
        self._events: Counter[str] = Counter()
        self._readings = self._batches = self._failed_compactions = 0
        self._last_commit = 0.0
        self._offsets: Offsets = {}

    def on_progress(self, progress: Progress) -> None:
        """Count a finished micro-batch."""
        self.problem = ""
        self._batches += 1
        self._events.update(progress.outcomes)
        self._readings += progress.readings
        self._batch_seconds.observe(progress.seconds)
        self._failed_compactions = progress.failed_compactions
        self._last_commit = time.time()

    def on_offsets(self, offsets: Offsets) -> None:
        """Take note of the offsets that the flow has processed."""
        self._offsets = offsets

    def on_failure(self, why: str) -> None:
        """Take note that the flow waits before it tries again."""
        self.problem = why

    def read(self) -> Iterator[Sample]:
        """Yield the present samples. Asks Kafka for the ends of the raw topics; without an answer there is no lag."""
        yield Sample("fogline_flow_batches_total", self._batches)
        yield from (Sample("fogline_flow_events_total", count, (outcome,)) for outcome, count in list(self._events.items()))
        yield Sample("fogline_flow_readings_total", self._readings)
        yield Sample("fogline_flow_batch_seconds", self._batch_seconds)
        yield Sample("fogline_flow_compactions_failed", self._failed_compactions)
        yield Sample("fogline_flow_last_commit_timestamp_seconds", self._last_commit)
        yield from (Sample("fogline_flow_lag", lag, (topic,)) for topic, lag in self._lag().items())

    def _lag(self) -> dict[str, int]:
        processed = {(topic, int(number)): offset for topic, each in self._offsets.items() for number, offset in each.items()}
        try:
            ends = self._clients.stable_ends(processed, _LIMIT_S)
        except FoglineError:
            return {}
        lag: Counter[str] = Counter()
        for (topic, number), end in ends.items():
            lag[topic] += max(0, end - processed[topic, number])
        return dict(lag)
