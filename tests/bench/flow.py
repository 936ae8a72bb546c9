"""Kafka in, Delta out: the flow over records that lie there, beside a plain PySpark job over the same records."""

import time
from pathlib import Path

from bridge import bare_producer
from processes import BIN, Bench, Failed, cpu_s

from fogline_lab.supervisor import run_to_end

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
    turns = (0, 90) if bench.number % 2 else (90, 0)
    rates = {days: run_flow(bench, tenant, events, days) for days in turns}
    (flow, cpu), (with_raw, raw_cpu) = rates[0], rates[90]
    cloud = settings(bench, tenant, events, 0)
    plain, plain_cpu = rate(bench, "plain_job", events, *bench.program("plain_job"), cloud, bench.subfolder("plain"))
    return {
        "flow.raw": with_raw,
        "flow.raw_cpu": raw_cpu,
        "flow.raw_ratio": with_raw / flow,
        "flow.raw_plain": with_raw / plain,
        "flow.events": flow,
        "flow.cpu": cpu,
        "flow.plain": plain,
        "flow.plain_cpu": plain_cpu,
        "flow.ratio": flow / plain,
    }


def settings(
    bench: Bench, tenant: str, events: int, raw_days: int, *, name: str = "", more: str = "", shards: int = SHARDS
) -> Path:
    """Write the settings of a flow with folders of its own."""
    folder = bench.subfolder(f"flow-{name or raw_days}")
    place = f'tables = "{folder}/tables"\ncheckpoint = "{folder}/checkpoint"\nraw_days = {raw_days}\n'
    return bench.cloud(tenant, shards, f"[flow]\n{place}max_events_per_batch = {events // BATCHES}\n{more}")


def create_tables(bench: Bench, cloud: Path) -> None:
    """Create the tables of a flow whose topics are empty, by one run of it."""
    log = bench.folder / "create-tables.log"
    if run_to_end([BIN / "fogline", "flow", "run", "--once", "--config", cloud], log)[0]:
        raise Failed(f"fogline flow run: {log.read_text('utf-8').strip()}")


def run_flow(bench: Bench, tenant: str, events: int, raw_days: int) -> tuple[float, float]:
    """Return `rate` of the flow, with or without table `raw`."""
    cloud = settings(bench, tenant, events, raw_days)
    return rate(bench, f"flow-{raw_days}", events, BIN / "fogline", "flow", "run", "--once", "--json", "--config", cloud)


def rate(bench: Bench, name: str, events: int, *command: object) -> tuple[float, float]:
    """Events a second, and CPU seconds per 1000 of them, from the end of the first micro-batch to the end of the last.

    The first one warms everything up. The last one may be one of table `raw`. CPU: of driver, JVM and Python workers together.
    """
    with bench.child(name, *command) as child:
        ends = [
            (time.perf_counter(), cpu_s(child), line.get("events", 0))
            for line in child.lines(LIMIT_S)
            if "events" in line or "raw_batch" in line
        ]
        status = child.wait()
    ends = ends[next((index for index, (*_, count) in enumerate(ends) if count), 0) :]
    counted = sum(count for *_, count in ends)
    if status or counted != events or len(ends) < 3:
        raise Failed(f"{name}: {counted} of {events} events in {len(ends)} batches: it {child.end}")
    (began, cpu_before, warm), (ended, cpu_after, _) = ends[0], ends[-1]
    return (events - warm) / (ended - began), (cpu_after - cpu_before) / (events - warm) * 1000
