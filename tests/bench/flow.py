"""Kafka in, Delta out: the flow over records that lie there, beside a plain PySpark job over the same records."""

import time

from bridge import bare_producer
from processes import BIN, Bench, Failed, cpu_s

SHARDS = 4
TIMES = 6
"""Events, as a multiple of those of the gateway's row."""
BATCHES = 5
LIMIT_S = 300


def measure(bench: Bench) -> dict[str, float]:
    """The one after the other, each in a session of its own."""
    events = bench.events * TIMES
    tenant = f"flow{bench.number}"
    bare_producer(bench, tenant, SHARDS, events)
    folder = bench.subfolder("flow")
    place = f'tables = "{folder}/tables"\ncheckpoint = "{folder}/checkpoint"\n'
    cloud = bench.cloud(tenant, SHARDS, f"[flow]\n{place}max_events_per_batch = {events // BATCHES}\n")
    flow, cpu = rate(bench, "flow", events, BIN / "fogline", "flow", "run", "--once", "--json", "--config", cloud)
    plain, plain_cpu = rate(bench, "plain_job", events, *bench.program("plain_job"), cloud, bench.subfolder("plain"))
    return {
        "flow.events": flow,
        "flow.cpu": cpu,
        "flow.plain": plain,
        "flow.plain_cpu": plain_cpu,
        "flow.ratio": flow / plain,
    }


def rate(bench: Bench, name: str, events: int, *command: object) -> tuple[float, float]:
    """Events a second, and CPU seconds per 1000 of them, from the end of the first micro-batch to the end of the last.

    The first one warms everything up. CPU: of driver, JVM and Python workers together.
    """
    with bench.child(name, *command) as child:
        ends = [(time.perf_counter(), cpu_s(child), line["events"]) for line in child.lines(LIMIT_S) if "events" in line]
        status = child.wait()
    counted = sum(count for *_, count in ends)
    if status or counted != events or len(ends) < 3:
        raise Failed(f"{name}: {counted} of {events} events in {len(ends)} batches: it {child.end}")
    (began, cpu_before, warm), (ended, cpu_after, _) = ends[0], ends[-1]
    return (events - warm) / (ended - began), (cpu_after - cpu_before) / (events - warm) * 1000
