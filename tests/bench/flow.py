"""Kafka in, Delta out: the flow over records that lie there, beside a plain PySpark job over the same records."""

from bridge import bare_producer
from processes import BIN, Bench, Failed

SHARDS = 4
TIMES = 6
"""Events, as a multiple of those of the gateway's row."""
BATCHES = 6
LIMIT_S = 300


def measure(bench: Bench) -> dict[str, float]:
    """The one after the other, each in a session of its own."""
    events = bench.events * TIMES
    tenant = f"flow{bench.number}"
    bare_producer(bench, tenant, SHARDS, events)
    folder = bench.subfolder("flow")
    place = f'tables = "{folder}/tables"\ncheckpoint = "{folder}/checkpoint"\n'
    cloud = bench.cloud(tenant, SHARDS, f"[flow]\n{place}max_events_per_batch = {events // BATCHES}\n")
    flow = rate(bench, "flow", events, BIN / "fogline", "flow", "run", "--once", "--json", "--config", cloud)
    plain = rate(bench, "plain_job", events, *bench.program("plain_job"), cloud, bench.subfolder("plain"))
    return {"flow.events": flow, "flow.plain": plain, "flow.ratio": flow / plain}


def rate(bench: Bench, name: str, events: int, *command: object) -> float:
    """Events a second from the end of the first micro-batch, which warms everything up, to the end of the last."""
    with bench.child(name, *command) as child:
        ended = [(at, said["events"]) for at, said in child.lines_to_end(LIMIT_S) if "events" in said]
    if sum(count for _, count in ended) != events or len(ended) < 3:
        raise Failed(f"{name}: {ended} are not {events} events in {BATCHES} batches: {child.last_words()}")
    return sum(count for _, count in ended[1:]) / (ended[-1][0] - ended[0][0])
