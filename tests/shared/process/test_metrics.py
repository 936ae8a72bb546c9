"""The list of metrics, and the HTTP server that shows them."""

import asyncio
import re
from dataclasses import dataclass, field

import pytest

from fogline.errors import Misconfigured
from fogline.process.monitoring.metrics import METRICS, Histogram, MetricType, Sample, samples_of
from fogline.process.monitoring.metrics_server import MAX_CLIENTS, MetricsServer, serve_in_thread
from shared.process.metrics_client import LIMIT_S, get


async def served(samples=(), health: str = "", path: str = "/metrics", method: str = "GET") -> tuple[str, str]:
    server = MetricsServer("127.0.0.1:0", "metrics", lambda: samples, lambda: health)
    address = await server.start()
    try:
        return await get(address, path, method)
    finally:
        await server.close()


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_metric_has_a_name_by_prometheus_rules_and_a_meaning(metric):
    assert re.fullmatch(r"fogline_[a-z][a-z0-9_]*[a-z0-9]", metric.name)
    assert metric.name.endswith("_total") == (metric.type is MetricType.COUNTER)
    assert metric.meaning
    assert metric.meaning[-1] != "."
    assert all(re.fullmatch(r"[a-z_]+", label) for label in metric.labels)


async def test_a_counter_and_its_labels_are_served():
    status, body = await served([Sample("fogline_shard_landed_total", 7, ("3",)), Sample("fogline_uplink_connected", 1)])
    assert status == "HTTP/1.1 200 OK"
    assert 'fogline_shard_landed_total{shard="3"} 7.0' in body
    assert "# TYPE fogline_uplink_connected gauge" in body


async def test_a_histogram_is_served_with_cumulative_buckets():
    latencies = Histogram()
    for each in (0.002, 0.004, 100.0):
        latencies.observe(each)
    _, body = await served([Sample("fogline_uplink_settlement_seconds", latencies)])
    assert 'fogline_uplink_settlement_seconds_bucket{le="0.0025"} 1.0' in body
    assert 'fogline_uplink_settlement_seconds_bucket{le="30.0"} 2.0' in body
    assert 'fogline_uplink_settlement_seconds_bucket{le="+Inf"} 3.0' in body
    assert "fogline_uplink_settlement_seconds_sum 100.006" in body


async def test_health_is_200_or_503_with_the_reason():
    assert await served(path="/healthz") == ("HTTP/1.1 200 OK", "ok\n")
    assert await served(path="/healthz", health="shard 3: Kafka is away") == (
        "HTTP/1.1 503 Service Unavailable",
        "shard 3: Kafka is away\n",
    )


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/metrics", "405"), ("GET", "/", "404"), ("GET", "/x", "404")])
async def test_any_other_request_is_refused(method, path, status):
    assert (await served(path=path, method=method))[0].split()[1] == status


async def test_clients_that_send_no_request_are_bounded():
    server = MetricsServer("127.0.0.1:0", "metrics", lambda: (), lambda: "")
    address = await server.start()
    host, _, port = address.rpartition(":")
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(MAX_CLIENTS - 1)]
    assert (await get(address, "/healthz"))[1] == "ok\n"
    silent.append(await asyncio.open_connection(host, int(port)))
    assert (await get(address, "/healthz"))[1] != "ok\n"
    silent.pop()[1].close()
    async with asyncio.timeout(LIMIT_S):
        while (await get(address, "/healthz"))[1] != "ok\n":
            pass
    long, sink = await asyncio.open_connection(host, int(port))
    sink.write(b"GET /" + b"x" * 100_000)
    async with asyncio.timeout(LIMIT_S):
        assert await long.read() == b""
    for _, writer in (*silent, (long, sink)):
        writer.close()
    await server.close()


def test_only_loopback_is_listened_on():
    with pytest.raises(Misconfigured, match=r"bridge\.metrics"):
        MetricsServer("0.0.0.0:9464", "bridge.metrics", lambda: (), lambda: "")


async def test_an_address_in_use_is_named():
    server = MetricsServer("127.0.0.1:0", "metrics", lambda: (), lambda: "")
    address = await server.start()
    with pytest.raises(Misconfigured, match=f"metrics = {address}"):
        await MetricsServer(address, "metrics", lambda: (), lambda: "").start()
    await server.close()


def test_a_process_without_an_event_loop_serves_on_a_thread():
    with serve_in_thread(
        "127.0.0.1:0", "flow.metrics", lambda: [Sample("fogline_flow_readings_total", 5)], lambda: ""
    ) as address:
        _, body = asyncio.run(get(address))
    assert "fogline_flow_readings_total 5.0" in body


def test_a_dataclass_of_counters_becomes_samples():
    @dataclass
    class Counters:
        datagrams: int = 3
        refused: dict[str, int] = field(default_factory=lambda: {"4.04": 2})

    assert list(samples_of("coap", Counters())) == [
        Sample("fogline_coap_datagrams_total", 3),
        Sample("fogline_coap_refused_total", 2, ("4.04",)),
    ]
