"""Posts spans to an OpenTelemetry collector (OTLP over HTTP, section OTLP/HTTP), one request at a time."""

import contextlib
import http.client
import ssl
from collections.abc import Iterator

from fogline.errors import Misconfigured, Poison, Unreachable
from fogline.process.checkup import Finding, Grade
from fogline.tracing.otlp import CONTENT_TYPE, encode_spans
from fogline.tracing.settings import TracingSettings, collector_address

POST_S = 5.0
"""Time limit of each step of a request, in seconds."""
_RETRYABLE = frozenset({408, 429, 502, 503, 504})
"""Statuses after which a client tries again (OTLP, section Failures)."""
_MAX_REPLY = 64 * 1024


class Collector:
    """The collector that the settings name. Raises `Misconfigured` if they name none that can be used."""

    def __init__(self, settings: TracingSettings) -> None:
        self.address = collector_address(settings)
        self._tls: ssl.SSLContext | None = None
        if self.address.secure:
            try:
                self._tls = ssl.create_default_context(cafile=settings.ca)
            except OSError as error:
                raise Misconfigured(f"tracing.ca = {settings.ca!r}: no authorities can be read: {error.strerror}") from None

    def post(self, body: bytes) -> None:
        """Post one request. Raises `Unreachable` if it may be tried again, `Poison` if the collector refuses it for good."""
        with contextlib.closing(self._connect()) as connection:
            try:
                connection.request("POST", self.address.path, body, {"Content-Type": CONTENT_TYPE})
                reply = connection.getresponse()
                reply.read(_MAX_REPLY)
            except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: no host has such a name
                raise Unreachable(_reason(error)) from None
        if reply.status in _RETRYABLE:
            raise Unreachable(f"it answers {reply.status} {reply.reason}")
        if not 200 <= reply.status < 300:
            raise Poison("refused", f"it answers {reply.status} {reply.reason}")

    def _connect(self) -> http.client.HTTPConnection:
        _, host, port, _ = self.address
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=POST_S)
        return http.client.HTTPSConnection(host, port, timeout=POST_S, context=self._tls)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer in {POST_S:.0f} s"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def check_collector(settings: TracingSettings) -> Iterator[Finding]:
    """Yield the finding of `doctor`, from an export without spans."""
    collector = Collector(settings)
    try:
        collector.post(encode_spans({}, []))
    except (Poison, Unreachable) as error:
        remedy = "Check [tracing] endpoint, or that the collector runs. Events are not affected"
        yield Finding(Grade.WARN, "tracing", f"the trace collector at {collector.address} does not take spans: {error}", remedy)
    else:
        yield Finding(Grade.OK, "tracing", f"the trace collector at {collector.address} takes spans")
