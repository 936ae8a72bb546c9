"""Large bodies: a device's POST until it is acknowledged, and then over a line to Kafka; beside plain copies of the same bytes.

The plain copy on the gateway's side is an HTTP server that writes the body to a file, and syncs it before it answers. The one
over the line is a TCP connection that sends the bytes, and waits until the other side has them. The line takes 40 Mbit/s.
"""

import asyncio
import http.server
import os
import random
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from processes import BIN, Bench, gateway_settings, port_of

from fogline.events.event import Lane
from fogline.events.large_body import BodyRef, read_dataref
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import read_committed
from fogline_lab.tcp_line import TcpLine

BODY_BYTES = 32 * 1024 * 1024
LINE_BYTES = 16 * 1024 * 1024
LINE_BITS_S = 40e6
LIMIT_S = 300.0
MB = 1e6


def measure(bench: Bench) -> dict[str, float]:
    """The gateway and the plain copy, one after the other."""
    bench.say("bodies: to the gateway's disk")
    body = random.Random(bench.number).randbytes(BODY_BYTES)
    with _plain_server(bench.subfolder("plain-copy")) as url:
        plain_s = _post(url, body)
    stored_s, line_s = asyncio.run(_through(bench, body))
    bench.say("bodies: plain copy over the line")
    copied_s = asyncio.run(_plain_line(body[:LINE_BYTES]))
    return {
        "bodies.stored": BODY_BYTES / stored_s / MB,
        "bodies.plain": BODY_BYTES / plain_s / MB,
        "bodies.stored_ratio": plain_s / stored_s,
        "bodies.line": LINE_BYTES / line_s / MB,
        "bodies.plain_line": LINE_BYTES / copied_s / MB,
        "bodies.line_ratio": copied_s / line_s,
    }


async def _through(bench: Bench, body: bytes) -> tuple[float, float]:
    """Return the seconds until a body is acknowledged without a bridge, and until one that is sent then is in Kafka."""
    tenant = f"bodies{bench.number}"
    cloud = bench.cloud(tenant, 1)
    with bench.bridge(cloud) as (_, bridge_port):
        async with TcpLine(bridge_port, bits_per_s=LINE_BITS_S) as line:
            line.refusing = True
            more = ["http.port = 0", "uplink.retry_s = 0.2", "uplink.retry_cap_s = 0.5"]
            settings = gateway_settings(bench.subfolder("bodies-gateway"), "gw-1", line.port, tenant, more)
            with bench.child("gateway", BIN / "fogline-edge", "run", "--insecure-dev", "--config", settings) as gateway:
                url = f"http://127.0.0.1:{port_of(gateway.next_line()['http'])}/telemetry//camera-1"
                stored_s = await asyncio.to_thread(_post, url, body)
                clients = KafkaClients({"bootstrap.servers": bench.bootstrap})
                line.refusing = False
                bench.say("bodies: over a line of 40 Mbit/s")
                await asyncio.to_thread(_landed, clients, tenant, 1)  # the first body has passed
                begun = time.monotonic()
                await asyncio.to_thread(_post, url, body[:LINE_BYTES])
                await asyncio.to_thread(_landed, clients, tenant, 2)
                return stored_s, time.monotonic() - begun


def _post(url: str, body: bytes) -> float:
    request = urllib.request.Request(url, body, {"content-type": "application/octet-stream"})
    begun = time.monotonic()
    with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
        assert response.status == 202
    return time.monotonic() - begun


def _landed(clients: KafkaClients, tenant: str, count: int) -> None:
    """Wait until the events of so many bodies are committed."""
    partition, offset, found = (topics.of_lane(Lane.BULK, tenant), 0), 0, 0
    until = time.monotonic() + LIMIT_S
    while found < count and time.monotonic() < until:
        for record in read_committed(clients, {partition: offset}, lean=True):
            offset = record.offset + 1
            dataref = dict(record.headers).get("ce_dataref")
            found += dataref is not None and isinstance(read_dataref(dataref.decode()), BodyRef)
        time.sleep(0.05)
    assert found >= count


@contextmanager
def _plain_server(folder: Path) -> Iterator[str]:
    class Copy(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            left = int(self.headers["content-length"])
            with (folder / "copy").open("wb") as file:
                while left:
                    data = self.rfile.read(min(left, 65_536))
                    file.write(data)
                    left -= len(data)
                file.flush()
                os.fsync(file.fileno())
            self.send_response(202)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Copy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def _plain_line(body: bytes) -> float:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        async with TcpLine(port, bits_per_s=LINE_BITS_S) as line:
            begun = time.monotonic()
            taking = asyncio.create_task(asyncio.to_thread(_take, listening, len(body)))
            await asyncio.to_thread(_give, line.port, body)
            await taking
            return time.monotonic() - begun


def _take(listening: socket.socket, size: int) -> None:
    peer, _ = listening.accept()
    with peer:
        while size and (data := peer.recv(65_536)):
            size -= len(data)
        peer.sendall(b".")


def _give(port: int, body: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(body)
        assert peer.recv(1) == b"."
