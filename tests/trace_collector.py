"""A collector of traces (OTLP over HTTP) on a free port. It decodes each request by OpenTelemetry's own protobuf messages."""

import base64
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

LIMIT_S = 120.0


class Received(NamedTuple):
    """One span, with the attributes of the process that made it."""

    resource: dict[str, str | int]
    span: Span

    @property
    def attributes(self) -> dict[str, str | int]:
        return plain(self.span.attributes)


def plain(attributes: list[KeyValue]) -> dict[str, str | int]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def decode(body: bytes) -> list[Received]:
    """Decode a request. Protobuf's JSON has bytes in base64, that of OTLP has ids in hex; all else is the same, and strict."""
    request = json.loads(body)
    for resource in request["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name in ("traceId", "spanId", "parentSpanId"):
                    span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    message = ParseDict(request, ExportTraceServiceRequest())
    return [
        Received(plain(resource.resource.attributes), span)
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


class TraceCollector:
    """Serves within a block. `status`: its answer to each request. `requests`: number of requests so far."""

    def __init__(self, port: int = 0) -> None:
        self.status = 200
        self.spans: list[Received] = []
        self.requests = 0
        self._changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/json")
                collector._take(body)
                self.send_response(collector.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/v1/traces"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _take(self, body: bytes) -> None:
        with self._changed:
            if self.status == 200:
                self.spans += decode(body)
            self.requests += 1
            self._changed.notify_all()

    def until(self, condition: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> None:
        """Wait until it is so, looking after each request."""
        with self._changed:
            assert self._changed.wait_for(condition, limit_s), f"{what}: {[each.span.name for each in self.spans]}"
