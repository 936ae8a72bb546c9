"""One hot gateway: how much it can send, what its one shard takes, and what the flow reads from that one partition."""

import os

from bridge import TIMES, bare_producer, through_bridge
from flow import rate, settings
from gateway import through
from gateway_rows import GATEWAY, GATEWAY_ROWS
from processes import BIN, Bench

TASKS = max(2, len(os.sched_getaffinity(0)))
"""Tasks that a micro-batch of the one partition is split into, and partitions of the layout that it is compared with."""


def measure(bench: Bench) -> dict[str, float]:
    """The gateway, the bridge with it alone, then the flow in three ways."""
    bench.say("the gateway")
    gateway = through(bench, GATEWAY_ROWS["one-connection"], GATEWAY)
    events = bench.events * TIMES
    bench.say("the bridge, one shard")
    seconds, cpu_s = through_bridge(bench, events, shards=1)
    split = f"min_partitions = {TASKS}\n"
    ways = {"one": (1, ""), "split": (1, split), "spread": (TASKS, "")}
    rates = {}
    for name, (partitions, more) in ways.items():
        bench.say(f"the flow, {name}")
        rates[name], rates[f"{name}_cpu"] = _flow(bench, name, partitions, more, events)
    return {
        "hot.gateway": gateway["events"],
        "hot.gateway_cpu": gateway["cpu"],
        "hot.bridge": events / seconds,
        "hot.bridge_cpu": cpu_s / events * 1000,
        "hot.shard": events / seconds / gateway["events"],
        "hot.flow_one": rates["one"],
        "hot.flow_split": rates["split"],
        "hot.flow_spread": rates["spread"],
        "hot.flow_cpu_one": rates["one_cpu"],
        "hot.flow_cpu_split": rates["split_cpu"],
        "hot.spread": rates["split"] / rates["one"],
        "hot.as_partitions": rates["split"] / rates["spread"],
    }


def _flow(bench: Bench, name: str, partitions: int, more: str, events: int) -> tuple[float, float]:
    tenant = f"hot{bench.number}{name}"
    bare_producer(bench, tenant, partitions, events)
    cloud = settings(bench, tenant, events, 0, name=tenant, more=more, shards=partitions)
    return rate(bench, f"flow-{tenant}", events, BIN / "fogline", "flow", "run", "--once", "--json", "--config", cloud)
