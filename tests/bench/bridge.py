"""AMQP in, Kafka exactly once out: the bridge's own process, beside a bare producer of the same records."""

from certificates import BRIDGE, lines, make_certificates
from gateways import names
from processes import Bench, cpu_s

SHARDS = 8
TIMES = 6
"""Events, as a multiple of those of the gateway's row."""
LIMIT_S = 300


def measure(bench: Bench) -> dict[str, float]:
    """The one after the other, on one broker."""
    events = bench.events * TIMES
    seconds, bridge_cpu_s = through_bridge(bench, events)
    bare = bare_producer(bench, f"bare{bench.number}", SHARDS, events)
    return {
        "bridge.events": events / seconds,
        "bridge.cpu": bridge_cpu_s / events * 1000,
        "bridge.producer": events / bare["seconds"],
        "bridge.producer_cpu": bare["cpu_s"] / events * 1000,
        "bridge.ratio": bare["seconds"] / seconds,
    }


def through_bridge(bench: Bench, events: int, *, tls: bool = False, shards: int = SHARDS) -> tuple[float, float]:
    """Seconds until the last batch was settled, and the bridge's CPU seconds. `tls`: certificates at both ends."""
    tenant = f"bridge{bench.number}{'tls' if tls else ''}of{shards}"
    folder = bench.folder / f"certificates-{tenant}"
    if tls:
        make_certificates(folder, tenant, names(shards))
    cloud = bench.cloud(tenant, shards, "\n".join(lines(folder, BRIDGE, "tls")) + "\n" if tls else "")
    with (
        bench.bridge(cloud) as (bridge, port),
        bench.child(
            "gateways", *bench.program("gateways"), port, tenant, shards, events, *([folder] if tls else [])
        ) as gateways,
    ):
        gateways.next_line()
        before = cpu_s(bridge)
        gateways.tell("go")
        return gateways.next_line(LIMIT_S)["seconds"], cpu_s(bridge) - before


def bare_producer(bench: Bench, tenant: str, shards: int, events: int) -> dict[str, float]:
    """Into topics of its own, which stay."""
    bench.cloud(tenant, shards)
    with bench.child("producer", *bench.program("producer"), bench.bootstrap, tenant, shards, events) as producer:
        producer.next_line()
        producer.tell("go")
        return producer.next_line(LIMIT_S)
