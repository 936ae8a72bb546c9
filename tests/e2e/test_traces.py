"""Spans of one event from device to table: real processes, a real collector, and devices that speak MQTT 5 and HTTP."""

import subprocess
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path

import deltalake
import pytest

from fogline_cloud.kafka import topics
from fogline_lab.supervisor import ChildProcess, find_script, run_to_end
from trace_collector import Received, TraceCollector

MQTT_TRACE, HTTP_TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736", "b7ad6b7169203331"
UNSAMPLED = "11111111111111111111111111111111"
STEPS = ["fogline.store", "fogline.forward", "fogline.land", "fogline.parse"]
LIMIT_S = 120.0


@pytest.fixture
def running(line, folder):
    """Bridge and gateway, with tracing. Yields the collector, and the addresses of the gateway's listeners."""
    with TraceCollector() as collector, ExitStack() as stack:
        tracing = f'[tracing]\nendpoint = "{collector.url}"\n'
        kafka = line.cloud.kafka["bootstrap.servers"]
        cloud = f'tenant = "{line.tenant}"\nshards = 2\n[kafka]\n"bootstrap.servers" = "{kafka}"\n{tracing}'
        (folder / "fogline.toml").write_text(f'{cloud}[bridge]\nlisten = "127.0.0.1:0"\n[flow]\nraw_days = 0\n')

        def start(program: str, *arguments: str) -> dict:
            command = [find_script(program), *arguments, "run", "--insecure-dev", "--config", folder / f"{program}.toml"]
            child = ChildProcess(program, command, folder / f"{program}.log")
            stack.callback(child.stop)
            child.start()
            return child.next_line()

        bridge = start("fogline", "bridge")["amqp"]
        edge = f'tenant = "{line.tenant}"\ngateway = "gw-1"\ndata = "gw-1"\n{tracing}[uplink]\nbridge = "{bridge}"\n'
        (folder / "fogline-edge.toml").write_text(f"{edge}[mqtt]\nport = 0\n[http]\nport = 0\n")
        yield collector, start("fogline-edge")


def publish(address: str, trace_id: str, payload: str, flags: str = "01") -> None:
    host, _, port = address.rpartition(":")
    publisher = ["mosquitto_pub", "-V", "5", "-h", host, "-p", port, "-q", "1", "-t", "telemetry//lamp-1", "-m", payload]
    traceparent = ["-D", "publish", "user-property", "traceparent", f"00-{trace_id}-{PARENT}-{flags}"]
    subprocess.run([*publisher, *traceparent], check=True, timeout=LIMIT_S)


def post(address: str, path: str, trace_id: str, body: bytes) -> int:
    with closing(HTTPConnection(address, timeout=LIMIT_S)) as connection:
        head = {"Content-Type": "application/json", "traceparent": f"00-{trace_id}-{PARENT}-01", "tracestate": "plant=1"}
        connection.request("POST", path, body, head)
        return connection.getresponse().status


def spans_of(collector: TraceCollector, trace_id: str) -> dict[str, Received]:
    """Return a trace's spans by name. Each has the device's span as its parent, and an id of its own."""
    found = [each for each in collector.spans if each.span.trace_id.hex() == trace_id]
    assert {each.span.parent_span_id.hex() for each in found} <= {PARENT}
    assert len({each.span.span_id for each in found}) == len({each.span.name for each in found}) == len(found)
    return {each.span.name: each for each in found}


def parse(folder: Path) -> list[dict]:
    """Run the flow over what Kafka has. Returns the rows of `events` with a trace."""
    command = [find_script("fogline"), "flow", "run", "--once", "--config", folder / "fogline.toml"]
    status, _ = run_to_end(command, folder / "flow.log")
    assert status == 0, (folder / "flow.log").read_text("utf-8")
    rows = deltalake.DeltaTable(str(folder / "tables" / "events")).to_pyarrow_table().to_pylist()
    return [row for row in rows if row["properties"]]


@pytest.mark.timeout(600)
def test_a_sampled_event_has_a_span_at_each_step_from_device_to_table(line, folder, running):
    collector, gateway = running
    publish(gateway["mqtt"], MQTT_TRACE, '{"t": 21.5}')
    publish(gateway["mqtt"], UNSAMPLED, '{"t": 0}', flags="00")
    assert post(gateway["http"], f"/event/{line.tenant}/press-2", HTTP_TRACE, b'{"on": true}') == 202
    for trace in (MQTT_TRACE, HTTP_TRACE):
        collector.until(lambda trace=trace: len(spans_of(collector, trace)) == 3, f"spans of {trace} are missing")
    rows = {row["device"]: row for row in parse(folder) if UNSAMPLED not in row["properties"][0][1]}
    collector.until(lambda: len(collector.spans) == 8, "spans of the flow are missing")

    assert {each.span.trace_id.hex() for each in collector.spans} == {MQTT_TRACE, HTTP_TRACE}
    check_steps(spans_of(collector, MQTT_TRACE), rows["lamp-1"], topics.telemetry(line.tenant))
    check_steps(spans_of(collector, HTTP_TRACE), rows["press-2"], topics.event(line.tenant))
    assert {each.span.trace_state for each in spans_of(collector, HTTP_TRACE).values()} == {"plant=1"}


def check_steps(found: dict[str, Received], row: dict, topic: str) -> None:
    """The spans follow one another, come from three processes, and name the row of the event."""
    assert sorted(found, key=lambda name: found[name].span.start_time_unix_nano) == STEPS
    services = [found[step].resource["service.name"] for step in STEPS]
    assert services == ["fogline-edge", "fogline-edge", "fogline-bridge", "fogline-flow"]
    assert {each.resource["service.namespace"] for each in found.values()} == {row["tenant"]}
    for each in found.values():
        names = ("fogline.gateway", "fogline.stream", "fogline.sequence", "cloudevents.event_id", "cloudevents.event_source")
        position = (row["gateway"], row["stream"], row["sequence"], row["id"], row["source"])
        assert tuple(each.attributes[name] for name in names) == position
    for step in ("fogline.land", "fogline.parse"):
        names = ("messaging.destination.name", "messaging.destination.partition.id")
        assert tuple(found[step].attributes[name] for name in names) == (topic, str(row["partition"]))
    assert found["fogline.parse"].attributes["messaging.kafka.offset"] == row["offset"]
