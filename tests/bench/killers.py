"""The flow over records of which five make their parser kill its process, hang or fail, beside a flow without the five."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from confluent_kafka import Producer
from flow import SHARDS, settings
from processes import BIN, HERE, Bench, Failed
from records import events_of

from fogline.events.event import Event
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import COMPRESSION
from fogline_cloud.kafka.records import record_of

LEAST = 2_000_000
"""Least number of events: each of the five costs seconds, however many the others are."""
BAD = {b"kill": "dead", b"endless C": "slow", b"8 GB": "dead", b"endless": "slow", b"error": "dead"}
"""Bodies, and the outcome of each: see the test parser `deadly`."""
MICRO_BATCH = 50_000
GATEWAY_EVENTS = 50_000
PLUGIN = HERE.parent / "flows" / "plugin"
LIMIT_S = 300
SLOWEST = 2000
"""Events a second of the slowest flow that this waits for."""
_PARSER = '[flow.parsers]\n"application/json" = "test-deadly-json"\n'


def measure(bench: Bench) -> dict[str, float]:
    """The same events twice, with five bad ones among them once. The flow's settings are the defaults."""
    events = max(bench.events, LEAST)
    rates = {}
    for name, bad in sorted({"clean": [], "killers": [*BAD]}.items(), reverse=bench.number % 2 == 0):
        tenant = f"{name}{bench.number}"
        cloud = settings(bench, tenant, MICRO_BATCH * 5, 0, name=name, more=_PARSER)
        send(bench, tenant, events, bad)
        rates[name], outcomes = run_flow(bench, cloud, events)
        wanted = Counter(BAD[each] for each in bad) + Counter(ok=events - len(bad))
        if outcomes != wanted:
            raise Failed(f"outcomes {dict(outcomes)} instead of {dict(wanted)}")
    return {
        "killers.clean": rates["clean"],
        "killers.events": rates["killers"],
        "killers.ratio": rates["killers"] / rates["clean"],
    }


def send(bench: Bench, tenant: str, events: int, bad: list[bytes]) -> None:
    """Send the events of one gateway after the other. The bad ones are evenly among them."""
    producer = Producer({"bootstrap.servers": bench.bootstrap, "linger.ms": 50, **COMPRESSION})
    places = {events * (2 * at + 1) // (2 * len(bad)): body for at, body in enumerate(bad)}
    for number, event in enumerate(made(tenant, events)):
        body = places.get(number)
        shard = number // GATEWAY_EVENTS % SHARDS
        record = record_of(event if body is None else msgspec.structs.replace(event, data=body))
        while True:
            try:
                producer.produce(topics.telemetry(tenant), record.value, record.key, shard, headers=record.headers)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(LIMIT_S):
        raise Failed("Kafka did not take the events")


def made(tenant: str, events: int) -> Iterator[Event]:
    """Yield events of as many gateways as are needed, ten devices each."""
    for number in range(-(-events // GATEWAY_EVENTS)):
        yield from events_of(tenant, f"gw-{number}", number, min(GATEWAY_EVENTS, events - number * GATEWAY_EVENTS))


def run_flow(bench: Bench, cloud: Path, events: int) -> tuple[float, Counter[str]]:
    """Return events a second after the first micro-batch, and all outcomes."""
    command = BIN / "fogline", "flow", "run", "--once", "--json", "--config", cloud
    found = {"PYTHONPATH": os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")])}
    outcomes: Counter[str] = Counter()
    ends = []
    with bench.child("flow-killers", *command, environment=found) as child:
        for line in child.lines(LIMIT_S + events / SLOWEST):
            if line.get("events"):
                outcomes.update(line["outcomes"])
                ends.append((time.perf_counter(), outcomes.total()))
        if status := child.wait():
            raise Failed(f"fogline flow run: exit status {status}: it {child.end}")
    if len(ends) < 2 or ends[-1][1] != events:
        raise Failed(f"{outcomes.total()} of {events} events in {len(ends)} micro-batches")
    (began_s, warm), (ended_s, _) = ends[0], ends[-1]
    return (events - warm) / (ended_s - began_s), outcomes
