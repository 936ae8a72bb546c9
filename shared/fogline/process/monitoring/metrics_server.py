"""`/metrics` for Prometheus, and the health for a supervisor, over HTTP on loopback, from the event loop that they report on.

`/livez`: 200 while the process answers; restart it if it does not. `/readyz` and `/healthz`: 503 with the reason while it
cannot do its work, for example without Kafka; a restart does not help then.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from fogline.errors import Misconfigured
from fogline.process.files.settings_file import require_loopback, split_endpoint
from fogline.process.monitoring.metrics import METRICS, Histogram, MetricType, Sample

REQUEST_S = 5.0
"""Time that a client has to send its request and to read the response."""
MAX_CLIENTS = 16
"""Requests that are served at a time. The others get 503."""

Read = Callable[[], Iterable[Sample]]
"""Return the present samples of a process. Called on the loop, or on the thread of `serve_in_thread`."""
Health = Callable[[], str]
"""Return why the process cannot do its work, or an empty text."""

_Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
_FAMILIES = {MetricType.COUNTER: CounterMetricFamily, MetricType.GAUGE: GaugeMetricFamily}


class _Samples(Collector):
    def __init__(self, read: Read) -> None:
        self._read = read

    def collect(self) -> Iterator[_Family]:
        for name, samples in groupby(sorted(self._read(), key=lambda each: each.name), lambda each: each.name):
            yield _family(name, list(samples))


def _family(name: str, samples: list[Sample]) -> _Family:
    metric = METRICS[name]
    if metric.type is MetricType.HISTOGRAM:
        family = HistogramMetricFamily(name, metric.meaning, labels=metric.labels)
        for each in samples:
            assert isinstance(each.value, Histogram)
            family.add_metric(each.labels, each.value.buckets(), each.value.total_s)
        return family
    plain: CounterMetricFamily | GaugeMetricFamily = _FAMILIES[metric.type](name, metric.meaning, labels=metric.labels)
    for each in samples:
        assert not isinstance(each.value, Histogram)
        plain.add_metric(each.labels, float(each.value))
    return plain


class MetricsServer:
    """The HTTP server. `start`, then `close`; both on the loop."""

    def __init__(self, listen: str, key: str, read: Read, health: Health) -> None:
        self._host, self._port = split_endpoint(listen, key)
        require_loopback(self._host, key)
        self._key = key
        self._registry = CollectorRegistry()
        self._registry.register(_Samples(read))
        self._health = health
        self._clients = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Listen. Returns the address as `host:port`. Raises `Misconfigured` if the address is in use."""
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=8192)
        except OSError as error:
            raise Misconfigured(f"{self._key} = {self._host}:{self._port}: cannot listen: {error.strerror}") from None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def close(self) -> None:
        """Stop listening. Open requests end within `REQUEST_S`."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._clients == MAX_CLIENTS:
            writer.write(_http("503 Service Unavailable", "too many requests at a time\n"))
            writer.close()
            return
        self._clients += 1
        try:
            with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(REQUEST_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._response(head.split(b"\r\n", 1)[0].decode("latin-1")))
                    await writer.drain()
        finally:
            self._clients -= 1
            writer.close()

    def _response(self, request_line: str) -> bytes:
        method, _, rest = request_line.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method != "GET":
            return _http("405 Method Not Allowed", "only GET\n")
        if path == "/livez":
            return _http("200 OK", "ok\n")
        if path in {"/healthz", "/readyz"}:
            why = self._health()
            return _http("503 Service Unavailable", why + "\n") if why else _http("200 OK", "ok\n")
        if path == "/metrics":
            return _http("200 OK", generate_latest(self._registry).decode(), CONTENT_TYPE_LATEST)
        return _http("404 Not Found", "there are /metrics, /livez, /readyz and /healthz\n")


def _http(status: str, body: str, content_type: str = "text/plain; charset=utf-8") -> bytes:
    data = body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    return head.encode() + data


@contextlib.contextmanager
def serve_in_thread(listen: str, key: str, read: Read, health: Health) -> Iterator[str]:
    """Serve on a thread, which calls `read` and `health`. Yields the address. Raises `Misconfigured` if it is in use."""
    server = MetricsServer(listen, key, read, health)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(server.start(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
