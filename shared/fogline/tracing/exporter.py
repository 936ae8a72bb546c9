"""Exports finished spans to a collector, from a bounded queue and on a thread of its own.

Whoever makes a span only appends to the queue. If the collector is away, the queue keeps the newest spans and drops the
others; a warning names the setting, once until the collector answers again.
"""

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice

from fogline.errors import Poison, Unreachable
from fogline.tracing.collector import Collector
from fogline.tracing.otlp import encode_spans
from fogline.tracing.settings import TracingSettings
from fogline.tracing.spans import Attribute, TraceSpan

MAX_SPANS = 2048
"""Spans that wait at most, about 3 MB."""
BATCH_SPANS = 512
"""Largest number of spans in one request."""
GATHER_S = 1.0
"""Time in which further spans join the first one, in seconds."""
PAUSES_S = (1.0, 5.0, 30.0)
"""Pauses after failed requests; the last one repeats."""
CLOSE_S = 2.0
"""Time in which `close` tries to export what waits, in seconds."""

_log = logging.getLogger("fogline.tracing")


class SpanExporter:
    """Exports spans until `close`. `resource`: attributes of this process. `dropped`: number of spans that were not exported.

    Raises `Misconfigured` if the settings name no collector that can be used.
    """

    def __init__(self, settings: TracingSettings, resource: Mapping[str, Attribute]) -> None:
        self.dropped = 0
        self._collector = Collector(settings)
        self._resource = resource
        self._spans: deque[TraceSpan] = deque(maxlen=MAX_SPANS)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._problem = ""
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
        self._thread.start()

    def export(self, spans: Sequence[TraceSpan]) -> None:
        """See `fogline.tracing.spans.ExportSpans`."""
        if spans:
            with self._lock:
                self.dropped += max(0, len(self._spans) + len(spans) - MAX_SPANS)
                self._spans.extend(spans)
            self._wake.set()

    def close(self) -> None:
        """Export what waits, in `CLOSE_S` at most, and end the thread."""
        self._closing.set()
        self._wake.set()
        self._thread.join(CLOSE_S)
        lost = self.dropped + len(self._spans)
        if lost:
            _log.warning("%d spans were not exported", lost)

    # --- on the thread

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            self._closing.wait(GATHER_S)
            self._wake.clear()
            while (spans := self._take()) and self._deliver(spans):
                pass

    def _take(self) -> list[TraceSpan]:
        with self._lock:
            spans = list(islice(self._spans, BATCH_SPANS))
            for _ in spans:
                self._spans.popleft()
        return spans

    def _deliver(self, spans: list[TraceSpan]) -> bool:
        """Post spans until the collector has taken or refused them. Returns False if this process ends before."""
        body = encode_spans(self._resource, spans)
        while True:
            try:
                self._collector.post(body)
            except Poison as error:
                self._report(str(error))
                self._drop(len(spans))
                return True
            except Unreachable as error:
                self._report(str(error))
                pause_s = PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
                self._failures += 1
                if self._closing.wait(pause_s):
                    self._drop(len(spans))
                    return False
            else:
                self._recovered()
                return True

    def _drop(self, spans: int) -> None:
        with self._lock:
            self.dropped += spans

    def _report(self, problem: str) -> None:
        """Log the first failure of an outage."""
        if not self._problem:
            text = "the trace collector at %s does not take spans: %s. Check [tracing] endpoint, or that the collector runs. %s"
            _log.warning(text, self._collector.address, problem, "Events are not affected; spans that find no room are dropped")
        self._problem = problem

    def _recovered(self) -> None:
        if self._problem:
            _log.info("the trace collector at %s takes spans again", self._collector.address)
        self._problem, self._failures = "", 0
